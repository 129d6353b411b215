// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package query

import (
	"cmp"
	"slices"

	"github.com/skep-operator/skep/runtime/graph"
)

// CellFacts are the facts about a cell.
type CellFacts struct {
	ID       string   `json:"id"` // or the label of what stands outside modules
	Title    string   `json:"title,omitempty"`
	Term     string   `json:"term,omitempty"`
	Parent   string   `json:"parent,omitempty"`
	Nested   []string `json:"nested,omitempty"`
	Enabled  bool     `json:"enabled"`
	Reason   string   `json:"reason,omitempty"` // why it is off
	Replaces string   `json:"replaces,omitempty"`
	Declared string   `json:"declared,omitempty"`
	Health   string   `json:"health,omitempty"`

	// Conditions are those of the cell and of the cells around it.
	Conditions []CellCondition `json:"conditions,omitempty"`
	Provides   []Provided      `json:"provides,omitempty"`
	// Needs begin with what comes from other cells.
	Needs []Needed `json:"needs,omitempty"`
	// Breaks are the cells that could not be built without this one, nearest
	// first; Lacks those that would go on with less.
	Breaks  []Dependent    `json:"breaks,omitempty"`
	Lacks   []Dependent    `json:"lacks,omitempty"`
	Starts  []Place        `json:"starts,omitempty"`
	Options []graph.Option `json:"options,omitempty"`
}

// CellCondition is a condition and the cell that declares it.
type CellCondition struct {
	graph.Condition
	Cell string `json:"cell"`
}

// Provided is a value and its users.
type Provided struct {
	Type     string `json:"type"`
	Cell     string `json:"cell"`
	Kind     string `json:"kind"` // of the node: constructor, decorator, config or builtin
	By       string `json:"by"`   // name of the node
	Node     int    `json:"node"`
	Declared string `json:"declared,omitempty"`
	// Scope is "private", "per module", "lasting", or "" for an ordinary value.
	Scope  string `json:"scope,omitempty"`
	Off    string `json:"off,omitempty"` // why the cell is off
	Unused bool   `json:"unused,omitempty"`
	Users  []User `json:"users,omitempty"`
}

// User is a node that takes a value.
type User struct {
	Type     string   `json:"type"`
	Cell     string   `json:"cell"`
	By       string   `json:"by"` // kind and name of the node
	From     []string `json:"from,omitempty"`
	Optional bool     `json:"optional,omitempty"` // it goes on without
	Off      bool     `json:"off,omitempty"`      // its cell is off
	// Through is the cell whose decorator the value passes on its way.
	Through string `json:"through,omitempty"`
}

// Needed is a value that a cell takes.
type Needed struct {
	Type     string   `json:"type"`
	Optional bool     `json:"optional,omitempty"`
	By       []string `json:"by"`            // kinds and names of the nodes
	From     []string `json:"from"`          // cells
	Off      []string `json:"off,omitempty"` // cells that would provide it, or more of it
}

// Dependent is a cell that needs a value of another.
type Dependent struct {
	Cell string `json:"cell"`
	Type string `json:"type"`
	Of   string `json:"of"`
}

// Place is where a step of a cell stands in the start order.
type Place struct {
	Term  string    `json:"term,omitempty"`
	Step  string    `json:"step"`
	Place int       `json:"place"` // from 1
	Of    int       `json:"of"`
	After []Earlier `json:"after,omitempty"`
	Nanos int64     `json:"nanos,omitempty"` // of a running hive: how long it took
}

// Earlier is a step that comes before another.
type Earlier struct {
	Step   string `json:"step"`
	Reason string `json:"reason,omitempty"` // of order that data does not express
}

// TypeFacts are the facts about a type, or about the values of one type with a
// name or in a group.
type TypeFacts struct {
	Name       string     `json:"name"`
	Full       string     `json:"full"`
	Providers  []Provided `json:"providers,omitempty"`
	Decorators []Provided `json:"decorators,omitempty"`
	Users      []User     `json:"users,omitempty"`
}

// FlagFacts are the facts about a flag.
type FlagFacts struct {
	graph.Option
	Cell       string          `json:"cell"`
	Conditions []CellCondition `json:"conditions,omitempty"`
	// Switches are the cells that conditions on the flag turn on and off,
	// those nested in them included.
	Switches []Switched `json:"switches,omitempty"`
}

// Switched is a cell that a flag enables or disables.
type Switched struct {
	Cell      string `json:"cell"`
	Enabled   bool   `json:"enabled"`
	Condition string `json:"condition"`
	Within    string `json:"within,omitempty"` // the outer cell that has the condition
}

