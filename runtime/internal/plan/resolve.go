// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/internal/decl"
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
	if n.Visibility == decl.PerModule && n.For == nil {
		return // only its instances are ever built
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
		if n.Module.Enabled {
			for _, s := range param.Sources {
				s.Node.asked = true
			}
		}
	}
}

func (r *resolver) resolveGroup(n *Node, param *Param) *fault {
	for _, member := range r.plan.groups[param.Key] {
		if !member.Module.Enabled {
			continue
		}
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
	case f != nil && param.Optional && (f.kind == kindMissing || f.kind == kindDisabled):
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
)

// find looks a value up for a node: decorators and private values of its
// module and those around it, then public values, per-module values and what
// the hive offers.
func (r *resolver) find(n *Node, k Key) (Source, *fault) {
	for m := n.Module; m != nil; m = m.Parent {
		decorators := enabledNodes(m.decorators[k])
		if n.Kind == Decorator && m == n.Module && n.Results[0].Key == k {
			decorators = decorators[:slices.Index(decorators, n)]
		}
		if len(decorators) > 0 {
			return Source{decorators[len(decorators)-1], 0}, nil
		}
		if private := enabledNodes(m.private[k]); len(private) > 0 {
			return source(private[0], k), nil
		}
	}
	if b := r.plan.builtins[k]; b != nil {
		if b.term != nil {
			if n.Term != nil {
				return Source{}, &fault{kind: "misplaced term", what: fmt.Sprintf("the handle of term %s is asked for inside a term", b.term.Name),
					fix: "ask for it in a process cell"}
			}
			b.term.Asked = true
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

// visible drops values of other terms. A process node sees values of terms so
// that it can be told why it must not.
func visible(nodes []*Node, t *Term) []*Node {
	if t == nil {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool { return n.Term != nil && n.Term != t })
}

func enabledNodes(nodes []*Node) []*Node {
	for i, n := range nodes {
		if !n.Module.Enabled && n.Kind != Config { // config structs are always there
			rest := slices.DeleteFunc(slices.Clone(nodes[i:]), func(n *Node) bool { return !n.Module.Enabled && n.Kind != Config })
			return append(slices.Clone(nodes[:i]), rest...)
		}
	}
	return nodes
}

func source(n *Node, k Key) Source {
	return Source{n, slices.IndexFunc(n.Results, func(r Result) bool { return r.Key == k && !r.Group })}
}

// instance is the node that makes a per-module value for the module of n.
func (r *resolver) instance(provider, n *Node) *Node {
	at := instance{provider: provider, module: n.Owner(), term: n.Term}
	if known := r.instances[at]; known != nil {
		return known
	}
	made := *provider
	made.For, made.Term, made.Params, made.faults = at.module, at.term, slices.Clone(provider.Params), nil
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
		what: fmt.Sprintf("%s lives in term %s and is asked for outside it", provider.describe(), provider.Term.Name),
		rows: []Row{{"provided", provider.place()}},
		fix:  fmt.Sprintf("move %s into the term, or provide the value with cell.Lasting", n.Module.Label()),
	}
	if n.Module.Term != nil {
		f.fix = "a lasting value can only need lasting values: provide this one with cell.Lasting, too"
	}
	return f
}

// explain says why nobody provides a value, and what comes closest.
func (r *resolver) explain(n *Node, k Key) *fault {
	if disabled := r.plan.public[k]; len(disabled) > 0 {
		provider := disabled[0]
		return &fault{
			kind: kindDisabled,
			what: fmt.Sprintf("%s is provided only by %s, which is off", k, provider.Module.Label()),
			rows: []Row{{"provided", provider.place()}, {"off because", provider.Module.WhyDisabled()}},
			fix:  "set the flags so that both are on or both are off, or make the need optional",
		}
	}
	f := &fault{kind: kindMissing, what: "nobody provides " + k.String(), fix: "add the module that provides it to the list of cells"}
	if private := r.privateElsewhere(n, k); private != nil {
		f.kind = "private type"
		f.what = fmt.Sprintf("%s is private to %s", k, private.Module.Label())
		f.rows = []Row{{"provided", private.place()}}
		f.fix = "provide it with cell.Provide, or move the one who asks into the module"
		return f
	}
	if near, provider := r.nearMiss(k); provider != nil {
		f.rows = []Row{{"near miss", fmt.Sprintf("%s is provided, %s", near, provider.place())}}
		f.fix = "ask for " + near
	}
	return f
}

func (r *resolver) privateElsewhere(n *Node, k Key) *Node {
	for _, m := range r.plan.Modules {
		if !n.Module.within(m) {
			for _, private := range m.private[k] {
				return private
			}
		}
	}
	return nil
}

// nearMiss finds a value that the one who asked may have meant: the pointer
// for the value or the reverse, another name, another package, or a type that
// has the methods asked for.
func (r *resolver) nearMiss(k Key) (string, *Node) {
	var best *Node
	var bestKey Key
	rank := 0
	for _, n := range r.plan.Nodes {
		if n.Kind == Decorator || n.IsRoot() || n.Visibility == decl.Private {
			continue
		}
		for _, result := range n.Results {
			if score := closeness(k, result); score > rank {
				best, bestKey, rank = n, result.Key, score
			}
		}
	}
	if best == nil {
		return "", nil
	}
	name := bestKey.String()
	if name == k.String() {
		name = fullName(bestKey.Type)
	}
	return name, best
}

func closeness(asked Key, r Result) int {
	a, b := asked.Type, r.Key.Type
	switch {
	case r.Group:
		return 0
	case a == b:
		return 5 // another name
	case a.Kind() == reflect.Pointer && a.Elem() == b, b.Kind() == reflect.Pointer && b.Elem() == a:
		return 4
	case typeName(a) == typeName(b):
		return 3 // another package
	case a.Kind() == reflect.Interface && a.NumMethod() > 0 && b.Implements(a):
		return 2
	case b.Kind() == reflect.Interface && b.NumMethod() > 0 && a.Implements(b):
		return 1
	}
	return 0
}

// checkDuplicates finds values that two enabled modules provide.
func (r *resolver) checkDuplicates() {
	for _, n := range r.plan.Nodes {
		for _, result := range n.Results {
			if result.Group || n.Kind == Decorator || n.IsRoot() {
				continue
			}
			k := result.Key
			rivals := enabledNodes(r.plan.public[k])
			if n.Visibility == decl.Private {
				rivals = enabledNodes(n.Module.private[k])
			} else if b := r.plan.builtins[k]; b != nil && n.Module.Enabled {
				r.plan.problem("duplicate type", fmt.Sprintf("%s is offered by the hive and provided again", k)).
					add("again", n.place()).fix("use another type, or change the value with cell.Decorate")
			}
			if len(rivals) < 2 || rivals[1] != n || separateTerms(rivals) {
				continue
			}
			r.plan.problem("duplicate type", fmt.Sprintf("%s is provided %d times", k, len(rivals))).
				add("by", rivals[0].describe()+", "+rivals[0].place()).
				add("by", n.describe()+", "+n.place()).
				fix("remove one of them, give one a name, or make one private")
		}
	}
}

func separateTerms(nodes []*Node) bool {
	seen := map[*Term]bool{}
	for _, n := range nodes {
		if n.Term == nil || seen[n.Term] {
			return false
		}
		seen[n.Term] = true
	}
	return true
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
			add("provided", n.describe()+", "+n.place()).
			fix("remove it, use it, or provide it with cell.Provide")
	}
}

// checkOrders finds order edges that name no module.
func (r *resolver) checkOrders() {
	for _, m := range r.plan.Modules {
		for _, o := range m.orders {
			if o.After != "" && r.plan.Module(o.After) == nil {
				r.plan.problem("unknown module", fmt.Sprintf("%s starts after %q, which is not in the list", m.Label(), o.After)).
					add("declared", o.Where.String()).fix("name a module of the list")
			}
		}
	}
}
