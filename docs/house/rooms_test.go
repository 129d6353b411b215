// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"bytes"
	"errors"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRooms checks what each folder has.
func TestRooms(t *testing.T) {
	t.Run("the declaration of a cell fits on a screen", func(t *testing.T) {
		for _, p := range allPackages(t) {
			if n := lines(t, p.Dir, "cell.go"); p.isCell() && n > 80 {
				t.Errorf("%s/cell.go has %d lines, at most 80 are read at a glance; move code to the file that is named for it", p.at(), n)
			}
		}
	})
	t.Run("an operator is a list of cells", func(t *testing.T) {
		for _, p := range allPackages(t) {
			if n := lines(t, p.Dir, "main.go"); strings.HasPrefix(p.at(), "cmd/operator") && n > 40 {
				t.Errorf("%s/main.go has %d lines, 40 are enough for a list; move code to a cell or to runtime/command", p.at(), n)
			}
		}
	})
	t.Run("every folder says what lives there", func(t *testing.T) {
		broken := map[string]string{}
		for _, p := range allPackages(t) {
			file := "doc.go"
			if p.Name == "main" && !slices.Contains(p.GoFiles, file) {
				file = "main.go"
			}
			switch len(p.GoFiles) {
			case 0:
				continue
			case 1:
				file = p.GoFiles[0]
			}
			if !slices.Contains(p.GoFiles, file) {
				broken[p.at()] = "has no " + file
			} else if parseFile(t, filepath.Join(p.Dir, file)).Doc.Text() == "" {
				broken[p.at()] = file + " has no package comment"
			}
		}
		unsaid.check(t, "say in a few lines what lives there and what may not", broken)
	})
	t.Run("every cell is checked", func(t *testing.T) {
		broken := map[string]string{}
		for _, p := range allPackages(t) {
			if p.isCell() && !mentions(t, p, "celltest.Check(") {
				broken[p.at()] = "no test calls celltest.Check"
			}
		}
		unchecked.check(t, "what every cell owes is checked by one call: celltest.Check(t, Cell)", broken)
	})
	t.Run("a cell exports Cell and Config", func(t *testing.T) {
		broken := map[string]string{}
		for _, p := range allPackages(t) {
			if !p.isCell() {
				continue
			}
			for _, name := range exported(t, p) {
				if name != "Cell" && name != "Config" {
					broken[p.at()+"."+name] = "is exported"
				}
			}
		}
		exportedByCells.check(t, "embedders get a cell and its options; what others need is in resources", broken)
	})
}

func lines(t *testing.T, dir, file string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

func mentions(t *testing.T, p pkg, text string) bool {
	t.Helper()
	return slices.ContainsFunc(slices.Concat(p.TestGoFiles, p.XTestGoFiles), func(file string) bool {
		content, err := os.ReadFile(filepath.Join(p.Dir, file))
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(content, []byte(text))
	})
}

// exported are the exported names of a package, methods aside.
func exported(t *testing.T, p pkg) []string {
	t.Helper()
	var names []string
	for _, file := range p.GoFiles {
		for _, d := range parseFile(t, filepath.Join(p.Dir, file)).Decls {
			for _, id := range declared(d) {
				if id.IsExported() {
					names = append(names, id.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// declared are the names that a declaration makes in its package.
func declared(d ast.Decl) []*ast.Ident {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		var ids []*ast.Ident
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				ids = append(ids, s.Name)
			case *ast.ValueSpec:
				ids = append(ids, s.Names...)
			}
		}
		return ids
	}
	return nil
}