// CellFacts are the facts about a module.
func (x *Index) CellFacts(m *graph.Module) CellFacts {
	f := CellFacts{
		ID: m.Label(), Title: m.Title, Term: m.Term, Parent: m.Parent, Nested: x.Nested[m.ID],
		Enabled: m.Enabled, Replaces: m.Replaces, Declared: m.Declared, Health: m.Health,
		Conditions: x.ConditionsOf(m), Starts: x.places(m), Options: m.Options,
	}
	if !m.Enabled {
		f.Reason = m.ReasonOff()
	}
	for _, n := range x.NodesOf(m.Label()) {
		for _, p := range n.Provides {
			f.Provides = append(f.Provides, x.provided(n, p))
		}
		if x.IsBuilt(n) || !m.Enabled {
			x.addNeeds(&f, n)
		}
	}
	slices.SortStableFunc(f.Needs, func(a, b Needed) int { return cmp.Compare(f.foreign(b), f.foreign(a)) })
	f.Breaks, f.Lacks = x.dependents(m.Label())
	return f
}

// foreign is 1 for what comes, or would come, from other cells, and 0 for the
// rest.
func (f *CellFacts) foreign(n Needed) int {
	if len(n.Off) > 0 || len(without(n.From, f.ID, graph.HiveLabel)) > 0 {
		return 1
	}
	return 0
}

// ConditionsOf are those of the modules around m, and then its own.
func (x *Index) ConditionsOf(m *graph.Module) []CellCondition {
	var list []CellCondition
	if outer := x.ByLabel[m.Parent]; m.Parent != "" && outer != nil {
		list = x.ConditionsOf(outer)
	}
	for _, c := range m.Conditions {
		list = append(list, CellCondition{c, m.Label()})
	}
	return list
}

func (x *Index) provided(n *graph.Node, value string) Provided {
	p := Provided{
		Type: value, Cell: x.CellOf(n), Kind: n.Kind, By: n.Name, Node: n.ID, Declared: n.Declared,
		Scope: n.Visibility, Unused: !x.IsBuilt(n) && x.enabled(n), Users: x.usersOf(n, value),
	}
	m := x.ByLabel[p.Cell]
	if m != nil && m.Term != "" && n.Term == "" && n.Kind == graph.KindConstructor {
		p.Scope = "lasting"
	}
	if m != nil && !m.Enabled {
		p.Off = m.ReasonOff()
	}
	return p
}

// usersOf are those who take a value of a node, directly or through
// decorators.
func (x *Index) usersOf(n *graph.Node, value string) []User {
	list, through := []User{}, []*graph.Node{n}
	for i := 0; i < len(through); i++ {
		for _, u := range x.usesOf(through[i], value) {
			user, ok := x.user(u)
			if i > 0 {
				user.Through = x.CellOf(through[i])
			}
			if ok && !slices.ContainsFunc(list, user.same) {
				list = append(list, user)
			}
			if u.node.Kind == graph.KindDecorator && !slices.Contains(through, u.node) {
				through = append(through, u.node)
			}
		}
	}
	return list
}

// usesOf are the uses of one value of a node.
func (x *Index) usesOf(n *graph.Node, value string) []use {
	var list []use
	for _, made := range x.instances(n) {
		for _, u := range x.users[made.ID] {
			if u.need.Key() == value {
				list = append(list, u)
			}
		}
	}
	return list
}

func (u User) same(other User) bool {
	return u.Cell == other.Cell && u.By == other.By && u.Through == other.Through
}

// user is a use as told; those that are never built do not count.
func (x *Index) user(u use) (User, bool) {
	on := x.enabled(u.node)
	user := User{Type: u.need.Key(), Cell: x.CellOf(u.node), By: u.node.Label(), Optional: u.need.Dispensable(), Off: !on}
	return user, u.node.Reached || !on
}

func (x *Index) addNeeds(f *CellFacts, n *graph.Node) {
	for _, need := range x.NeedsOf(n) {
		i := slices.IndexFunc(f.Needs, func(known Needed) bool { return known.Type == need.Key() })
		if i < 0 {
			i = len(f.Needs)
			f.Needs = append(f.Needs, Needed{Type: need.Key(), Optional: true})
		}
		known := &f.Needs[i]
		known.Optional = known.Optional && need.Dispensable()
		known.By = append(known.By, n.Label())
		for _, p := range x.SourcesOf(need) {
			known.From = appendNew(known.From, x.CellOf(p))
		}
		for _, p := range x.absent(n, need) {
			if x.CellOf(p) == f.ID { // both are off
				known.From = appendNew(known.From, f.ID)
			} else {
				known.Off = appendNew(known.Off, x.CellOf(p))
			}
		}
	}
}

