// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

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

func (s *Step) needs(before ...*Step) {
	for _, b := range before {
		if b != s && !slices.ContainsFunc(s.After, func(e Edge) bool { return e.Step == b }) {
			s.After = append(s.After, Edge{Step: b})
		}
	}
}
