// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"cmp"
	"slices"
)

// CellFacts is what there is to know about a cell.
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
	Breaks  []Dependent `json:"breaks,omitempty"`
	Lacks   []Dependent `json:"lacks,omitempty"`
	Starts  []Place     `json:"starts,omitempty"`
	Options []Option    `json:"options,omitempty"`
}

// CellCondition is a condition and the cell that declares it.
type CellCondition struct {
	Condition
	Cell string `json:"cell"`
}

// Provided is a value and who takes it.
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

// User is somebody who takes a value.
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

// TypeFacts is what there is to know about a type, or about the values of one
// type with a name or in a group.
type TypeFacts struct {
	Name       string     `json:"name"`
	Full       string     `json:"full"`
	Providers  []Provided `json:"providers,omitempty"`
	Decorators []Provided `json:"decorators,omitempty"`
	Users      []User     `json:"users,omitempty"`
}

// FlagFacts is what there is to know about a flag.
type FlagFacts struct {
	Option
	Cell       string          `json:"cell"`
	Conditions []CellCondition `json:"conditions,omitempty"`
	// Switches are the cells that conditions on the flag turn on and off,
	// those nested in them included.
	Switches []Switched `json:"switches,omitempty"`
}

// Switched is a cell that a flag has a say in.
type Switched struct {
	Cell      string `json:"cell"`
	Enabled   bool   `json:"enabled"`
	Condition string `json:"condition"`
	Within    string `json:"within,omitempty"` // the outer cell that has the condition
}

// name is a node as shown to people.
func (n *Node) name() string {
	if n.Kind == KindConstructor || n.Kind == KindBuiltin {
		return n.Name
	}
	return n.Kind + " " + n.Name
}

