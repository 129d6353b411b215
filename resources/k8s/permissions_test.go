// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
)

var nodesStatus = schema.GroupResource{Resource: "nodes/status"}

func (d *desk) reviews(t *testing.T) *reviews {
	t.Helper()
	r, err := newReviews(d.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// duties are modules with what they need.
func duties(needs map[string][]rbacv1.PolicyRule) *graph.Graph {
	g := &graph.Graph{}
	for id, rules := range needs {
		g.Modules = append(g.Modules, graph.Module{ID: id, Enabled: id != "off", Annotations: []any{Rules{Required: rules}}})
	}
	return g
}

func TestAMissingVerbIsNamedOnceAndDegradesItsDutyOnly(t *testing.T) {
	d := newDesk(t).as(t, "stock", Allow("list,watch,update", configMaps.GroupResource()), AllowPath("get", "/healthz"))
	g := duties(map[string][]rbacv1.PolicyRule{
		"content":     {Allow("list,watch", configMaps.GroupResource()), AllowPath("get", "/healthz", "/version")},
		"nodes":       {Allow("list,get", nodes), Allow("patch", nodesStatus)},
		"leader":      {AllowNamed("update", leases, "lock")},
		"off":         {Allow("delete", nodes)},
		"undemanding": nil,
	})
	var log bytes.Buffer
	tree := health.NewTree()
	role := &roleCheck{permissions: d.permissions, api: d.reviews(t), graph: func() *graph.Graph { return g }, tree: tree, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := role.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	degraded := map[string]string{}
	for _, s := range tree.Snapshot() {
		degraded[s.ID] = s.Message
	}
	want := map[string]string{
		"nodes.permissions":  "the role lacks list nodes, get nodes, patch nodes/status",
		"leader.permissions": "the role lacks update leases.coordination.k8s.io lock",
	}
	for id, message := range want {
		if degraded[id] != message {
			t.Errorf("%s: %q, want %q", id, degraded[id], message)
		}
		if n := strings.Count(log.String(), strings.TrimPrefix(message, "the role lacks ")); n != 1 {
			t.Errorf("%s: named %d times in the log, want once:\n%s", id, n, log.String())
		}
	}
	if len(degraded) != len(want) {
		t.Errorf("degraded: %v", degraded)
	}
	d.expect(t, "where the server lists all, one question is enough", "create")
}

// An authorizer that is no list of rules, such as a webhook, leaves the list
// incomplete. No server of ours has one.
func TestWhereTheListIsIncompleteEachPermissionIsAskedFor(t *testing.T) {
	api := fake.NewClientset()
	var asked []string
	api.PrependReactor("create", "selfsubjectrulesreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectRulesReview{Status: authorizationv1.SubjectRulesReviewStatus{
			Incomplete:    true,
			ResourceRules: []authorizationv1.ResourceRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"nodes"}}},
		}}, nil
	})
	api.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		if r := review.Spec.ResourceAttributes; r != nil {
			asked = append(asked, r.Verb+" "+r.Resource+"/"+r.Subresource)
			review.Status.Allowed = r.Verb == "watch"
		} else {
			asked = append(asked, review.Spec.NonResourceAttributes.Path)
			review.Status.Allowed = true
		}
		return true, review, nil
	})
	p := newPermissions()
	tree := health.NewTree()
	g := duties(map[string][]rbacv1.PolicyRule{"nodes": {Allow("list,watch,get", nodes), Allow("patch", nodesStatus), AllowPath("get", "/version")}})
	role := &roleCheck{permissions: p, api: &reviews{api.AuthorizationV1().SelfSubjectAccessReviews(), api.AuthorizationV1().SelfSubjectRulesReviews()}, graph: func() *graph.Graph { return g }, tree: tree, log: slog.New(slog.DiscardHandler)}
	if err := role.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(asked, ", "), "watch nodes/, get nodes/, patch nodes/status, /version"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	snapshot := tree.Snapshot()
	if len(snapshot) != 1 || snapshot[0].Message != "the role lacks get nodes, patch nodes/status" {
		t.Errorf("health: %v", snapshot)
	}
	if p.Denies("get", Ref{Resource: nodes.WithVersion("v1"), Name: "n"}) {
		t.Error("what is on no list is held to be denied")
	}
}
