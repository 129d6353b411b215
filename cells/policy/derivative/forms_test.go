// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/operatortest"
)

// agents have one agent of each of these versions run, and no others.
func (w *world) agents(versions ...string) {
	w.T.Helper()
	pods := w.Core.CoreV1().Pods(w.Namespace)
	for i, version := range versions {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cilium-%d-%s", i, strings.ReplaceAll(version, ".", "-")), Labels: map[string]string{"k8s-app": "cilium"}},
			Spec: corev1.PodSpec{
				NodeName:   fmt.Sprintf("node-%d", i),
				Containers: []corev1.Container{{Name: "cilium-agent", Image: "registry.test/cilium/cilium:v" + version}},
			},
		}
		if _, err := pods.Create(w.T.Context(), p, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			w.T.Fatal(err)
		}
	}
	all, err := pods.List(w.T.Context(), metav1.ListOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, p := range all.Items {
		if !slices.ContainsFunc(versions, func(v string) bool { return strings.HasSuffix(p.Name, strings.ReplaceAll("-"+v, ".", "-")) }) {
			if err := pods.Delete(w.T.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
				w.T.Fatal(err)
			}
		}
	}
}

// externals are the CIDR groups of a group of the test cloud.
func (w *world) externals(name string) []unstructured.Unstructured {
	w.T.Helper()
	id := networkpolicy.Group(fmt.Sprintf(`{"aws":{"labels":{"group":%q}}}`, name)).ID()
	list, err := w.Dynamic.Resource(v2.CiliumCIDRGroupResource).List(w.T.Context(), metav1.ListOptions{LabelSelector: idPrefix + id})
	if err != nil {
		w.T.Fatal(err)
	}
	return list.Items
}

// external waits for the only CIDR group of a group, with these CIDRs.
func (w *world) external(name string, want ...string) (of *unstructured.Unstructured) {
	w.T.Helper()
	got := ""
	defer func() {
		if w.T.Failed() {
			w.T.Logf("there is %s", got)
		}
	}()
	operatortest.Eventually(w.T, fmt.Sprintf("the CIDR group of %s has %q", name, want), func() bool {
		all := w.externals(name)
		got = fmt.Sprint(all)
		if len(all) != 1 {
			return false
		}
		of = &all[0]
		cidrs, present, _ := unstructured.NestedStringSlice(of.Object, "spec", "externalCIDRs")
		return present && slices.Equal(cidrs, want)
	})
	return of
}

// gone waits until a group has no CIDR group.
func (w *world) gone(name string) {
	w.T.Helper()
	operatortest.Eventually(w.T, "there is no CIDR group of "+name, func() bool { return len(w.externals(name)) == 0 })
}

