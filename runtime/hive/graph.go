// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"reflect"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging"
)

// Graph is the hive as data, with timings and health while it runs. It runs no
// constructor. After Select it may be called at any time, by any goroutine;
// before, it calls Select.
func (h *Hive) Graph() *graph.Graph {
	mistakes := h.Select()
	h.stats.mu.Lock()
	defer h.stats.mu.Unlock()
	g := &graph.Graph{Name: h.name}
	levels := health.Aggregate(h.health.Snapshot())
	options := h.graphOptions()
	for _, m := range h.graph.Modules {
		out := h.graphModule(m, levels)
		out.Options = options[m.ID]
		g.Modules = append(g.Modules, out)
	}
	names := nameTypes(h.graph.Nodes)
	for _, n := range h.graph.Nodes {
		g.Nodes = append(g.Nodes, h.graphNode(n, names))
		if unused(n) {
			g.Unused = append(g.Unused, n.ID)
		}
	}
	if mistakes == nil { // with them, there may be no order that fits
		for _, o := range h.orders {
			g.Orders = append(g.Orders, h.graphOrder(o))
		}
	}
	g.Types = names.types()
	for _, n := range h.graph.NotBuilt() {
		c := n.Asked
		g.NotBuilt = append(g.NotBuilt, graph.NotBuilt{ID: n.ID, Title: n.Title, Asked: graph.Condition{Name: c.Name, Flags: c.Flags, Holds: c.Holds}})
	}
	return g
}

func unused(n *resolve.Node) bool {
	return n.Kind == resolve.Constructor && !n.Reached && n.Module.Enabled && n.Visibility == decl.Public
}

func (h *Hive) graphModule(m *resolve.Module, levels map[string]health.Level) graph.Module {
	out := graph.Module{
		ID: m.ID, Title: m.Title, Enabled: m.Enabled, Replaces: m.Replaces,
		Declared: m.Where.String(), Annotations: m.Annotations, Health: string(levels[m.ID]),
	}
	if m.Term != nil {
		out.Term = m.Term.Name
	}
	if m.Parent != nil {
		out.Parent = m.Parent.ID
	}
	if !m.Enabled {
		out.Reason = m.WhyDisabled()
	}
	for _, c := range m.Conditions {
		out.Conditions = append(out.Conditions, graph.Condition{Name: c.Name, Flags: c.Flags, Holds: c.Holds})
	}
	return out
}

// graphOptions are the options of each module.
func (h *Hive) graphOptions() map[string][]graph.Option {
	options := map[string][]graph.Option{}
	for _, o := range h.schema.Options() {
		option := graph.Option{
			Name: o.Name, Type: o.Type, Default: o.Default, Usage: o.Usage, Hidden: o.Hidden, Ignored: o.Ignored,
		}
		if e, ok := h.values.Lookup(o.Name); ok && e.Source.Kind != config.FromDefault {
			option.Value, option.Source = e.Value, e.Source.String()
		}
		options[o.Module] = append(options[o.Module], option)
	}
	return options
}

func (h *Hive) graphNode(n *resolve.Node, names typeNames) graph.Node {
	out := graph.Node{
		ID: n.ID, Kind: string(n.Kind), Name: n.Name, Module: n.Module.ID, Reached: n.Reached,
		Visibility: visibilities[n.Visibility], BuildNanos: int64(h.stats.built[n]),
	}
	if n.Kind != resolve.Builtin {
		out.Declared = n.Where.String()
	}
	if n.For != nil {
		out.For = n.For.ID
	}
	if n.Term != nil {
		out.Term = n.Term.Name
	}
	if !n.IsRoot() {
		for _, r := range n.Results {
			out.Provides = append(out.Provides, names.result(r))
			if n.Kind == resolve.Builtin && r.Key.Type == reflect.TypeFor[lifecycle.Term]() {
				out.Enters = r.Key.Name
			}
		}
	}
	for _, p := range n.Params {
		need := graph.Need{Type: names.key(p.Key), Optional: p.Optional}
		if p.Group {
			need.Type, need.Group = names[p.Key.Type], p.Key.Name
		}
		for _, s := range p.Sources {
			need.From = append(need.From, s.Node.ID)
		}
		out.Needs = append(out.Needs, need)
	}
	return out
}

var visibilities = map[decl.Visibility]string{decl.Public: "", decl.Private: "private", decl.PerModule: "per module"}

// typeNames is how types are written: as in the source, and in full where two
// would read the same.
type typeNames map[reflect.Type]string

func nameTypes(nodes []*resolve.Node) typeNames {
	names, readers := typeNames{}, map[string]int{}
	note := func(t reflect.Type) {
		if _, known := names[t]; !known {
			names[t] = resolve.TypeName(t)
			readers[names[t]]++
		}
	}
	for _, n := range nodes {
		if !n.IsRoot() {
			for _, r := range n.Results {
				note(r.Key.Type)
			}
		}
		for _, p := range n.Params {
			note(p.Key.Type)
		}
	}
	for t, name := range names {
		if readers[name] > 1 {
			names[t] = resolve.FullName(t)
		}
	}
	return names
}

func (s typeNames) key(k resolve.Key) string {
	if k.Name == "" {
		return s[k.Type]
	}
	return s[k.Type] + " named " + k.Name
}

func (s typeNames) result(r resolve.Result) string {
	if r.Group {
		return s[r.Key.Type] + " in group " + r.Key.Name
	}
	return s.key(r.Key)
}

func (s typeNames) types() []graph.Type {
	list := make([]graph.Type, 0, len(s))
	for t, name := range s {
		list = append(list, graph.Type{Name: name, Full: resolve.FullName(t)})
	}
	slices.SortFunc(list, func(a, b graph.Type) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (h *Hive) graphOrder(o *resolve.Order) graph.Order {
	out := graph.Order{}
	if o.Term != nil {
		out.Term = o.Term.Name
	}
	for _, s := range o.Steps {
		step := graph.Step{ID: s.ID(), Module: s.Module.ID, Node: -1, StartNanos: int64(h.stats.steps[s.ID()])}
		if s.Node != nil {
			step.Node = s.Node.ID
		}
		for _, e := range s.After {
			step.After = append(step.After, graph.After{Step: e.Step.Index, Reason: e.Reason})
		}
		out.Steps = append(out.Steps, step)
	}
	return out
}

// logConfig and ownConfig are the hive's own config structs.
func (h *Hive) logConfig() logging.Config {
	v, _ := h.values.Struct(reflect.TypeFor[logging.Config]())
	return v.Interface().(logging.Config)
}

func (h *Hive) ownConfig() Config {
	v, _ := h.values.Struct(reflect.TypeFor[Config]())
	return v.Interface().(Config)
}
