// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
)

// undeclared finds requests for which no enabled module has declared a permission. The role that the rbac command
// makes forbids them, and an administrator's credentials hide that. A nil undeclared finds nothing.
type undeclared struct {
	graph graph.Source
	tree  *health.Tree
	log   *slog.Logger

	mu       sync.Mutex
	declared map[permission]bool // nil until the first request; without names
	found    map[string][]string // by module
	uncaused map[string]bool     // modules
}

// check compares a request of a module with what is declared. The first of a kind degrades the module.
func (u *undeclared) check(module string, req *http.Request) {
	if u == nil || isReview(req.URL.Path) {
		return // every user may ask what is allowed
	}
	ref, ok := refOf(req.URL.Path)
	if !ok {
		return // discovery and health, which every user may read
	}
	want := permissionOf(verbOf(req.Method, ref, isWatch(req)), Ref{Resource: ref.Resource, Subresource: ref.Subresource})
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.isDeclared(want) || slices.Contains(u.found[module], want.String()) {
		return
	}
	u.found[module] = append(u.found[module], want.String())
	u.tree.Reporter(module).Child("undeclared").Degraded("no module declares these permissions, so that a role made by the rbac command lacks them: "+strings.Join(u.found[module], ", "), nil)
	u.log.Warn("request without a declared permission; declare it with k8s.RBAC", "module", module, "permission", want.String())
}

// isDeclared reports whether an enabled module has declared a permission. The caller has the lock.
func (u *undeclared) isDeclared(want permission) bool {
	if u.declared == nil {
		u.declared, u.found = declaredBy(u.graph()), map[string][]string{}
	}
	return u.declared[want]
}

// declares reports whether an enabled module has declared that it may do something with a kind: what none has is not tried where the role
// forbids another way.
func (u *undeclared) declares(verb string, ref Ref) bool {
	if u == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.isDeclared(permissionOf(verb, Ref{Resource: ref.Resource, Subresource: ref.Subresource}))
}

// withoutCause degrades a module that writes without a cause: explain, writes and plans cannot say why.
func (u *undeclared) withoutCause(module string, req *http.Request) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.uncaused[module] {
		return
	}
	if u.uncaused == nil {
		u.uncaused = map[string]bool{}
	}
	u.uncaused[module] = true
	u.tree.Reporter(module).Child("uncaused").Degraded("writes without a cause", ErrNoCause)
	u.log.Warn("write without a cause; write through resources/reconcile, or set one with k8s.WithCause", "module", module, "request", req.Method+" "+req.URL.Path)
}

// declaredBy is what the enabled modules of a graph have declared, names of objects left out.
func declaredBy(g *graph.Graph) map[permission]bool {
	declared := map[permission]bool{}
	for _, m := range g.Modules {
		if !m.Enabled {
			continue
		}
		rules := rulesOf(m)
		for _, rule := range slices.Concat(rules.Required, rules.Optional) {
			rule.ResourceNames = nil
			for _, p := range permissionsOf(rule) {
				declared[p] = true
			}
		}
	}
	return declared
}

func isWatch(req *http.Request) bool {
	watch := req.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}
