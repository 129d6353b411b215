// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"testing"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

var _ = slog.Default
var _ = job.NewTrigger
var _ = reflect.TypeFor[int]
var _ = fmt.Sprint

type smokeConfig struct{ SmokeName string; SmokeCount int }
func (c smokeConfig) Flags(fs *pflag.FlagSet) { fs.String("smoke-name", c.SmokeName, "n"); fs.Int("smoke-count", c.SmokeCount, "c") }

type a struct{}; type b struct{}

func TestSmoke(t *testing.T) {
	var started []string
	h := hive.New("smoke", cell.Set(
		cell.Module("one", "One", cell.Config(smokeConfig{"x", 3}),
			cell.Provide(func(c smokeConfig, l *slog.Logger) (*a, error) { return &a{}, nil }),
			cell.ProvidePrivate(func(*a) *b { return &b{} }),
			cell.Hook("serve", func(*a, *b) lifecycle.Hook { return lifecycle.Funcs{} })),
		cell.Module("two", "Two", cell.Hook("x", func(in struct{ cell.In; T lifecycle.Term `name:"leader"` }) lifecycle.Hook { return lifecycle.Funcs{OnStart: in.T.Enter, OnStop: in.T.Leave}})),
		cell.Term("leader", cell.Module("three", "Three", cell.Hook("y", func(*a) lifecycle.Hook { started = append(started, "y"); return lifecycle.Funcs{} }))),
	), hive.LogTo(io.Discard))
	if err := h.Start(t.Context()); err != nil { t.Fatal(err) }
	if err := h.Stop(t.Context()); err != nil { t.Fatal(err) }
	if len(started) != 1 { t.Fatal(started) }
}
