// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"cmp"
	"slices"
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
