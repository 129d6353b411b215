// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"slices"
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
func (g *Graph) Orders() []*Order {
	orders := []*Order{g.order(nil)}
	for _, t := range g.Terms {
		orders = append(orders, g.order(t))
	}
	return orders
}

// ordering finds the edges of one scope.
//
// A hook or job serves those values of its own module that its function takes:
// steps that need such a value start after it. Servers of one value start in
// declaration order. A value without a hook or job of its own is ready when its
// inputs are ready.
type ordering struct {
	term       *Term
	steps      map[*Node]*Step
	groups     map[*Module]*Step
	servers    map[*Node][]*Step
	readyAfter map[*Node][]*Step
}

func (g *Graph) order(t *Term) *Order {
	o := &ordering{term: t, steps: map[*Node]*Step{}, groups: map[*Module]*Step{}, servers: map[*Node][]*Step{}, readyAfter: map[*Node][]*Step{}}
	var all []*Step
	for _, n := range g.Nodes {
		switch {
		case !n.Reached || n.Term != t:
		case n.Kind == Hook || n.Kind == Job:
			s := &Step{Node: n, Module: n.Module}
			o.steps[n] = s
			all = append(all, s)
			o.recordServed(s)
		case n.Kind == Builtin && n.Results[0].Key.Type == groupType:
			s := &Step{Module: n.For}
			o.groups[n.For] = s
			all = append(all, s)
		}
	}
	for _, s := range all {
		if s.Node != nil {
			s.addDataEdges(o.prerequisites(s)...)
		}
	}
	o.orderGroups(g)
	if t == nil {
		o.orderTerms(g, all)
	}
	g.orderModules(all)
	return &Order{Term: t, Steps: g.sortSteps(all)}
}

// recordServed records the values that a step serves. One that others have decorated is
// served along with what they made of it.
func (o *ordering) recordServed(s *Step) {
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

// prerequisites are the steps that must have started before s. Among the servers
// of one value only the order of declaration counts.
func (o *ordering) prerequisites(s *Step) []*Step {
	var steps, later []*Step
	for _, d := range s.Node.Deps() {
		own := slices.Index(o.servers[d], s)
		if own < 0 {
			steps = append(steps, o.readySteps(d)...)
			continue
		}
		// It serves d itself: after those declared before it, and after what d
		// is made of.
		steps = append(steps, o.servers[d][:own]...)
		steps = append(steps, o.inputSteps(d)...)
		later = append(later, o.servers[d][own:]...)
	}
	return slices.DeleteFunc(steps, func(b *Step) bool { return slices.Contains(later, b) })
}

// readySteps are the steps after which a value is ready.
func (o *ordering) readySteps(n *Node) []*Step {
	if servers := o.servers[n]; len(servers) > 0 {
		return servers
	}
	return o.inputSteps(n)
}

// inputSteps are the steps after which all inputs of a value are ready.
func (o *ordering) inputSteps(n *Node) []*Step {
	if steps, ok := o.readyAfter[n]; ok {
		return steps
	}
	o.readyAfter[n] = nil // a cycle is reported elsewhere
	var steps []*Step
	for _, d := range n.Deps() {
		for _, s := range o.readySteps(d) {
			if !slices.Contains(steps, s) {
				steps = append(steps, s)
			}
		}
	}
	o.readyAfter[n] = steps
	return steps
}

// orderGroups starts the jobs that modules add at run time after all that the
// module needs, and after its own hooks and jobs.
func (o *ordering) orderGroups(p *Graph) {
	if len(o.groups) == 0 {
		return
	}
	for _, n := range p.Nodes {
		g := o.groups[n.Owner()]
		if g == nil || !n.Reached || n.Term != o.term || n.Kind == Builtin {
			continue
		}
		if s := o.steps[n]; s != nil {
			g.addDataEdges(s)
		} else {
			g.addDataEdges(o.inputSteps(n)...)
		}
	}
}

func (s *Step) addDataEdges(before ...*Step) {
	for _, b := range before {
		if b != s && !slices.ContainsFunc(s.After, func(e Edge) bool { return e.Step == b }) {
			s.After = append(s.After, Edge{Step: b})
		}
	}
}
