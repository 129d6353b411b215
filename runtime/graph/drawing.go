// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Drawing says what a drawing shows. Its zero value is cells and, on the lines
// between them, types.
type Drawing struct {
	Full bool // constructors, hooks and jobs, too
	// Attempt, less than Attempts, changes what nobody sees in a dot text so
	// that Graphviz stacks the process and the terms in another order. Which is
	// right shows in the outcome only.
	Attempt int
}

// Attempts is how many dot texts there are for the same drawing.
const Attempts = 4

// canvas is a graph on its way to paper: which links are lines, and which are
// marks in boxes.
type canvas struct {
	*index
	*bufio.Writer
	Drawing
	lines  []drawnLink
	shared map[string]bool     // types that marks stand for
	marks  map[string][]string // by label of the module
}

// drawnLink is a link with its place in Links. Its types are those that stand
// on the line.
type drawnLink struct {
	Link
	index int
}

func (g *Graph) canvas(w io.Writer, show Drawing) *canvas {
	d := &canvas{index: newIndex(g), Writer: bufio.NewWriter(w), Drawing: show, shared: map[string]bool{}, marks: map[string][]string{}}
	d.planLines()
	return d
}

// maxFan is how many lines may leave a box, or bring the members of a group.
// What more modules share is marked in their boxes: a line to everyone tells
// nothing and hides the rest.
const maxFan = 6

// planLines decides which links are drawn as lines.
func (d *canvas) planLines() {
	links := d.links()
	takers := map[string][]string{} // by the module that gives
	fans := map[string]*fan{}       // by type
	var types []string
	for _, l := range links {
		if l.Enters == "" {
			takers[l.From] = appendNew(takers[l.From], l.To)
		}
		for _, t := range l.Types {
			if fans[t] == nil {
				fans[t] = &fan{}
				types = append(types, t)
			}
			fans[t].takers, fans[t].givers = appendNew(fans[t].takers, l.To), appendNew(fans[t].givers, l.From)
		}
	}
	for _, t := range types {
		wide := func(giver string) bool { return len(takers[giver]) > maxFan }
		if len(fans[t].givers) > maxFan || slices.ContainsFunc(fans[t].givers, wide) {
			d.shared[t] = true
			d.mark(shortKey(t), fans[t])
		}
	}
	for i, l := range links {
		l.Types = slices.DeleteFunc(slices.Clone(l.Types), func(t string) bool { return d.shared[t] })
		if len(l.Types) > 0 || l.Enters != "" {
			d.lines = append(d.lines, drawnLink{l, i})
		}
	}
}

// fan is who gives and who takes values of a type.
type fan struct{ givers, takers []string }

// mark notes a type in the boxes of those who give and take it.
func (d *canvas) mark(name string, f *fan) {
	for _, g := range f.givers {
		d.marks[g] = append(d.marks[g], "→ "+name+many(" for", f.takers))
	}
	for _, t := range f.takers {
		d.marks[t] = append(d.marks[t], "← "+name+many(" of", f.givers))
	}
}

// many counts cells where there are too many for lines.
func many(of string, cells []string) string {
	if len(cells) <= maxFan {
		return ""
	}
	return fmt.Sprintf("%s %d cells", of, len(cells))
}

// eachNodeLink visits the lines between nodes.
func (d *canvas) eachNodeLink(visit func(provider, n *Node, need *Need)) {
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.instance() || n.Kind == KindBuiltin {
			continue
		}
		for _, need := range d.needs(n) {
			for _, p := range d.sources(need) {
				if p.Kind != KindBuiltin && (!d.shared[need.key()] || d.cell(p) == d.cell(n)) {
					visit(p, n, need)
				}
			}
		}
	}
}

// scopeTitle says what a frame around cells of one life is.
func (x *index) scopeTitle(term string) string {
	title := TermLabel(term)
	if by := x.entersTerm(term); len(by) > 0 {
		title += ", entered by " + strings.Join(by, ", ")
	}
	return title
}

// maxTypes is how many types stand on a line before the rest is counted.
const maxTypes = 3

// lineLabel is what stands on a line.
func lineLabel(l Link) []string {
	var texts []string
	for _, t := range l.Types {
		texts = append(texts, shortKey(t))
	}
	if len(texts) > maxTypes {
		more := len(texts) - maxTypes + 1
		texts = append(texts[:maxTypes-1], fmt.Sprintf("and %d more", more))
	}
	return texts
}

// shortKey leaves the type of a group's members to the tooltip.
func shortKey(key string) string {
	if _, group, ok := strings.Cut(key, " in group "); ok {
		return "group " + group
	}
	return key
}

// state is the class of a module: on or off, and how it fares where it runs.
func state(m *Module) string {
	if !m.Enabled {
		return "off"
	}
	if m.Health != "" {
		return "on " + strings.ToLower(m.Health)
	}
	return "on"
}

// reason says why a module is off, without its own name in front.
func (m *Module) reason() string {
	return strings.TrimPrefix(m.Reason, m.ID+" ")
}

// wrap breaks text into lines of about width letters.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), word
			continue
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
