// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/graph"
)

var (
	pods   = schema.GroupResource{Resource: "pods"}
	nodes  = schema.GroupResource{Resource: "nodes"}
	leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

func TestLeastRole(t *testing.T) {
	g := &graph.Graph{Modules: []graph.Module{
		{ID: "a", Enabled: true, Annotations: []any{Rules{Required: []rbacv1.PolicyRule{Allow("watch,list", pods), Allow("list,watch", nodes)}}}},
		{ID: "b", Enabled: true, Annotations: []any{
			Rules{Required: []rbacv1.PolicyRule{Allow("get", pods), AllowNamed("update,get", leases, "mine"), Allow("get", leases), AllowPath("get", "/version")}},
			Rules{Optional: []rbacv1.PolicyRule{Allow("patch", nodes)}},
		}},
		{ID: "off", Annotations: []any{Rules{Required: []rbacv1.PolicyRule{Allow("delete", nodes)}}}},
	}}
	text, err := yaml.Marshal(LeastRole("x", g, false).Rules)
	if err != nil {
		t.Fatal(err)
	}
	want := `- apiGroups:
  - ""
  resources:
  - nodes
  verbs:
  - list
  - watch
- apiGroups:
  - ""
  resources:
  - pods
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - coordination.k8s.io
  resources:
  - leases
  verbs:
  - get
- apiGroups:
  - coordination.k8s.io
  resourceNames:
  - mine
  resources:
  - leases
  verbs:
  - update
- nonResourceURLs:
  - /version
  verbs:
  - get
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
	if n := len(LeastRole("x", g, true).Rules); n != 5 {
		t.Errorf("with optional permissions there are %d rules, want 5: patch joins list and watch of nodes", n)
	}
}

// Rules that differ in their names alone have an order, too.
func TestCompactIsStable(t *testing.T) {
	named := func(name string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"g"}, Resources: []string{"things"}, Verbs: []string{"update"}, ResourceNames: []string{name}}
	}
	rules := []rbacv1.PolicyRule{named("b"), named("a"), named("c")}
	for range 20 {
		if got := compact(rules); got[0].ResourceNames[0] != "a" || got[2].ResourceNames[0] != "c" {
			t.Fatalf("%v", got)
		}
	}
}

func TestPermissions(t *testing.T) {
	p := newPermissions()
	ref := Ref{Resource: nodes.WithVersion("v1"), Name: "n1"}
	if p.Denies("delete", ref) {
		t.Error("nothing is denied before the API server has told")
	}
	p.known = true
	p.rules = []authorizationv1.ResourceRule{
		{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
		{Verbs: []string{"update"}, APIGroups: []string{""}, Resources: []string{"nodes"}, ResourceNames: []string{"n1"}},
		{Verbs: []string{"*"}, APIGroups: []string{"cilium.io"}, Resources: []string{"*"}},
		{Verbs: []string{"patch"}, APIGroups: []string{"*"}, Resources: []string{"*/status"}},
	}
	p.paths = []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/api/*"}}}
	for _, c := range []struct {
		verb   string
		ref    Ref
		denied bool
	}{
		{"list", ref, false},
		{"get", ref, true},
		{"update", ref, false},
		{"update", Ref{Resource: nodes.WithVersion("v1"), Name: "n2"}, true},
		{"update", Ref{Resource: nodes.WithVersion("v1"), Name: "n1", Subresource: "status"}, true},
		{"patch", Ref{Resource: nodes.WithVersion("v1"), Name: "n1", Subresource: "status"}, false},
		{"patch", ref, true},
		{"delete", Ref{Resource: schema.GroupVersionResource{Group: "cilium.io", Resource: "ciliumnodes"}}, false},
	} {
		if got := p.Denies(c.verb, c.ref); got != c.denied {
			t.Errorf("%s %s: denied %v, want %v", c.verb, c.ref, got, c.denied)
		}
	}
	missing, _ := p.missing(t.Context(), nil, []rbacv1.PolicyRule{Allow("get,list,delete", nodes)})
	if diff := cmp.Diff([]string{"get nodes", "delete nodes"}, missing); diff != "" {
		t.Error(diff)
	}
	missing, _ = p.missing(t.Context(), nil, []rbacv1.PolicyRule{AllowPath("get", "/version", "/healthz", "/api/v1")})
	if diff := cmp.Diff([]string{"get /version"}, missing); diff != "" {
		t.Error(diff)
	}
}
