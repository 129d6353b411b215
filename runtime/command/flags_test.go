// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command_test

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
)

type poolConfig struct{ PoolSize int }

func (c poolConfig) Flags(fs *pflag.FlagSet) { fs.Int("pool-size", c.PoolSize, "Size of the pool") }

// An unknown flag follows from a mistake in the list, which is reported first, or from a removed module.
func TestUnknownFlags(t *testing.T) {
	list := cell.Set(cell.Module("pool", "Has a pool", cell.Config(poolConfig{PoolSize: 1})))
	for name, test := range map[string]struct {
		cells cell.Cell
		arg   string
		want  []string
	}{
		"mistyped": {list, "--pool-sise=2", []string{"unknown flag --pool-sise; did you mean pool-size?"}},
		"of a cell that is not in the list because of a mistake": {
			list.Replace("pol", cell.Module("fjord", "Has a better one")), "--fjord-range=1",
			[]string{`Replace("pol"): no module of that id is in the list`, "did you mean pool?", "\n\nunknown flag --fjord-range; the mistake above may be why"},
		},
		"of a removed module": {list.Without("pool"), "--pool-size=2", []string{"unknown flag --pool-size; it belongs to pool, which is removed from this operator"}},
	} {
		root := command.New("operator", test.cells)
		root.SetArgs([]string{test.arg})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		err := root.ExecuteContext(t.Context())
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in\n%v", name, want, err)
			}
		}
	}
}
