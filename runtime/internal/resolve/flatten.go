// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

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

// New reads declarations into a graph in which nothing is selected yet.
func New(namespace string, cells []decl.Node, builtins []BuiltinSpec) *Graph {
	p := &Graph{
		namespace:     namespace,
		public:        map[Key][]*Node{},
		groups:        map[Key][]*Node{},
		builtins:      map[Key]*builtin{},
		replaced:      map[string]*Module{},
		lostProviders: map[Key]lostProvider{},
		byID:          map[string]*Module{},
	}
	for _, b := range builtins {
		p.registerBuiltin(&builtin{key: Key{b.Type, b.Name}, perModule: b.PerModule})
	}
	p.root = p.addModule(&Module{})
	p.read(cells, p.root)
	return p
}

func (g *Graph) addModule(m *Module) *Module {
	m.index = len(g.Modules)
	m.private, m.decorators = map[Key][]*Node{}, map[Key][]*Node{}
	g.Modules = append(g.Modules, m)
	return m
}

func (g *Graph) read(cells []decl.Node, m *Module) {
	for _, c := range cells {
		g.readOne(c, m)
	}
}

func (g *Graph) readOne(c decl.Node, m *Module) {
	switch c := c.(type) {
	case *decl.Group:
		g.read(c.Cells, m)
	case *decl.Module:
		g.readModule(c, m)
	case *decl.Removed:
		g.recordReplaced(c.Module, m.ID, nil)
		g.readRemoved(c.Module, m.ID)
	case *decl.Term:
		g.readTerm(c, m)
	case *decl.Config:
		g.readConfig(c, m)
	case *decl.Validate:
		if g.checkRule(c.Fn, "Validate", errorType, m) {
			g.validators = append(g.validators, &Validator{m, c.Fn})
		}
	case *decl.EnabledBy:
		if g.checkRule(c.Condition.Fn, "When", boolType, m) {
			m.Conditions = append(m.Conditions, conditionOf(c.Condition))
		}
	case *decl.NotBuilt:
		if g.checkRule(c.Asked.Fn, "When", boolType, m) {
			g.notBuilt = append(g.notBuilt, &NotBuilt{c.ID, c.Title, conditionOf(c.Asked)})
		}
	case *decl.Order:
		m.orders = append(m.orders, c)
	case *decl.Annotation:
		m.Annotations = append(m.Annotations, c.Value)
	case *decl.Check:
		if g.checkRule(c.Fn, "Check", errorType, m) {
			g.checks = append(g.checks, &check{m, c.Fn})
		}
	case *decl.Suggest:
		g.suggest = append(g.suggest, c.Fn)
	case *decl.Broken:
		g.problem(kindBroken, c.Problem).add("declared", c.Where.String()).fix("%s", c.Fix)
	default:
		g.readFunc(c, m)
	}
}

func conditionOf(c decl.Condition) Condition {
	return Condition{Name: c.Name, Flags: c.Flags, Where: c.Fn.Where, fn: c.Fn}
}

func (g *Graph) readModule(c *decl.Module, outer *Module) {
	if !validID.MatchString(c.ID) {
		g.problem("unusable module id", fmt.Sprintf("%q is no module id", c.ID)).add("declared", c.Where.String()).
			fix("use lower-case letters, digits and dashes, with dots between parts: ipam.clusterpool")
	} else if strings.TrimSpace(c.Title) == "" {
		g.problem("unusable module title", "module "+decl.JoinID(outer.ID, c.ID)+" has no title").add("declared", c.Where.String()).
			fix("say in one sentence what it does for the cluster")
	}
	if g.reportDuplicateModule(c, decl.JoinID(outer.ID, c.ID)) {
		return
	}
	m := g.addModule(&Module{
		ID: decl.JoinID(outer.ID, c.ID), Title: c.Title, Parent: outer, Term: outer.Term, Where: c.Where,
	})
	g.byID[m.ID] = m
	if c.Replaces != nil {
		m.Replaces = decl.JoinID(outer.ID, c.Replaces.ID)
		g.recordReplaced(c.Replaces, outer.ID, m)
		g.ignoreFlags(c.Replaces, m)
	}
	g.read(c.Cells, m)
	if c.Replaces != nil {
		m.carryOver(c.Replaces)
	}
}

// carriedOver is what an annotation is that a module keeps which takes the place of the annotated one.
type carriedOver interface{ CarriedOver() }

// carryOver takes over annotations of the module that m replaces, and of the one that that had replaced. An
// annotation of m's own of the same type counts instead.
func (m *Module) carryOver(old *decl.Module) {
	for _, a := range annotationsOf(old.Cells) {
		_, carried := a.(carriedOver)
		if own := func(b any) bool { return reflect.TypeOf(b) == reflect.TypeOf(a) }; carried && !slices.ContainsFunc(m.Annotations, own) {
			m.Annotations = append(m.Annotations, a)
		}
	}
	if old.Replaces != nil {
		m.carryOver(old.Replaces)
	}
}

// annotationsOf are the annotations of a module itself.
func annotationsOf(cells []decl.Node) []any {
	var list []any
	for _, c := range cells {
		switch c := c.(type) {
		case *decl.Annotation:
			list = append(list, c.Value)
		case *decl.Group:
			list = append(list, annotationsOf(c.Cells)...)
		}
	}
	return list
}

