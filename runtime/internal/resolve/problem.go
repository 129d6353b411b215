// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// maxLines is how long a problem may be when printed.
const maxLines = 10

// Problem is one mistake in a graph, in at most ten lines: the mistake, the nodes
// concerned with their places, and the fix.
type Problem struct {
	Kind string // missing type, duplicate flag, …
	What string
	Rows []Row
	Fix  string
}

// Row is a labelled line of a problem.
type Row struct{ Label, Text string }

func (g *Graph) problem(kind, what string) *Problem {
	problem := &Problem{Kind: kind, What: what}
	g.Problems = append(g.Problems, problem)
	return problem
}

// Report adds a problem found outside the graph.
func (g *Graph) Report(kind, what, fix string, rows ...Row) {
	g.Problems = append(g.Problems, &Problem{Kind: kind, What: what, Rows: rows, Fix: fix})
}

func (p *Problem) add(label, text string) *Problem {
	p.Rows = append(p.Rows, Row{label, text})
	return p
}

func (p *Problem) fix(format string, args ...any) *Problem {
	p.Fix = fmt.Sprintf(format, args...)
	return p
}

// Error is the problem as text.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", p.Kind, p.What)
	rows := p.Rows
	if p.Fix != "" {
		rows = append(rows[:len(rows):len(rows)], Row{"fix", p.Fix})
	}
	for _, r := range truncateRows(rows) {
		fmt.Fprintf(&b, "\n  %-11s %s", r.Label, r.Text)
	}
	return b.String()
}

// truncateRows leaves out the middle of many rows.
func truncateRows(rows []Row) []Row {
	if len(rows) < maxLines {
		return rows
	}
	const head = 4
	tail := maxLines - 2 - head
	cut := append([]Row{}, rows[:head]...)
	cut = append(cut, Row{"…", fmt.Sprintf("%d more", len(rows)-head-tail)})
	return append(cut, rows[len(rows)-tail:]...)
}

// Problems are several mistakes as one error.
type Problems []*Problem

func (ps Problems) Error() string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = p.Error()
	}
	return strings.Join(texts, "\n\n")
}

// Kinds of problems that the list of cells itself has. What else seems wrong with such a list may come of them.
const (
	kindBroken          = "unusable declaration"
	kindDuplicateModule = "duplicate module"
)

// ListErr is what is wrong with the list of cells itself, whatever the configuration, or nil.
func (g *Graph) ListErr() error {
	found := slices.DeleteFunc(slices.Clone(g.Problems), func(problem *Problem) bool {
		return problem.Kind != kindBroken && problem.Kind != kindDuplicateModule
	})
	if len(found) == 0 {
		return nil
	}
	return Problems(found)
}

// Err is all problems found so far as one error, or nil.
func (g *Graph) Err() error {
	if len(g.Problems) == 0 {
		return nil
	}
	return Problems(g.Problems)
}

// Describe names a node for people.
func (n *Node) Describe() string {
	switch n.Kind {
	case Hook, Job:
		return fmt.Sprintf("%s %s of %s", n.Kind, n.Name, n.Module.Label())
	case Config, Builtin, Invoke:
		return fmt.Sprintf("%s %s", n.Kind, n.Name)
	}
	return n.Name
}

// location is where a node is declared, with its module.
func (n *Node) location() string {
	switch {
	case n.Kind == Builtin:
		return "offered by the hive"
	}
	return inModule(n.Where, n.Module)
}

func inModule(where decl.Location, m *Module) string {
	if m.ID == "" {
		return where.String()
	}
	return fmt.Sprintf("%s (module %s)", where, m.ID)
}

// typeName is a type as written in the source, import paths cut to the package. It is called for
// each edge of a graph, too often for a regular expression.
func typeName(t reflect.Type) string {
	text := t.String()
	var b strings.Builder
	start := 0 // of what is kept of the path, or of what follows it
	for i := range len(text) {
		switch c := text[i]; {
		case c == '/':
			start = i + 1
		case !inPath(c):
			b.WriteString(text[start : i+1])
			start = i + 1
		}
	}
	b.WriteString(text[start:])
	return b.String()
}

// inPath reports whether an import path can have a character.
func inPath(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_.~-", c) >= 0
}

// TypeName is a type as written in the source.
func TypeName(t reflect.Type) string { return typeName(t) }

// FullName is a type with its import path. It tells types apart that read the
// same.
func FullName(t reflect.Type) string {
	switch {
	case t.Name() != "" && t.PkgPath() != "":
		return t.PkgPath() + "." + t.Name()
	case t.Name() == "" && t.Kind() == reflect.Pointer:
		return "*" + FullName(t.Elem())
	case t.Name() == "" && t.Kind() == reflect.Slice:
		return "[]" + FullName(t.Elem())
	}
	return t.String()
}

// fullString is the value with the import path of its type.
func (k Key) fullString() string {
	return strings.Replace(k.String(), typeName(k.Type), FullName(k.Type), 1)
}

// RequestChain is the node, and the nodes through which it was requested, up to
// the root.
func (n *Node) RequestChain() []Row {
	rows := []Row{{"declared", n.location()}}
	for by := n.requestedBy; by != nil; by = by.requestedBy {
		rows = append(rows, Row{"asked by", by.Describe() + ", " + by.location()})
	}
	return rows
}
