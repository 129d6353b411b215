// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// paramError is a mistake in one parameter of a node. It becomes a problem only if
// the node is reached.
type paramError struct {
	kind string
	what string
	rows []Row
	fix  string
}

const (
	kindMissing  = "missing type"
	kindDisabled = "disabled provider"
	kindPrivate  = "private type"
)

// absent are the errors that leave an optional value empty. A private value of
// another module is absent, too.
var absent = []string{kindMissing, kindDisabled, kindPrivate}

// termValueError says that a process node asks for a value of a term.
func (r *resolver) termValueError(n, provider *Node) *paramError {
	f := &paramError{
		kind: "term value in the process",
		what: fmt.Sprintf("%s lives in term %s and is asked for outside it", provider.Describe(), provider.Term.Name),
		rows: []Row{{"provided", provider.location()}},
		fix:  fmt.Sprintf("move %s into the term, or provide the value with cell.ProvideProcess", n.Module.Label()),
	}
	switch {
	case n.Kind == Decorator && n.Module.ID == "":
		f.fix = fmt.Sprintf("put the decorator into the term with WithInTerm(%q)", provider.Term.Name)
	case n.Module.Term != nil:
		f.fix = "a lasting value can only need lasting values: provide this one with cell.ProvideProcess, too"
	}
	return f
}

// missingProviderError is the reason why a value has no provider. Where it becomes a problem, it names the nearest value there
// is. That search looks at all types, and is not made for optional values and modules that are off.
func (r *resolver) missingProviderError(n *Node, param *Param) *paramError {
	k := param.Key
	if providers := r.plan.public[k]; len(providers) > 0 {
		if i := slices.IndexFunc(providers, func(p *Node) bool { return p.Module.Enabled }); i >= 0 {
			return otherTermError(n, providers[i], k)
		}
		provider := providers[0]
		return &paramError{
			kind: kindDisabled,
			what: fmt.Sprintf("%s is provided only by %s, which is off", k, provider.Module.Label()),
			rows: []Row{{"provided", provider.location()}, {"off because", provider.Module.WhyDisabled()}},
			fix:  "set the flags so that both are on or both are off, or make the need optional",
		}
	}
	f := &paramError{kind: kindMissing, what: "no module provides " + k.String(), fix: "add the module that provides it to the list of cells"}
	if of, was := r.plan.lostProviders[k]; was {
		f.describeLost(of)
		return f
	}
	if private := r.privateElsewhere(n, k); private != nil {
		f.kind = kindPrivate
		f.what = fmt.Sprintf("%s is private to %s", k, private.Module.Label())
		f.rows = []Row{{"provided", private.location()}}
		f.fix = "provide it with cell.Provide, or move what asks for it into the module"
		return f
	}
	for _, suggest := range slices.Backward(r.plan.suggest) {
		if fix := suggest(k.Type); fix != "" {
			f.fix = fix
			return f
		}
	}
	if param.Optional || !n.Module.Enabled {
		return f
	}
	if near := r.nearMiss(n, k); near.rank > 0 {
		name := near.key.String()
		if name == k.String() { // of another package
			name = near.key.fullString()
			f.what = "no module provides " + k.fullString()
		}
		f.rows = []Row{{"near miss", fmt.Sprintf("%s is there, %s", name, near.place)}}
		f.fix = "ask for " + name
		if near.rank < sameType {
			f.fix = "ask for " + name + " if that is meant, or add the module that provides " + k.String()
		}
		if near.rank == implements {
			f.fix = fmt.Sprintf("return %s there if it is meant to be one, %s", k, f.fix)
		}
	}
	return f
}

// describeLost says that an embedder took away the module that provided a value.
func (f *paramError) describeLost(of lostProvider) {
	if of.now == nil {
		f.rows = []Row{{"removed", of.id + ", which provided it"}}
		f.fix = "keep " + of.id + ", or provide it from another module"
		return
	}
	f.rows = []Row{{"replaced", of.id + ", which provided it, by " + inModule(of.now.Where, of.now)}}
	f.fix = "provide it from " + of.now.ID + ", which replaces " + of.id
}

// otherTermError says that a node of one term asks for a value of another.
func otherTermError(n, provider *Node, k Key) *paramError {
	return &paramError{
		kind: "value of another term",
		what: fmt.Sprintf("%s lives in term %s and is asked for in term %s", k, provider.Term.Name, n.Term.Name),
		rows: []Row{{"provided", provider.location()}},
		fix:  "provide it outside the terms, or with cell.ProvideProcess",
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

// near is a value similar to the one requested.
type near struct {
	key   Key
	place string
	rank  int
}

// nearMiss finds the value nearest to the one that a node requests. It may be private to the node's own module.
func (r *resolver) nearMiss(n *Node, k Key) near {
	var best near
	var node *Node
	consider := func(candidate Key, from *Node, place string) {
		if rank := closeness(k, candidate); rank > best.rank {
			best, node = near{candidate, place, rank}, from
		}
	}
	for _, other := range r.plan.Nodes {
		if other.Kind == Decorator || other.IsRoot() || other.Visibility == decl.Private && !n.Module.within(other.Module) {
			continue
		}
		for _, result := range other.Results {
			if !result.Group {
				consider(result.Key, other, other.location())
			}
		}
	}
	for _, b := range r.plan.builtinList {
		consider(b.key, nil, "offered by the hive")
	}
	if node != nil {
		node.requested = true // it is unused only because of this mistake
	}
	return best
}

const (
	// sameType is the least closeness of values that are most probably the same.
	sameType = 4
	// implements is the closeness of a value that has the methods requested.
	implements = 2
)

// closeness ranks candidates for a missing value: the same type by another name,
// the pointer for the value or the reverse, the type of the same name in
// another package, one that has the methods requested, or an interface of the
// type requested. Interfaces of the standard library do not count: too many types
// have them.
func closeness(asked, offered Key) int {
	a, b := asked.Type, offered.Type
	switch {
	case a == b:
		return 6
	case a.Kind() == reflect.Pointer && a.Elem() == b, b.Kind() == reflect.Pointer && b.Elem() == a:
		return 5
	case typeName(a) == typeName(b):
		return sameType
	case bareName(a) != "" && bareName(a) == bareName(b):
		return 3
	case isAbstract(a) && !isStandard(a) && b.Implements(a):
		return implements
	case isAbstract(b) && !isStandard(b) && a.Implements(b):
		return 1
	}
	return 0
}

// isStandard reports whether a type is of the standard library: its packages have no dot before the first slash.
func isStandard(t reflect.Type) bool {
	first, _, _ := strings.Cut(t.PkgPath(), "/")
	return !strings.Contains(first, ".")
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