func (x *index) cellFacts(m *Module) CellFacts {
	f := CellFacts{
		ID: m.Label(), Title: m.Title, Term: m.Term, Parent: m.Parent, Nested: x.nested[m.ID],
		Enabled: m.Enabled, Replaces: m.Replaces, Declared: m.Declared, Health: m.Health,
		Conditions: x.conditions(m), Starts: x.places(m), Options: m.Options,
	}
	if !m.Enabled {
		f.Reason = m.reason()
	}
	for _, n := range x.nodesOf(m.Label()) {
		for _, p := range n.Provides {
			f.Provides = append(f.Provides, x.provided(n, p))
		}
		if x.built(n) || !m.Enabled {
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
	if len(n.Off) > 0 || len(without(n.From, f.ID, offered)) > 0 {
		return 1
	}
	return 0
}

// conditions are those of the modules around m, and then its own.
func (x *index) conditions(m *Module) []CellCondition {
	var list []CellCondition
	if outer := x.modules[m.Parent]; m.Parent != "" && outer != nil {
		list = x.conditions(outer)
	}
	for _, c := range m.Conditions {
		list = append(list, CellCondition{c, m.Label()})
	}
	return list
}

func (x *index) provided(n *Node, value string) Provided {
	p := Provided{
		Type: value, Cell: x.cell(n), Kind: n.Kind, By: n.Name, Node: n.ID, Declared: n.Declared,
		Scope: n.Visibility, Unused: !x.built(n) && x.enabled(n), Users: x.usersOf(n, value),
	}
	m := x.modules[p.Cell]
	if m != nil && m.Term != "" && n.Term == "" && n.Kind == KindConstructor {
		p.Scope = "lasting"
	}
	if m != nil && !m.Enabled {
		p.Off = m.reason()
	}
	return p
}

// usersOf are those who take a value of a node, directly or through
// decorators.
func (x *index) usersOf(n *Node, value string) []User {
	list, through := []User{}, []*Node{n}
	for i := 0; i < len(through); i++ {
		for _, u := range x.usesOf(through[i], value) {
			user, ok := x.user(u)
			if i > 0 {
				user.Through = x.cell(through[i])
			}
			if ok && !slices.ContainsFunc(list, user.same) {
				list = append(list, user)
			}
			if u.node.Kind == KindDecorator && !slices.Contains(through, u.node) {
				through = append(through, u.node)
			}
		}
	}
	return list
}

// usesOf are the uses of one value of a node.
func (x *index) usesOf(n *Node, value string) []use {
	var list []use
	for _, made := range x.instances(n) {
		for _, u := range x.users[made.ID] {
			if u.need.key() == value {
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
func (x *index) user(u use) (User, bool) {
	on := x.enabled(u.node)
	user := User{Type: u.need.key(), Cell: x.cell(u.node), By: u.node.name(), Optional: u.need.dispensable(), Off: !on}
	return user, u.node.Reached || !on
}

func (x *index) addNeeds(f *CellFacts, n *Node) {
	for _, need := range x.needs(n) {
		i := slices.IndexFunc(f.Needs, func(known Needed) bool { return known.Type == need.key() })
		if i < 0 {
			i = len(f.Needs)
			f.Needs = append(f.Needs, Needed{Type: need.key(), Optional: true})
		}
		known := &f.Needs[i]
		known.Optional = known.Optional && need.dispensable()
		known.By = append(known.By, n.name())
		for _, p := range x.sources(need) {
			known.From = appendNew(known.From, x.cell(p))
		}
		for _, p := range x.absent(n, need) {
			if x.cell(p) == f.ID { // both are off
				known.From = appendNew(known.From, f.ID)
			} else {
				known.Off = appendNew(known.Off, x.cell(p))
			}
		}
	}
}

// dependents are the cells that fail to build without one and those nested in
// it, and those that only have less. What needs something of a cell that fails
// fails, too: an optional value may be absent, not broken.
func (x *index) dependents(label string) (breaks, lacks []Dependent) {
	gone := x.family(label)
	told := map[string]bool{}
	var todo []*Node
	seen := map[*Node]bool{}
	for i := range x.Nodes {
		if n := &x.Nodes[i]; slices.Contains(gone, x.cell(n)) && n.Kind != KindBuiltin {
			todo, seen[n] = append(todo, n), true
		}
	}
	removed := len(todo)
	for at := 0; at < len(todo); at++ {
		provider := todo[at]
		for _, u := range x.users[provider.ID] {
			if !u.node.Reached || slices.Contains(gone, x.cell(u.node)) {
				continue
			}
			d := Dependent{Cell: x.cell(u.node), Type: u.need.key(), Of: x.cell(provider)}
			switch {
			case at < removed && u.need.dispensable():
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
func (x *index) places(m *Module) []Place {
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
func stepModule(o *Order, s Step) string { return (&Module{ID: s.Module, Term: o.Term}).Label() }

func place(o *Order, i int) Place {
	p := Place{Term: o.Term, Step: o.Steps[i].ID, Place: i + 1, Of: len(o.Steps), Nanos: o.Steps[i].StartNanos}
	for _, a := range o.Steps[i].After {
		p.After = append(p.After, Earlier{o.Steps[a.Step].ID, a.Reason})
	}
	return p
}

func (x *index) typeFacts(key string) TypeFacts {
	f := TypeFacts{Name: key, Full: x.full(key)}
	told := false
	for i := range x.Nodes {
		n := &x.Nodes[i]
		if slices.Contains(n.Provides, key) && !n.instance() {
			switch {
			case n.Kind == KindBuiltin && told: // one of many, for other modules
			case n.Kind == KindBuiltin:
				told = true
				f.Providers = append(f.Providers, Provided{Type: key, Cell: x.cell(n), Kind: n.Kind, By: n.Name, Node: n.ID})
			case n.Kind == KindDecorator:
				f.Decorators = append(f.Decorators, x.provided(n, key))
			default:
				f.Providers = append(f.Providers, x.provided(n, key))
			}
		}
		for j := range n.Needs {
			if n.Needs[j].key() != key || n.Visibility == perModule && n.For == "" {
				continue
			}
			u, ok := x.user(use{n, &n.Needs[j]})
			if !ok {
				continue
			}
			for _, p := range x.sources(&n.Needs[j]) {
				u.From = appendNew(u.From, x.cell(p))
			}
			if !slices.ContainsFunc(f.Users, u.same) {
				f.Users = append(f.Users, u)
			}
		}
	}
	return f
}

func (x *index) flagFacts(m *Module, o Option) FlagFacts {
	f := FlagFacts{Option: o, Cell: m.Label()}
	for i := range x.Modules {
		m := &x.Modules[i]
		for _, c := range m.Conditions {
			if !slices.Contains(c.Flags, o.Name) {
				continue
			}
			f.Conditions = append(f.Conditions, CellCondition{c, m.Label()})
			for _, id := range x.family(m.Label()) {
				s := Switched{Cell: id, Enabled: x.modules[id].Enabled, Condition: c.Name}
				if id != m.Label() {
					s.Within = m.Label()
				}
				f.Switches = append(f.Switches, s)
			}
		}
	}
	return f
}
