// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package draw

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-graphviz"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/render"
)

// SVG writes the drawing of a graph. It is readable on light and on dark
// pages, and the same bytes each time.
func SVG(ctx context.Context, w io.Writer, g *graph.Graph, show render.Options) error {
	svg, err := layOut(ctx, g, show)
	if err != nil {
		return err
	}
	style := &element{name: "style", text: drawingStyle(`@media (prefers-color-scheme: dark)`)}
	svg.children = append([]*element{style}, svg.children...)
	var b strings.Builder
	b.WriteString("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")
	svg.write(&b)
	_, err = io.WriteString(w, b.String())
	return err
}

// layOut has Graphviz find the place of everything, until the process stands
// above the terms.
func layOut(ctx context.Context, g *graph.Graph, show render.Options) (*element, error) {
	engine, err := graphviz.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("starting Graphviz: %w", err)
	}
	// What Graphviz returns on closing is its last remark, not an error: for
	// one, that it guesses the width of letters that are not ASCII.
	defer func() { _ = engine.Close() }()
	var first *element
	for show.Variant = range render.Variants {
		svg, err := attempt(ctx, engine, g, show)
		if err != nil {
			return nil, err
		}
		if inOrder(svg) {
			return svg, nil
		}
		if first == nil {
			first = svg
		}
	}
	return first, nil
}

func attempt(ctx context.Context, engine *graphviz.Graphviz, g *graph.Graph, show render.Options) (*element, error) {
	var dot, out bytes.Buffer
	if err := render.WriteDot(&dot, g, show); err != nil {
		return nil, err
	}
	parsed, err := graphviz.ParseBytes(dot.Bytes())
	if err != nil {
		return nil, fmt.Errorf("reading the drawing: %w", err)
	}
	defer func() { _ = parsed.Close() }()
	if err := engine.Render(ctx, parsed, graphviz.SVG, &out); err != nil {
		return nil, fmt.Errorf("laying the drawing out: %w", err)
	}
	svg, err := parse(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("reading what Graphviz drew: %w", err)
	}
	tidy(svg, g.Name)
	return svg, nil
}

// inOrder reports whether the scopes stand one below the other.
func inOrder(svg *element) bool {
	heights := map[string]float64{}
	svg.walk(func(e *element) {
		if title := e.child("text"); title != nil && strings.HasPrefix(e.attr("class"), "cluster scope") {
			heights[e.attr("id")], _ = strconv.ParseFloat(title.attr("y"), 64)
		}
	})
	for i := 1; i < len(heights); i++ {
		if heights[fmt.Sprintf("scope-%d", i-1)] >= heights[fmt.Sprintf("scope-%d", i)] {
			return false
		}
	}
	return true
}

// tidy makes the SVG of Graphviz one to be shown and clicked: titles say what
// the tooltips do, and no element is there only for them.
func tidy(svg *element, name string) {
	svg.attrs = append([]attr{{"xmlns", "http://www.w3.org/2000/svg"}}, slices.DeleteFunc(svg.attrs, func(a attr) bool { return a.name == "xmlns" })...)
	svg.set("role", "img")
	svg.set("aria-label", "The cells of "+name+" and what they need of each other")
	svg.walk(func(e *element) {
		var children []*element
		for _, c := range e.children {
			link := c.child("a")
			if link == nil || !strings.HasPrefix(c.attr("id"), "a_") {
				children = append(children, c)
				continue
			}
			if title := e.child("title"); title != nil && !strings.HasSuffix(c.attr("id"), "-label") {
				title.text = link.attr("title")
			}
			children = append(children, link.children...)
		}
		e.children = children
		e.children = slices.DeleteFunc(e.children, func(c *element) bool { return c.name == "text" && c.text == "" })
		if e.name == "text" {
			e.remove("font-family") // the style has it
		}
		if e.name == "svg" || e.attr("class") == "graph" {
			e.children = slices.DeleteFunc(e.children, func(c *element) bool { return c.name == "title" })
		}
	})
}

//go:embed drawing.css
var drawingCSS string

// dark is what the colours of drawings become on a dark page.
var dark = map[string]string{
	"paper": "#1e242e", "ink": "#e8ebf0", "faint": "#a6b0be", "line": "#566273", "arrow": "#8592a3", "frame": "#39424f",
	"process": "#171c24", "honey": "#221d13", "comb": "#5d4d26", "umber": "#cdb57c", "amber": "#dea23a",
	"grey": "#1a1f27", "pale": "#7c8794", "green": "#57bd86", "red": "#f0796a",
}

// drawingStyle gives each colour of the drawing a name, and the names their
// values by the colour scheme of the page. onDark is the condition for dark.
func drawingStyle(onDark string) string {
	var b strings.Builder
	b.WriteString(drawingCSS)
	light, dark := render.Palette(), maps.Clone(dark)
	light["halo"], dark["halo"] = "#ffffffcc", "#12161ccc" // around words on lines; not Graphviz's
	variables := func(colours map[string]string) string {
		var list []string
		for _, name := range slices.Sorted(maps.Keys(colours)) {
			list = append(list, "--"+name+":"+colours[name])
		}
		return ":root{" + strings.Join(list, ";") + "}\n"
	}
	b.WriteString(variables(light))
	b.WriteString(onDark + "{" + variables(dark) + "}\n")
	for _, name := range slices.Sorted(maps.Keys(render.Palette())) {
		fmt.Fprintf(&b, "svg [fill=%q]{fill:var(--%s)}svg [stroke=%q]{stroke:var(--%s)}\n", light[name], name, light[name], name)
	}
	return b.String()
}