// recordReplaced records the ids of modules that an embedder removed or replaced:
// other modules may name them in their order.
func (g *Graph) recordReplaced(old *decl.Module, outer string, now *Module) {
	id := decl.JoinID(outer, old.ID)
	g.replaced[id] = now
	g.recordLostProviders(old.Cells, lostProvider{id, now})
	if old.Replaces != nil {
		g.recordReplaced(old.Replaces, outer, now)
	}
	for _, inner := range modulesIn(old.Cells) {
		g.recordReplaced(inner, id, now)
	}
}

// readRemoved records the options of a removed module, which users may still set.
func (g *Graph) readRemoved(old *decl.Module, outer string) {
	r := Removed{ID: decl.JoinID(outer, old.ID)}
	var read func(cells []decl.Node)
	read = func(cells []decl.Node) {
		for _, c := range cells {
			switch c := c.(type) {
			case *decl.Group:
				read(c.Cells)
			case *decl.Module:
				read(c.Cells)
			case *decl.Config:
				r.Flags = append(r.Flags, c.Flags)
			case *decl.EnabledBy:
				if c.Condition.Fn.Value.IsValid() {
					r.Conditions = append(r.Conditions, c.Condition)
				}
			}
		}
	}
	read(old.Cells)
	g.removed = append(g.removed, r)
}

// recordLostProviders records the values that a removed module provided.
func (g *Graph) recordLostProviders(cells []decl.Node, of lostProvider) {
	for _, c := range cells {
		switch c := c.(type) {
		case *decl.Group:
			g.recordLostProviders(c.Cells, of)
		case *decl.Provide:
			n := &Node{Kind: Constructor, Fn: c.Fn, Visibility: c.Visibility, Metrics: c.Metrics}
			if c.Visibility == decl.Private || !c.Fn.Value.IsValid() || n.readSignature() != nil {
				continue
			}
			for _, r := range n.Results {
				g.lostProviders[r.Key] = of
			}
		}
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

// ignoreFlags accepts the flags of a replaced module, and of the one that it had
// replaced itself, without effect.
func (g *Graph) ignoreFlags(old *decl.Module, m *Module) {
	if old.Replaces != nil {
		g.ignoreFlags(old.Replaces, m)
	}
	g.ignoreFlagsIn(old.Cells, m)
}

func (g *Graph) ignoreFlagsIn(cells []decl.Node, m *Module) {
	for _, c := range cells {
		switch c := c.(type) {
		case *decl.Config:
			g.configs = append(g.configs, &configDecl{m, c, true})
		case *decl.Group:
			g.ignoreFlagsIn(c.Cells, m)
		case *decl.Module:
			g.ignoreFlags(c, m)
		}
	}
}

func (g *Graph) readTerm(c *decl.Term, m *Module) {
	if m.Term != nil || m.ID != "" {
		g.problem("misplaced term", fmt.Sprintf("term %s stands inside %s", c.Name, m.Label())).
			add("declared", c.Where.String()).fix("move it to the top of the list of cells")
		return
	}
	for _, t := range g.Terms {
		if t.Name == c.Name { // a second part of the same term
			g.read(c.Cells, t.root)
			return
		}
	}
	t := &Term{Name: c.Name, Where: c.Where}
	t.root = g.addModule(&Module{Parent: m, Term: t, Where: c.Where})
	g.Terms = append(g.Terms, t)
	g.registerBuiltin(&builtin{key: Key{termType, c.Name}, term: t})
	g.read(c.Cells, t.root)
}

func (g *Graph) registerBuiltin(b *builtin) {
	g.builtins[b.key] = b
	g.builtinList = append(g.builtinList, b)
}

func (g *Graph) readConfig(c *decl.Config, m *Module) {
	g.configs = append(g.configs, &configDecl{m, c, c.Ignored})
	if c.Ignored {
		return
	}
	n := g.addNode(&Node{
		Kind: Config, Name: typeName(c.Defaults.Type()), Module: m, Where: c.Where,
		Results: []Result{{Key: Key{Type: c.Defaults.Type()}}},
	})
	g.public[n.Results[0].Key] = append(g.public[n.Results[0].Key], n)
}

func (g *Graph) addNode(n *Node) *Node {
	n.ID = len(g.Nodes)
	g.Nodes = append(g.Nodes, n)
	return n
}

// reportDuplicateModule reports a module whose id another one has. It is not read: all that it declares would be there twice.
func (g *Graph) reportDuplicateModule(c *decl.Module, id string) bool {
	first := g.byID[id]
	if first == nil {
		return false
	}
	g.problem(kindDuplicateModule, "module "+id+" is in the list twice").add("first", first.Where.String()).
		add("again", c.Where.String()).fix("remove one of them, or put one in the other's place with Replace")
	return true
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
func (g *Graph) Configs() []ConfigDecl {
	list := make([]ConfigDecl, len(g.configs))
	for i, c := range g.configs {
		list[i] = ConfigDecl{c.module.ID, c.decl.Defaults, c.decl.Flags, c.decl.Where, c.ignored}
	}
	return list
}
