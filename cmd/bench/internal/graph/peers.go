// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.uber.org/dig"
	"go.uber.org/fx"

	"github.com/skep-operator/skep/testdata/benchcells"
)

const envPrefix = "SKEP_BENCH_OPTION"

// configured returns, per unit, what fills its config struct: viper over flags
// and environment, and mapstructure for the keys of the struct alone. To decode
// each struct from all settings would be quadratic.
func configured(units []benchcells.Unit) ([]func(any) error, error) {
	all := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	fills := make([]func(any) error, len(units))
	v := viper.New()
	v.SetEnvPrefix(envPrefix)
	v.AutomaticEnv()
	for i, u := range units {
		own := pflag.NewFlagSet(u.Name, pflag.ContinueOnError)
		u.Flags(own)
		all.AddFlagSet(own)
		fills[i] = func(config any) error {
			settings := map[string]any{}
			own.VisitAll(func(f *pflag.Flag) { settings[f.Name] = v.Get(f.Name) })
			return mapstructure.WeakDecode(settings, config)
		}
	}
	if err := all.Parse(nil); err != nil {
		return nil, err
	}
	return fills, v.BindPFlags(all)
}

// digBare is what the graph costs by itself: the config structs are zero.
func digBare(units []benchcells.Unit) error {
	fills := make([]func(any) error, len(units))
	for i := range fills {
		fills[i] = func(any) error { return nil }
	}
	return buildDig(units, fills)
}

func digFlat(units []benchcells.Unit) error {
	fills, err := configured(units)
	if err != nil {
		return err
	}
	return buildDig(units, fills)
}

// buildDig uses dig at its fastest: one container, checked once.
func buildDig(units []benchcells.Unit, fills []func(any) error) error {
	c := dig.New(dig.DeferAcyclicVerification())
	for i, u := range units {
		if err := c.Provide(u.ConfigOf(fills[i])); err != nil {
			return err
		}
		if err := c.Provide(u.NewServer); err != nil {
			return err
		}
	}
	for _, u := range units {
		if err := c.Invoke(u.Demand); err != nil {
			return err
		}
	}
	return nil
}

func fxFlat(units []benchcells.Unit) error {
	return buildFx(units, func(_ string, options ...fx.Option) fx.Option { return fx.Options(options...) })
}

func fxModules(units []benchcells.Unit) error { return buildFx(units, fx.Module) }

func buildFx(units []benchcells.Unit, module func(string, ...fx.Option) fx.Option) error {
	fills, err := configured(units)
	if err != nil {
		return err
	}
	options := []fx.Option{fx.NopLogger}
	for i, u := range units {
		options = append(options, module(u.Name, fx.Provide(u.ConfigOf(fills[i]), u.NewServer), fx.Invoke(u.Demand)))
	}
	return fx.New(options...).Err()
}
