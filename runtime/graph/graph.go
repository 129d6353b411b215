// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"encoding/json"
	"io"
	"slices"
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
}

// Module is a module, or an unnamed one for what stands outside modules.
type Module struct {
	ID         string      `json:"id"`
	Title      string      `json:"title,omitempty"`
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
}

// Node is a constructor, a decorator, a config struct, a value of the hive, a
// hook, a job or an invoke.
type Node struct {
	ID         int      `json:"id"`
	Kind       string   `json:"kind"`
	Name       string   `json:"name"`
	Module     string   `json:"module"`
	For        string   `json:"for,omitempty"` // the module that a per-module value is for
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

// Read reads what WriteJSON wrote.
func Read(r io.Reader) (*Graph, error) {
	var g Graph
	return &g, json.NewDecoder(r).Decode(&g)
}
