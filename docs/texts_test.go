// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sources are the packages of the product, by directory, without tests and without what
// tests alone use.
type sources map[string]*sourcePackage

type sourcePackage struct {
	files  []*ast.File
	consts map[string]ast.Expr // of the package and of its functions
	funcs  map[string][]*ast.FuncDecl
}

func readSources(t *testing.T, dirs ...string) sources {
	t.Helper()
	all := sources{}
	for _, dir := range dirs {
		walk(t, filepath.Join(root, dir), func(path string, entry fs.DirEntry) error {
			if entry.IsDir() && (strings.HasSuffix(entry.Name(), "test") || entry.Name() == "examples") {
				return filepath.SkipDir
			}
			if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			of := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), root+"/")
			if all[of] == nil {
				all[of] = &sourcePackage{consts: map[string]ast.Expr{}, funcs: map[string][]*ast.FuncDecl{}}
			}
			all[of].add(file)
			return nil
		})
	}
	return all
}

func (p *sourcePackage) add(file *ast.File) {
	p.files = append(p.files, file)
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncDecl); ok {
			p.funcs[f.Name.Name] = append(p.funcs[f.Name.Name], f)
		}
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, s := range d.Specs {
				for i, name := range s.(*ast.ValueSpec).Names {
					if values := s.(*ast.ValueSpec).Values; i < len(values) {
						p.consts[name.Name] = values[i]
					}
				}
			}
		}
		return true
	})
}

// calls visits all calls of the product, with the function around each.
func (s sources) calls(visit func(dir string, p *sourcePackage, in *ast.FuncDecl, call *ast.CallExpr)) {
	for dir, p := range s {
		for _, file := range p.files {
			for _, d := range file.Decls {
				in, _ := d.(*ast.FuncDecl)
				ast.Inspect(d, func(n ast.Node) bool {
					if call, ok := n.(*ast.CallExpr); ok {
						visit(dir, p, in, call)
					}
					return true
				})
			}
		}
	}
}

// called is the name of the function or method of a call.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

var verb = regexp.MustCompile(`%(\.\d+)?[a-z]`)

// texts are what an expression may say, with … for what is not in the source. It is
// empty for an expression of which nothing is.
func (p *sourcePackage) texts(in *ast.FuncDecl, e ast.Expr) []string {
	var known []string
	for _, text := range p.text(in, e, 0) {
		if strings.Trim(text, "… :;,\n") != "" {
			known = append(known, text)
		}
	}
	return known
}

const deepest = 4 // of variables that are made of variables

func (p *sourcePackage) text(in *ast.FuncDecl, e ast.Expr, depth int) []string {
	unknown := []string{"…"}
	if depth > deepest {
		return unknown
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return []string{text}
		}
	case *ast.BinaryExpr:
		var joined []string
		for _, x := range p.text(in, e.X, depth) {
			for _, y := range p.text(in, e.Y, depth) {
				joined = append(joined, strings.ReplaceAll(x+y, "……", "…"))
			}
		}
		return joined
	case *ast.CallExpr:
		if name := called(e); len(e.Args) > 0 && (name == "Sprintf" || name == "Errorf") {
			var list []string
			for _, format := range p.text(in, e.Args[0], depth) {
				list = append(list, strings.ReplaceAll(verb.ReplaceAllString(format, "…"), "%%", "%"))
			}
			return list
		}
		if returned := p.returned(called(e), depth); len(returned) > 0 {
			return returned
		}
	case *ast.Ident:
		if assigned := p.assigned(in, e.Name, depth); len(assigned) > 0 {
			return assigned
		}
		if value := p.consts[e.Name]; value != nil {
			return p.text(in, value, depth+1)
		}
	}
	return unknown
}

// assigned are the texts that a variable has within its function.
func (p *sourcePackage) assigned(in *ast.FuncDecl, name string, depth int) (list []string) {
	if in == nil {
		return nil
	}
	ast.Inspect(in, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, to := range a.Lhs {
				if id, ok := to.(*ast.Ident); ok && id.Name == name {
					list = append(list, p.text(in, a.Rhs[i], depth+1)...)
				}
			}
		}
		return true
	})
	return list
}

// returned are the texts that functions of a name return first.
func (p *sourcePackage) returned(name string, depth int) (list []string) {
	for _, f := range p.funcs[name] {
		ast.Inspect(f, func(n ast.Node) bool {
			if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) > 0 {
				list = append(list, p.text(f, r.Results[0], depth+1)...)
			}
			return true
		})
	}
	return list
}
