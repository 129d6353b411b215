// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/nearest"
)

// fault is what is wrong with one parameter of a node. It becomes a problem
// only if the node is reached.
type fault struct {
	param *Param
	kind  string
	what  string
	rows  []Row
	fix   string
}

// Resolve finds the provider of every parameter of every node.
func (p *Plan) Resolve() {
	r := &resolver{plan: p, instances: map[instance]*Node{}}
	r.checkDuplicates()
	for i := 0; i < len(p.Nodes); i++ { // grows: per-module values are added
		r.resolve(p.Nodes[i])
	}
	r.checkUnusedPrivate()
	r.checkOrders()
}

type resolver struct {
	plan      *Plan
	instances map[instance]*Node
}

// instance tells values of per-module providers apart.
type instance struct {
	provider *Node   // nil for a builtin
	key      Key     // of a builtin
	module   *Module // nil for a builtin of the process
	term     *Term
}

func (r *resolver) resolve(n *Node) {
	if r.isTemplate(n) {
		r.markPrivate(n)
		return
	}
	for i := range n.Params {
		param := &n.Params[i]
		if n.For != nil && param.Key.Type == scopeType {
			param.Sources = []Source{r.builtin(&builtin{key: param.Key, perModule: true}, n.For, n.Term)}
			continue
		}
		var f *fault
		if param.Group {
			f = r.resolveGroup(n, param)
		} else {
			f = r.resolveOne(n, param)
		}
		if f != nil {
			f.param = param
			n.faults = append(n.faults, f)
		}
		for _, s := range param.Sources {
			s.Node.asked = true
		}
	}
}

// isTemplate reports whether a node is never built itself, but once for every
// module that asks: the provider of a per-module value, or what decorates one.
func (r *resolver) isTemplate(n *Node) bool {
	switch {
	case n.For != nil:
		return false
	case n.Kind == Decorator:
		return r.decoratesPerModule(n)
	}
	return n.Visibility == decl.PerModule
}

func (r *resolver) decoratesPerModule(d *Node) bool {
	k := d.Results[0].Key
	for m := d.Module; m != nil; m = m.Parent {
		if len(enabledNodes(m.private[k])) > 0 {
			return false
		}
	}
	if b := r.plan.builtins[k]; b != nil {
		return b.perModule
	}
	providers := visible(enabledNodes(r.plan.public[k]), d.Term)
	return len(providers) > 0 && providers[0].Visibility == decl.PerModule
}

// markPrivate notes that a template asks for private values, whether or not
// any module asks for what it makes.
func (r *resolver) markPrivate(template *Node) {
	for _, param := range template.Params {
		for m := template.Module; m != nil; m = m.Parent {
			for _, private := range m.private[param.Key] {
				private.asked = true
			}
		}
	}
}

func (r *resolver) resolveGroup(n *Node, param *Param) *fault {
	for _, member := range visible(enabledNodes(r.plan.groups[param.Key]), n.Term) {
		if n.Term == nil && member.Term != nil {
			return r.termFault(n, member)
		}
		for i, result := range member.Results {
			if result.Group && result.Key == param.Key {
				param.Sources = append(param.Sources, Source{member, i})
			}
		}
	}
	return nil
}

func (r *resolver) resolveOne(n *Node, param *Param) *fault {
	found, f := r.find(n, param.Key)
	switch {
	case f != nil && param.Optional && slices.Contains(absent, f.kind):
		return nil
	case f != nil:
		return f
	case n.Term == nil && found.Node.Term != nil:
		return r.termFault(n, found.Node)
	}
	param.Sources = []Source{found}
	return nil
}

const (
	kindMissing  = "missing type"
	kindDisabled = "disabled provider"
	kindPrivate  = "private type"
)

// absent are the faults that leave an optional value empty. What another module
// keeps to itself is not there for others.
var absent = []string{kindMissing, kindDisabled, kindPrivate}

// find looks a value up for a node: decorators and private values of its
// module and those around it, then public values, per-module values and what
// the hive offers.
func (r *resolver) find(n *Node, k Key) (Source, *fault) {
	for m := n.Module; m != nil; m = m.Parent {
		if d := decoratorFor(n, m, k); d != nil {
			if r.isTemplate(d) {
				d = r.instance(d, n)
			}
			return Source{d, 0}, nil
		}
		if private := enabledNodes(m.private[k]); len(private) > 0 {
			return source(private[0], k), nil
		}
	}
	if b := r.plan.builtins[k]; b != nil {
		if b.term != nil {
			b.term.Asked = true
			if n.Term != nil {
				return Source{}, &fault{kind: "misplaced term", what: fmt.Sprintf("the handle of term %s is asked for inside a term", b.term.Name),
					fix: "ask for it in a process cell"}
			}
		}
		return r.builtin(b, n.Owner(), n.Term), nil
	}
	providers := visible(enabledNodes(r.plan.public[k]), n.Term)
	if len(providers) > 0 {
		provider := providers[0]
		if provider.Visibility == decl.PerModule {
			provider = r.instance(provider, n)
		}
		return source(provider, k), nil
	}
	return Source{}, r.explain(n, k)
}

