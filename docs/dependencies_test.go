// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = ".."

// goMod is what `go mod edit -json` prints.
type goMod struct {
	Module  struct{ Path string }
	Require []struct{ Path string }
	Tool    []struct{ Path string }
}

// TestDependenciesAreExplained compares dependencies.md with what each module
// imports. Imports are asked, not the "// indirect" of go.mod: they are what
// go mod tidy goes by.
func TestDependenciesAreExplained(t *testing.T) {
	explained := readDependencies(t)
	for _, dir := range modules(t) {
		mod := readGoMod(t, dir)
		rows := explained[mod.Module.Path]
		delete(explained, mod.Module.Path)
		direct := directDependencies(t, dir, mod)
		for _, path := range direct {
			if !slices.Contains(rows, path) {
				t.Errorf("docs/dependencies.md does not say why %s depends on %s", mod.Module.Path, path)
			}
		}
		for _, path := range rows {
			if !slices.Contains(direct, path) {
				t.Errorf("docs/dependencies.md explains %s, which %s does not import", path, mod.Module.Path)
			}
		}
		if !slices.IsSorted(rows) {
			t.Errorf("docs/dependencies.md: the rows of %s are not in order", mod.Module.Path)
		}
	}
	for path := range explained {
		t.Errorf("docs/dependencies.md has a part on %s, which is no module here", path)
	}
}

var (
	partOf = regexp.MustCompile("^## .*`(github.com/skep-operator/skep[^`]*)`")
	rowOf  = regexp.MustCompile(`^\| ([a-z][^ |]*\.[^ |]*) \| [^|]+ \|$`)
)

// readDependencies is which dependencies have a row, by module.
func readDependencies(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	part := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if found := partOf.FindStringSubmatch(line); found != nil {
			part = found[1]
			rows[part] = nil
		}
		if found := rowOf.FindStringSubmatch(line); found != nil {
			rows[part] = append(rows[part], found[1])
		}
	}
	return rows
}

// modules are the directories of all modules of the repository.
func modules(t *testing.T) (dirs []string) {
	t.Helper()
	walk(t, root, func(path string, entry fs.DirEntry) error {
		if entry.Name() == "go.mod" {
			dirs = append(dirs, filepath.Dir(path))
		}
		return nil
	})
	return dirs
}

func readGoMod(t *testing.T, dir string) (mod goMod) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", filepath.Join(dir, "go.mod")).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(output, &mod); err != nil {
		t.Fatal(err)
	}
	return mod
}

// directDependencies are the modules that a module imports from or runs tools
// of, those of this repository excepted.
func directDependencies(t *testing.T, dir string, mod goMod) []string {
	t.Helper()
	used := imports(t, dir)
	for _, tool := range mod.Tool {
		used[tool.Path] = true
	}
	direct := map[string]bool{}
	for path := range used {
		module := ""
		for _, required := range mod.Require {
			within := path == required.Path || strings.HasPrefix(path, required.Path+"/")
			if within && len(required.Path) > len(module) {
				module = required.Path
			}
		}
		if module != "" && !strings.HasPrefix(module, "github.com/skep-operator/") {
			direct[module] = true
		}
	}
	return slices.Sorted(maps.Keys(direct))
}

// imports are what the files of a module import, for whatever platform.
func imports(t *testing.T, dir string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	walk(t, dir, func(path string, entry fs.DirEntry) error {
		if entry.IsDir() && path != dir {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir // another module
			}
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			all[imported] = true
		}
		return nil
	})
	return all
}

// walk visits the files and directories that are sources.
func walk(t *testing.T, dir string, visit func(path string, entry fs.DirEntry) error) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "bin", "testdata"}, entry.Name()) {
			return filepath.SkipDir
		}
		return visit(path, entry)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReferenceDependencies keeps a list of what is linked into each binary: a dependency
// that comes with another is a line in review, too.
func TestReferenceDependencies(t *testing.T) {
	mains, err := filepath.Glob(filepath.Join(root, "cmd", "operator*", "main.go"))
	if err != nil || len(mains) == 0 {
		t.Fatal(mains, err)
	}
	for _, main := range mains {
		dir := filepath.Dir(main)
		path := "reference/dependencies-" + filepath.Base(dir) + ".txt"
		got, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		settle(t, path, string(got), linkedModules(t, dir))
	}
}

// linkedModules are the modules with a package in the binary for Linux, with their versions.
func linkedModules(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	output, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Compact(slices.Sorted(strings.Lines(string(output))))
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "\n" })
	return "# Written by make generate: the modules that are linked into " + filepath.Base(dir) + ".\n" + strings.Join(lines, "")
}
