// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteCells writes the catalogue of cells: what each does, whether it is on,
// and why not. With verbose it has flags, conditions and places in the source.
func (g *Graph) WriteCells(w io.Writer, verbose bool) error {
	if verbose {
		return g.writeCatalogue(w)
	}
	x := newIndex(g)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CELL\tTERM\tSTATE\tTITLE")
	for _, term := range x.scopes() {
		for _, m := range x.shown(term) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Label(), emptyAs(m.Term, "-"), onOff(m.Enabled), remarks(m))
		}
	}
	return t.Flush()
}

// remarks are the title, what was replaced, and why the cell is off.
func remarks(m *Module) string {
	text := m.Title + prefixed("; replaces ", m.Replaces)
	if !m.Enabled {
		text += "; " + m.reason()
	}
	return strings.TrimPrefix(text, "; ")
}

func (g *Graph) writeCatalogue(w io.Writer) error {
	x := newIndex(g)
	p := &page{Writer: bufio.NewWriter(w)}
	for _, term := range x.scopes() {
		for _, m := range x.shown(term) {
			p.part()
			p.line(0, "%s%s", m.Label(), prefixed(": ", m.Title))
			p.field("lives in", "%s%s", TermLabel(m.Term), prefixed(", within ", m.Parent))
			p.field("state", "%s%s", onOff(m.Enabled), prefixed(": ", m.reason()))
			for _, c := range x.conditions(m) {
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
	return p.Flush()
}

// WriteHealth writes the health of the cells of a running hive, the worst
// first.
func (g *Graph) WriteHealth(w io.Writer) error {
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