// put creates a CIDR group as another operator or a user would.
func (w *world) put(name string, labels map[string]string, cidr string) {
	w.T.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"externalCIDRs": []any{cidr}}}}
	u.SetGroupVersionKind(v2.SchemeGroupVersion.WithKind("CiliumCIDRGroup"))
	u.SetName(name)
	u.SetLabels(labels)
	if _, err := w.Dynamic.Resource(v2.CiliumCIDRGroupResource).Create(w.T.Context(), u, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) delete(in dynamic.ResourceInterface, name string) {
	w.T.Helper()
	if err := in.Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// hasEvent reports whether a policy of the namespace has an Event.
func (w *world) hasEvent(policy, reason, text string) bool {
	w.T.Helper()
	all, err := w.Core.CoreV1().Events(w.Namespace).List(w.T.Context(), metav1.ListOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return slices.ContainsFunc(all.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.Name == policy && e.Reason == reason && strings.Contains(e.Message, text)
	})
}

// labelsFor are those of the CIDR group of a group.
func labelsFor(name string) map[string]string {
	g := networkpolicy.Group(fmt.Sprintf(`{"aws":{"labels":{"group":%q}}}`, name))
	return newCIDRGroup(g, nil).GetLabels()
}

// Numbers 24, 26, 27 and 28 of the contract's policies.md; DERIV-E11, DERIV-E12, DERIV-E13: agents of 1.20 get one CIDR group for each
// group, whatever becomes of it and of its policies, and no derived policies.
func TestCIDRGroups(t *testing.T) {
	w := newWorld(t)
	w.agents("1.20.1")
	w.cloud.set("a", "10.0.0.7", "1.2.3.4")
	for _, name := range []string{"one", "two"} {
		w.create(w.policies, name, `"spec":`+groupRule("a"))
	}
	wide := "wide-" + w.Namespace
	w.create(w.clusterwide, wide, `"spec":`+groupRule("a", "none"))
	w.put("mine", nil, "8.8.8.8/32")
	o := w.startIn(w.Kubeconfig(), "--policy-external-group-sync-interval=1s")
	first := w.external("a", "1.2.3.4/32", "10.0.0.7/32")
	w.external("none")
	if owners := first.GetOwnerReferences(); len(owners) > 0 || !strings.HasPrefix(first.GetName(), "auto-cilium-external-group-") {
		t.Errorf("the CIDR group is %v", first.Object)
	}

	// A refresh without a change writes nothing; with one the group is written, and a look-up that fails changes nothing.
	_, last := w.writes(0)
	before := w.cloud.lookups("a")
	operatortest.Eventually(t, "two refreshes", func() bool { return w.cloud.lookups("a") >= before+2 })
	if texts, _ := w.writes(last); len(texts) > 0 {
		t.Errorf("refreshes wrote %q", texts)
	}
	w.cloud.fail("a", "throttled")
	operatortest.Eventually(t, "health says that it fails", func() bool { return strings.Contains(o.Degraded("policy.derivative"), "throttled") })
	operatortest.Eventually(t, "an Event says it, too", func() bool { return w.hasEvent("one", "GroupNotLookedUp", "throttled") })
	w.external("a", "1.2.3.4/32", "10.0.0.7/32")
	w.cloud.set("a", "10.0.0.8")
	w.cloud.fail("a", "")
	second := w.external("a", "10.0.0.8/32")
	if second.GetName() != first.GetName() {
		t.Error("the CIDR group was made anew")
	}

	// Edits are undone, one that is deleted is made again, and of two for one group one goes.
	groups := w.Dynamic.Resource(v2.CiliumCIDRGroupResource)
	w.patch(groups, second.GetName(), `{"spec":{"externalCIDRs":["0.0.0.0/0"]},"metadata":{"labels":{"extgrp.cilium.io/other":"","mine":"x"}}}`)
	if u := w.external("a", "10.0.0.8/32"); u.GetLabels()["mine"] != "x" {
		t.Errorf("the labels are %v", u.GetLabels())
	}
	operatortest.Eventually(t, "the second id is removed", func() bool { return len(w.external("a", "10.0.0.8/32").GetLabels()) == 4 })
	if err := groups.Delete(t.Context(), second.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "there is another one", func() bool { return w.external("a", "10.0.0.8/32").GetName() != second.GetName() })
	w.put("other", labelsFor("a"), "9.9.9.9/32")
	w.external("a", "10.0.0.8/32")

	// It stays while a policy has the group.
	w.patch(w.policies, "one", `{"spec":{"egress":[{"toEntities":["world"]}]}}`)
	w.delete(w.policies, "two")
	w.external("a", "10.0.0.8/32")
	w.delete(w.clusterwide, wide)
	w.gone("a")
	w.gone("none")
	if u := w.get(groups, "mine"); u == nil {
		t.Error("the CIDR group of a user is deleted")
	}
	for _, name := range []string{"one", "two"} {
		if u := w.get(w.policies, name); u != nil && w.entries(w.policies, name) != "" {
			t.Errorf("the status of %s has %s", name, w.entries(w.policies, name))
		}
	}
	texts, _ := w.writes(0)
	if slices.ContainsFunc(texts, func(s string) bool {
		return strings.Contains(s, "policies") && !strings.HasPrefix(s, "delete ciliumcidr")
	}) {
		t.Errorf("policies were written: %q", texts)
	}
	w.CheckHealthy(o)
}

// DERIV-24, DERIV-25: where the groups of a policy become larger than what is kept, it has a derived policy before a CIDR group of them goes.
func TestGroupsThatBecomeLarge(t *testing.T) {
	w := newWorld(t)
	w.agents("1.20.1")
	var names []string
	for i := range 4 {
		names = append(names, fmt.Sprint("group-", i, strings.Repeat("x", 60_000)))
	}
	last := names[3]
	w.cloud.set(last, "1.2.3.4")
	web := w.create(w.policies, "web", `"spec":`+groupRule(last))
	o := w.startIn(w.Kubeconfig(), soon, "--policy-external-group-sync-interval=1s")
	w.external(last, "1.2.3.4/32")
	w.cloud.fail(names[0], "throttled")
	w.patch(w.policies, "web", `{"spec":`+groupRule(names...)+`}`)
	operatortest.Eventually(t, "the derived policy is tried", func() bool { return w.cloud.lookups(names[0]) > 2 })
	if n := len(w.externals(last)); n != 1 {
		t.Errorf("there are %d CIDR groups of it, and no derived policy", n)
	}
	w.cloud.fail(names[0], "")
	w.cidrs(w.policies, web, "1.2.3.4/32")
	w.gone(last)
	operatortest.Eventually(t, "what has failed is tried again", func() bool { return o.Degraded("") == "" })
	w.CheckHealthy(o)
}

// order are the creations and deletions of what agents take groups from, in the order of their arrival.
func (w *world) order(after int64) (texts []string, requests []clustertest.Request) {
	w.T.Helper()
	for _, r := range w.Proxy.Answered(w.T, after) {
		if isGroups := r.Resource == "ciliumcidrgroups" || r.Resource == "ciliumnetworkpolicies"; isGroups && (r.Verb == "create" || r.Verb == "delete" || r.Verb == "deletecollection") {
			texts = append(texts, r.Verb+" "+r.Resource)
			requests = append(requests, r)
		}
	}
	return texts, requests
}

// Number 29 of the contract's policies.md; DERIV-24, DERIV-E14: while agents are exchanged, under a slow API server, there is no moment without
// the addresses of a group: the new form is in place, with the addresses of now, before the old one goes.
func TestUpgradeAndBack(t *testing.T) {
	w := newWorld(t)
	w.agents("1.19.2")
	w.cloud.set("a", "1.2.3.4")
	web := w.create(w.policies, "web", `"spec":`+groupRule("a"))
	w.Proxy.Delay(t, 30*time.Millisecond, 30*time.Millisecond)
	o := w.startIn(w.Kubeconfig(), soon, "--policy-external-group-sync-interval=1s")
	w.cidrs(w.policies, web, "1.2.3.4/32")
	w.status(w.policies, "web", web+isOK)
	if n := len(w.externals("a")); n > 0 {
		t.Errorf("%d CIDR groups for agents of 1.19", n)
	}

	// Some agents are exchanged: there are both, with the same addresses.
	w.agents("1.19.2", "1.20.0")
	w.external("a", "1.2.3.4/32")
	w.cloud.set("a", "5.6.7.8")
	w.external("a", "5.6.7.8/32")
	w.cidrs(w.policies, web, "5.6.7.8/32")

	// All are: the derived policy goes. Its entry of the status goes, too.
	w.agents("1.20.0")
	operatortest.Eventually(t, "the derived policy is deleted", func() bool { return w.get(w.policies, web) == nil })
	w.status(w.policies, "web", "")
	w.external("a", "5.6.7.8/32")

	// Back: the CIDR group goes after the derived policy is there.
	w.agents("1.19.2")
	w.cidrs(w.policies, web, "5.6.7.8/32")
	w.gone("a")
	w.status(w.policies, "web", web+isOK)

	// And with one step, by agents that are all exchanged at once.
	w.agents("1.20.0")
	operatortest.Eventually(t, "the derived policy is deleted", func() bool { return w.get(w.policies, web) == nil })
	w.external("a", "5.6.7.8/32")
	w.CheckHealthy(o)
	o.Stop()
	texts, requests := w.order(0)
	want := []string{
		"create ciliumnetworkpolicies", "create ciliumcidrgroups", "delete ciliumnetworkpolicies",
		"create ciliumnetworkpolicies", "delete ciliumcidrgroups", "create ciliumcidrgroups", "delete ciliumnetworkpolicies",
	}
	if !slices.Equal(texts, want) {
		t.Fatalf("the order is %q", texts)
	}
	for i := 2; i < len(requests); i += 2 {
		overlap := requests[i].Received.Sub(requests[i-1].Answered)
		if strings.HasPrefix(want[i], "delete") && overlap < quick.overlap {
			t.Errorf("%s comes %v after %s", want[i], overlap, want[i-1])
		}
	}
}

// DERIV-24: without look-ups that work the old form stays, and a restart in any state writes nothing.
func TestUpgradeWithoutCloud(t *testing.T) {
	w := newWorld(t)
	w.agents("1.19.2")
	w.cloud.set("a", "1.2.3.4")
	web := w.create(w.policies, "web", `"spec":`+groupRule("a"))
	o := w.startIn(w.Kubeconfig())
	w.status(w.policies, "web", web+isOK)
	o.Stop()
	w.agents("1.20.0")
	w.cloud.fail("a", "throttled")
	o = w.startIn(w.Kubeconfig())
	n := w.cloud.lookups("a")
	operatortest.Eventually(t, "it is tried several times", func() bool { return w.cloud.lookups("a") > n+4 })
	w.cidrs(w.policies, web, "1.2.3.4/32")
	if n := len(w.externals("a")); n > 0 {
		t.Errorf("there are %d CIDR groups", n)
	}
	w.cloud.fail("a", "")
	operatortest.Eventually(t, "the derived policy is deleted", func() bool { return w.get(w.policies, web) == nil })
	w.status(w.policies, "web", "")
	o.Stop()

	_, last := w.writes(0)
	n = w.cloud.lookups("a")
	o = w.startIn(w.Kubeconfig())
	operatortest.Eventually(t, "the group is looked up", func() bool { return w.cloud.lookups("a") > n })
	operatortest.Eventually(t, "it is counted", func() bool { return o.Metric("policy_derivative_cidr_groups", "ok") == 1 })
	o.Stop()
	if texts, _ := w.writes(last); len(texts) > 0 {
		t.Errorf("a restart wrote %q", texts)
	}
}

// DERIV-23, DERIV-E15: what an operator of 1.20 has left behind is refreshed where its agents run, and else deleted once policies have
// their derived ones.
func TestLeftovers(t *testing.T) {
	for version, kept := range map[string]bool{"1.20.0": true, "1.18.4": false} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t)
			w.agents(version)
			w.cloud.set("a", "1.2.3.4")
			web := w.create(w.policies, "web", `"spec":`+groupRule("a"))
			w.put("used", labelsFor("a"), "9.9.9.9/32")
			w.put("unused", labelsFor("b"), "9.9.9.9/32")
			w.put("nameless", map[string]string{ownLabel: ""}, "9.9.9.9/32")
			w.put("mine", map[string]string{idPrefix + "x": ""}, "9.9.9.9/32")
			o := w.startIn(w.Kubeconfig())
			groups := w.Dynamic.Resource(v2.CiliumCIDRGroupResource)
			w.gone("b")
			operatortest.Eventually(t, "the one without an id is deleted", func() bool { return w.get(groups, "nameless") == nil })
			if kept {
				if w.external("a", "1.2.3.4/32").GetName() != "used" {
					t.Error("another one is made")
				}
			} else {
				w.gone("a")
				w.cidrs(w.policies, web, "1.2.3.4/32")
			}
			if w.get(groups, "mine") == nil {
				t.Error("the CIDR group of a user is deleted")
			}
			w.CheckHealthy(o)
			o.Stop()
		})
	}
}