// decoratorFor is the last decorator of a value in a module, or, for one of
// them, the one declared before it.
func decoratorFor(n *Node, m *Module, k Key) *Node {
	var last *Node
	for _, d := range enabledNodes(m.decorators[k]) {
		if d == n || d == n.template {
			break
		}
		last = d
	}
	return last
}

// visible drops values of other terms. A process node sees values of terms so
// that it can be told why it must not.
func visible(nodes []*Node, t *Term) []*Node {
	foreign := func(n *Node) bool { return n.Term != nil && n.Term != t }
	if t == nil || !slices.ContainsFunc(nodes, foreign) {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), foreign)
}

func enabledNodes(nodes []*Node) []*Node {
	off := func(n *Node) bool { return !n.Module.Enabled && n.Kind != Config } // config structs are always there
	if !slices.ContainsFunc(nodes, off) {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), off)
}

func source(n *Node, k Key) Source {
	return Source{n, slices.IndexFunc(n.Results, func(r Result) bool { return r.Key == k && !r.Group })}
}

// instance is the node that makes a per-module value for the module of n. It
// lives where n does, unless the template belongs to a term.
func (r *resolver) instance(template, n *Node) *Node {
	at := instance{provider: template, module: n.Owner(), term: n.Term}
	if template.Term != nil {
		at.term = template.Term
	}
	if known := r.instances[at]; known != nil {
		return known
	}
	made := *template
	made.template, made.For, made.Term, made.Params = template, at.module, at.term, slices.Clone(template.Params)
	r.instances[at] = r.plan.addNode(&made)
	return &made
}

// builtin is the node of a value that the hive offers.
func (r *resolver) builtin(b *builtin, m *Module, t *Term) Source {
	at := instance{key: b.key}
	if b.perModule {
		at.module, at.term = m, t
	}
	n := r.instances[at]
	if n == nil {
		n = r.plan.addNode(&Node{
			Kind: Builtin, Name: b.key.String(), Module: r.plan.root, For: at.module, Term: at.term,
			Results: []Result{{Key: b.key}},
		})
		r.instances[at] = n
	}
	return Source{n, 0}
}

// termFault says that a process node asks for a value of a term.
func (r *resolver) termFault(n, provider *Node) *fault {
	f := &fault{
		kind: "term value in the process",
		what: fmt.Sprintf("%s lives in term %s and is asked for outside it", provider.Describe(), provider.Term.Name),
		rows: []Row{{"provided", provider.place()}},
		fix:  fmt.Sprintf("move %s into the term, or provide the value with cell.Lasting", n.Module.Label()),
	}
	switch {
	case n.Kind == Decorator && n.Module.ID == "":
		f.fix = fmt.Sprintf("put the decorator into the term with WithIn(%q)", provider.Term.Name)
	case n.Module.Term != nil:
		f.fix = "a lasting value can only need lasting values: provide this one with cell.Lasting, too"
	}
	return f
}

// explain says why nobody provides a value, and what comes closest.
func (r *resolver) explain(n *Node, k Key) *fault {
	if providers := r.plan.public[k]; len(providers) > 0 {
		if i := slices.IndexFunc(providers, func(p *Node) bool { return p.Module.Enabled }); i >= 0 {
			return otherTerm(n, providers[i], k)
		}
		provider := providers[0]
		return &fault{
			kind: kindDisabled,
			what: fmt.Sprintf("%s is provided only by %s, which is off", k, provider.Module.Label()),
			rows: []Row{{"provided", provider.place()}, {"off because", provider.Module.WhyDisabled()}},
			fix:  "set the flags so that both are on or both are off, or make the need optional",
		}
	}
	f := &fault{kind: kindMissing, what: "nobody provides " + k.String(), fix: "add the module that provides it to the list of cells"}
	if private := r.privateElsewhere(n, k); private != nil {
		f.kind = kindPrivate
		f.what = fmt.Sprintf("%s is private to %s", k, private.Module.Label())
		f.rows = []Row{{"provided", private.place()}}
		f.fix = "provide it with cell.Provide, or move the one who asks into the module"
		return f
	}
	if near, place := r.nearMiss(k); place != "" {
		name := near.String()
		if name == k.String() { // of another package
			name = near.fullString()
			f.what = "nobody provides " + k.fullString()
		}
		f.rows = []Row{{"near miss", fmt.Sprintf("%s is there, %s", name, place)}}
		f.fix = "ask for " + name
	}
	return f
}

// otherTerm says that a node of one term asks for a value of another.
func otherTerm(n, provider *Node, k Key) *fault {
	return &fault{
		kind: "value of another term",
		what: fmt.Sprintf("%s lives in term %s and is asked for in term %s", k, provider.Term.Name, n.Term.Name),
		rows: []Row{{"provided", provider.place()}},
		fix:  "provide it outside the terms, or with cell.Lasting",
	}
}

func (r *resolver) privateElsewhere(n *Node, k Key) *Node {
	for _, m := range r.plan.Modules {
		if m.Enabled && !n.Module.within(m) && len(m.private[k]) > 0 {
			return m.private[k][0]
		}
	}
	return nil
}

