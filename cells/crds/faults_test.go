// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

const nodes = "ciliumnodes.cilium.io"

// othersGoOn checks that all definitions but one are registered.
func (w *world) othersGoOn(but string) {
	w.t.Helper()
	operatortest.Eventually(w.t, "all others are registered", func() bool {
		n := 0
		for _, crd := range w.list() {
			if crd.Name != but && slices.Contains(always, crd.Name) && crd.Labels[api.SchemaVersionLabel] == ourVersion && isEstablished(&crd) {
				n++
			}
		}
		return n == len(always)-1
	})
}

// CRD-7; CRD-E8.
func TestConflict(t *testing.T) {
	w := newWorld(t)
	start(t, w.proxy.Kubeconfig()).registered(len(always)).Stop()
	w.update(nodes, label("1.30.0"))
	before := len(w.writes())
	w.proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"update"}, Names: []string{nodes}}, Times: 2, Status: &clustertest.Status{Code: 409},
	})
	start(t, w.proxy.Kubeconfig()).registered(len(always))
	want := []string{"update " + nodes + ": 409", "update " + nodes + ": 409", "update " + nodes + ": 200"}
	if got := w.writes()[before:]; !slices.Equal(got, want) {
		t.Errorf("writes: %v", got)
	}
}

// CRD-2: errors that pass are retried, one by one.
func TestServerErrors(t *testing.T) {
	w := newWorld(t)
	w.proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"get"}, Names: []string{nodes}}, Times: 2, Status: &clustertest.Status{Code: 503},
	})
	w.proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"create"}, Resources: []string{"customresourcedefinitions"}}, Times: 3, Status: &clustertest.Status{Code: 500},
	})
	w.proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"create"}, Resources: []string{"customresourcedefinitions"}}, Times: 2, LoseAnswer: &clustertest.LoseAnswer{},
	})
	o := start(t, w.proxy.Kubeconfig())
	o.registered(len(always))
	if got := names(w.list()); !slices.Equal(got, always) {
		t.Errorf("registered are %v", got)
	}
}

// The server comes after the operator: the term starts without it, and the
// definitions are there soon after it.
func TestServerAway(t *testing.T) {
	w := newWorld(t, clustertest.Link{Refuse: true})
	o := start(t, w.proxy.Kubeconfig())
	operatortest.Eventually(t, "all 11 are degraded", func() bool { return strings.Contains(o.degraded(), "11 failing") })
	if n := o.count("starting without some CRDs, the duties that need them wait", "missing:"+strings.Join(always, ", ")); n != 1 {
		t.Errorf("told %d times:\n%s", n, o.logged())
	}
	w.proxy.Heal(t)
	o.registered(len(always))
	if got := names(w.list()); !slices.Equal(got, always) {
		t.Errorf("registered are %v", got)
	}
	if n := o.count("reconcile failed, retrying"); n != len(always) {
		t.Errorf("%d failures are logged, want the first of each of %d:\n%s", n, len(always), o.logged())
	}
}

// CRD-8; CRD-E9: a short name belongs to another CRD.
func TestNamesTaken(t *testing.T) {
	w := newWorld(t)
	taken := ours(t, "CiliumNode")
	taken.Name = "squatters.cilium.io"
	taken.Labels = nil
	taken.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: "Squatter", Plural: "squatters", Singular: "squatter", ShortNames: []string{"cn"}}
	taken.Spec.Versions[0].AdditionalPrinterColumns = nil
	w.create(taken)

	o := start(t, w.proxy.Kubeconfig())
	w.othersGoOn(nodes)
	operatortest.Eventually(t, "the reason is told", func() bool {
		return strings.Contains(o.degraded(), nodes) && strings.Contains(o.degraded(), `ShortNamesConflict): "cn" is already in use`)
	})
	if got := o.results()[nodes]; got != ourVersion+" failed" && got != " failed" {
		t.Errorf("the metric says %q", got)
	}
	if err := w.admin.Delete(t.Context(), taken.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "the name is ours", func() bool { return o.degraded() == "" })
	operatortest.Eventually(t, "it serves", func() bool { return isEstablished(w.get(nodes)) })
}

