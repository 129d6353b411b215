// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The rules of the house: what holds everywhere, and is easily broken somewhere.
// A rule with exceptions lists them with the reason; an exception that is none
// any more fails, too.

const module = "github.com/skep-operator/skep"

// exceptions are places where a rule does not hold, and why.
type exceptions map[string]string

// check reports places that break a rule, but for the exceptions.
func (e exceptions) check(t *testing.T, rule string, broken map[string]string) {
	t.Helper()
	for place, how := range broken {
		if e[place] == "" {
			t.Errorf("%s: %s\n\t%s", place, how, rule)
		}
	}
	for place := range e {
		if broken[place] == "" {
			t.Errorf("%s keeps the rule, and is listed as an exception from it; take it off the list", place)
		}
	}
}

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
	cmd.Dir, cmd.Stderr = "..", os.Stderr
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

func isUnder(importPath, tree string) bool { return strings.HasPrefix(importPath+"/", tree+"/") }

// TestImports holds the layers apart.
func TestImports(t *testing.T) {
	own := func(folder string) string { return module + "/" + folder }
	for _, rule := range []struct {
		folder string
		never  []string
		reason string
	}{
		{"runtime", []string{"k8s.io", "sigs.k8s.io", "go.etcd.io", own("resources"), own("cells"), own("cmd")},
			"the runtime knows neither Kubernetes nor etcd nor what is built on it; move the code, or ask for an interface"},
		{"resources", []string{own("cells"), own("cmd")}, "what duties share knows no duty; move what they need down, or turn it into an interface"},
		{"resources/domain", []string{"k8s.io/client-go", "go.etcd.io/etcd/client", own("resources/k8s"), own("resources/kvstore"), own("resources/stream")},
			"domain logic is pure; take values, and leave clients to the caller"},
		{"cells", []string{own("cmd")}, "binaries are made of cells, not cells of binaries"},
	} {
		t.Run(rule.folder, func(t *testing.T) {
			for _, p := range allPackages(t) {
				for _, i := range p.Imports {
					if p.below(rule.folder) && slices.ContainsFunc(rule.never, func(tree string) bool { return isUnder(i, tree) }) {
						t.Errorf("%s imports %s\n\t%s", p.at(), i, rule.reason)
					}
				}
			}
		})
	}
	t.Run("a cell never imports another cell", func(t *testing.T) {
		cellFolders := map[string]bool{}
		for _, p := range allPackages(t) {
			cellFolders[p.ImportPath] = p.isCell()
		}
		for _, p := range allPackages(t) {
			for _, i := range p.Imports {
				if p.below("cells") && p.at() != "cells" && cellFolders[i] {
					t.Errorf("%s imports the cell %s\n\twhat two cells need is a type in resources, or an interface that one provides and the other asks for", p.at(), i)
				}
			}
		}
	})
}

