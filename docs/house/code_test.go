// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestCode checks what code does, without tests.
func TestCode(t *testing.T) {
	exits, panics, undocumented, credulous := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	compiled, whole := map[string]string{}, map[string]string{}
	for _, s := range allSources(t) {
		if !s.isGo() || s.isTest() || s.isGenerated() || s.isProgram() {
			continue
		}
		f, err := parser.ParseFile(fileSet, s.path, s.text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if importsSyntax(f) {
			compiled[s.path+" import"] = "parses regular expressions itself"
		}
		for _, d := range f.Decls {
			name, called := declName(d), calls(d)
			if what := compiledText(d); what != "" {
				compiled[s.path+" "+name] = what + " of a text that does not stand in the code"
			}
			if what := wholeBody(d); what != "" && !strings.Contains(s.path, "test/") {
				whole[s.path+" "+name] = what
			}
			for _, what := range called {
				if what == "os.Exit" || strings.HasPrefix(what, "log.Fatal") || strings.HasPrefix(what, "log.Panic") {
					exits[s.path] = what + " in " + name
				}
				if strings.HasPrefix(s.path, "cells/") && aboutNoObject[what] {
					credulous[s.path] = what + " in " + name
				}
			}
			// Who recovers the panic of another goroutine may hand it on.
			if slices.Contains(called, "panic") && !slices.Contains(called, "recover") && !mayPanic(name) {
				panics[s.path+" "+name] = "panics"
			}
			for _, name := range withoutComment(d) {
				undocumented[s.path+" "+name] = "has no comment"
			}
		}
	}
	t.Run("only programs exit", func(t *testing.T) {
		exiting.check(t, "return an error, or ask lifecycle.Shutdown", exits)
	})
	t.Run("only mistakes of a programmer panic", func(t *testing.T) {
		panicking.check(t, "return an error; a MustX may panic, for values that stand in the code", panics)
	})
	t.Run("not found is the API server's word about an object", func(t *testing.T) {
		credulousFiles.check(t, "use k8s.IsNotFound, k8s.IsConflict and k8s.IsAlreadyExists with the object's Ref: a proxy answers 404 and 409, too", credulous)
	})
	t.Run("what others write is not compiled", func(t *testing.T) {
		compiling.check(t, "use expression.Check: a regular expression of 20 kB can be a program that takes all memory", compiled)
	})
	t.Run("what others send has a bound", func(t *testing.T) {
		reading.check(t, "read an io.LimitReader, or have the client bound what it reads, and list that here: a body of 1 GB takes all memory", whole)
	})
	t.Run("what is exported is explained", func(t *testing.T) {
		unexplained.check(t, "say what it is, in units, who owns it, and whether it is safe for concurrent use", undocumented)
	})
}

// aboutNoObject are checks of errors that do not ask for the object that they are about.
var aboutNoObject = map[string]bool{
	"apierrors.IsNotFound": true, "apierrors.IsConflict": true, "apierrors.IsAlreadyExists": true, "apierrors.IsGone": true, "apierrors.ReasonForError": true,
}

// ofExpressions are the functions of the package regexp that compile their first argument.
var ofExpressions = []string{"Compile", "MustCompile", "CompilePOSIX", "MustCompilePOSIX", "Match", "MatchString", "MatchReader"}

// compiledText is the function by which a declaration compiles a regular expression that is not a constant text, "" if it does not.
func compiledText(d ast.Decl) (what string) {
	ast.Inspect(d, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := fun.X.(*ast.Ident)
		if ok && x.Name == "regexp" && slices.Contains(ofExpressions, fun.Sel.Name) && !isText(call.Args[0]) {
			what = "regexp." + fun.Sel.Name
		}
		return true
	})
	return what
}

// wholeBody says how a declaration reads all of what is sent to it, "" if it does not, or not without a bound.
func wholeBody(d ast.Decl) (how string) {
	ast.Inspect(d, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := fun.X.(*ast.Ident)
		if !ok {
			return true
		}
		of, isSelector := call.Args[0].(*ast.SelectorExpr)
		switch name := x.Name + "." + fun.Sel.Name; {
		case name == "io.ReadAll":
			if limit, isCall := call.Args[0].(*ast.CallExpr); isCall {
				if f, ok := limit.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "LimitReader" {
					return true
				}
			}
			how = name
		case strings.HasSuffix(name, ".NewDecoder") && isSelector && of.Sel.Name == "Body":
			how = name + " of a body"
		}
		return true
	})
	return how
}

// isText reports whether a text stands in the code, maybe in parts.
func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.ParenExpr:
		return isText(e.X)
	case *ast.BinaryExpr:
		return isText(e.X) && isText(e.Y)
	}
	return false
}

// importsSyntax reports whether a file parses regular expressions, or has the package that compiles them under another name.
func importsSyntax(f *ast.File) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
		return i.Path.Value == `"regexp/syntax"` || i.Path.Value == `"regexp"` && i.Name != nil
	})
}

// calls are the functions that a declaration calls by name.
func calls(d ast.Decl) []string {
	var names []string
	ast.Inspect(d, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			names = append(names, fun.Name)
		case *ast.SelectorExpr:
			if x, ok := fun.X.(*ast.Ident); ok {
				names = append(names, x.Name+"."+fun.Sel.Name)
			}
		}
		return true
	})
	return names
}

// mayPanic reports whether a declaration is one whose panic tells a mistake at
// the start of the process or in a test.
func mayPanic(name string) bool {
	return name == "init" || strings.HasPrefix(strings.ToLower(name[strings.LastIndexByte(name, '.')+1:]), "must")
}

func declName(d ast.Decl) string {
	if f, ok := d.(*ast.FuncDecl); ok {
		if f.Recv != nil {
			return receiver(f) + "." + f.Name.Name
		}
		return f.Name.Name
	}
	if ids := declared(d); len(ids) > 0 {
		return ids[0].Name
	}
	return "import"
}

func receiver(f *ast.FuncDecl) string {
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}

// withoutComment are the exported names of a declaration that have no comment.
// A comment on a group explains its members.
func withoutComment(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d)) && !explainsItself(d.Name.Name)) {
			return []string{declName(d)}
		}
	case *ast.GenDecl:
		if d.Doc != nil || isEnum(d) {
			return nil
		}
		var names []string
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Doc == nil && s.Comment == nil && s.Name.IsExported() {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				if s.Doc == nil && s.Comment == nil && s.Names[0].IsExported() {
					names = append(names, s.Names[0].Name)
				}
			}
		}
		return names
	}
	return nil
}

// isEnum reports whether a declaration lists the values of a type, which the
// type's comment explains.
func isEnum(d *ast.GenDecl) bool {
	first, ok := d.Specs[0].(*ast.ValueSpec)
	return ok && d.Tok == token.CONST && first.Type != nil
}

// explainsItself names methods that every reader of Go knows.
func explainsItself(method string) bool {
	return slices.Contains([]string{"Error", "String", "Unwrap", "Is", "As", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText"}, method)
}

var fileSet = token.NewFileSet()

func parseFile(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(fileSet, file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