// DERIV-25: agents of 1.20 take derived policies, too, where CIDR groups cannot be written: the charts of 1.18 and 1.19 do not allow
// it, and some ids are no labels.
func TestDerivedInPlaceOfCIDRGroups(t *testing.T) {
	w := newWorld(t)
	w.agents("1.20.0")
	unservable := ""
	for i := 0; unservable == ""; i++ {
		name := fmt.Sprint("g", i)
		if !isServable(networkpolicy.Group(fmt.Sprintf(`{"aws":{"labels":{"group":%q}}}`, name))) {
			unservable = name
		}
	}
	w.cloud.set("a", "1.2.3.4")
	w.cloud.set(unservable, "5.6.7.8")
	odd := w.create(w.policies, "odd", `"spec":`+groupRule("a", unservable))
	web := w.create(w.policies, "web", `"spec":`+groupRule("a"))
	o := w.startIn(w.Kubeconfig())
	w.external("a", "1.2.3.4/32")
	w.cidrs(w.policies, odd, "1.2.3.4/32", "5.6.7.8/32")
	w.CheckHealthy(o)
	o.Stop()
	if w.get(w.policies, web) != nil {
		t.Error("there is a derived policy beside the CIDR group")
	}

	w.Clear(v2.CiliumCIDRGroupResource)
	role := slices.DeleteFunc(stockchart.Role(t), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "ciliumcidrgroups") })
	_, last := w.writes(0)
	kubeconfig := w.As("stock", role...)
	o = w.StartKnowing("ciliumnetworkpolicies", func() *operatortest.Operator { return w.startIn(kubeconfig) })
	w.cidrs(w.policies, web, "1.2.3.4/32")
	w.status(w.policies, "web", web+isOK)
	w.CheckHealthy(o)
	if texts, _ := w.writes(last); slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "cidrgroups") }) {
		t.Errorf("it wrote %q", texts)
	}
}
