// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// fault is what is wrong with one parameter of a node. It becomes a problem
// only if the node is reached.
type fault struct {
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

// absent are the faults that leave an optional value empty. What another module
// keeps to itself is not there for others.
var absent = []string{kindMissing, kindDisabled, kindPrivate}

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
