// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

import (
	"bufio"
	"io"
	"strings"

	"github.com/skep-operator/skep/runtime/graph"
)

// WriteTimeline draws how long the parts of the start took, for a running
// hive.
func WriteTimeline(w io.Writer, g *graph.Graph) error {
	p := &page{Writer: bufio.NewWriter(w)}
	for i := range g.Orders {
		if g.Orders[i].Live() {
			p.separate()
			p.timeline(&g.Orders[i])
		}
	}
	if slow := g.Slowest(10); len(slow) > 0 {
		p.separate()
		p.line(0, "slowest constructors")
		for _, n := range slow {
			p.line(0, "  %8s  %s%s", duration(n.BuildNanos), n.Label(), prefixed(" for ", n.For))
		}
	}
	if !p.started {
		p.line(0, "no timings: nothing has started")
	}
	return p.Flush()
}

// barWidth is how many columns the whole start is drawn in.
const barWidth = 40

func (p *page) timeline(o *graph.Order) {
	spans := o.Timeline()
	total, width := int64(1), 0
	for i, s := range o.Steps {
		total, width = max(total, spans[i].End), max(width, len(s.ID))
	}
	p.line(0, "%s: started in %s; ▓ is what the end waited for", graph.TermLabel(o.Term), duration(total))
	for i, s := range o.Steps {
		p.line(0, "  %-*s %s %8s", width, s.ID, bar(spans[i], total), duration(s.StartNanos))
	}
}

// bar draws a span in its place in the whole; the shortest is one column.
func bar(s graph.Span, total int64) string {
	begin := min(int(s.Begin*barWidth/total), barWidth-1)
	length := max(1, min(int((s.End-s.Begin)*barWidth/total), barWidth-begin))
	block := "░"
	if s.Critical {
		block = "▓"
	}
	return "│" + strings.Repeat(" ", begin) + strings.Repeat(block, length) + strings.Repeat(" ", barWidth-begin-length) + "│"
}
