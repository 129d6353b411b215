// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/query"
)

// Options says what a drawing shows. Its zero value is cells and, on the lines
// between them, types.
type Options struct {
	Full bool // constructors, hooks and jobs, too
	// Variant, less than Variants, changes invisible parts of a dot text so
	// that Graphviz stacks the process and the terms in another order. The best
	// one is known only after the layout.
	Variant int
}

// Variants is how many dot texts there are for the same drawing.
const Variants = 4

// drawing is a graph to be drawn: which links are lines, and which are
// annotations of boxes.
type drawing struct {
	*query.Index
	*bufio.Writer
	Options
	lines       []drawnLink
	shared      map[string]bool     // types that marks stand for
	annotations map[string][]string // by label of the module
}

// drawnLink is a link with its place in Links. Its types are those that stand
// on the line.
type drawnLink struct {
	query.Link
	index int
}

func newDrawing(w io.Writer, g *graph.Graph, show Options) *drawing {
	d := &drawing{Index: query.NewIndex(g), Writer: bufio.NewWriter(w), Options: show, shared: map[string]bool{}, annotations: map[string][]string{}}
	d.planLines()
	return d
}

// maxLines is how many lines may leave a box, or bring the members of a group.
// What more modules share is marked in their boxes: a line to everyone tells
// nothing and hides the rest.
const maxLines = 6

// planLines decides which links are drawn as lines.
func (d *drawing) planLines() {
	links := d.Links()
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
		wide := func(giver string) bool { return len(takers[giver]) > maxLines }
		if len(fans[t].givers) > maxLines || slices.ContainsFunc(fans[t].givers, wide) {
			d.shared[t] = true
			d.annotate(shortKey(t), fans[t])
		}
	}
	for i, l := range links {
		l.Types = slices.DeleteFunc(slices.Clone(l.Types), func(t string) bool { return d.shared[t] })
		if len(l.Types) > 0 || l.Enters != "" {
			d.lines = append(d.lines, drawnLink{l, i})
		}
	}
}

// fan are the modules that provide and that take values of a type.
type fan struct{ givers, takers []string }

// annotate names a type in the boxes of the modules that provide and take it.
func (d *drawing) annotate(name string, f *fan) {
	for _, g := range f.givers {
		d.annotations[g] = append(d.annotations[g], "→ "+name+many(" for", f.takers))
	}
	for _, t := range f.takers {
		d.annotations[t] = append(d.annotations[t], "← "+name+many(" of", f.givers))
	}
}

// many counts cells where there are too many for lines.
func many(of string, cells []string) string {
	if len(cells) <= maxLines {
		return ""
	}
	return fmt.Sprintf("%s %d cells", of, len(cells))
}

// eachNodeLink visits the lines between nodes.
func (d *drawing) eachNodeLink(visit func(provider, n *graph.Node, need *graph.Need)) {
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.IsInstance() || n.Kind == graph.KindBuiltin {
			continue
		}
		for _, need := range d.NeedsOf(n) {
			for _, p := range d.SourcesOf(need) {
				if p.Kind != graph.KindBuiltin && (!d.shared[need.Key()] || d.CellOf(p) == d.CellOf(n)) {
					visit(p, n, need)
				}
			}
		}
	}
}

// maxTypes is how many types stand on a line before the rest is counted.
const maxTypes = 3

// lineLabel is what stands on a line.
func lineLabel(l query.Link) []string {
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
func state(m *graph.Module) string {
	if !m.Enabled {
		return "off"
	}
	if m.Health != "" {
		return "on " + strings.ToLower(m.Health)
	}
	return "on"
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
