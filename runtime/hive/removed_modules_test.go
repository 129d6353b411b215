// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
)

type sliceConfig struct{ MaxPerSlice int }

func (c sliceConfig) Flags(fs *pflag.FlagSet) { fs.Int("max-per-slice", c.MaxPerSlice, "Entries") }

type sharedConfig struct{ EnableSlices, EnableOther bool }

func (c sharedConfig) Flags(fs *pflag.FlagSet) {
	fs.Bool("enable-slices", c.EnableSlices, "Make slices")
	fs.Bool("enable-other", c.EnableOther, "Do something else")
}

// Options of modules that were removed or replaced are named in one warning where they are set.
func TestOptionsOfModulesThatAreGone(t *testing.T) {
	list := cell.Set(
		cell.Module("shared", "Owns options", cell.Config(sharedConfig{})),
		cell.Module("slices", "Makes slices", cell.Config(sliceConfig{MaxPerSlice: 100}),
			cell.Module("maker", "Makes them", cell.EnabledBy(cell.When("slices are made", []string{"enable-slices", "max-per-slice"},
				func(c sharedConfig) bool { return c.EnableSlices }))),
			cell.Module("cleaner", "Takes them away", cell.EnabledBy(cell.When("slices are not made", []string{"enable-slices", "max-per-slice"},
				func(c sharedConfig, s sliceConfig) bool { return !c.EnableSlices })))))
	replaced := list.Replace("slices", cell.Module("mine", "Makes better ones"))
	removed := list.Without("slices")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "max-per-slice"), []byte("5"), 0o600); err != nil {
		t.Fatal(err)
	}
	const does = "options that are set for modules that are not in this operator: "
	for name, test := range map[string]struct {
		cells cell.Cell
		args  []string
		want  []string
	}{
		"nothing is set":            {replaced, nil, nil},
		"in the list":               {list, []string{"--max-per-slice=5", "--enable-slices"}, nil},
		"of a replaced one":         {replaced, []string{"--max-per-slice=5", "--enable-slices"}, []string{does + "max-per-slice (mine replaces slices)"}},
		"in a ConfigMap":            {removed, []string{"--config-dir=" + dir}, []string{does + "max-per-slice (slices is removed)"}},
		"that switch a removed one": {removed, []string{"--enable-slices", "--enable-other"}, []string{does + "enable-slices (slices is removed)"}},
		"that switch it off":        {removed, []string{"--enable-slices=false"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := configured(t, newHive(test.cells), test.args...)
			if err := h.Check(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Join(test.want, "\n"), strings.Join(h.Warnings(), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
