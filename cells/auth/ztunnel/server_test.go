// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/spire/spiretest"
)

// world is a namespace of a real API server, and a simulated SPIRE.
type world struct {
	*operatortest.Env
	spire *spiretest.Server
}

func newWorld(t *testing.T, s *spiretest.Server) *world {
	t.Helper()
	w := &world{operatortest.NewEnv(t, clustertest.Shared(t)), s}
	w.CreateNamespace()
	t.Cleanup(func() { w.label("null") }) // later tests have none that is enrolled
	return w
}

// label sets the label of enrolment to a JSON value.
func (w *world) label(value string) {
	w.T.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"io.cilium/mtls-enabled":%s}}}`, value)
	if _, err := w.Core.CoreV1().Namespaces().Patch(context.WithoutCancel(w.T.Context()), w.Namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) create(names ...string) {
	w.T.Helper()
	for _, name := range names {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := w.Core.CoreV1().ServiceAccounts(w.Namespace).Create(w.T.Context(), account, metav1.CreateOptions{}); err != nil {
			w.T.Fatal(err)
		}
	}
}

func (w *world) delete(name string) {
	w.T.Helper()
	if err := w.Core.CoreV1().ServiceAccounts(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// wantEntries waits until ServiceAccounts of the namespace have entries, and nothing else has but the one that Kubernetes
// creates in each namespace.
func (w *world) wantEntries(names ...string) {
	w.T.Helper()
	operatortest.Eventually(w.T, fmt.Sprint("the entries are those of ", names), func() bool {
		entries := w.spire.Entries()
		delete(entries, w.path("default"))
		return len(entries) == len(names) && !slices.ContainsFunc(names, func(n string) bool {
			_, ok := entries[w.path(n)]
			return !ok
		})
	})
}

func (w *world) path(name string) string { return "/ns/" + w.Namespace + "/sa/" + name }

var (
	getNamespaces   = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}} // of any operator
	watchNamespaces = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}}
	watchAccounts   = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"list", "watch"}}
	getServices     = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}}
)

// Number A17 of the contract's mutual-auth.md, of no DaemonSet anything is asked; ZT-3, ZT-6 to ZT-8, ZT-10 and ZT-13; ZT-E1 to ZT-E5: with the
// least permissions, which are for no DaemonSets, and a restart that changes nothing,
// neither at SPIRE nor at the API server.
func TestOnARealAPIServer(t *testing.T) {
	s := spiretest.Prepare(t, domain)
	w := newWorld(t, s)
	s.Put(s.OfServiceAccount(w.Namespace, "gone"))
	w.create("cart", "pay")
	kubeconfig := w.As("ztunnel", watchNamespaces, watchAccounts, getServices, getNamespaces)
	o := operatortest.Start(t, withSPIRE, kubeconfig, s.Args(on...)...)
	operatortest.Eventually(t, "health reports the agent", func() bool {
		return strings.Contains(o.Degraded("auth.ztunnel"), "unable to connect to SPIRE server")
	})
	w.label(`"true"`)
	s.Agent.Start()
	w.wantEntries("cart", "pay")
	w.create("web")
	w.delete("pay")
	w.wantEntries("cart", "web")
	operatortest.Eventually(t, "it is healthy", func() bool { return o.Degraded("") == "" })
	w.CheckHealthy(o)
	operatortest.Eventually(t, "metrics", func() bool {
		n := float64(s.Len())
		return o.Metric("ztunnel_entries", "present") == n && o.Metric("ztunnel_entries", "desired") == n &&
			o.Metric("ztunnel_enrolled_namespaces") == 1 && o.Metric("spire_connected") == 1
	})
	changes, lists := s.Changes(), s.Calls()["ListEntries"]
	o.ReenterTerm()
	operatortest.Eventually(t, "all are compared again", func() bool { return s.Calls()["ListEntries"] > lists })
	operatortest.Eventually(t, "all are present", func() bool { return o.Metric("ztunnel_entries", "present") == float64(s.Len()) })
	w.delete("web")
	w.wantEntries("cart")
	if n := s.Changes() - changes; n != 1 {
		t.Errorf("%d changes after a restart, and a deletion", n)
	}
	for _, value := range []string{`"false"`, `"true"`, `"True"`, `"true"`, "null"} { // the label flaps, and is gone in the end
		w.label(value)
	}
	w.wantEntries()
	operatortest.Eventually(t, "the one that Kubernetes creates has none either", func() bool { return s.Len() == 0 })
	o.Stop()
	for _, r := range w.Proxy.Requests(t, 0) {
		if strings.Contains(r.UserAgent, "(auth.ztunnel") && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			t.Errorf("%s %s", r.Verb, r.Path)
		}
		if r.Resource == "namespaces" && r.Verb != "get" && !strings.Contains(r.Path, "labelSelector=") {
			t.Errorf("%s %s asks for all namespaces", r.Verb, r.Path)
		}
	}
}

// ZT-12: without its permissions the duty waits, and says which: nothing is deleted. It begins when they are granted.
func TestMissingPermissions(t *testing.T) {
	s := spiretest.Start(t, domain)
	w := newWorld(t, s)
	w.create("cart")
	s.Put(s.OfServiceAccount(w.Namespace, "gone"))
	w.label(`"true"`)
	o := operatortest.Start(t, withSPIRE, w.As("ztunnel", getServices, getNamespaces), s.Args(on...)...)
	operatortest.Eventually(t, "health names them", func() bool {
		degraded := o.Degraded("auth.ztunnel")
		return strings.Contains(degraded, "namespaces") && strings.Contains(degraded, "serviceaccounts")
	})
	if len(s.Calls()) > 0 || s.Len() != 1 {
		t.Errorf("the calls are %v", s.Calls())
	}
	roles := w.Core.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "ztunnel-"+w.Namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = []rbacv1.PolicyRule{watchNamespaces, watchAccounts, getServices, getNamespaces}
	if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.wantEntries("cart")
	operatortest.Eventually(t, "it is healthy", func() bool { return o.Degraded("") == "" })
}

// Number A15 of the contract's mutual-auth.md; ZT-1: without --ztunnel-ca-type=spire nothing is watched, and there is no connection.
func TestOff(t *testing.T) {
	s := spiretest.Start(t, domain)
	w := newWorld(t, s)
	w.create("cart")
	w.label(`"true"`)
	o := operatortest.Start(t, withSPIRE, w.Kubeconfig(), s.Args("--enable-ztunnel")...)
	o.ReenterTerm()
	o.Stop()
	if len(s.Calls()) > 0 {
		t.Errorf("the calls are %v", s.Calls())
	}
	for _, r := range w.Proxy.Requests(t, 0) {
		if r.Resource == "serviceaccounts" || r.Resource == "namespaces" && r.Verb != "get" {
			t.Errorf("%s %s", r.Verb, r.Path)
		}
	}
}
