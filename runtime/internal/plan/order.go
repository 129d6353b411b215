// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"
)

// Step is something that starts and stops, with its place in the order.
type Step struct {
	Node   *Node   // the hook or job; nil for the job group of a module
	Module *Module // whose it is
	After  []Edge
	Index  int // in Order.Steps
}

// Edge says that a step starts after another.
type Edge struct {
	Step   *Step
	Reason string // of an edge that data does not express, else ""
}

// ID is the health path of the step.
func (s *Step) ID() string {
	switch {
	case s.Node == nil:
		return s.Module.Label() + ".jobs"
	case s.Node.Kind == Job:
		return s.Module.Label() + ".job-" + s.Node.Name
	}
	return s.Module.Label() + ".hook-" + s.Node.Name
}

// Order is the start order of one scope: the process, or a term.
type Order struct {
	Term  *Term
	Steps []*Step // canonical: ties in declaration order
}

// Orders are the start orders of the process and then of each term. What
// cannot be ordered is a problem.
func (p *Plan) Orders() []*Order {
	orders := []*Order{p.order(nil)}
	for _, t := range p.Terms {
		orders = append(orders, p.order(t))
	}
	return orders
}

// ordering finds the edges of one scope.
//
// A hook or job serves those values of its own module that its function takes:
// whoever needs such a value starts after it. Servers of one value start in
// declaration order. A value that nobody serves is as ready as what it was made
// of.
type ordering struct {
	term     *Term
	steps    map[*Node]*Step
	groups   map[*Module]*Step
	servers  map[*Node][]*Step
	frontier map[*Node][]*Step
}

func (p *Plan) order(t *Term) *Order {
	o := &ordering{term: t, steps: map[*Node]*Step{}, groups: map[*Module]*Step{}, servers: map[*Node][]*Step{}, frontier: map[*Node][]*Step{}}
	var all []*Step
	for _, n := range p.Nodes {
		switch {
		case !n.Reached || n.Term != t:
		case n.Kind == Hook || n.Kind == Job:
			s := &Step{Node: n, Module: n.Module}
			o.steps[n] = s
			all = append(all, s)
			o.serve(s)
		case n.Kind == Builtin && n.Results[0].Key.Type == groupType:
			s := &Step{Module: n.For}
			o.groups[n.For] = s
			all = append(all, s)
		}
	}
	for _, s := range all {
		if s.Node != nil {
			s.needs(o.before(s)...)
		}
	}
	o.orderGroups(p)
	if t == nil {
		o.orderTerms(p, all)
	}
	p.orderModules(all)
	return &Order{Term: t, Steps: p.sortSteps(all)}
}

// serve notes which values a step serves. One that others have decorated is
// served along with what they made of it.
func (o *ordering) serve(s *Step) {
	for _, d := range s.Node.Deps() {
		chain := []*Node{d}
		for d.Kind == Decorator && d.Owner() != s.Module {
			if d = d.decorated(); d == nil {
				break
			}
			chain = append(chain, d)
		}
		if d == nil || d.Owner() != s.Module || d.For != nil || d.Kind == Builtin || d.Kind == Config {
			continue
		}
		for _, n := range chain {
			if !slices.Contains(o.servers[n], s) {
				o.servers[n] = append(o.servers[n], s)
			}
		}
	}
}

// decorated is what a decorator takes to replace it, or nil.
func (n *Node) decorated() *Node {
	for _, p := range n.Params {
		if p.Key == n.Results[0].Key && !p.Group && len(p.Sources) > 0 {
			return p.Sources[0].Node
		}
	}
	return nil
}

// before are the steps that must have started for what s takes to be ready.
// Between those that serve a value together only their declaration counts.
func (o *ordering) before(s *Step) []*Step {
	var steps, later []*Step
	for _, d := range s.Node.Deps() {
		own := slices.Index(o.servers[d], s)
		if own < 0 {
			steps = append(steps, o.ready(d)...)
			continue
		}
		// It serves d itself: after those declared before it, and after what d
		// is made of.
		steps = append(steps, o.servers[d][:own]...)
		steps = append(steps, o.made(d)...)
		later = append(later, o.servers[d][own:]...)
	}
	return slices.DeleteFunc(steps, func(b *Step) bool { return slices.Contains(later, b) })
}

// ready are the steps after which a value can be used.
func (o *ordering) ready(n *Node) []*Step {
	if servers := o.servers[n]; len(servers) > 0 {
		return servers
	}
	return o.made(n)
}

// made are the steps after which everything that a value is made of can be
// used.
func (o *ordering) made(n *Node) []*Step {
	if steps, ok := o.frontier[n]; ok {
		return steps
	}
	o.frontier[n] = nil // a cycle is reported elsewhere
	var steps []*Step
	for _, d := range n.Deps() {
		for _, s := range o.ready(d) {
			if !slices.Contains(steps, s) {
				steps = append(steps, s)
			}
		}
	}
	o.frontier[n] = steps
	return steps
}

