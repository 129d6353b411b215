// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"slices"
	"strings"
)

// Kinds of nodes.
const (
	KindConfig      = "config"
	KindBuiltin     = "builtin"
	KindConstructor = "constructor"
	KindDecorator   = "decorator"
	KindHook        = "hook"
	KindJob         = "job"
	KindInvoke      = "invoke"
)

// VisibilityPerModule is the visibility of values that every module has its own of.
const VisibilityPerModule = "per module"

// HiveLabel is the label of what every cell can ask for without a provider.
const HiveLabel = "the hive"

// Process is the label of what lives as long as the process.
const Process = "process"

// TermLabel is how a scope is called: the process, or a term by its name.
func TermLabel(term string) string {
	if term == "" {
		return Process
	}
	return "term " + term
}

// Label is how a module is called: by its id, or, outside modules, by the list
// or the term that its cells stand in.
func (m *Module) Label() string {
	switch {
	case m.ID != "":
		return m.ID
	case m.Term != "":
		return TermLabel(m.Term)
	}
	return "the list of cells"
}

// ReasonOff says why a module is off, without its own name in front.
func (m *Module) ReasonOff() string {
	return strings.TrimPrefix(m.Reason, m.ID+" ")
}

// Key is what a need asks for, in the spelling of what nodes provide.
func (n Need) Key() string {
	if n.Group == "" {
		return n.Type
	}
	return n.Type + " in group " + n.Group
}

// Dispensable reports whether a node is built with an empty value if none is
// provided.
func (n Need) Dispensable() bool { return n.Optional || n.Group != "" }

// IsRoot reports whether the node runs by itself rather than because it is
// needed.
func (n *Node) IsRoot() bool { return n.Kind == KindHook || n.Kind == KindJob || n.Kind == KindInvoke }

// IsInstance reports whether the node makes a per-module value for one module.
func (n *Node) IsInstance() bool { return n.Visibility == VisibilityPerModule && n.For != "" }

// Label is a node as shown to people.
func (n *Node) Label() string {
	if n.Kind == KindConstructor || n.Kind == KindBuiltin {
		return n.Name
	}
	return n.Kind + " " + n.Name
}

// Scopes are the process and then the terms, in declaration order.
func (g *Graph) Scopes() []string {
	scopes := []string{""}
	for _, m := range g.Modules {
		if !slices.Contains(scopes, m.Term) {
			scopes = append(scopes, m.Term)
		}
	}
	return scopes
}

// ScopeIndex is the place of a term in scopes.
func (g *Graph) ScopeIndex(term string) int { return slices.Index(g.Scopes(), term) }