// CRD-14, and a definition of our name that cannot become ours.
func TestForeignDefinition(t *testing.T) {
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"another scope":                 func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Scope = apiextensionsv1.NamespaceScoped },
		"another kind":                  func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Names.Kind = "Other" },
		"objects stored in another way": func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Name = "v9" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			foreign := ours(t, "CiliumNode")
			foreign.Labels = nil
			foreign.Spec.Names.ShortNames = nil
			change(foreign)
			w.create(foreign)
			before := w.get(nodes)

			o := start(t, w.proxy.Kubeconfig())
			w.othersGoOn(nodes)
			operatortest.Eventually(t, "it is told what to do", func() bool {
				return strings.Contains(o.degraded(), "1 failing, "+nodes) && strings.Contains(o.degraded(), "migrate its objects and delete it to have ours created")
			})
			if after := w.get(nodes); after.UID != before.UID || after.Generation != before.Generation {
				t.Error("it was changed")
			}
			if err := w.admin.Delete(t.Context(), nodes, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			operatortest.Eventually(t, "ours is there", func() bool {
				crd, err := w.admin.Get(t.Context(), nodes, metav1.GetOptions{})
				return err == nil && crd.Spec.Versions[0].Name == "v2" && crd.Spec.Scope == apiextensionsv1.ClusterScoped && o.degraded() == ""
			})
		})
	}
}

// A definition that is being deleted is waited for and created again.
func TestBeingDeleted(t *testing.T) {
	w := newWorld(t)
	start(t, w.proxy.Kubeconfig()).registered(len(always)).Stop()
	const finalizer = "example.com/hold"
	w.update(nodes, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Finalizers = append(crd.Finalizers, finalizer)
	})
	if err := w.admin.Delete(t.Context(), nodes, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	old := w.get(nodes).UID
	before := len(w.writes())

	o := start(t, w.proxy.Kubeconfig())
	operatortest.Eventually(t, "the wait is told", func() bool {
		return strings.Contains(o.degraded(), nodes) && strings.Contains(o.degraded(), "it is being deleted")
	})
	if writes := w.writes()[before:]; len(writes) != 0 {
		t.Errorf("writes: %v", writes)
	}
	w.update(nodes, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Finalizers = slices.DeleteFunc(crd.Finalizers, func(f string) bool { return f == finalizer })
	})
	operatortest.Eventually(t, "it is there again", func() bool { return o.degraded() == "" })
	if w.get(nodes).UID == old {
		t.Error("it is the old one")
	}
}

// A role without a verb degrades what needs it, by name; the rest goes on.
func TestForbidden(t *testing.T) {
	w := newWorld(t)
	start(t, w.proxy.Kubeconfig()).registered(len(always)).Stop()
	w.update(nodes, label("1.30.0"))
	if err := w.admin.Delete(t.Context(), "ciliumidentities.cilium.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "it is gone", func() bool { return len(w.list()) == len(always)-1 })
	allow(t, "no-update", rbacv1.PolicyRule{
		APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"create", "get", "list", "watch"},
	})

	o := start(t, w.proxy.UserKubeconfig(t, "no-update"))
	w.othersGoOn(nodes)
	operatortest.Eventually(t, "the verb is named, before and after", func() bool {
		return strings.Contains(o.degraded(), "the role lacks update customresourcedefinitions.apiextensions.k8s.io") &&
			strings.Contains(o.degraded(), `cannot update resource "customresourcedefinitions"`)
	})
	if got := o.results()[nodes]; got != "1.30.0 failed" {
		t.Errorf("the metric says %q", got)
	}
}

// allow gives a user a role of the rules given, until the test ends.
func allow(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	config := clustertest.Shared(t).AdminConfig(t)
	core, err := kubernetes.NewForConfigAndClient(config, operatortest.HTTPClient(t, config))
	if err != nil {
		t.Fatal(err)
	}
	operatortest.Allow(t, core, user, rules...)
}