// dependents are the cells that fail to build without one and those nested in
// it, and those that only have less. What needs something of a cell that fails
// fails, too: an optional value may be absent, not broken.
func (x *Index) dependents(label string) (breaks, lacks []Dependent) {
	gone := x.family(label)
	told := map[string]bool{}
	var todo []*graph.Node
	seen := map[*graph.Node]bool{}
	for i := range x.Nodes {
		if n := &x.Nodes[i]; slices.Contains(gone, x.CellOf(n)) && n.Kind != graph.KindBuiltin {
			todo, seen[n] = append(todo, n), true
		}
	}
	removed := len(todo)
	for at := 0; at < len(todo); at++ {
		provider := todo[at]
		for _, u := range x.users[provider.ID] {
			if !u.node.Reached || slices.Contains(gone, x.CellOf(u.node)) {
				continue
			}
			d := Dependent{Cell: x.CellOf(u.node), Type: u.need.Key(), Of: x.CellOf(provider)}
			switch {
			case at < removed && u.need.Dispensable():
				if !slices.Contains(lacks, d) {
					lacks = append(lacks, d)
				}
				continue
			case d.Cell != d.Of && !told[d.Cell]:
				told[d.Cell] = true
				breaks = append(breaks, d)
			}
			if !seen[u.node] {
				todo, seen[u.node] = append(todo, u.node), true
			}
		}
	}
	return breaks, slices.DeleteFunc(lacks, func(d Dependent) bool { return told[d.Cell] })
}

// places are where the steps of a module start.
func (x *Index) places(m *graph.Module) []Place {
	var list []Place
	for i := range x.Orders {
		o := &x.Orders[i]
		for j, s := range o.Steps {
			if stepModule(o, s) == m.Label() {
				list = append(list, place(o, j))
			}
		}
	}
	return list
}

// stepModule is the label of the module whose step it is.
func stepModule(o *graph.Order, s graph.Step) string {
	return (&graph.Module{ID: s.Module, Term: o.Term}).Label()
}

func place(o *graph.Order, i int) Place {
	p := Place{Term: o.Term, Step: o.Steps[i].ID, Place: i + 1, Of: len(o.Steps), Nanos: o.Steps[i].StartNanos}
	for _, a := range o.Steps[i].After {
		p.After = append(p.After, Earlier{o.Steps[a.Step].ID, a.Reason})
	}
	return p
}

func (x *Index) typeFacts(key string) TypeFacts {
	f := TypeFacts{Name: key, Full: x.full(key)}
	told := false
	for i := range x.Nodes {
		n := &x.Nodes[i]
		if slices.Contains(n.Provides, key) && !n.IsInstance() {
			switch {
			case n.Kind == graph.KindBuiltin && told: // one of many, for other modules
			case n.Kind == graph.KindBuiltin:
				told = true
				f.Providers = append(f.Providers, Provided{Type: key, Cell: x.CellOf(n), Kind: n.Kind, By: n.Name, Node: n.ID})
			case n.Kind == graph.KindDecorator:
				f.Decorators = append(f.Decorators, x.provided(n, key))
			default:
				f.Providers = append(f.Providers, x.provided(n, key))
			}
		}
		for j := range n.Needs {
			if n.Needs[j].Key() != key || n.Visibility == graph.VisibilityPerModule && n.For == "" {
				continue
			}
			u, ok := x.user(use{n, &n.Needs[j]})
			if !ok {
				continue
			}
			for _, p := range x.SourcesOf(&n.Needs[j]) {
				u.From = appendNew(u.From, x.CellOf(p))
			}
			if !slices.ContainsFunc(f.Users, u.same) {
				f.Users = append(f.Users, u)
			}
		}
	}
	return f
}

func (x *Index) flagFacts(m *graph.Module, o graph.Option) FlagFacts {
	f := FlagFacts{Option: o, Cell: m.Label()}
	for i := range x.Modules {
		m := &x.Modules[i]
		for _, c := range m.Conditions {
			if !slices.Contains(c.Flags, o.Name) {
				continue
			}
			f.Conditions = append(f.Conditions, CellCondition{c, m.Label()})
			for _, id := range x.family(m.Label()) {
				s := Switched{Cell: id, Enabled: x.ByLabel[id].Enabled, Condition: c.Name}
				if id != m.Label() {
					s.Within = m.Label()
				}
				f.Switches = append(f.Switches, s)
			}
		}
	}
	return f
}
