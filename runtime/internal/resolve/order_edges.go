// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"cmp"
	"slices"
)

// orderModules adds the edges that modules declare. StartFirst yields to
// StartAfter: the modules that a first module starts after are before all, too.
func (g *Graph) orderModules(all []*Step) {
	for _, m := range g.Modules {
		for _, o := range m.orders {
			if before := g.currentModule(o.After); before != nil {
				orderAfter(m, before, o.Reason, all)
			}
		}
	}
	for _, m := range g.Modules {
		for _, o := range m.orders {
			if o.First {
				orderFirst(m, o.Reason, all)
			}
		}
	}
}

// currentModule is the module of an id, or the one that replaces it.
func (g *Graph) currentModule(id string) *Module {
	if m := g.byID[id]; m != nil {
		return m
	}
	return g.replaced[id]
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
		s.addOrderEdges(reason, earlier)
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
			s.addOrderEdges(reason, mine)
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

func (s *Step) addOrderEdges(reason string, before []*Step) {
	reason = cmp.Or(reason, "no reason given")
	for _, b := range before {
		if b != s && !slices.ContainsFunc(s.After, func(e Edge) bool { return e.Step == b }) {
			s.After = append(s.After, Edge{b, reason})
		}
	}
}

// orderTerms starts what enters a term after everything in the process that the
// term's cells use, so that it also leaves the term before any of that stops.
// Steps that start after the one that enters cannot
// start before it.
func (o *ordering) orderTerms(p *Graph, all []*Step) {
	for _, t := range p.Terms {
		var used []*Step
		for _, n := range p.Nodes {
			if n.Reached && n.Term == t {
				for _, d := range n.Deps() {
					if d.Term == nil {
						used = append(used, o.readySteps(d)...)
					}
				}
			}
		}
		for _, s := range all {
			if s.Node == nil || !s.Node.usesTermHandle(t) {
				continue
			}
			for _, u := range used {
				if !u.startsAfter(s) {
					s.addDataEdges(u)
				}
			}
		}
	}
}

// IsTermHandle reports whether a node is the handle of a term.
func (n *Node) IsTermHandle(t *Term) bool {
	return n.Kind == Builtin && n.Results[0].Key == Key{termType, t.Name}
}

// usesTermHandle reports whether a node takes the handle of a term, directly or
// through what it takes.
func (n *Node) usesTermHandle(t *Term) bool {
	seen := map[*Node]bool{}
	for todo := []*Node{n}; len(todo) > 0; {
		n, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if n.IsTermHandle(t) {
			return true
		}
		if !seen[n] {
			seen[n] = true
			todo = append(todo, n.Deps()...)
		}
	}
	return false
}

// startsAfter reports whether s starts after other, or is it.
func (s *Step) startsAfter(other *Step) bool {
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
