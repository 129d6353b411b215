// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/skep-operator/skep"
	root   = "../.."
)

// pkg is a package of the module, as the go tool lists it.
type pkg struct {
	ImportPath, Name, Dir              string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, Deps                      []string
}

// at is the package's folder, from the root of the repository.
func (p pkg) at() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// below reports whether the package is in a folder or deeper.
func (p pkg) below(folder string) bool { return strings.HasPrefix(p.at()+"/", folder+"/") }

func (p pkg) isCell() bool { return p.below("cells") && slices.Contains(p.GoFiles, "cell.go") }

// packages are those of the module, without those of nested modules.
var packages = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		}
		if !strings.Contains("/"+p.at()+"/", "/testdata/") {
			list = append(list, p)
		}
	}
})

func allPackages(t *testing.T) []pkg {
	t.Helper()
	list, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 30 {
		t.Fatalf("only %d packages are found", len(list))
	}
	return list
}
