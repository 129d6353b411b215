// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pending

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
)

// duties are those of the original that no module implements yet, with the options that enable them. A duty that is
// implemented is removed here, and its options from flags.go.
var duties = cell.Set(
	duty("bgp.metallb", "Announces LoadBalancer addresses by MetalLB's BGP; removed from the original", isOn("bgp-announce-lb-ip")),
	duty("servicesync.slices", "Exports EndpointSlices of global Services to etcd", is(serviceModeFlag, serviceModes[1:]...)),
)

// ask is an option that enables a duty.
type ask struct {
	option string
	when   func(*config.Values) bool
}

func duty(id, title string, asks ...ask) cell.Cell {
	options := make([]string, len(asks))
	for i, a := range asks {
		options[i] = a.option
	}
	return cell.NotBuilt(id, title, cell.When("the options ask for it", options, func(v *config.Values) bool {
		return slices.ContainsFunc(asks, func(a ask) bool { return a.when(v) })
	}))
}

// isOn holds unless the option is off: false, zero or empty.
func isOn(option string) ask {
	return ask{option, func(v *config.Values) bool {
		return !isZero(valueOf(v, option))
	}}
}

// is holds where the option has one of the values.
func is(option string, values ...string) ask {
	return ask{option, func(v *config.Values) bool { return slices.Contains(values, valueOf(v, option)) }}
}

// valueOf returns the value of an option, or of a key that is no option. Options that no module reads have no value by
// default.
func valueOf(v *config.Values, option string) string {
	e, _ := v.Lookup(option)
	if e.Option != nil && !v.Given(option) {
		return e.Default
	}
	return e.Value
}

func isZero(value string) bool {
	value = strings.TrimSpace(value)
	switch value {
	case "", "{}", "[]":
		return true
	}
	if on, err := strconv.ParseBool(value); err == nil {
		return !on
	}
	d, err := time.ParseDuration(value)
	return err == nil && d == 0
}
