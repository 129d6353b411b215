// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"log/slog"
	"testing"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// Lines of the log of a plan say so: a duty says that it has created what it has planned to create.
func TestTheLogOfAPlanIsMarked(t *testing.T) {
	for arg, want := range map[string]int{"--plan": 1, "--plan=false": 0} {
		log := &logtest.Buffer{}
		type params struct {
			cell.In

			Plan *Plan `optional:"true"`
			Log  *slog.Logger
		}
		duty := cell.Module("duty", "Writes", cell.Invoke(func(p params) { p.Log.Info("created an object", "name", "a") }))
		h := hive.New("test", cell.Set(Cell, duty), hive.LogTo(log))
		fs := h.FlagSet()
		if err := fs.Parse([]string{arg}); err != nil {
			t.Fatal(err)
		}
		_ = h.Configure(fs)
		if err := h.Build(); err != nil {
			t.Fatal(err)
		}
		if n := log.Count("created an object", "name=a", "plan=true"); n != want {
			t.Errorf("%s:\n%s", arg, log)
		}
	}
}
