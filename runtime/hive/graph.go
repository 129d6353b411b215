// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/plan"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging"
)

// live is what the graph shows of a running hive.
type live struct {
	mu    sync.Mutex
	built map[*plan.Node]time.Duration
	steps map[string]time.Duration
}

func (h *Hive) builtNode(n *plan.Node, took time.Duration) {
	h.live.mu.Lock()
	defer h.live.mu.Unlock()
	if h.live.built == nil {
		h.live.built = map[*plan.Node]time.Duration{}
	}
	h.live.built[n] = took
}

func (h *Hive) tookStep(e lifecycle.Event) {
	if e.Phase != lifecycle.Starting {
		return
	}
	h.live.mu.Lock()
	defer h.live.mu.Unlock()
	if h.live.steps == nil {
		h.live.steps = map[string]time.Duration{}
	}
	h.live.steps[e.Step] = e.Took
}

// Graph is the hive as data, with timings and health where it runs. No
// constructor is run for it. It may be called at any time after Select, by any
// goroutine; before, it calls Select.
func (h *Hive) Graph() *graph.Graph {
	_ = h.Select()
	h.live.mu.Lock()
	defer h.live.mu.Unlock()
	g := &graph.Graph{Name: h.name}
	health := worstHealth(h.health.Snapshot())
	for _, m := range h.plan.Modules {
		g.Modules = append(g.Modules, h.graphModule(m, health))
	}
	for _, n := range h.plan.Nodes {
		g.Nodes = append(g.Nodes, h.graphNode(n))
		if unused(n) {
			g.Unused = append(g.Unused, n.ID)
		}
	}
	for _, o := range h.orders {
		g.Orders = append(g.Orders, h.graphOrder(o))
	}
	return g
}

func unused(n *plan.Node) bool {
	return n.Kind == plan.Constructor && !n.Reached && n.Module.Enabled && n.Visibility == decl.Public
}

func (h *Hive) graphModule(m *plan.Module, health map[string]health.Level) graph.Module {
	out := graph.Module{
		ID: m.ID, Title: m.Title, Enabled: m.Enabled, Replaces: m.Replaces,
		Declared: m.Where.String(), Annotations: m.Annotations, Health: string(health[m.ID]),
	}
	if m.Term != nil {
		out.Term = m.Term.Name
	}
	if !m.Enabled {
		out.Reason = m.WhyDisabled()
	}
	for _, c := range m.Conditions {
		out.Conditions = append(out.Conditions, graph.Condition{Name: c.Name, Flags: c.Flags, Holds: c.Holds})
	}
	for _, o := range h.schema.Options() {
		if o.Module == m.ID {
			out.Options = append(out.Options, graph.Option{
				Name: o.Name, Type: o.Type, Default: o.Default, Usage: o.Usage, Hidden: o.Hidden, Ignored: o.Ignored,
			})
		}
	}
	return out
}

func (h *Hive) graphNode(n *plan.Node) graph.Node {
	out := graph.Node{
		ID: n.ID, Kind: string(n.Kind), Name: n.Name, Module: n.Module.ID, Reached: n.Reached,
		Visibility: visibilities[n.Visibility], BuildNanos: int64(h.live.built[n]),
	}
	if n.Kind != plan.Builtin {
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
			out.Provides = append(out.Provides, resultName(r.Key, r.Group))
		}
	}
	for _, p := range n.Params {
		need := graph.Need{Type: p.Key.String(), Optional: p.Optional}
		if p.Group {
			need.Type, need.Group = plan.TypeName(p.Key.Type), p.Key.Name
		}
		for _, s := range p.Sources {
			need.From = append(need.From, s.Node.ID)
		}
		out.Needs = append(out.Needs, need)
	}
	return out
}

var visibilities = map[decl.Visibility]string{decl.Public: "", decl.Private: "private", decl.PerModule: "per module"}

func resultName(k plan.Key, group bool) string {
	if group {
		return plan.TypeName(k.Type) + " in group " + k.Name
	}
	return k.String()
}

func (h *Hive) graphOrder(o *plan.Order) graph.Order {
	out := graph.Order{}
	if o.Term != nil {
		out.Term = o.Term.Name
	}
	for _, s := range o.Steps {
		step := graph.Step{ID: s.ID(), Module: s.Module.ID, Node: -1, StartNanos: int64(h.live.steps[s.ID()])}
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

// worstHealth is the worst level of each module and its parts.
func worstHealth(statuses []health.Status) map[string]health.Level {
	severity := map[health.Level]int{"": 0, health.Stopped: 1, health.OK: 2, health.Degraded: 3}
	worst := map[string]health.Level{}
	for _, s := range statuses {
		for i := 1; i <= len(s.ID); i++ {
			if i < len(s.ID) && s.ID[i] != '.' {
				continue
			}
			if id := s.ID[:i]; severity[s.Level] > severity[worst[id]] {
				worst[id] = s.Level
			}
		}
	}
	return worst
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

// logOptions logs what deviates from the defaults, one line per option in the
// form that users of the original know, and what is odd about the sources.
func (h *Hive) logOptions() {
	log := h.process.log()
	for _, w := range h.values.Warnings {
		log.Warn(w)
	}
	for _, e := range h.values.Entries() {
		level := slog.LevelInfo
		if e.Source.Kind == config.FromDefault {
			level = slog.LevelDebug
		}
		log.Log(context.Background(), level, "  --"+e.Name+"='"+e.Value+"'", "source", e.Source.String())
	}
}
