// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package draw

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/query"
	"github.com/skep-operator/skep/runtime/graph/render"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"term":     graph.TermLabel,
		"duration": func(nanos int64) string { return time.Duration(nanos).Round(10 * time.Microsecond).String() },
	}).Parse(pageHTML))
)

// HTML writes one page about a graph that needs nothing else: the drawing to
// move and click, a search, what there is to know about every cell, type and
// flag, and the start order.
func HTML(ctx context.Context, w io.Writer, g *graph.Graph, show render.Options) error {
	svg, err := layOut(ctx, g, show)
	if err != nil {
		return err
	}
	var drawing strings.Builder
	svg.write(&drawing)
	style := drawingStyle("@media (prefers-color-scheme: dark)") + pageCSS
	return page.Execute(w, content{
		Name:    g.Name,
		Policy:  fmt.Sprintf("default-src 'none'; base-uri 'none'; form-action 'none'; style-src %s; script-src %s", hash(style), hash(pageJS)),
		Style:   template.CSS(style),
		Script:  template.JS(pageJS),
		Drawing: template.HTML(drawing.String()),
		Cells:   count(g),
		Orders:  orders(g),
		Data:    dataOf(g),
	})
}

// hash allows one inline style or script, and no other.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

type content struct {
	Name    string
	Policy  string
	Style   template.CSS
	Script  template.JS
	Drawing template.HTML
	Cells   counts
	Orders  []order
	Data    data
}

// counts are for the headline.
type counts struct{ All, On, Degraded int }

func count(g *graph.Graph) counts {
	var c counts
	for _, m := range g.Modules {
		if m.ID == "" {
			continue
		}
		c.All++
		if m.Enabled {
			c.On++
		}
		if m.Health == "Degraded" {
			c.Degraded++
		}
	}
	return c
}

// data is what the script knows.
type data struct {
	Facts *query.Answer `json:"facts"`
	Links []query.Link  `json:"links"`
	Nodes []node        `json:"nodes"`
}

// node is a function that can be found by its name.
type node struct {
	ID   int    `json:"id"`
	Kind string `json:"kind"`
	Name string `json:"name"`
	Cell string `json:"cell"`
}

func dataOf(g *graph.Graph) data {
	d := data{Facts: query.Everything(g), Links: query.Links(g)}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Kind != graph.KindBuiltin && n.Kind != graph.KindConfig && n.For == "" {
			d.Nodes = append(d.Nodes, node{n.ID, n.Kind, n.Name, label(n.Module, n.Term)})
		}
	}
	return d
}

// label is how the module of that id, or what stands outside modules, is
// called.
func label(module, term string) string { return (&graph.Module{ID: module, Term: term}).Label() }

// order is the start of the process, or of a term.
type order struct {
	Term    string
	Total   int64 // nanoseconds; 0 where nothing has started
	Steps   []step
	Reasons []string // of order that data does not express
}

type step struct {
	Place  int
	ID     string
	Cell   string
	Waits  []wait
	Nanos  int64
	Begins int64
	Slow   bool // the end waited for it
	// Left and Width are those of its bar, in thousandths of the total.
	Left, Width int64
}

// wait is an earlier step, with the number of the reason for it, or 0.
type wait struct {
	Place, Reason int
	ID            string
}

func orders(g *graph.Graph) []order {
	var list []order
	for i := range g.Orders {
		o := &g.Orders[i]
		out, spans := order{Term: o.Term}, o.Timeline()
		for _, s := range spans {
			out.Total = max(out.Total, s.End)
		}
		for j, s := range o.Steps {
			st := step{Place: j + 1, ID: s.ID, Cell: label(s.Module, o.Term), Nanos: s.StartNanos}
			for _, a := range s.After {
				st.Waits = append(st.Waits, wait{a.Step + 1, out.reason(a.Reason), o.Steps[a.Step].ID})
			}
			slices.SortFunc(st.Waits, func(a, b wait) int { return a.Place - b.Place })
			if out.Total > 0 {
				st.Begins, st.Slow = spans[j].Begin, spans[j].Critical
				st.Left, st.Width = spans[j].Begin*1000/out.Total, max(6, s.StartNanos*1000/out.Total)
			}
			out.Steps = append(out.Steps, st)
		}
		list = append(list, out)
	}
	return list
}

// reason is the number of a reason, from 1, or 0 for none.
func (o *order) reason(text string) int {
	if text == "" {
		return 0
	}
	for i, known := range o.Reasons {
		if known == text {
			return i + 1
		}
	}
	o.Reasons = append(o.Reasons, text)
	return len(o.Reasons)
}
