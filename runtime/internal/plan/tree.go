// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"fmt"
	"reflect"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

type configDecl struct {
	module  *Module
	decl    *decl.Config
	ignored bool // of a replaced module: flags only
}

type builtin struct {
	key       Key
	perModule bool
	term      *Term // the term whose handle it is
}

// BuiltinSpec is a value that the hive offers without a constructor.
type BuiltinSpec struct {
	Type      reflect.Type
	Name      string
	PerModule bool
}

var validID = regexp.MustCompile(`^[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*)*$`)

// New reads declarations into a plan in which nothing is selected yet.
func New(cells []decl.Node, builtins []BuiltinSpec) *Plan {
	p := &Plan{
		public:   map[Key][]*Node{},
		groups:   map[Key][]*Node{},
		builtins: map[Key]*builtin{},
		former:   map[string]*Module{},
	}
	for _, b := range builtins {
		p.offerBuiltin(&builtin{key: Key{b.Type, b.Name}, perModule: b.PerModule})
	}
	p.root = p.addModule(&Module{})
	p.read(cells, p.root)
	p.checkIDs()
	return p
}

func (p *Plan) addModule(m *Module) *Module {
	m.index = len(p.Modules)
	m.private, m.decorators = map[Key][]*Node{}, map[Key][]*Node{}
	p.Modules = append(p.Modules, m)
	return m
}

func (p *Plan) read(cells []decl.Node, m *Module) {
	for _, c := range cells {
		p.readOne(c, m)
	}
}

func (p *Plan) readOne(c decl.Node, m *Module) {
	switch c := c.(type) {
	case *decl.Group:
		p.read(c.Cells, m)
	case *decl.Module:
		p.readModule(c, m)
	case *decl.Removed:
		p.rememberFormer(c.Module, m.ID, nil)
	case *decl.Term:
		p.readTerm(c, m)
	case *decl.Config:
		p.readConfig(c, m)
	case *decl.Validate:
		if p.checkRule(c.Fn, "Validate", errorType, m) {
			p.validators = append(p.validators, &Validator{m, c.Fn})
		}
	case *decl.EnabledBy:
		if p.checkRule(c.Condition.Fn, "When", boolType, m) {
			m.Conditions = append(m.Conditions, Condition{Name: c.Condition.Name, Flags: c.Condition.Flags, fn: c.Condition.Fn})
		}
	case *decl.Order:
		m.orders = append(m.orders, c)
	case *decl.Annotation:
		m.Annotations = append(m.Annotations, c.Value)
	case *decl.Broken:
		p.problem("unusable declaration", c.Problem).add("declared", c.Where.String()).fix("%s", c.Fix)
	default:
		p.readFunc(c, m)
	}
}

func (p *Plan) readModule(c *decl.Module, outer *Module) {
	if !validID.MatchString(c.ID) {
		p.problem("unusable module id", fmt.Sprintf("%q is no module id", c.ID)).add("declared", c.Where.String()).
			fix("use lower-case letters, digits and dashes, with dots between parts: ipam.clusterpool")
	}
	m := p.addModule(&Module{
		ID: decl.JoinID(outer.ID, c.ID), Title: c.Title, Parent: outer, Term: outer.Term, Where: c.Where,
	})
	if c.Replaces != nil {
		m.Replaces = decl.JoinID(outer.ID, c.Replaces.ID)
		p.rememberFormer(c.Replaces, outer.ID, m)
		p.ignoreFlags(c.Replaces, m)
	}
	p.read(c.Cells, m)
}

// rememberFormer keeps the ids of modules that an embedder removed or
// replaced: others of the list may mention them, and their authors cannot know.
func (p *Plan) rememberFormer(old *decl.Module, outer string, now *Module) {
	id := decl.JoinID(outer, old.ID)
	p.former[id] = now
	if old.Replaces != nil {
		p.rememberFormer(old.Replaces, outer, now)
	}
	for _, inner := range modulesIn(old.Cells) {
		p.rememberFormer(inner, id, now)
	}
}

func modulesIn(cells []decl.Node) []*decl.Module {
	var list []*decl.Module
	for _, c := range cells {
		switch c := c.(type) {
		case *decl.Module:
			list = append(list, c)
		case *decl.Group:
			list = append(list, modulesIn(c.Cells)...)
		}
	}
	return list
}

// ignoreFlags keeps the flags of a replaced module accepted, and those of the
// one that it had replaced itself.
func (p *Plan) ignoreFlags(old *decl.Module, m *Module) {
	if old.Replaces != nil {
		p.ignoreFlags(old.Replaces, m)
	}
	p.ignoreFlagsIn(old.Cells, m)
}

func (p *Plan) ignoreFlagsIn(cells []decl.Node, m *Module) {
	for _, c := range cells {
		switch c := c.(type) {
		case *decl.Config:
			p.configs = append(p.configs, &configDecl{m, c, true})
		case *decl.Group:
			p.ignoreFlagsIn(c.Cells, m)
		case *decl.Module:
			p.ignoreFlags(c, m)
		}
	}
}

func (p *Plan) readTerm(c *decl.Term, m *Module) {
	if m.Term != nil || m.ID != "" {
		p.problem("misplaced term", fmt.Sprintf("term %s stands inside %s", c.Name, m.Label())).
			add("declared", c.Where.String()).fix("move it to the top of the list of cells")
		return
	}
	for _, t := range p.Terms {
		if t.Name == c.Name { // a second part of the same term
			p.read(c.Cells, t.root)
			return
		}
	}
	t := &Term{Name: c.Name, Where: c.Where}
	t.root = p.addModule(&Module{Parent: m, Term: t, Where: c.Where})
	p.Terms = append(p.Terms, t)
	p.offerBuiltin(&builtin{key: Key{termType, c.Name}, term: t})
	p.read(c.Cells, t.root)
}

func (p *Plan) offerBuiltin(b *builtin) {
	p.builtins[b.key] = b
	p.offered = append(p.offered, b)
}

func (p *Plan) readConfig(c *decl.Config, m *Module) {
	p.configs = append(p.configs, &configDecl{m, c, c.Ignored})
	if c.Ignored {
		return
	}
	n := p.addNode(&Node{
		Kind: Config, Name: typeName(c.Defaults.Type()), Module: m, Where: c.Where,
		Results: []Result{{Key: Key{Type: c.Defaults.Type()}}},
	})
	p.public[n.Results[0].Key] = append(p.public[n.Results[0].Key], n)
}

func (p *Plan) addNode(n *Node) *Node {
	n.ID = len(p.Nodes)
	p.Nodes = append(p.Nodes, n)
	return n
}

func (p *Plan) checkIDs() {
	p.byID = map[string]*Module{}
	for _, m := range p.Modules {
		if m.ID == "" {
			continue
		}
		if first := p.byID[m.ID]; first != nil {
			p.problem("duplicate module", "module "+m.ID+" is in the list twice").add("first", first.Where.String()).
				add("again", m.Where.String()).fix("remove one of them, or put one in the other's place with Replace")
		}
		p.byID[m.ID] = m
	}
}

// ConfigDecl is a config struct to be filled.
type ConfigDecl struct {
	Module   string
	Defaults reflect.Value
	Flags    func(*pflag.FlagSet)
	Where    decl.Location
	Ignored  bool
}

// Configs are all config structs, those of disabled modules included.
func (p *Plan) Configs() []ConfigDecl {
	list := make([]ConfigDecl, len(p.configs))
	for i, c := range p.configs {
		list[i] = ConfigDecl{c.module.ID, c.decl.Defaults, c.decl.Flags, c.decl.Where, c.ignored}
	}
	return list
}
