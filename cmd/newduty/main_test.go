// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest"
)

const root = "../.."

func TestMain(m *testing.M) { os.Exit(clustertest.Wrap(m).Run()) }

// A new duty of each kind builds, passes its tests, celltest.Check and one on the control plane among them, and has
// nothing left of the example's name.
func TestNewDuties(t *testing.T) {
	dir, overlay := t.TempDir(), map[string]string{}
	var names []string
	for kind, from := range templates {
		name := "fresh" + kind
		names = append(names, name)
		files, err := render(root, kind, name)
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range files {
			if formatted, err := format.Source([]byte(text)); err != nil || string(formatted) != text {
				t.Errorf("%s of %s is not formatted: %v", file, kind, err)
			}
			if strings.Contains(text, filepath.Base(from.folder)) {
				t.Errorf("%s of %s names the example", file, kind)
			}
			path := filepath.Join(dir, kind+file)
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			at, err := filepath.Abs(filepath.Join(root, "cells", name, file))
			if err != nil {
				t.Fatal(err)
			}
			overlay[at] = path
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	overlaid := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlaid, list, 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", overlaid, "-c", "-o", dir+"/")
	build.Dir = root
	for _, name := range names {
		build.Args = append(build.Args, "./cells/"+name)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			test := exec.CommandContext(t.Context(), filepath.Join(dir, name+".test"), "-test.short="+strconv.FormatBool(testing.Short()))
			if !testing.Short() {
				test.Env = append(os.Environ(), clustertest.Shared(t).Environment())
			}
			if out, err := test.CombinedOutput(); err != nil {
				t.Errorf("its tests: %v\n%s", err, out)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct{ kind, name, want string }{
		{"loop", "fresh", "use reconcile, sweep or mirror"},
		{"sweep", "Not-A-Package", "use lower-case letters"},
		{"sweep", "nodegc", "it exists"},
	} {
		if err := write(root, c.kind, c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.kind, c.name, err)
		}
	}
}