// TestDependencies forbids what must not get into a program, however indirectly.
func TestDependencies(t *testing.T) {
	isOperator := func(p pkg) bool { return p.Name == "main" && strings.HasPrefix(p.at(), "cmd/operator") }
	except := func(names ...string) func(pkg) bool {
		return func(p pkg) bool { return isOperator(p) && !slices.Contains(names, path.Base(p.at())) }
	}
	everywhere := func(pkg) bool { return true }
	for _, rule := range []struct {
		never  string
		where  func(pkg) bool
		reason string
	}{
		{"github.com/cilium", everywhere, "Skep is no derivative of Cilium; facts come from documents, and types are our own"},
		{"sigs.k8s.io/controller-runtime", everywhere, "its manager is a second framework beside ours"},
		{"go.uber.org/fx", everywhere, "it is a second framework beside ours; dig alone holds the graph"},
		{"k8s.io/kubernetes", everywhere, "it is for cmd/devcluster, which is a module of its own"},
		{"github.com/goccy/go-graphviz", everywhere, "its engine costs every process half a second at the start; cmd/graphdraw has it"},
		{"github.com/aws", except("operator", "operator-aws"), "only operators for AWS carry its SDK; import cells/ipam/aws from their list of cells alone"},
		{"github.com/Azure", except("operator", "operator-azure"), "only operators for Azure carry its SDK; import cells/ipam/azure from their list of cells alone"},
	} {
		t.Run(rule.never, func(t *testing.T) {
			for _, p := range allPackages(t) {
				for _, d := range p.Deps {
					if rule.where(p) && isUnder(d, rule.never) {
						t.Errorf("%s depends on %s (go mod why -m %s)\n\t%s", p.at(), d, rule.never, rule.reason)
					}
				}
			}
		})
	}
	t.Run("cloud SDKs stay in their cells", func(t *testing.T) {
		owners := map[string]string{"github.com/aws": "cells/ipam/aws", "github.com/Azure": "cells/ipam/azure"}
		for _, p := range allPackages(t) {
			for _, i := range p.Imports {
				for sdk, owner := range owners {
					if isUnder(i, sdk) && !p.below(owner) {
						t.Errorf("%s imports %s\n\tonly %s does", p.at(), i, owner)
					}
				}
			}
		}
	})
}

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

var fileSet = token.NewFileSet()

