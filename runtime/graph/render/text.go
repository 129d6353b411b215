// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/query"
)

// WriteText writes the graph for people: what each cell provides, to which cells, and
// what it needs, from which.
func WriteText(w io.Writer, g *graph.Graph) error {
	x := query.NewIndex(g)
	p := &page{Writer: bufio.NewWriter(w)}
	p.line(0, "%s: %s", g.Name, summary(g))
	for _, term := range x.Scopes() {
		modules := x.Shown(term)
		fmt.Fprintln(p)
		p.line(0, "%s", x.ScopeTitle(term))
		for _, m := range modules {
			p.overview(x, m)
		}
	}
	return p.Flush()
}

// summary counts what is there.
func summary(g *graph.Graph) string {
	cells, on, steps := 0, 0, 0
	for _, m := range g.Modules {
		if m.ID != "" {
			cells++
			if m.Enabled {
				on++
			}
		}
	}
	for _, o := range g.Orders {
		steps += len(o.Steps)
	}
	return fmt.Sprintf("%s, %d of them on, with %s", plural(cells, "cell"), on, plural(steps, "start step"))
}

func (p *page) overview(x *query.Index, m *graph.Module) {
	f := x.CellFacts(m)
	depth := 1 + x.Depth(m)
	p.line(depth, "%s%s", f.ID, prefixed(": ", f.Title))
	if f.Health != "" {
		p.line(depth+1, "health   %s", f.Health)
	}
	if !f.Enabled {
		p.line(depth+1, "off      %s", f.Reason)
	}
	for _, v := range f.Provides {
		if users := otherCells(v.Users, f.ID); v.Kind != graph.KindDecorator && len(users) > 0 {
			p.line(depth+1, "provides %s → %s", v.Type, strings.Join(users, ", "))
		}
	}
	for _, n := range f.Needs {
		switch from := without(n.From, f.ID, graph.HiveLabel); {
		case len(from) > 0 && n.Optional:
			p.line(depth+1, "needs    %s ← %s (optional)", n.Type, strings.Join(from, ", "))
		case len(from) > 0:
			p.line(depth+1, "needs    %s ← %s", n.Type, strings.Join(from, ", "))
		case len(n.From) == 0 && len(n.Off) > 0:
			p.line(depth+1, "needs    %s ← %s, which is off", n.Type, strings.Join(n.Off, ", "))
		}
	}
}

// otherCells are the cells of users that are on, without one's own.
func otherCells(users []query.User, own string) []string {
	var cells []string
	for _, u := range users {
		if u.Cell != own && !u.Off {
			cells = appendNew(cells, u.Cell)
		}
	}
	return cells
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
