// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"container/heap"
	"fmt"
	"strings"
)

// sortSteps brings steps in an order in which each comes after those it needs,
// ties in declaration order.
func (g *Graph) sortSteps(all []*Step) []*Step {
	for i, s := range all {
		s.Index = i // declaration order, for the heap
	}
	waiting := map[*Step]int{}
	unblocks := map[*Step][]*Step{}
	ready := &stepHeap{}
	for _, s := range all {
		waiting[s] = len(s.After)
		for _, e := range s.After {
			unblocks[e.Step] = append(unblocks[e.Step], s)
		}
		if len(s.After) == 0 {
			heap.Push(ready, s)
		}
	}
	sorted := make([]*Step, 0, len(all))
	for ready.Len() > 0 {
		s := heap.Pop(ready).(*Step)
		sorted = append(sorted, s)
		for _, next := range unblocks[s] {
			if waiting[next]--; waiting[next] == 0 {
				heap.Push(ready, next)
			}
		}
	}
	if len(sorted) < len(all) {
		g.reportOrderCycle(all, waiting)
	}
	for i, s := range sorted {
		s.Index = i
	}
	return sorted
}

func (g *Graph) reportOrderCycle(all []*Step, waiting map[*Step]int) {
	circle := map[*Step]bool{}
	for _, s := range all {
		circle[s] = waiting[s] > 0
	}
	for trimmed := true; trimmed; { // what only comes after the circle is not its fault
		trimmed = false
		needed := map[*Step]bool{}
		for _, s := range all {
			for _, e := range s.After {
				needed[e.Step] = needed[e.Step] || circle[s]
			}
		}
		for _, s := range all {
			if circle[s] && !needed[s] {
				circle[s], trimmed = false, true
			}
		}
	}
	var names []string
	problem := g.problem("start order cycle", "")
	for _, s := range all {
		if !circle[s] {
			continue
		}
		names = append(names, s.ID())
		for _, e := range s.After {
			if circle[e.Step] {
				text := fmt.Sprintf("%s after %s", s.ID(), e.Step.ID())
				if e.Reason != "" {
					text += " (" + e.Reason + ")"
				}
				problem.add("because", text)
			}
		}
	}
	problem.What = "no order fits " + strings.Join(names, ", ")
	problem.fix("take out one of these edges: a cell.StartAfter, or a value of its module that a hook takes and does not serve")
}

// stepHeap pops the step that was declared first.
type stepHeap []*Step

func (h stepHeap) Len() int           { return len(h) }
func (h stepHeap) Less(i, j int) bool { return h[i].Index < h[j].Index }
func (h stepHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *stepHeap) Push(x any)        { *h = append(*h, x.(*Step)) }
func (h *stepHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