func parseFile(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(fileSet, file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
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

// source is a text file of the repository.
type source struct {
	path string // from the root, with slashes
	text string
}

func (s source) isGo() bool { return strings.HasSuffix(s.path, ".go") }
func (s source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") || forTests.MatchString(s.path)
}
func (s source) isGenerated() bool { return generated.MatchString(s.text) }
func (s source) isProgram() bool   { return strings.HasPrefix(s.path, "cmd/") }
func (s source) lineOf(at int) int { return strings.Count(s.text[:at], "\n") + 1 }

// forTests are folders of code that only tests run.
var forTests = regexp.MustCompile(`(^|/)(testdata|[a-z]+test)/`)

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

var textFile = regexp.MustCompile(`\.(go|md|txt|txtar|ya?ml|json|sh|toml|mod|svg|html|js|css)$|(^|/)(Makefile|Dockerfile)$`)

// sources are the text files of the repository, those of nested modules too.
var sources = sync.OnceValues(func() ([]source, error) {
	var list []source
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
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
		rel, relErr := filepath.Rel("..", file)
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

// TestText checks what stands in files.
func TestText(t *testing.T) {
	t.Run("licence", func(t *testing.T) {
		const header = "// SPDX-License-Identifier: Apache-2.0\n// Copyright Authors of Skep\n"
		for _, s := range allSources(t) {
			if s.isGo() && !strings.HasPrefix(s.text, header) && !strings.Contains(s.text, "\n\n"+header) && !s.isGenerated() {
				t.Errorf("%s does not begin with\n%s", s.path, header)
			}
		}
	})
	t.Run("length", func(t *testing.T) {
		broken := map[string]string{}
		for _, s := range allSources(t) {
			most := 500
			if s.isTest() {
				most = 1000
			}
			if n := strings.Count(s.text, "\n"); s.isGo() && !s.isGenerated() && n > most {
				broken[s.path] = fmt.Sprintf("has %d lines, more than %d", n, most)
			}
		}
		long.check(t, "one file per concept: find the two that are in it", broken)
	})
	for name, rule := range map[string]struct {
		pattern *regexp.Regexp
		remedy  string
	}{
		"nothing is left to do":  {regexp.MustCompile(`\b(` + "TO" + `DO|FIX` + `ME|XX` + `X)\b`), "do it, or leave it out cleanly and say so in docs"},
		"no paths of a machine":  {regexp.MustCompile(`(^|[\s"'` + "`" + `=(])/(` + "wo" + `rk|ro` + `ot|ho` + `me)/[a-z.]`), "say where things are from the root of the repository"},
		"no hosts of registries": {regexp.MustCompile(`\b(quay|ghcr|gcr|docker)\.io/|registry\.k8s\.` + `io|index\.docker\.` + `io`), "images are named by who deploys"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range allSources(t) {
				if s.path == "cells/house_test.go" || s.isGenerated() || path.Base(s.path) == "go.sum" {
					continue
				}
				if at := rule.pattern.FindStringIndex(s.text); at != nil {
					t.Errorf("%s:%d: %q\n\t%s", s.path, s.lineOf(at[0]+1), s.text[at[0]:at[1]], rule.remedy)
				}
			}
		})
	}
}

// TestCode checks what code does, without tests.
func TestCode(t *testing.T) {
	exits, panics, undocumented, credulous := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	for _, s := range allSources(t) {
		if !s.isGo() || s.isTest() || s.isGenerated() || s.isProgram() {
			continue
		}
		f, err := parser.ParseFile(fileSet, s.path, s.text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			name, called := declName(d), calls(d)
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
	t.Run("what is exported is explained", func(t *testing.T) {
		unexplained.check(t, "say what it is, in units, who owns it, and whether it is safe for concurrent use", undocumented)
	})
}

// TestTests checks how tests wait. Tests in a bubble of synctest have a clock of their own.
func TestTests(t *testing.T) {
	limits := regexp.MustCompile(`deadline := .*\.Add\(`)
	asleep, limited, ports := map[string]string{}, map[string]string{}, map[string]string{}
	for _, s := range allSources(t) {
		if !s.isTest() {
			continue
		}
		for i, line := range strings.Split(s.text, "\n") {
			at := fmt.Sprintf("%s:%d", s.path, i+1)
			switch said := strings.Contains(line, "//"); {
			case said || strings.Contains(s.text, `"testing/synctest"`):
			case strings.Contains(line, "time.Sleep("):
				asleep[at] = "sleeps"
			case limits.MatchString(line) && !strings.Contains(line, "waittest.Limit"):
				limited[at] = "has a limit of its own"
			}
		}
		for name := range portsThatWereFree(t, s) {
			ports[s.path+" "+name] = "returns a port that was free a moment ago"
		}
	}
	t.Run("a sleep says what it is for", func(t *testing.T) {
		exceptions{}.check(t, "wait for a state with waittest.Until, or say in a comment on the line what passes meanwhile", asleep)
	})
	t.Run("a wait has the one limit", func(t *testing.T) {
		exceptions{}.check(t, "use waittest.Until, or say in a comment on the line what the limit judges", limited)
	})
	t.Run("a port is bound, or locked", func(t *testing.T) {
		exceptions{}.check(t, "bind port 0 in the program under test, or use clustertest.FreePorts", ports)
	})
}

// portsThatWereFree are functions that listen, close the listener, and return its address.
func portsThatWereFree(t *testing.T, s source) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	if !strings.Contains(s.text, "net.Listen(") {
		return found
	}
	f, err := parser.ParseFile(fileSet, s.path, s.text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		listens, closes, returns := slices.Contains(calls(d), "net.Listen"), false, false
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit: // runs at another time
				return false
			case *ast.DeferStmt:
				sel, ok := n.Call.Fun.(*ast.SelectorExpr)
				closes = closes || ok && sel.Sel.Name == "Close"
			case *ast.ReturnStmt:
				ast.Inspect(n, func(n ast.Node) bool {
					sel, ok := n.(*ast.SelectorExpr)
					returns = returns || ok && sel.Sel.Name == "Addr"
					return true
				})
			}
			return true
		})
		if listens && closes && returns {
			found[declName(d)] = true
		}
	}
	return found
}

// aboutNoObject are checks of errors that do not ask for the object that they are about.
var aboutNoObject = map[string]bool{
	"apierrors.IsNotFound": true, "apierrors.IsConflict": true, "apierrors.IsAlreadyExists": true, "apierrors.IsGone": true, "apierrors.ReasonForError": true,
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
