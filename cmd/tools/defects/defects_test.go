// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// project writes a module whose test notices one thing.
func project(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module example.org/x\n\ngo 1.25\n",
		"a/a.go":      "package a\n\nfunc One() int { return 1 }\n\nfunc Two() int { return 2 }\n",
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Error(One())\n\t}\n}\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestRun(t *testing.T) {
	root := project(t)
	for name, test := range map[string]struct {
		old, new string
		wrong    string // part of the error
	}{
		"noticed":            {"return 1", "return 3", ""},
		"not noticed":        {"return 2", "return 3", "TestOne passes with the defect"},
		"cannot be compiled": {"return 1", "return x", "cannot be compiled"},
		"not in the product": {"return 4", "return 5", "0 times, want once"},
		"more than once":     {"return", "panic", "2 times, want once"},
		"a panic":            {"return 1", "panic(1)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := run(&out, root, "", []defect{{what: name, file: "a/a.go", old: test.old, new: test.new, pkg: "a", test: "TestOne"}})
			if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%v\n%s", err, out.String())
			}
			if told := strings.HasPrefix(out.String(), "noticed  "+name); told != (err == nil) {
				t.Errorf("told %q", out.String())
			}
		})
	}
	if text, err := os.ReadFile(filepath.Join(root, "a/a.go")); err != nil || !strings.Contains(string(text), "return 1") {
		t.Errorf("the tree has changed: %q, %v", text, err)
	}
}

func TestOnly(t *testing.T) {
	var out strings.Builder
	if err := run(&out, t.TempDir(), "^b$", []defect{{what: "a", file: "none"}}); err != nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
	if err := run(&out, "", "(", nil); err == nil {
		t.Error("a bad expression is taken")
	}
}

// Each defect changes what is in the product.
func TestDefectsCanBePlanted(t *testing.T) {
	for _, d := range defects {
		_, remove, err := d.plant("../../..")
		if err != nil {
			t.Errorf("%s: %v", d.what, err)
			continue
		}
		remove()
	}
}
