// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Graph is an operator. Indices refer to Nodes; a graph read from JSON is as
// good as one taken from a hive, except for annotations.
type Graph struct {
	Name    string   `json:"name"`
	Modules []Module `json:"modules"`
	Nodes   []Node   `json:"nodes"`
	Orders  []Order  `json:"orders"`
	// Unused are public providers that nothing reaches.
	Unused []int `json:"unused,omitempty"`
	// NotBuilt are duties that no module does yet.
	NotBuilt []NotBuilt `json:"notBuilt,omitempty"`
	// Types are all types of the graph, by name.
	Types []Type `json:"types,omitempty"`
}

// Type is a type with its spelling in full. Names are those of the source,
// import paths cut to the package, except where two types would read the same.
type Type struct {
	Name string `json:"name"` // *kvstore.Client
	Full string `json:"full"` // *github.com/skep-operator/skep/resources/kvstore.Client
}

// Module is a module, or an unnamed one for what stands outside modules.
type Module struct {
	ID         string      `json:"id"`
	Title      string      `json:"title,omitempty"`
	Parent     string      `json:"parent,omitempty"` // id of the module that it stands in
	Term       string      `json:"term,omitempty"`
	Enabled    bool        `json:"enabled"`
	Reason     string      `json:"reason,omitempty"` // why it is off
	Conditions []Condition `json:"conditions,omitempty"`
	Options    []Option    `json:"options,omitempty"`
	Replaces   string      `json:"replaces,omitempty"`
	Declared   string      `json:"declared,omitempty"`
	Health     string      `json:"health,omitempty"` // of a running hive: the worst level

	Annotations []any `json:"-"`
}

// NotBuilt is a duty that no module does yet. It is asked for where its condition holds.
type NotBuilt struct {
	ID    string    `json:"id"`
	Title string    `json:"title"`
	Asked Condition `json:"asked"`
}

// Condition is a condition with its outcome.
type Condition struct {
	Name  string   `json:"name"`
	Flags []string `json:"flags,omitempty"`
	Holds bool     `json:"holds"`
}

// Option is a configuration key of a module.
type Option struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Default string `json:"default"`
	Usage   string `json:"usage,omitempty"`
	Hidden  bool   `json:"hidden,omitempty"`
	Ignored bool   `json:"ignored,omitempty"` // of a replaced module
	// Value and Source are those of an option that is set.
	Value  string `json:"value,omitempty"`
	Source string `json:"source,omitempty"` // "" for an option that is not set
}

// Node is a constructor, a decorator, a config struct, a value of the hive, a
// hook, a job or an invoke.
type Node struct {
	ID         int      `json:"id"`
	Kind       string   `json:"kind"`
	Name       string   `json:"name"`
	Module     string   `json:"module"`
	For        string   `json:"for,omitempty"`    // the module that a per-module value is for
	Enters     string   `json:"enters,omitempty"` // the term that a value of the hive is the handle of
	Term       string   `json:"term,omitempty"`
	Visibility string   `json:"visibility,omitempty"`
	Reached    bool     `json:"reached"`
	Declared   string   `json:"declared,omitempty"`
	Provides   []string `json:"provides,omitempty"`
	Needs      []Need   `json:"needs,omitempty"`
	BuildNanos int64    `json:"buildNanos,omitempty"` // of a running hive
}

// Need is a value that a node takes.
type Need struct {
	Type     string `json:"type"`
	Group    string `json:"group,omitempty"`
	Optional bool   `json:"optional,omitempty"`
	From     []int  `json:"from"`
}

// Order is the start order of the process, or of a term.
type Order struct {
	Term  string `json:"term,omitempty"`
	Steps []Step `json:"steps"`
}

// Step is a hook, a job, or the jobs that a module adds while running.
type Step struct {
	ID         string  `json:"id"`
	Module     string  `json:"module"`
	Node       int     `json:"node"` // -1 for jobs added while running
	After      []After `json:"after,omitempty"`
	StartNanos int64   `json:"startNanos,omitempty"` // of a running hive
}

// After is a step that must have started before.
type After struct {
	Step   int    `json:"step"`
	Reason string `json:"reason,omitempty"` // of order that data does not express
}

// Source gives the graph of the hive that one is part of, as it is now.
type Source func() *Graph

// Module is the module of the given id, or nil.
func (g *Graph) Module(id string) *Module {
	i := slices.IndexFunc(g.Modules, func(m Module) bool { return m.ID == id })
	if i < 0 || id == "" {
		return nil
	}
	return &g.Modules[i]
}

// ModuleIDs are the ids of all modules, in declaration order.
func (g *Graph) ModuleIDs() []string {
	var ids []string
	for _, m := range g.Modules {
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// WriteJSON writes the graph as JSON.
func (g *Graph) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(g)
}

// Read reads what WriteJSON wrote. The error names what does not fit together.
func Read(r io.Reader) (*Graph, error) {
	var g Graph
	if err := json.NewDecoder(r).Decode(&g); err != nil {
		return nil, fmt.Errorf("reading a graph: %w", err)
	}
	if err := g.check(); err != nil {
		return nil, fmt.Errorf("reading a graph: %w; it must come from WriteJSON unchanged", err)
	}
	return &g, nil
}

// check returns an error for an index out of range, so that other code need not check.
func (g *Graph) check() error {
	for i, n := range g.Nodes {
		if n.ID != i {
			return fmt.Errorf("node %d stands in place %d", n.ID, i)
		}
		for _, need := range n.Needs {
			for _, from := range need.From {
				if from < 0 || from >= len(g.Nodes) {
					return fmt.Errorf("node %d takes %s from node %d, which is not there", i, need.Type, from)
				}
			}
		}
	}
	for _, m := range g.Modules {
		if m.Parent != "" && (!strings.HasPrefix(m.ID, m.Parent+".") || g.Module(m.Parent) == nil) {
			return fmt.Errorf("module %s is nested in %s, which is not around it", m.ID, m.Parent)
		}
	}
	for _, o := range g.Orders {
		for i, s := range o.Steps {
			for _, a := range s.After {
				if a.Step < 0 || a.Step >= i {
					return fmt.Errorf("step %s comes after step %d, which is not before it", s.ID, a.Step)
				}
			}
		}
	}
	return nil
}
