// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package query

import (
	"cmp"
	"slices"

	"github.com/skep-operator/skep/runtime/graph"
)

// Link says that one cell takes values of another. It points the way that
// values flow and cells start.
type Link struct {
	From  string   `json:"from"`            // label of the module that provides
	To    string   `json:"to"`              // label of the module that needs
	Types []string `json:"types,omitempty"` // the values; none for the entry of a term
	// Optional links can be missing: their values are optional or of a group.
	Optional bool `json:"optional,omitempty"`
	// Off links would be there if both modules were on.
	Off bool `json:"off,omitempty"`
	// Enters is the term that From enters, for a link to all of it; To is "".
	Enters string `json:"enters,omitempty"`
}

// Links are the links between modules, in declaration order of those who need.
// What the hive offers to everyone is left out.
func Links(g *graph.Graph) []Link { return NewIndex(g).Links() }

// Links are the links of the indexed graph.
func (x *Index) Links() []Link {
	b := linkBuilder{Index: x, byEnds: map[[2]string]*Link{}}
	for i := range x.Nodes {
		n := &x.Nodes[i]
		on := x.enabled(n)
		if on && !n.Reached || n.Visibility == graph.VisibilityPerModule && n.For == "" {
			continue
		}
		for j := range n.Needs {
			need := &n.Needs[j]
			for _, p := range x.SourcesOf(need) {
				b.add(p, n, need, !on)
			}
			for _, p := range x.absent(n, need) {
				b.add(p, n, need, true)
			}
		}
	}
	slices.SortStableFunc(b.list, func(a, c *Link) int {
		return cmp.Or(x.Position[a.To]-x.Position[c.To], x.Position[a.From]-x.Position[c.From])
	})
	links := make([]Link, 0, len(b.list))
	for _, l := range b.list {
		links = append(links, *l)
	}
	return append(links, x.entries()...)
}

type linkBuilder struct {
	*Index
	byEnds map[[2]string]*Link
	list   []*Link
}

func (b *linkBuilder) add(provider, n *graph.Node, need *graph.Need, off bool) {
	from, to := b.CellOf(provider), b.CellOf(n)
	if provider.Kind == graph.KindBuiltin || from == to {
		return
	}
	l := b.byEnds[[2]string{from, to}]
	if l == nil {
		l = &Link{From: from, To: to, Optional: true, Off: true}
		b.byEnds[[2]string{from, to}] = l
		b.list = append(b.list, l)
	}
	l.Optional = l.Optional && need.Dispensable()
	l.Off = l.Off && off
	if !slices.Contains(l.Types, need.Key()) {
		l.Types = append(l.Types, need.Key())
	}
}

// entries are the links from those who enter terms.
func (x *Index) entries() []Link {
	var links []Link
	for _, term := range x.Scopes() {
		for _, from := range x.EnteredBy(term) {
			links = append(links, Link{From: from, Enters: term})
		}
	}
	return links
}
