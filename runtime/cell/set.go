// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cell

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/nearest"
)

// Cells is a list of cells that embedders change. It is itself a cell. The
// methods leave the receiver as it is and return the changed list.
type Cells struct{ list []decl.Node }

// Set makes a list of cells.
func Set(cells ...Cell) Cells { return Cells{nodes(cells)} }

// Declaration implements [Cell].
func (c Cells) Declaration() decl.Node { return &decl.Group{Cells: c.list} }

// With adds cells at the end.
func (c Cells) With(cells ...Cell) Cells {
	return Cells{append(slices.Clone(c.list), nodes(cells)...)}
}

// WithInTerm adds cells at the end of the named term.
func (c Cells) WithInTerm(term string, cells ...Cell) Cells {
	added := nodes(cells)
	list, found := rewriteTerm(c.list, term, func(t decl.Term) decl.Node {
		t.Cells = append(slices.Clone(t.Cells), added...)
		return &t
	})
	if !found {
		list = append(list, unknown("WithInTerm", term, "no term of that name is in the list",
			nearest.Hint(term, termNames(c.list), "name a term of the list: "+strings.Join(termNames(c.list), ", ")), decl.Caller(0)))
	}
	return Cells{list}
}

// Without removes the module of the given id. What it provided is gone, and so
// are its flags.
func (c Cells) Without(id string) Cells {
	where := decl.Caller(0)
	return c.rewrite("Without", id, where, func(old *decl.Module) decl.Node {
		return &decl.Removed{Module: old}
	})
}

// Replace puts a module in the place of the module of the given id. Flags of
// the old module that the new one does not declare stay accepted and do
// nothing.
func (c Cells) Replace(id string, module Cell) Cells {
	where := decl.Caller(0)
	return c.rewrite("Replace", id, where, func(old *decl.Module) decl.Node {
		if module != nil {
			if m, ok := module.Declaration().(*decl.Module); ok {
				next := *m
				next.Replaces = old
				return &next
			}
		}
		return &decl.Broken{
			Problem: fmt.Sprintf("Replace(%q): the replacement is no module", id),
			Fix:     "wrap it in cell.Module",
			Where:   where,
		}
	})
}

func (c Cells) rewrite(method, id string, where decl.Location, change func(*decl.Module) decl.Node) Cells {
	list, found := rewriteModule(c.list, "", id, change)
	switch {
	case found:
	case slices.Contains(removedIDs(c.list, ""), id):
		list = append(list, unknown(method, id, "Without has removed the module from the list before",
			"remove it once, or replace it instead", where))
	default:
		list = append(list, unknown(method, id, "no module of that id is in the list",
			nearest.Hint(id, moduleIDs(c.list, ""), "name a module of the list; the cells command prints them"), where))
	}
	return Cells{list}
}

func unknown(method, name, problem, fix string, where decl.Location) decl.Node {
	return &decl.Broken{Problem: fmt.Sprintf("%s(%q): %s", method, name, problem), Fix: fix, Where: where}
}

// rewriteModule copies the path down to the module of the given full id and
// puts the changed node in its place.
func rewriteModule(list []decl.Node, outer, id string, change func(*decl.Module) decl.Node) ([]decl.Node, bool) {
	list = slices.Clone(list)
	for i, n := range list {
		var found bool
		switch n := n.(type) {
		case *decl.Module:
			full := decl.JoinID(outer, n.ID)
			if full == id {
				list[i] = change(n)
				return list, true
			}
			next := *n
			if next.Cells, found = rewriteModule(n.Cells, full, id, change); found {
				list[i] = &next
			}
		case *decl.Group:
			next := *n
			if next.Cells, found = rewriteModule(n.Cells, outer, id, change); found {
				list[i] = &next
			}
		case *decl.Term:
			next := *n
			if next.Cells, found = rewriteModule(n.Cells, outer, id, change); found {
				list[i] = &next
			}
		}
		if found {
			return list, true
		}
	}
	return list, false
}

func rewriteTerm(list []decl.Node, name string, change func(decl.Term) decl.Node) ([]decl.Node, bool) {
	list = slices.Clone(list)
	for i, n := range list {
		switch n := n.(type) {
		case *decl.Term:
			if n.Name == name {
				list[i] = change(*n)
				return list, true
			}
		case *decl.Group:
			next := *n
			var found bool
			if next.Cells, found = rewriteTerm(n.Cells, name, change); found {
				list[i] = &next
				return list, true
			}
		}
	}
	return list, false
}

// removedIDs are the ids of modules that were removed, and of those nested in them.
func removedIDs(list []decl.Node, outer string) []string {
	var ids []string
	for _, n := range list {
		switch n := n.(type) {
		case *decl.Removed:
			ids = append(ids, moduleIDs([]decl.Node{n.Module}, outer)...)
		case *decl.Module:
			ids = append(ids, removedIDs(n.Cells, decl.JoinID(outer, n.ID))...)
		case *decl.Group:
			ids = append(ids, removedIDs(n.Cells, outer)...)
		case *decl.Term:
			ids = append(ids, removedIDs(n.Cells, outer)...)
		}
	}
	return ids
}

func moduleIDs(list []decl.Node, outer string) []string {
	var ids []string
	for _, n := range list {
		switch n := n.(type) {
		case *decl.Module:
			full := decl.JoinID(outer, n.ID)
			ids = append(append(ids, full), moduleIDs(n.Cells, full)...)
		case *decl.Group:
			ids = append(ids, moduleIDs(n.Cells, outer)...)
		case *decl.Term:
			ids = append(ids, moduleIDs(n.Cells, outer)...)
		}
	}
	return ids
}

func termNames(list []decl.Node) []string {
	var names []string
	for _, n := range list {
		switch n := n.(type) {
		case *decl.Term:
			names = append(names, n.Name)
		case *decl.Group:
			names = append(names, termNames(n.Cells)...)
		}
	}
	return names
}
