// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/printer"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/api.txt anew")

// stable are the packages whose Go API embedders rely on; of cells it is the
// sets.
var stable = []string{
	"cells", "resources/api", "resources/api/v2", "resources/api/v2alpha1", "resources/cloudipam", "resources/cluster", "resources/domain/alloc", "resources/explain", "resources/k8s", "resources/kvstore", "resources/leading", "resources/stream",
	"runtime/cell", "runtime/health", "runtime/hive", "runtime/job", "runtime/lifecycle",
}

const apiFile = root + "/docs/api.txt"

// TestAPI holds the stable Go API against a list under review, a line for each
// exported name, field and method.
func TestAPI(t *testing.T) {
	var all []string
	for _, p := range allPackages(t) {
		if slices.Contains(stable, p.at()) {
			all = append(all, packageAPI(t, p)...)
		}
	}
	slices.Sort(all)
	got := strings.Join(slices.Compact(all), "\n") + "\n"
	if *update {
		if err := os.WriteFile(apiFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	before, after := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for _, line := range before {
		if !slices.Contains(after, line) {
			t.Errorf("gone: %s", line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			t.Errorf("new: %s", line)
		}
	}
	t.Errorf("the stable API is not what %s says; if that is meant, review the difference that this makes:\n\tgo test ./docs/house -run TestAPI -update", path.Base(apiFile))
}

// packageAPI are the lines of a package.
func packageAPI(t *testing.T, p pkg) []string {
	t.Helper()
	var all []string
	for _, file := range p.GoFiles {
		f := parseFile(t, filepath.Join(p.Dir, file))
		if ast.IsGenerated(f) {
			continue // deep copies
		}
		for _, d := range f.Decls {
			for _, line := range declAPI(d) {
				all = append(all, p.at()+": "+line)
			}
		}
	}
	return all
}

func declAPI(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() || d.Recv != nil && !ast.IsExported(receiver(d)) {
			return nil
		}
		return []string{oneLine(&ast.FuncDecl{Recv: d.Recv, Name: d.Name, Type: d.Type})}
	case *ast.GenDecl:
		var all []string
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				all = append(all, typeAPI(s)...)
			case *ast.ValueSpec:
				all = append(all, valueAPI(d, s)...)
			}
		}
		return all
	}
	return nil
}

func valueAPI(d *ast.GenDecl, s *ast.ValueSpec) []string {
	var all []string
	for _, name := range s.Names {
		if name.IsExported() {
			line := d.Tok.String() + " " + name.Name
			if s.Type != nil {
				line += " " + oneLine(s.Type)
			}
			all = append(all, line)
		}
	}
	return all
}

func typeAPI(s *ast.TypeSpec) []string {
	if !s.Name.IsExported() {
		return nil
	}
	name := "type " + s.Name.Name
	if s.TypeParams != nil {
		var params []string
		for _, f := range s.TypeParams.List {
			for _, n := range f.Names {
				params = append(params, n.Name+" "+oneLine(f.Type))
			}
		}
		name += "[" + strings.Join(params, ", ") + "]"
	}
	if s.Assign.IsValid() {
		name += " ="
	}
	switch t := s.Type.(type) {
	case *ast.StructType:
		return append([]string{name + " struct"}, members("field", s.Name.Name, t.Fields)...)
	case *ast.InterfaceType:
		return append([]string{name + " interface"}, members("method", s.Name.Name, t.Methods)...)
	}
	return []string{name + " " + oneLine(s.Type)}
}

// members are the exported fields of a struct or methods of an interface. The
// tag of a field is part of what it promises.
func members(kind, of string, list *ast.FieldList) []string {
	var all []string
	for _, f := range list.List {
		text := oneLine(f.Type)
		if f.Tag != nil {
			text += apiTag(f.Tag.Value) // the other tags are texts and bounds
		}
		if len(f.Names) == 0 {
			all = append(all, kind+" "+of+": "+text)
		}
		for _, n := range f.Names {
			if n.IsExported() {
				all = append(all, kind+" "+of+"."+n.Name+" "+strings.TrimPrefix(text, "func"))
			}
		}
	}
	return all
}

var spaces = regexp.MustCompile(`\s+`)

func oneLine(node ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, fileSet, node); err != nil {
		return err.Error()
	}
	return spaces.ReplaceAllString(b.String(), " ")
}

// apiTag is the part of a tag that is part of the API: the name of the flag, and not its text.
func apiTag(tag string) string {
	if flag := reflect.StructTag(strings.Trim(tag, "`")).Get("flag"); flag != "" {
		return fmt.Sprintf(" `flag:%q`", flag)
	}
	return " " + tag
}
