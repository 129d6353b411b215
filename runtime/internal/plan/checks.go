// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"fmt"
	"strings"

	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/nearest"
)

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
