// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/query"
	"github.com/skep-operator/skep/runtime/printable"
)

// WriteCells writes the catalogue of cells: what each does, whether it is on,
// and why not. With verbose it has flags, conditions and places in the source.
func WriteCells(w io.Writer, g *graph.Graph, verbose bool) error {
	if verbose {
		return writeCatalogue(w, g)
	}
	x := query.NewIndex(g)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CELL\tTERM\tSTATE\tTITLE")
	for _, term := range x.Scopes() {
		for _, m := range x.Shown(term) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Label(), emptyAs(m.Term, "-"), onOff(m.Enabled), printable.Line(remarks(m)))
		}
	}
	for _, n := range g.NotBuilt {
		if n.Asked.Holds {
			fmt.Fprintf(t, "%s\t-\tnot built\t%s; asked for by %s\n", n.ID, n.Title, strings.Join(n.Asked.Flags, " or "))
		}
	}
	return t.Flush()
}

// remarks are the title, what was replaced, and why the cell is off.
func remarks(m *graph.Module) string {
	text := m.Title + prefixed("; replaces ", m.Replaces)
	if !m.Enabled {
		text += "; " + m.ReasonOff()
	}
	return strings.TrimPrefix(text, "; ")
}

func writeCatalogue(w io.Writer, g *graph.Graph) error {
	x := query.NewIndex(g)
	p := &page{Writer: bufio.NewWriter(w)}
	for _, term := range x.Scopes() {
		for _, m := range x.Shown(term) {
			p.separate()
			p.line(0, "%s%s", m.Label(), prefixed(": ", m.Title))
			p.field("lives in", "%s%s", graph.TermLabel(m.Term), prefixed(", within ", m.Parent))
			p.field("state", "%s%s", onOff(m.Enabled), prefixed(": ", m.ReasonOff()))
			for _, c := range x.ConditionsOf(m) {
				p.field("condition", "%s", condition(c, m.Label()))
			}
			p.field("health", "%s", m.Health)
			p.field("replaces", "%s", m.Replaces)
			p.field("declared", "%s", m.Declared)
			for _, o := range m.Options {
				p.field("flag", "%s", optionText(o))
			}
		}
	}
	for i := range g.NotBuilt {
		p.separate()
		p.notBuilt(&g.NotBuilt[i])
	}
	return p.Flush()
}

func (p *page) notBuilt(n *graph.NotBuilt) {
	p.line(0, "%s is not built yet: %s", n.ID, n.Title)
	outcome := "yes"
	if !n.Asked.Holds {
		outcome = "no, it would be if"
	}
	p.field("asked for", "%s: %s (%s)", outcome, n.Asked.Name, strings.Join(n.Asked.Flags, ", "))
}

// WriteHealth writes the health of the cells of a running hive, the worst
// first.
func WriteHealth(w io.Writer, g *graph.Graph) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "HEALTH\tCELL\tTITLE")
	for _, level := range []string{"Degraded", "OK", "Stopped"} {
		for _, m := range g.Modules {
			if m.Health == level {
				fmt.Fprintf(t, "%s\t%s\t%s\n", level, m.Label(), m.Title)
			}
		}
	}
	return t.Flush()
}
