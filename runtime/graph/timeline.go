// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"bufio"
	"cmp"
	"io"
	"slices"
	"strings"
)

// Span is when a step started, in nanoseconds since the first step of its
// order began.
type Span struct {
	Begin int64 `json:"begin"`
	End   int64 `json:"end"`
	// Critical steps are those that the end of the whole waited for.
	Critical bool `json:"critical,omitempty"`
}

// Live reports whether there are timings: the graph is that of a running hive
// that has started this order.
func (o *Order) Live() bool {
	return slices.ContainsFunc(o.Steps, func(s Step) bool { return s.StartNanos > 0 })
}

// Timeline is when the steps of a running hive started: each began as soon as
// the last of those that it comes after was up. It is nil where no step has a
// timing.
func (o *Order) Timeline() []Span {
	if !o.Live() {
		return nil
	}
	spans := make([]Span, len(o.Steps))
	last := make([]int, len(o.Steps)) // the step that a step waited for, or -1
	end := 0
	for i, s := range o.Steps {
		last[i] = -1
		for _, a := range s.After {
			if e := spans[a.Step].End; e > spans[i].Begin || last[i] < 0 {
				spans[i].Begin, last[i] = e, a.Step
			}
		}
		spans[i].End = spans[i].Begin + s.StartNanos
		if spans[i].End > spans[end].End {
			end = i
		}
	}
	for i := end; i >= 0; i = last[i] {
		spans[i].Critical = true
	}
	return spans
}

// Slowest are the nodes of a running hive whose functions took longest to
// build, at most n, the longest first.
func (g *Graph) Slowest(n int) []*Node {
	var list []*Node
	for i := range g.Nodes {
		if g.Nodes[i].BuildNanos > 0 {
			list = append(list, &g.Nodes[i])
		}
	}
	slices.SortStableFunc(list, func(a, b *Node) int { return cmp.Compare(b.BuildNanos, a.BuildNanos) })
	return list[:min(n, len(list))]
}

// WriteTimeline draws how long the parts of the start took, for a running
// hive.
func (g *Graph) WriteTimeline(w io.Writer) error {
	p := &page{Writer: bufio.NewWriter(w)}
	for i := range g.Orders {
		if g.Orders[i].Live() {
			p.part()
			p.timeline(&g.Orders[i])
		}
	}
	if slow := g.Slowest(10); len(slow) > 0 {
		p.part()
		p.line(0, "slowest constructors")
		for _, n := range slow {
			p.line(0, "  %8s  %s%s", duration(n.BuildNanos), n.name(), prefixed(" for ", n.For))
		}
	}
	if !p.begun {
		p.line(0, "no timings: nothing has started")
	}
	return p.Flush()
}

// barWidth is how many columns the whole start is drawn in.
const barWidth = 40

func (p *page) timeline(o *Order) {
	spans := o.Timeline()
	total, width := int64(1), 0
	for i, s := range o.Steps {
		total, width = max(total, spans[i].End), max(width, len(s.ID))
	}
	p.line(0, "%s: started in %s; ▓ is what the end waited for", TermLabel(o.Term), duration(total))
	for i, s := range o.Steps {
		p.line(0, "  %-*s %s %8s", width, s.ID, bar(spans[i], total), duration(s.StartNanos))
	}
}

// bar draws a span in its place in the whole; the shortest is one column.
func bar(s Span, total int64) string {
	begin := min(int(s.Begin*barWidth/total), barWidth-1)
	length := max(1, min(int((s.End-s.Begin)*barWidth/total), barWidth-begin))
	block := "░"
	if s.Critical {
		block = "▓"
	}
	return "│" + strings.Repeat(" ", begin) + strings.Repeat(block, length) + strings.Repeat(" ", barWidth-begin-length) + "│"
}
