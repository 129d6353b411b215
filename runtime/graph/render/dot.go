// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

import (
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/printable"
)

// WriteDot writes the graph in the language of Graphviz. Every drawn thing has
// a class that says what it is, and an id: cell-<module>, link-<index in Links>,
// node-<id of a node>, or line-<node that provides>-<node that needs>-<which of
// its needs>, so that it can be found in the SVG made of it.
func WriteDot(w io.Writer, g *graph.Graph, show Options) error {
	d := newDrawing(w, g, show)
	fmt.Fprintf(d, "digraph %s {\n", quote(g.Name))
	fmt.Fprintf(d, "\tgraph %s\n", attrs{
		{"rankdir", "LR"}, {"compound", "true"}, {"newrank", "true"}, {"fontname", quote(font)}, {"fontsize", "12"},
		{"nodesep", "0.2"}, {"ranksep", "0.8"}, {"pad", "0.2"}, {"bgcolor", "transparent"}, {"tooltip", quote(g.Name)},
	})
	fmt.Fprintf(d, "\tnode %s\n", attrs{
		{"shape", "box"}, {"style", quote("rounded,filled")}, {"fontname", quote(font)}, {"fontsize", "12"},
		{"margin", quote("0.13,0.06")}, {"fillcolor", quote(background)}, {"color", quote(boxBorder)}, {"fontcolor", quote(primaryText)},
	})
	fmt.Fprintf(d, "\tedge %s\n", attrs{
		{"fontname", quote(font)}, {"fontsize", "10"}, {"arrowsize", "0.6"}, {"color", quote(linkColour)}, {"fontcolor", quote(secondaryText)},
	})
	l := &layout{}
	if !d.Full {
		l = newLayout(d)
	}
	scopes := d.Scopes()
	for i := range scopes {
		if d.Variant%2 == 1 {
			i = len(scopes) - 1 - i
		}
		d.dotScope(i, scopes[i], l)
	}
	if d.Full {
		d.eachNodeLink(d.dotNodeLink)
	} else {
		d.dotColumns(l)
		d.dotLinks(l)
	}
	fmt.Fprintln(d, "}")
	return d.Flush()
}

const font = "Arial"

func (d *drawing) dotScope(i int, term string, l *layout) {
	class, fill, border := "scope process", processFill, frameBorder
	if term != "" {
		class, fill, border = "scope term", termFill, termBorder
	}
	title := d.ScopeTitle(term)
	fmt.Fprintf(d, "\tsubgraph cluster_%d {\n\t\tgraph %s\n", i, attrs{
		{"id", quote(fmt.Sprintf("scope-%d", i))}, {"class", quote(class)}, {"label", bold(title)}, {"labeljust", "l"},
		{"style", quote("rounded,filled")}, {"margin", "16"}, {"fillcolor", quote(fill)}, {"color", quote(border)},
		{"fontcolor", quote(secondaryText)}, {"tooltip", quote(title)},
	})
	d.dotRows(i, term, l)
	fmt.Fprint(d, "\t}\n")
}

// dotRows draws the outermost modules of a scope; folded rows are in frames
// that are invisible.
func (d *drawing) dotRows(scope int, term string, l *layout) {
	rows := map[int][]*graph.Module{}
	for _, m := range d.Shown(term) {
		if m.Parent == "" {
			rows[l.row[m.Label()]] = append(rows[l.row[m.Label()]], m)
		}
	}
	for _, row := range slices.Backward(slices.Sorted(maps.Keys(rows))) { // Graphviz stacks them from the bottom up
		if l.wrapped {
			fmt.Fprintf(d, "\t\tsubgraph cluster_%d_%d {\n\t\t\tgraph [style=invis label=\"\" margin=0]\n", scope, row)
		}
		for _, m := range rows[row] {
			d.dotModule(m, "\t\t")
		}
		if l.wrapped {
			fmt.Fprint(d, "\t\t}\n")
		}
	}
}

// dotColumns pins boxes to columns by an invisible row of points.
func (d *drawing) dotColumns(l *layout) {
	for c, labels := range l.columns() {
		if c > 0 {
			fmt.Fprintf(d, "\tcolumn_%d -> column_%d [style=invis]\n", c-1, c)
		}
		fmt.Fprintf(d, "\t{ rank=same; column_%d [style=invis shape=point width=0 height=0 label=\"\"]", c)
		for _, label := range labels {
			fmt.Fprintf(d, "; %s", quote(label))
		}
		fmt.Fprint(d, " }\n")
	}
	if d.Variant >= 2 {
		d.dotTies(l)
	}
}

