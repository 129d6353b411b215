// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"reflect"
	"slices"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Graph is the graph of a hive, resolved as far as its passes have run.
type Graph struct {
	Modules  []*Module // in declaration order, outer before inner
	Terms    []*Term
	Nodes    []*Node // in declaration order; instances of per-module nodes last
	Problems []*Problem

	namespace     string // of metrics
	configs       []*configDecl
	validators    []*Validator
	public        map[Key][]*Node
	groups        map[Key][]*Node // Key.Name is the group
	builtins      map[Key]*builtin
	builtinList   []*builtin // the same, in a fixed order
	byID          map[string]*Module
	replaced      map[string]*Module   // ids of modules removed from the list, and their replacements, or nil
	lostProviders map[Key]lostProvider // values of these modules
	removed       []Removed
	notBuilt      []*NotBuilt
	suggest       []func(reflect.Type) string
	checks        []*check
	root          *Module
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

// Removed is a module that an embedder removed, with what the modules nested in it had.
type Removed struct {
	ID         string
	Flags      []func(*pflag.FlagSet)
	Conditions []decl.Condition
}

// Removed are the modules that an embedder removed.
func (g *Graph) Removed() []Removed { return g.removed }

// NotBuilt is a duty that no module of the list does.
type NotBuilt struct {
	ID, Title string
	Asked     Condition
}

// NotBuilt are the duties that no module of the list does, in the order of their declaration.
func (g *Graph) NotBuilt() []*NotBuilt {
	return slices.DeleteFunc(slices.Clone(g.notBuilt), func(n *NotBuilt) bool { return g.known(n.ID) })
}

// lostProvider is a removed module that provided a value.
type lostProvider struct {
	id  string
	now *Module // what stands in its place, or nil
}

// check is a function that finds mistakes in what a module declares.
type check struct {
	module *Module
	fn     decl.Func
}

// Condition is a condition of a module with its outcome.
type Condition struct {
	Name  string
	Flags []string
	Holds bool
	Where decl.Location

	fn decl.Func
}

// Term is a part of the graph that is built at every entry.
type Term struct {
	Name  string
	Where decl.Location

	root                  *Module
	handleRequestedInTerm bool // requested inside a term, which is a problem of its own
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

// Kind is the kind of a node.
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

// Node is a part of the graph that has a value or runs.
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

	template    *Node         // of an instance for a module
	requested   bool          // a node takes a result
	requestedBy *Node         // the node through which it was reached first
	needs       []*Node       // the nodes of all Sources, once resolved
	paramErrors []*paramError // of its parameters
	hasErr      bool          // its function ends with an error
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

// ReturnsError reports whether the node's function ends with an error.
func (n *Node) ReturnsError() bool { return n.hasErr }

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
func (g *Graph) Validators() []*Validator {
	var list []*Validator
	for _, v := range g.validators {
		if v.Module.Enabled {
			list = append(list, v)
		}
	}
	return list
}

// Module is the module of the given id, or nil.
func (g *Graph) Module(id string) *Module { return g.byID[id] }

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

// within reports whether m is outer or nested in outer.
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
