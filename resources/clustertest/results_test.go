// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A small repository that builds its devcluster as this one does.
var smallRepository = map[string]string{
	"go.mod":                      "module " + rootModule + "\n\ngo 1.26\n",
	"README.md":                   "small",
	"cmd/devcluster/go.mod":       "module " + rootModule + "/" + programPath + "\n\ngo 1.26\n",
	"cmd/devcluster/main.go":      "package main\n\nfunc main() { println(answer) }\n",
	"cmd/devcluster/answer.go":    "package main\n\nconst answer = \"first\"\n",
	"cmd/devcluster/main_test.go": "package main\n",
	"resources/clustertest/program_test.go": `package clustertest

import (
	"os/exec"
	"testing"
)

func TestProgram(t *testing.T) {
	program, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(program).CombinedOutput()
	t.Logf("it says %s, %v", output, err)
}
`,
}

// TestResultsAreKept shows when Go takes the result of tests on the control plane from
// its cache: while nothing changes that the program is built from, whatever else does.
func TestResultsAreKept(t *testing.T) {
	skipIfShort(t) // it runs the go command some times
	t.Parallel()
	root := t.TempDir()
	for name, text := range smallRepository {
		writeIn(t, root, name, text)
	}
	source, err := os.ReadFile("build.go")
	if err != nil {
		t.Fatal(err)
	}
	writeIn(t, root, "resources/clustertest/build.go", string(source))
	run := func() (output string, cached bool) {
		age(t, root) // the go command keeps no result that has seen a file of the last seconds
		cmd := exec.Command("go", "test", "-v", "./resources/clustertest")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "PWD="+root)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return string(text), strings.Contains(string(text), "(cached)")
	}
	run() // builds the program
	run()
	if text, cached := run(); !cached {
		t.Fatalf("nothing changed, and the test ran again:\n%s", text)
	}
	for _, name := range []string{"README.md", "bin/operator", ".git/HEAD", "other/other.go", "cmd/other/main.go"} {
		writeIn(t, root, name, "package other // changed")
		if text, cached := run(); !cached {
			t.Errorf("after a change of %s the test ran again:\n%s", name, text)
		}
	}
	writeIn(t, root, "cmd/devcluster/answer.go", "package main\n\nconst answer = \"second\"\n")
	if text, cached := run(); cached || !strings.Contains(text, "it says second") {
		t.Errorf("after a change of the program the result is that of the one before:\n%s", text)
	}
	if err := os.Remove(filepath.Join(root, programDir, "devcluster")); err != nil {
		t.Fatal(err)
	}
	if text, cached := run(); cached {
		t.Errorf("without the program the result is kept:\n%s", text)
	}
}

func writeIn(t *testing.T, root, name, text string) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// age makes what was written just now a minute older.
func age(t *testing.T, root string) {
	t.Helper()
	recent := time.Now().Add(-30 * time.Second)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.ModTime().Before(recent) {
			return err
		}
		at := info.ModTime().Add(-time.Minute)
		return os.Chtimes(path, at, at)
	})
	if err != nil {
		t.Fatal(err)
	}
}
