// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/clustertest"
)

// onlyOneBlock of the pool that operators of tests have, and looks for garbage all the
// time, are what makes an operator refuse things that people ask about.
var onlyOneBlock = []string{"--cluster-pool-ipv4-mask-size=8", "--nodes-gc-interval=1s"}

// eventsOn are the Events about an object, by reason.
func (w *world) eventsOn(namespace, kind, name string) map[string]corev1.Event {
	w.t.Helper()
	list, err := w.core.CoreV1().Events(namespace).List(w.t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]corev1.Event{}
	for _, e := range list.Items {
		found[e.Reason] = e
	}
	return found
}

// refusals creates what Events report: a pool without a block for the second node, a
// node with a CIDR of another one, and more garbage than the safety limit. All of it
// exists before an operator starts. It returns the names of the two nodes.
func (w *world) refusals() (hungry, foreign string) {
	w.t.Helper()
	w.define("CiliumNode")
	node := func(name string, cidrs ...string) string {
		if _, err := w.core.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() {
			_ = w.core.CoreV1().Nodes().Delete(context.WithoutCancel(w.t.Context()), name, metav1.DeleteOptions{})
		})
		w.addNode(name, cidrs...)
		return name
	}
	prefix := w.namespace
	node(prefix + "-has") // the only block
	hungry, foreign = node(prefix+"-hungry"), node(prefix+"-foreign", "192.168.7.0/24")
	w.addNodes(prefix+"-left-over", 12)
	return hungry, foreign
}

// refused waits until nodes say why they have no CIDRs.
func (w *world) refused(names ...string) {
	w.t.Helper()
	eventually(w.t, "the nodes say why they have no CIDRs", func() bool {
		nodes := w.nodes()
		return !slices.ContainsFunc(names, func(name string) bool { return nodeError(nodes[name]) == "" })
	})
}

// What a person would ask about is told where they look for it: with reason and
// message, on the object; and once.
func TestEventsTellWhatWasRefused(t *testing.T) {
	w := newWorld(t)
	hungry, foreign := w.refusals()
	o, _ := w.run("teller", nil, onlyOneBlock...)
	o.until("it knows its role", func() bool { return o.log.Count("connected to the API server") > 0 })
	w.refused(hungry, foreign)
	for _, want := range []struct{ namespace, kind, name, reason, message, from string }{
		{"default", "CiliumNode", hungry, "PodCIDRPoolExhausted", "allocator full", "skep/ipam.clusterpool"},
		{"default", "CiliumNode", foreign, "PodCIDRRefused", "allocator not configured for the requested CIDR 192.168.7.0/24", "skep/ipam.clusterpool"},
		{w.namespace, "Lease", leaseName, "SweepBraked", "nodegc.periodic collect: 12 of 15 objects look like garbage", "skep/nodegc.periodic"},
	} {
		var e corev1.Event
		o.until(want.reason+" on "+want.kind+" "+want.name, func() bool {
			e = w.eventsOn(want.namespace, want.kind, want.name)[want.reason]
			return e.Name != ""
		})
		if e.Type != corev1.EventTypeWarning || !strings.HasPrefix(e.Message, want.message) || e.Source.Component != want.from || e.Count != 1 {
			t.Errorf("the Event is %s of %s, %d times: %s", e.Type, e.Source.Component, e.Count, e.Message)
		}
		if want.kind == "CiliumNode" && e.InvolvedObject.UID != w.ciliumNode(want.name).GetUID() {
			t.Errorf("the Event is about %v", e.InvolvedObject)
		}
	}
	if text := o.ask("writes"); !strings.Contains(text, "ipam.clusterpool event, set off by CiliumNode "+hungry) {
		t.Errorf("the writes do not have the Event and its cause:\n%s", text)
	}
	w.settled()
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	audit := w.Audit(t)
	again, _ := w.run("again", nil, onlyOneBlock...)
	again.says("caches synced, allocating pod CIDRs", 1)
	again.until("the sweep is braked again", func() bool { s, _ := again.status(); return strings.Contains(s.degraded(), "look like garbage") })
	if code := again.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	told := w.requests(audit, "again").which(func(e clustertest.AuditEvent) bool {
		return e.Mutates() && e.ObjectRef.Resource == "events" && strings.Contains(e.UserAgent, "clusterpool")
	})
	if len(told) > 0 {
		t.Errorf("what nodes say already is told again:\n%s", told)
	}
}

// Where the role does not allow Events, none is tried, and nothing else is different.
func TestEventsAreNotTriedWithoutPermission(t *testing.T) {
	s := newScene(t)
	s.args = append(s.args, onlyOneBlock...)
	user := "mute-" + s.namespace
	role := s.leastRole(user, s.args...)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "events") })
	s.bind(role, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	hungry, foreign := s.refusals()
	audit := s.Audit(t)
	o := start(t, s.proxy.UserKubeconfig(t, user), nil, s.args...)
	o.until("it knows its role", func() bool { return o.log.Count("connected to the API server") > 0 })
	s.refused(hungry, foreign)
	o.until("the sweep is braked", func() bool { st, _ := o.status(); return strings.Contains(st.degraded(), "look like garbage") })
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	seen := s.requests(audit, user)
	wrong := seen.which(func(e clustertest.AuditEvent) bool {
		return e.ResponseStatus.Code == http.StatusForbidden || e.ObjectRef.Resource == "events"
	})
	if len(seen) == 0 || len(wrong) > 0 {
		t.Errorf("of %d requests these should not be:\n%s", len(seen), wrong)
	}
	if n := len(s.eventsOn("default", "CiliumNode", hungry)); n != 0 {
		t.Errorf("%d Events", n)
	}
}
