// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

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
					add("again", n.location()).fix("use another type, or change the value with cell.Decorate")
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

// reachable is the scope of a value: in a module for a private
// one, else in a term, or everywhere.
type reachable struct {
	key    Key
	module *Module
	term   *Term
}

func (r *resolver) reportDuplicate(k Key, first, again *Node) {
	if first == again {
		r.plan.problem("duplicate type", fmt.Sprintf("%s returns %s twice", again.Name, k)).
			add("provided", again.location()).fix("give one a name in a cell.Out struct")
		return
	}
	r.plan.problem("duplicate type", k.String()+" is provided twice").
		add("first", first.Describe()+", "+first.location()).
		add("again", again.Describe()+", "+again.location()).
		fix("remove one of them, give one a name, or make one private")
}

// checkDecorators finds decorators of values that are not there for their module, and so for no other that they
// could be applied for. That of a value whose module is off waits for it.
func (r *resolver) checkDecorators() {
	for _, d := range r.plan.Nodes {
		if d.Kind != Decorator || d.For != nil || !d.Module.Enabled {
			continue
		}
		k := d.Results[0].Key
		if _, f := r.find(d, &Param{Key: k}); f != nil && (f.kind == kindMissing || f.kind == kindPrivate) {
			p := r.plan.problem("unused decorator", f.what)
			p.Rows, p.Fix = f.rows, f.fix
			if f.kind == kindPrivate {
				p.Fix = "move the decorator into the module that keeps the value, or provide the value with cell.Provide"
			}
			p.add("decorator", d.Describe()+", "+d.location())
		}
	}
}

// checkUnusedPrivate finds private constructors that nothing asks for.
func (r *resolver) checkUnusedPrivate() {
	for _, n := range r.plan.Nodes {
		if n.Visibility != decl.Private || n.Kind != Constructor || !n.Module.Enabled || n.requested {
			continue
		}
		var keys []string
		for _, result := range n.Results {
			keys = append(keys, result.Key.String())
		}
		r.plan.problem("unused private provider", fmt.Sprintf("nothing in %s asks for %s", n.Module.Label(), strings.Join(keys, ", "))).
			add("provided", n.Describe()+", "+n.location()).
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
func (g *Graph) known(id string) bool {
	_, former := g.replaced[id]
	return former || g.byID[id] != nil
}

func (g *Graph) moduleIDs() []string {
	var ids []string
	for _, m := range g.Modules {
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
