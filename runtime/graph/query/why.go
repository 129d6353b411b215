// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package query

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/internal/nearest"
)

// Answer is the result of a query: one word can name a cell, a flag and types.
type Answer struct {
	Query string      `json:"query,omitempty"`
	Cells []CellFacts `json:"cells,omitempty"`
	Types []TypeFacts `json:"types,omitempty"`
	Flags []FlagFacts `json:"flags,omitempty"`
	// NotBuilt are duties that no cell does yet.
	NotBuilt []graph.NotBuilt `json:"notBuilt,omitempty"`
}

// Why finds out about a cell by its id, a type by its spelling in full, in the
// source, or without packages, or a flag with or without dashes. The error
// names what comes nearest.
func Why(g *graph.Graph, query string) (*Answer, error) {
	x := NewIndex(g)
	a := &Answer{Query: query}
	name := strings.TrimSpace(query)
	flag, dashed := cutDashes(name)
	for i := range g.Modules {
		m := &g.Modules[i]
		if m.Label() == name && (m.ID != "" || len(x.NodesOf(name)) > 0) {
			a.Cells = append(a.Cells, x.CellFacts(m))
		}
		for _, o := range m.Options {
			if o.Name == flag {
				a.Flags = append(a.Flags, x.flagFacts(m, o))
			}
		}
	}
	for _, n := range g.NotBuilt {
		if n.ID == name || slices.Contains(n.Asked.Flags, flag) {
			a.NotBuilt = append(a.NotBuilt, n)
		}
	}
	if !dashed {
		for _, key := range x.matchTypes(name) {
			a.Types = append(a.Types, x.typeFacts(key))
		}
	}
	if len(a.Cells)+len(a.Types)+len(a.Flags)+len(a.NotBuilt) == 0 {
		return nil, x.unknown(name)
	}
	return a, nil
}

// Everything is the answer about all cells, types and flags.
func Everything(g *graph.Graph) *Answer {
	x := NewIndex(g)
	a := &Answer{}
	for _, term := range x.Scopes() {
		for _, m := range x.Shown(term) {
			a.Cells = append(a.Cells, x.CellFacts(m))
		}
	}
	for _, key := range x.keys() {
		a.Types = append(a.Types, x.typeFacts(key))
	}
	for i := range g.Modules {
		for _, o := range g.Modules[i].Options {
			a.Flags = append(a.Flags, x.flagFacts(&g.Modules[i], o))
		}
	}
	return a
}

// cutDashes is the name of a flag without dashes and value.
func cutDashes(query string) (name string, dashed bool) {
	name = strings.TrimLeft(query, "-")
	if dashed = name != query; dashed {
		name, _, _ = strings.Cut(name, "=")
	}
	return name, dashed
}

// keys are all values that nodes provide or need, by name.
func (x *Index) keys() []string {
	known := map[string]bool{}
	for i := range x.Nodes {
		for _, p := range x.Nodes[i].Provides {
			known[p] = true
		}
		for _, need := range x.Nodes[i].Needs {
			known[need.Key()] = true
		}
	}
	keys := make([]string, 0, len(known))
	for k := range known {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// matchTypes are the values that a query names, by the strictest reading that
// finds any.
func (x *Index) matchTypes(query string) []string {
	readings := []func(key string) []string{
		func(key string) []string { return []string{key, x.full(key)} },
		func(key string) []string { return []string{bare(key), bare(x.full(key))} },
		func(key string) []string { return []string{unqualified(key)} },
		func(key string) []string { return []string{generic(key)} },
	}
	for _, reading := range readings {
		var found []string
		for _, key := range x.keys() {
			if slices.Contains(reading(key), query) || slices.Contains(reading(key), bare(query)) {
				found = append(found, key)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// full is a value with the import paths of its type.
func (x *Index) full(key string) string {
	name, rest := splitKey(key)
	i, found := slices.BinarySearchFunc(x.Types, name, func(t graph.Type, name string) int { return strings.Compare(t.Name, name) })
	if !found {
		return key
	}
	return x.Types[i].Full + rest
}

// splitKey takes the name or the group off a value's type.
func splitKey(key string) (name, rest string) {
	for _, mark := range []string{" named ", " in group "} {
		if i := strings.Index(key, mark); i >= 0 {
			return key[:i], key[i:]
		}
	}
	return key, ""
}

// bare is a value's type without pointers, slices, name and group.
func bare(key string) string {
	name, _ := splitKey(key)
	return strings.TrimLeft(name, "*[]")
}

var qualifier = regexp.MustCompile(`[\w./~-]+\.`)

// unqualified is a bare type without packages: Resource[CiliumNode].
func unqualified(key string) string { return qualifier.ReplaceAllString(bare(key), "") }

// generic is an unqualified type without arguments: Resource.
func generic(key string) string {
	name, _, _ := strings.Cut(unqualified(key), "[")
	return name
}

// unknown names what a query may have meant.
func (x *Index) unknown(query string) error {
	var near []string
	flag, dashed := cutDashes(query)
	if c, ok := nearest.To(query, x.ModuleIDs()); ok && !dashed {
		near = append(near, "cell "+c)
	}
	if t, ok := x.nearestType(query); ok && !dashed {
		near = append(near, "type "+t)
	}
	var flags []string
	for _, m := range x.Modules {
		for _, o := range m.Options {
			flags = append(flags, o.Name)
		}
	}
	if f, ok := nearest.To(flag, flags); ok {
		near = append(near, "flag --"+f)
	}
	if len(near) == 0 {
		return fmt.Errorf("no cell, type or flag is called %q; the cells command lists them", query)
	}
	return fmt.Errorf("no cell, type or flag is called %q; did you mean %s?", query, strings.Join(near, " or "))
}

func (x *Index) nearestType(query string) (string, bool) {
	var spellings []string
	key := map[string]string{}
	for _, k := range x.keys() {
		for _, s := range []string{bare(k), unqualified(k), generic(k)} {
			if _, taken := key[s]; !taken {
				key[s] = k
				spellings = append(spellings, s)
			}
		}
	}
	s, ok := nearest.To(bare(query), spellings)
	return key[s], ok
}