// dotTies ties a box of every scope to the columns: Graphviz stacks what hangs
// together in another order than what does not.
func (d *drawing) dotTies(l *layout) {
	for _, term := range d.Scopes() {
		shown := d.Shown(term)
		if len(shown) == 0 {
			continue
		}
		first := shown[0].Label()
		if c := l.column[first]; c > 0 {
			fmt.Fprintf(d, "\tcolumn_%d -> %s [style=invis weight=0]\n", c-1, quote(first))
		} else {
			fmt.Fprintf(d, "\t%s -> column_1 [style=invis weight=0]\n", quote(first))
		}
	}
}

// dotModule draws a module, in a frame where it has others nested in it or its
// inside is shown.
func (d *drawing) dotModule(m *graph.Module, indent string) {
	inner, in := d.Nested[m.ID], indent
	framed := len(inner) > 0 || d.Full
	if framed {
		label := quote("")
		if d.Full {
			label = boxLabel(m, nil)
		}
		fmt.Fprintf(d, "%ssubgraph %s {\n%s\tgraph %s\n", indent, quote("cluster_"+m.Label()), indent, attrs{
			{"id", quote("frame-" + m.Label())}, {"class", quote("frame " + state(m))}, {"label", label}, {"labeljust", "l"},
			{"style", quote("rounded")}, {"margin", "10"}, {"color", quote(frameBorder)}, {"tooltip", quote(moduleTip(m))},
		})
		in += "\t"
	}
	if d.Full {
		d.dotInside(m, in)
	} else {
		d.dotBox(m, in)
	}
	for _, id := range inner {
		d.dotModule(d.ByLabel[id], in)
	}
	if framed {
		fmt.Fprintf(d, "%s}\n", indent)
	}
}

func (d *drawing) dotBox(m *graph.Module, indent string) {
	a := attrs{
		{"id", quote("cell-" + m.Label())}, {"class", quote("cell " + state(m))},
		{"label", boxLabel(m, d.annotations[m.Label()])}, {"tooltip", quote(moduleTip(m))},
	}
	switch {
	case !m.Enabled:
		a = append(a, attrs{{"style", quote("rounded,filled,dashed")}, {"fillcolor", quote(disabledFill)}, {"color", quote(boxBorder)}, {"fontcolor", quote(disabledText)}}...)
	case m.Term != "":
		a = append(a, attr{"color", quote(termLine)})
	}
	fmt.Fprintf(d, "%s%s %s\n", indent, quote(m.Label()), a)
}

// titleWidth is where titles in boxes are broken.
const titleWidth = 26

// boxLabel is the id, the health where it is known, the title, why the module
// is off, and its marks.
func boxLabel(m *graph.Module, marks []string) string {
	rows := rows{healthMark(m.Health) + "<b>" + escape(m.Label()) + "</b>"}
	text, ink, mark := m.Title, secondaryText, annotationText
	if !m.Enabled {
		text, ink, mark = "off: "+m.ReasonOff(), disabledText, disabledText
	}
	for _, l := range wrap(text, titleWidth) {
		rows.small(l, ink)
	}
	for _, m := range marks {
		rows.small(m, mark)
	}
	return rows.String()
}

func healthMark(level string) string {
	colour := map[string]string{"OK": healthy, "Degraded": degraded, "Stopped": disabledText}[level]
	if colour == "" {
		return ""
	}
	return fmt.Sprintf(`<font color="%s">●</font> `, colour)
}

// rows is a label of several lines, each already markup.
type rows []string

func (r *rows) small(text, colour string) {
	*r = append(*r, fmt.Sprintf(`<font point-size="10" color="%s">%s</font>`, colour, escape(text)))
}

func (r rows) String() string {
	var b strings.Builder
	b.WriteString(`<<table border="0" cellborder="0" cellspacing="0" cellpadding="1">`)
	for _, row := range r {
		b.WriteString(`<tr><td align="left">` + row + `</td></tr>`)
	}
	b.WriteString("</table>>")
	return b.String()
}

func moduleTip(m *graph.Module) string {
	tip := m.Label()
	if m.Title != "" {
		tip += ": " + printable.Line(m.Title)
	}
	if !m.Enabled {
		tip += "\noff: " + printable.Line(m.ReasonOff())
	}
	if m.Health != "" {
		tip += "\nhealth: " + m.Health
	}
	return tip
}