// nearMiss finds a value that the one who asked may have meant, and says where
// it is from.
func (r *resolver) nearMiss(k Key) (near Key, place string) {
	rank := 0
	consider := func(candidate Key, from string) {
		if score := closeness(k, candidate); score > rank {
			near, place, rank = candidate, from, score
		}
	}
	for _, n := range r.plan.Nodes {
		if n.Kind == Decorator || n.IsRoot() || n.Visibility == decl.Private {
			continue
		}
		for _, result := range n.Results {
			if !result.Group {
				consider(result.Key, n.place())
			}
		}
	}
	for _, b := range r.plan.offered {
		consider(b.key, "offered by the hive")
	}
	return near, place
}

// closeness ranks what somebody may have meant: the same type by another name,
// the pointer for the value or the reverse, the type of the same name in
// another package, one that has the methods asked for, or an interface of what
// was asked for.
func closeness(asked, offered Key) int {
	a, b := asked.Type, offered.Type
	switch {
	case a == b:
		return 6
	case a.Kind() == reflect.Pointer && a.Elem() == b, b.Kind() == reflect.Pointer && b.Elem() == a:
		return 5
	case typeName(a) == typeName(b):
		return 4
	case bareName(a) != "" && bareName(a) == bareName(b):
		return 3
	case isAbstract(a) && b.Implements(a):
		return 2
	case isAbstract(b) && a.Implements(b):
		return 1
	}
	return 0
}

// bareName is the name of a named type without its package, or "".
func bareName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() == "" {
		return ""
	}
	return t.Name()
}

func isAbstract(t reflect.Type) bool { return t.Kind() == reflect.Interface && t.NumMethod() > 0 }

// checkDuplicates finds values that are provided twice where one node could see
// both. It goes by declaration order, so that reports do too.
func (r *resolver) checkDuplicates() {
	seen, inTerm := map[reachable]*Node{}, map[Key]*Node{}
	for _, n := range r.plan.Nodes {
		if n.Kind == Decorator || n.IsRoot() || !n.Module.Enabled && n.Kind != Config {
			continue
		}
		for _, result := range n.Results {
			if result.Group {
				continue
			}
			if n.Visibility != decl.Private && r.plan.builtins[result.Key] != nil {
				r.plan.problem("duplicate type", fmt.Sprintf("%s is offered by the hive and provided again", result.Key)).
					add("again", n.place()).fix("use another type, or change the value with cell.Decorate")
				continue
			}
			at := reachable{key: result.Key, term: n.Term}
			if n.Visibility == decl.Private {
				at.module = n.Module
			}
			first := seen[at]
			switch {
			case first != nil || at.module != nil:
			case at.term != nil:
				first = seen[reachable{key: result.Key}] // of the process
				inTerm[result.Key] = n
			default:
				first = inTerm[result.Key]
			}
			if first != nil {
				r.reportDuplicate(result.Key, first, n)
				continue
			}
			seen[at] = n
		}
	}
}

// reachable is where a value of a type can be seen: in a module for a private
// one, else in a term, or everywhere.
type reachable struct {
	key    Key
	module *Module
	term   *Term
}

func (r *resolver) reportDuplicate(k Key, first, again *Node) {
	if first == again {
		r.plan.problem("duplicate type", fmt.Sprintf("%s returns %s twice", again.Name, k)).
			add("provided", again.place()).fix("give one a name in a cell.Out struct")
		return
	}
	r.plan.problem("duplicate type", k.String()+" is provided twice").
		add("first", first.Describe()+", "+first.place()).
		add("again", again.Describe()+", "+again.place()).
		fix("remove one of them, give one a name, or make one private")
}

// checkUnusedPrivate finds private constructors that nothing asks for.
func (r *resolver) checkUnusedPrivate() {
	for _, n := range r.plan.Nodes {
		if n.Visibility != decl.Private || n.Kind != Constructor || !n.Module.Enabled || n.asked {
			continue
		}
		var keys []string
		for _, result := range n.Results {
			keys = append(keys, result.Key.String())
		}
		r.plan.problem("unused private provider", fmt.Sprintf("nothing in %s asks for %s", n.Module.Label(), strings.Join(keys, ", "))).
			add("provided", n.Describe()+", "+n.place()).
			fix("remove it, use it, or provide it with cell.Provide")
	}
}

// checkOrders finds order edges that name no module.
func (r *resolver) checkOrders() {
	for _, m := range r.plan.Modules {
		for _, o := range m.orders {
			if o.First || r.plan.known(o.After) {
				continue
			}
			r.plan.problem("unknown module", fmt.Sprintf("%s starts after %q, which is not in the list", m.Label(), o.After)).
				add("declared", o.Where.String()).
				fix("%s", nearest.Hint(o.After, r.plan.moduleIDs(), "name a module of the list"))
		}
	}
}

// known reports whether a module of the id is in the list, or was before an
// embedder changed it.
func (p *Plan) known(id string) bool {
	_, former := p.former[id]
	return former || p.byID[id] != nil
}

func (p *Plan) moduleIDs() []string {
	var ids []string
	for _, m := range p.Modules {
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
