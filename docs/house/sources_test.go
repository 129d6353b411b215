// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// source is a text file of the repository.
type source struct {
	path string // from the root, with slashes
	text string
}

func (s source) isGo() bool { return strings.HasSuffix(s.path, ".go") }
func (s source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") || forTests.MatchString(s.path)
}
func (s source) isGenerated() bool {
	return strings.Contains(s.text, "// Code generated ") && generated.MatchString(s.text)
}
func (s source) isProgram() bool   { return strings.HasPrefix(s.path, "cmd/") }
func (s source) lineOf(at int) int { return strings.Count(s.text[:at], "\n") + 1 }

// forTests are folders of code that only tests run.
var forTests = regexp.MustCompile(`(^|/)(testdata|[a-z]+test)/`)

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

var textFile = regexp.MustCompile(`\.(go|md|txt|txtar|ya?ml|json|sh|toml|mod|svg|html|js|css)$|(^|/)(Makefile|Dockerfile)$`)

// sources are the text files of the repository, those of nested modules too.
var sources = sync.OnceValues(func() ([]source, error) {
	var list []source
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "node_modules"}, name):
			return filepath.SkipDir
		case d.IsDir() || !textFile.MatchString(name):
			return nil
		}
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		rel, relErr := filepath.Rel(root, file)
		list = append(list, source{filepath.ToSlash(rel), string(text)})
		return errors.Join(err, relErr)
	})
	return list, err
})

func allSources(t *testing.T) []source {
	t.Helper()
	list, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 300 {
		t.Fatalf("only %d files are found", len(list))
	}
	return list
}