func (d *drawing) dotLinks(place *layout) {
	for _, l := range d.lines {
		to := l.To
		class, tip := "link", strings.Join(l.Types, "\n")
		a := attrs{{"id", quote(fmt.Sprintf("link-%d", l.index))}, {"label", quote(strings.Join(lineLabel(l.Link), "\n"))}}
		switch {
		case l.Enters != "":
			to, class, tip = d.firstOf(l.Enters), "link enters", l.From+" enters the term "+l.Enters
			a = append(a, attrs{{"color", quote(termLine)}, {"penwidth", "2"}, {"lhead", fmt.Sprintf("cluster_%d", d.ScopeIndex(l.Enters))}, {"constraint", "false"}}...)
		case l.Off:
			class = "link off"
			a = append(a, attrs{{"style", "dotted"}, {"color", quote(boxBorder)}, {"fontcolor", quote(disabledText)}}...)
		case l.Optional:
			class = "link optional"
			a = append(a, attr{"style", "dashed"})
		}
		if to == "" {
			continue // a term without cells
		}
		if l.Enters == "" && place.column[l.From] >= place.column[to] {
			a = append(a, attr{"constraint", "false"})
		}
		a = append(a, attrs{{"class", quote(class)}, {"tooltip", quote(tip)}, {"labeltooltip", quote(tip)}}...)
		fmt.Fprintf(d, "\t%s -> %s %s\n", quote(l.From), quote(to), a)
	}
}

// firstOf is the cell of a term that a line to all of it is drawn to.
func (d *drawing) firstOf(term string) string {
	for _, m := range d.Shown(term) {
		return m.Label()
	}
	return ""
}

// dotInside draws what is declared in a module.
func (d *drawing) dotInside(m *graph.Module, indent string) {
	nodes := d.NodesOf(m.Label())
	if len(nodes) == 0 { // something has to be there for the frame to be drawn
		fmt.Fprintf(d, "%s%s [style=invis width=0 height=0 margin=0 label=\"\"]\n", indent, quote("in "+m.Label()))
	}
	for _, n := range nodes {
		class, style := "node "+n.Kind, "filled"
		if n.IsRoot() {
			style = "rounded,filled"
		}
		a := attrs{{"id", quote(fmt.Sprintf("node-%d", n.ID))}, {"label", d.nodeLabel(n)}, {"tooltip", quote(n.Kind + " " + n.Name + "\n" + n.Declared)}}
		if !d.IsBuilt(n) {
			class, style = class+" idle", style+",dashed"
			a = append(a, attrs{{"fillcolor", quote(disabledFill)}, {"fontcolor", quote(disabledText)}}...)
		}
		a = append(a, attrs{{"class", quote(class)}, {"style", quote(style)}}...)
		fmt.Fprintf(d, "%sn%d %s\n", indent, n.ID, a)
	}
}

func (d *drawing) nodeLabel(n *graph.Node) string {
	name := n.Name
	if n.IsRoot() {
		name = n.Kind + " " + name
	}
	rows := rows{escape(name)}
	for _, p := range n.Provides {
		switch {
		case n.Kind == graph.KindConfig:
			p = "config"
		case n.Visibility != "":
			p += " (" + n.Visibility + ")"
		}
		rows.small(p, secondaryText)
	}
	for _, need := range d.NeedsOf(n) {
		if d.shared[need.Key()] {
			rows.small("← "+shortKey(need.Key()), annotationText)
		}
	}
	return rows.String()
}

func (d *drawing) dotNodeLink(p, n *graph.Node, need *graph.Need) {
	class := "link"
	a := attrs{{"id", quote(fmt.Sprintf("line-%d-%d-%d", p.ID, n.ID, slices.Index(d.NeedsOf(n), need)))}, {"tooltip", quote(need.Key())}}
	switch {
	case !d.IsBuilt(n):
		class = "link off"
		a = append(a, attrs{{"style", "dotted"}, {"color", quote(boxBorder)}}...)
	case need.Dispensable():
		class = "link optional"
		a = append(a, attr{"style", "dashed"})
	}
	fmt.Fprintf(d, "\tn%d -> n%d %s\n", p.ID, n.ID, append(a, attr{"class", quote(class)}))
}

// attr is an attribute; its value is written as it is.
type attr struct{ key, value string }

type attrs []attr

func (a attrs) String() string {
	parts := make([]string, len(a))
	for i, at := range a {
		parts[i] = at.key + "=" + at.value
	}
	return "[" + strings.Join(parts, " ") + "]"
}

var dotEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// quote writes a string as Graphviz reads it. What XML cannot have, and does not print, is escaped.
func quote(s string) string { return `"` + dotEscapes.Replace(printable.Text(s)) + `"` }

// escape writes a string for labels of several rows, which are a kind of HTML.
func escape(s string) string { return html.EscapeString(printable.Line(s)) }

func bold(s string) string { return "<<b>" + escape(s) + "</b>>" }
