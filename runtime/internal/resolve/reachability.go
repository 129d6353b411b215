// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"fmt"
	"slices"
	"strings"
)

// MarkReachable marks what enabled hooks, jobs and invokes need, and turns parameter
// errors of reached nodes into problems.
func (g *Graph) MarkReachable() {
	for _, n := range g.Nodes {
		if n.IsRoot() && n.Module.Enabled {
			g.markReachable(n, nil)
		}
	}
	g.checkTerms()
	g.checkCycles()
}

// markReachable is not recursive: chains may be long.
func (g *Graph) markReachable(root *Node, by *Node) {
	type step struct{ node, by *Node }
	for todo := []step{{root, by}}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s.node.Reached {
			continue
		}
		s.node.Reached, s.node.requestedBy = true, s.by
		for _, f := range s.node.paramErrors {
			g.reportParamError(s.node, f)
		}
		for i := len(s.node.Params) - 1; i >= 0; i-- {
			for _, source := range slices.Backward(s.node.Params[i].Sources) {
				todo = append(todo, step{source.Node, s.node})
			}
		}
	}
}

// reportParamError reports an error with the chain of requests from the node up to
// the root. The same error of another node is a line of the first report.
func (g *Graph) reportParamError(n *Node, f *paramError) {
	for _, known := range g.Problems {
		if known.Kind == f.kind && known.What == f.what {
			known.add("needed by", n.Describe()+", "+n.location())
			return
		}
	}
	problem := g.problem(f.kind, f.what)
	problem.Rows = slices.Clone(f.rows)
	problem.add("needed by", n.Describe()+", "+n.location())
	for by := n.requestedBy; by != nil; by = by.requestedBy {
		problem.add("asked by", by.Describe()+", "+by.location())
	}
	problem.Fix = f.fix
}

// checkTerms finds terms that no module enters, whatever the options.
func (g *Graph) checkTerms() {
	asked := func(t *Term) bool {
		return slices.ContainsFunc(g.Nodes, func(n *Node) bool {
			return (n.Reached || !n.Module.Enabled) && slices.ContainsFunc(n.Deps(), func(d *Node) bool { return d.IsTermHandle(t) })
		})
	}
	for _, t := range g.Terms {
		if !t.handleRequestedInTerm && !asked(t) {
			g.problem("unentered term", "nothing that starts asks for the handle of term "+t.Name).
				add("declared", t.Where.String()).
				fix("add the process cell that enters it: it takes a lifecycle.Term named %s", t.Name)
		}
	}
}

// checkCycles reports every cycle among reached nodes. It is Tarjan's search
// for strongly connected components with its stack on the heap.
func (g *Graph) checkCycles() {
	const unseen = -1
	index, low := make([]int, len(g.Nodes)), make([]int, len(g.Nodes))
	onStack := make([]bool, len(g.Nodes))
	for i := range index {
		index[i] = unseen
	}
	var stack []*Node
	next := 0
	type frame struct {
		node  *Node
		deps  []*Node
		child int
	}
	visit := func(n *Node) frame {
		index[n.ID], low[n.ID] = next, next
		next++
		stack = append(stack, n)
		onStack[n.ID] = true
		return frame{node: n, deps: n.Deps()}
	}
	for _, root := range g.Nodes {
		if !root.Reached || index[root.ID] != unseen {
			continue
		}
		for path := []frame{visit(root)}; len(path) > 0; {
			f := &path[len(path)-1]
			if f.child < len(f.deps) {
				d := f.deps[f.child]
				f.child++
				if index[d.ID] == unseen {
					path = append(path, visit(d))
				} else if onStack[d.ID] {
					low[f.node.ID] = min(low[f.node.ID], index[d.ID])
				}
				continue
			}
			n := f.node
			path = path[:len(path)-1]
			if len(path) > 0 {
				outer := path[len(path)-1].node
				low[outer.ID] = min(low[outer.ID], low[n.ID])
			}
			if low[n.ID] != index[n.ID] {
				continue
			}
			at := len(stack) - 1
			for stack[at] != n {
				at--
			}
			component := slices.Clone(stack[at:])
			stack = stack[:at]
			for _, c := range component {
				onStack[c.ID] = false
			}
			if len(component) > 1 || slices.Contains(n.Deps(), n) {
				g.reportCycle(component)
			}
		}
	}
}

// Deps are the nodes whose values a node takes. They are known after Resolve.
func (n *Node) Deps() []*Node {
	if n.needs == nil {
		n.needs = make([]*Node, 0, len(n.Params))
		for i := range n.Params {
			for _, s := range n.Params[i].Sources {
				n.needs = append(n.needs, s.Node)
			}
		}
	}
	return n.needs
}

// reportCycle walks once around inside a component.
func (g *Graph) reportCycle(component []*Node) {
	in := map[*Node]bool{}
	for _, n := range component {
		in[n] = true
	}
	first := slices.MinFunc(component, func(a, b *Node) int { return a.ID - b.ID })
	walk, seen := []*Node{first}, map[*Node]bool{first: true}
	for n := first; ; {
		i := slices.IndexFunc(n.Deps(), func(d *Node) bool { return in[d] })
		n = n.Deps()[i]
		if seen[n] {
			walk = walk[slices.Index(walk, n):]
			break
		}
		walk, seen[n] = append(walk, n), true
	}
	names := make([]string, len(walk))
	for i, n := range walk {
		names[i] = n.Name
	}
	problem := g.problem("cycle", fmt.Sprintf("%s needs itself: %s → %s", names[0], strings.Join(names, " → "), names[0]))
	for _, n := range walk {
		problem.add("through", n.Describe()+", "+n.location())
	}
	problem.fix("split one of them, or let one take a function that is called later")
}
