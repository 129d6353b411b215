// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStamp checks what makes a binary out of date.
func TestStamp(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		writeIn(t, root, name, text)
	}
	b := builder{root: root, binary: filepath.Join(root, "bin", "devcluster"), stamp: filepath.Join(root, "bin", "stamp")}
	dirs := []string{".", "cmd/devcluster", "resources/api"}
	fresh := func() {
		t.Helper()
		sum, err := b.sum(dirs)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(stamp{dirs, sum})
		if err != nil {
			t.Fatal(err)
		}
		write("bin/stamp", string(data))
	}
	write("go.mod", "module x")
	write("cmd/devcluster/main.go", "package main")
	write("cmd/devcluster/go.sum", "")
	write("resources/api/crd.yaml", "kind: CustomResourceDefinition")

	fresh()
	if b.upToDate() {
		t.Error("a binary that is not there is up to date")
	}
	write("bin/devcluster", "#!")
	if !b.upToDate() {
		t.Error("nothing changed and the binary is out of date")
	}
	for name, matters := range map[string]bool{
		"go.mod":                      true,
		"cmd/devcluster/go.sum":       true,
		"cmd/devcluster/main.go":      true,
		"cmd/devcluster/new.go":       true,
		"resources/api/crd.yaml":      true,
		"cmd/devcluster/main_test.go": false,
		"cmd/devcluster/README.md":    false,
		"other.go":                    false,
		"cells/other/other.go":        false,
	} {
		fresh()
		write(name, "// changed")
		if b.upToDate() == matters {
			t.Errorf("after a change of %s the binary is up to date: %v", name, !matters)
		}
	}
	if err := os.Remove(b.stamp); err != nil {
		t.Fatal(err)
	}
	if b.upToDate() {
		t.Error("a binary of unknown origin is up to date")
	}
}

func TestProgramOfTheEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devcluster")
	t.Setenv(programEnv, path)
	if _, err := findProgram(); err == nil || !strings.Contains(err.Error(), programEnv) {
		t.Errorf("a program that is not there: %v", err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := findProgram(); got != path || err != nil {
		t.Errorf("found %q, %v; want %q", got, err, path)
	}
}

func TestOutsideOfTheRepository(t *testing.T) {
	t.Setenv(programEnv, "")
	t.Chdir(t.TempDir())
	if _, err := findProgram(); err == nil || !strings.Contains(err.Error(), programEnv) {
		t.Errorf("the error does not name the remedy: %v", err)
	}
}
