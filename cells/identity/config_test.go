// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
)

// ID-9: the list is split as agents split theirs, or identities differ.
func TestLabelsAreReadAsAgentsReadThem(t *testing.T) {
	for source, test := range map[string]struct {
		text string
		want []string
	}{
		"directory":    {"k8s:a{1,3} k8s:app,team\n", []string{"k8s:a{1,3}", "k8s:app,team"}},
		"environment":  {"k8s:app,team !x", []string{"k8s:app,team", "!x"}},
		"command line": {"k8s:app,team", []string{"k8s:app", "team"}},
	} {
		dir, args := t.TempDir(), []string{}
		switch source {
		case "directory":
			if err := os.WriteFile(filepath.Join(dir, "labels"), []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "command line":
			args = []string{"--labels=" + test.text}
		}
		h := hive.New("test", cell.Module("identity", "Has the options", cell.Config(Config{})), hive.EnvPrefix("CILIUM_"),
			hive.Environ(func(name string) (string, bool) { return test.text, source == "environment" && name == "CILIUM_LABELS" }))
		flags := h.FlagSet()
		if err := flags.Parse(append(args, "--config-dir="+dir)); err != nil {
			t.Fatal(err)
		}
		if err := h.Configure(flags); err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		v, _ := h.Values().Struct(reflect.TypeFor[Config]())
		if got := v.Interface().(Config).Labels; !slices.Equal(got, test.want) {
			t.Errorf("from the %s: %q, want %q", source, got, test.want)
		}
	}
}
