// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/skep-operator/skep/runtime/graph"
)

// WriteMermaid writes the graph in the language of Mermaid, as a flowchart.
func WriteMermaid(w io.Writer, g *graph.Graph, show Options) error {
	m := &mermaid{drawing: newDrawing(w, g, show)}
	m.print(0, "flowchart LR")
	for i, term := range m.Scopes() {
		m.print(1, "subgraph scope%d[%s]", i, mermaidText(m.ScopeTitle(term)))
		for _, module := range m.Shown(term) {
			if module.Parent == "" {
				m.module(module, 2)
			}
		}
		m.print(1, "end")
	}
	if show.Full {
		m.drawNodeLinks()
	} else {
		m.drawLinks()
	}
	m.print(1, "classDef default fill:%s,stroke:%s,color:%s", background, boxBorder, primaryText)
	m.print(1, "classDef term fill:%s,stroke:%s,color:%s", background, termLine, primaryText)
	m.print(1, "classDef off fill:%s,stroke:%s,color:%s,stroke-dasharray:4", disabledFill, boxBorder, disabledText)
	for i, term := range m.Scopes() {
		fill, border := processFill, frameBorder
		if term != "" {
			fill, border = termFill, termBorder
		}
		m.print(1, "style scope%d fill:%s,stroke:%s,color:%s", i, fill, border, secondaryText)
	}
	for _, id := range m.frames {
		m.print(1, "style frame%d fill:none,stroke:%s,color:%s", id, frameBorder, secondaryText)
	}
	return m.Flush()
}

type mermaid struct {
	*drawing
	frames []int // positions of the modules that have one
}

func (m *mermaid) print(depth int, format string, args ...any) {
	fmt.Fprintf(m, strings.Repeat("  ", depth)+format+"\n", args...)
}

// module draws a module, in a frame where it has others nested in it or its
// inside is shown.
func (m *mermaid) module(module *graph.Module, depth int) {
	inner := m.Nested[module.ID]
	framed := len(inner) > 0 || m.Full
	if framed {
		title := " "
		if m.Full {
			title = strings.TrimSuffix(module.Label()+" ("+state(module)+")", " (on)")
		}
		m.frames = append(m.frames, m.Position[module.Label()])
		m.print(depth, "subgraph frame%d[%s]", m.Position[module.Label()], mermaidText(title))
		depth++
	}
	if m.Full {
		m.inside(module, depth)
	} else {
		class := ""
		switch {
		case !module.Enabled:
			class = ":::off"
		case module.Term != "":
			class = ":::term"
		}
		m.print(depth, "%s[%s]%s", m.name(module.Label()), mermaidText(boxText(module, m.annotations[module.Label()])), class)
	}
	for _, id := range inner {
		m.module(m.ByLabel[id], depth)
	}
	if framed {
		m.print(depth-1, "end")
	}
}

// boxText is what stands in a box, one line each.
func boxText(m *graph.Module, marks []string) string {
	lines := []string{m.Label()}
	if m.Health != "" {
		lines[0] += " (" + m.Health + ")"
	}
	if m.Enabled {
		lines = append(lines, wrap(m.Title, titleWidth)...)
	} else {
		lines = append(lines, wrap("off: "+m.ReasonOff(), titleWidth)...)
	}
	return strings.Join(append(lines, marks...), "\n")
}

func (m *mermaid) inside(module *graph.Module, depth int) {
	for _, n := range m.NodesOf(module.Label()) {
		open, closed, name := "[", "]", n.Name
		if n.IsRoot() {
			open, closed, name = "([", "])", n.Kind+" "+n.Name
		}
		class := ""
		if !m.IsBuilt(n) {
			class = ":::off"
		}
		lines := append([]string{name}, n.Provides...)
		if n.Kind == graph.KindConfig {
			lines = []string{name, "config"}
		}
		m.print(depth, "n%d%s%s%s%s", n.ID, open, mermaidText(strings.Join(lines, "\n")), closed, class)
	}
}

func (m *mermaid) drawLinks() {
	for _, l := range m.lines {
		switch {
		case l.Enters != "":
			m.print(1, "%s ==>|enters| scope%d", m.name(l.From), m.ScopeIndex(l.Enters))
		case l.Optional || l.Off:
			m.print(1, "%s -.->|%s| %s", m.name(l.From), mermaidText(strings.Join(lineLabel(l.Link), "\n")), m.name(l.To))
		default:
			m.print(1, "%s -->|%s| %s", m.name(l.From), mermaidText(strings.Join(lineLabel(l.Link), "\n")), m.name(l.To))
		}
	}
}

func (m *mermaid) drawNodeLinks() {
	m.eachNodeLink(func(p, n *graph.Node, need *graph.Need) {
		arrow := "-->"
		if need.Dispensable() || !m.IsBuilt(n) {
			arrow = "-.->"
		}
		m.print(1, "n%d %s n%d", p.ID, arrow, n.ID)
	})
}

// name is how a box is called in the text: ids of modules hold characters that
// Mermaid reads as its own.
func (m *mermaid) name(label string) string { return fmt.Sprintf("m%d", m.Position[label]) }

var mermaidEscapes = strings.NewReplacer("&", "#amp;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "#", "#35;", "\n", "<br/>")

func mermaidText(s string) string { return `"` + mermaidEscapes.Replace(s) + `"` }