// orderGroups starts the jobs that modules add at run time after all that the
// module needs, and after its own hooks and jobs.
func (o *ordering) orderGroups(p *Plan) {
	if len(o.groups) == 0 {
		return
	}
	for _, n := range p.Nodes {
		g := o.groups[n.Owner()]
		if g == nil || !n.Reached || n.Term != o.term || n.Kind == Builtin {
			continue
		}
		if s := o.steps[n]; s != nil {
			g.needs(s)
		} else {
			g.needs(o.made(n)...)
		}
	}
}

// orderTerms starts what enters a term after everything in the process that the
// term's cells use, so that it also leaves the term before any of that stops.
// What itself starts after the one who enters cannot start before.
func (o *ordering) orderTerms(p *Plan, all []*Step) {
	for _, t := range p.Terms {
		var used []*Step
		for _, n := range p.Nodes {
			if n.Reached && n.Term == t {
				for _, d := range n.Deps() {
					if d.Term == nil {
						used = append(used, o.ready(d)...)
					}
				}
			}
		}
		for _, s := range all {
			if s.Node == nil || !s.Node.holdsTerm(t) {
				continue
			}
			for _, u := range used {
				if !u.comesAfter(s) {
					s.needs(u)
				}
			}
		}
	}
}

// Enters reports whether a node is the handle of a term.
func (n *Node) Enters(t *Term) bool {
	return n.Kind == Builtin && n.Results[0].Key == Key{termType, t.Name}
}

// holdsTerm reports whether a node takes the handle of a term, directly or
// through what it takes.
func (n *Node) holdsTerm(t *Term) bool {
	seen := map[*Node]bool{}
	for todo := []*Node{n}; len(todo) > 0; {
		n, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if n.Enters(t) {
			return true
		}
		if !seen[n] {
			seen[n] = true
			todo = append(todo, n.Deps()...)
		}
	}
	return false
}

// comesAfter reports whether s starts after other, or is it.
func (s *Step) comesAfter(other *Step) bool {
	seen := map[*Step]bool{}
	for todo := []*Step{s}; len(todo) > 0; {
		s, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if s == other {
			return true
		}
		if !seen[s] {
			seen[s] = true
			for _, e := range s.After {
				todo = append(todo, e.Step)
			}
		}
	}
	return false
}

func (s *Step) needs(before ...*Step) {
	for _, b := range before {
		if b != s && !slices.ContainsFunc(s.After, func(e Edge) bool { return e.Step == b }) {
			s.After = append(s.After, Edge{Step: b})
		}
	}
}

// orderModules adds the edges that modules declare. First yields to After:
// what a first module comes after is before all, too.
func (p *Plan) orderModules(all []*Step) {
	for _, m := range p.Modules {
		for _, o := range m.orders {
			if before := p.standsFor(o.After); before != nil {
				orderAfter(m, before, o.Reason, all)
			}
		}
	}
	for _, m := range p.Modules {
		for _, o := range m.orders {
			if o.First {
				orderFirst(m, o.Reason, all)
			}
		}
	}
}

// standsFor is the module of an id, or what an embedder put in its place.
func (p *Plan) standsFor(id string) *Module {
	if m := p.byID[id]; m != nil {
		return m
	}
	return p.former[id]
}

// orderAfter lets the steps of m start after those of before. Where one is
// nested in the other, the inner one counts for itself only.
func orderAfter(m, before *Module, reason string, all []*Step) {
	var earlier, later []*Step
	for _, s := range all {
		switch own, other := s.Module.within(m), s.Module.within(before); {
		case own && (!other || m.within(before)):
			later = append(later, s)
		case other:
			earlier = append(earlier, s)
		}
	}
	for _, s := range later {
		s.needsFor(reason, earlier)
	}
}

// orderFirst puts the steps of a module before all others but those that they
// need themselves.
func orderFirst(m *Module, reason string, all []*Step) {
	needed := map[*Step]bool{}
	var mine []*Step
	for _, s := range all {
		if s.Module.within(m) {
			mine = append(mine, s)
			markNeeded(s, needed)
		}
	}
	for _, s := range all {
		if !needed[s] {
			s.needsFor(reason, mine)
		}
	}
}

func markNeeded(s *Step, needed map[*Step]bool) {
	if needed[s] {
		return
	}
	needed[s] = true
	for _, e := range s.After {
		markNeeded(e.Step, needed)
	}
}

func (s *Step) needsFor(reason string, before []*Step) {
	reason = cmp.Or(reason, "no reason given")
	for _, b := range before {
		if b != s && !slices.ContainsFunc(s.After, func(e Edge) bool { return e.Step == b }) {
			s.After = append(s.After, Edge{b, reason})
		}
	}
}

// sortSteps brings steps in an order in which each comes after those it needs,
// ties in declaration order.
func (p *Plan) sortSteps(all []*Step) []*Step {
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
		p.reportOrderCycle(all, waiting)
	}
	for i, s := range sorted {
		s.Index = i
	}
	return sorted
}

func (p *Plan) reportOrderCycle(all []*Step, waiting map[*Step]int) {
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
	problem := p.problem("start order cycle", "")
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
	problem.fix("take out one of these edges: a cell.After, or a value of its module that a hook takes and does not serve")
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
