// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"reflect"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Plan is the graph of a hive.
type Plan struct {
	Modules  []*Module // in declaration order, outer before inner
	Terms    []*Term
	Nodes    []*Node // in declaration order; instances of per-module nodes last
	Problems []*Problem

	configs    []*configDecl
	validators []*Validator
	public     map[Key][]*Node
	groups     map[Key][]*Node // Key.Name is the group
	builtins   map[Key]*builtin
	offered    []*builtin // the same, in a fixed order
	byID       map[string]*Module
	former     map[string]*Module // ids of modules gone from the list, and what stands there now, or nil
	root       *Module
}

// Module is a module, or the unnamed one of what stands outside modules.
type Module struct {
	ID, Title   string
	Parent      *Module
	Term        *Term // nil in the process
	Conditions  []Condition
	Enabled     bool
	Annotations []any
	Replaces    string // id of the module whose place it took, or ""
	Where       decl.Location

	index      int
	orders     []*decl.Order
	private    map[Key][]*Node
	decorators map[Key][]*Node
}

// Condition is a condition of a module with its outcome.
type Condition struct {
	Name  string
	Flags []string
	Holds bool

	fn decl.Func
}

// Term is a part of the graph that is built at every entry.
type Term struct {
	Name  string
	Where decl.Location

	root     *Module
	misasked bool // somebody in a term asks for its handle, which is reported
}

// Key names a value: its type, and a name where there are several.
type Key struct {
	Type reflect.Type
	Name string
}

// String is the value as a reader would write it.
func (k Key) String() string {
	if k.Name == "" {
		return typeName(k.Type)
	}
	return typeName(k.Type) + " named " + k.Name
}

// Kind is what a node is.
type Kind string

const (
	Config      Kind = "config"      // a filled config struct
	Builtin     Kind = "builtin"     // a value that the hive itself offers
	Constructor Kind = "constructor" // an ordinary, private, lasting or metrics provider
	Decorator   Kind = "decorator"
	Hook        Kind = "hook"
	Job         Kind = "job"
	Invoke      Kind = "invoke"
)

// Node is something in the graph that has a value or runs.
type Node struct {
	ID      int // index in Plan.Nodes
	Kind    Kind
	Name    string  // of the function, the hook or the job
	Module  *Module // where it is declared; its parameters are looked up there
	For     *Module // the module that a per-module value is for, else nil
	Term    *Term   // nil: it lives in the process
	Fn      decl.Func
	Params  []Param
	Results []Result
	Reached bool // an enabled hook, job or invoke needs it
	Where   decl.Location

	Visibility decl.Visibility
	Metrics    bool
	Root       *decl.Root // of a hook or job

	template *Node    // of an instance for a module
	asked    bool     // some node takes a result
	askedBy  *Node    // through whom it was reached first
	needs    []*Node  // the nodes of all Sources, once resolved
	faults   []*fault // what is wrong with its parameters
	hasErr   bool     // its function ends with an error
}

// Param is a parameter, or a field of a parameter struct.
type Param struct {
	Arg      int
	Field    []int // nil: the argument itself
	Key      Key   // of a group: element type and name of the group
	Group    bool
	Optional bool
	// Sources are the provider, the contributors of a group in declaration
	// order, or none for an optional value that is absent.
	Sources []Source
}

// Source is a result of a node.
type Source struct {
	Node   *Node
	Result int
}

// Result is a result, or a field of a result struct.
type Result struct {
	Return int
	Field  []int // nil: the returned value itself
	Key    Key   // of a group: element type and name of the group
	Group  bool
}

// Err reports whether the node's function ends with an error.
func (n *Node) Err() bool { return n.hasErr }

// Owner is the module that the node counts for.
func (n *Node) Owner() *Module {
	if n.For != nil {
		return n.For
	}
	return n.Module
}

// IsRoot reports whether the node runs by itself rather than because it is
// needed.
func (n *Node) IsRoot() bool { return n.Kind == Hook || n.Kind == Job || n.Kind == Invoke }

// Validator is a rule over config structs.
type Validator struct {
	Module *Module
	Fn     decl.Func
}

// Validators are the rules of enabled modules.
func (p *Plan) Validators() []*Validator {
	var list []*Validator
	for _, v := range p.validators {
		if v.Module.Enabled {
			list = append(list, v)
		}
	}
	return list
}

// Module is the module of the given id, or nil.
func (p *Plan) Module(id string) *Module { return p.byID[id] }

// Label is the module as shown to people.
func (m *Module) Label() string {
	switch {
	case m.ID != "":
		return m.ID
	case m.Term != nil:
		return "term " + m.Term.Name
	}
	return "the list of cells"
}

// within reports whether m is outer or nested in it.
func (m *Module) within(outer *Module) bool {
	for ; m != nil; m = m.Parent {
		if m == outer {
			return true
		}
	}
	return false
}

// Index is the place of the module in declaration order.
func (m *Module) Index() int { return m.index }
