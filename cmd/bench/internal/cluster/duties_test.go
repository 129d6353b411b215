// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// What does not come is missing in the result, and is no error.
func TestAwaitingWhatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSightings[string]()
		go func() {
			time.Sleep(quiet / 2)
			s.record(at(1), "x-0")
			time.Sleep(quiet / 2)
			s.record(at(2), "x-1", "first")
		}()
		if seen, err := s.await(t.Context(), numbered("x", 2)); err != nil || len(seen) != 2 || seen["x-1"] != at(2) {
			t.Errorf("%v, %v", seen, err)
		}
		began := time.Now()
		if seen, err := s.await(t.Context(), numbered("x", 3)); err != nil || len(seen) != 2 || time.Since(began) != quiet {
			t.Errorf("%v, %v after %v", seen, err, time.Since(began))
		}
	})
}

func TestPerSecond(t *testing.T) {
	for _, c := range []struct {
		times []time.Time
		want  float64
	}{{nil, 0}, {[]time.Time{at(5)}, 0}, {[]time.Time{at(2000), at(0), at(1000)}, 1}, {[]time.Time{at(0), at(500)}, 2}} {
		if got := perSecond(c.times); got != c.want {
			t.Errorf("%v: %v a second, want %v", c.times, got, c.want)
		}
	}
}

func TestConflictsAreNoWrites(t *testing.T) {
	of := func(verb, resource string, code int) (r request) {
		r.Verb, r.ObjectRef.APIGroup, r.ObjectRef.Resource, r.ResponseStatus.Code = verb, "cilium.io", resource, code
		return r
	}
	all := []request{of("update", "ciliumnodes", 200), of("update", "ciliumnodes", 409), of("update", "ciliumnodes", 500), of("get", "ciliumnodes", 200), of("update", "ciliumendpoints", 200)}
	if times, conflicts := writesTo(all, ciliumNodes); len(times) != 2 || conflicts != 1 {
		t.Errorf("%d writes, %d conflicts", len(times), conflicts)
	}
}

func TestCIDRsOnTwoNodes(t *testing.T) {
	j := &joiningNodes{made: newSightings[string](), given: newSightings[string](), of: map[string]string{}}
	node := func(name string, cidrs ...any) *unstructured.Unstructured {
		pools := map[string]any{"allocated": []any{map[string]any{"pool": "default", "cidrs": cidrs}}}
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"ipam": map[string]any{"pools": pools}}}}
		u.SetName(name)
		return u
	}
	j.handleNode(watch.Added, node("a"))
	if len(j.given.at) > 0 || len(j.made.at) != 1 {
		t.Errorf("made: %v, given: %v", j.made.at, j.given.at)
	}
	j.handleNode(watch.Modified, node("a", "10.0.0.0/24"))
	j.handleNode(watch.Modified, node("a", "10.0.0.0/24"))
	j.handleNode(watch.Added, node("b", "10.0.1.0/24"))
	if len(j.given.at) != 2 || j.duplicates != 0 {
		t.Errorf("given: %v, %d duplicates", j.given.at, j.duplicates)
	}
	j.handleNode(watch.Modified, node("b", "10.0.1.0/24", "10.0.0.0/24"))
	if j.duplicates != 1 {
		t.Errorf("%d duplicates, want 1", j.duplicates)
	}
}

func TestNodesWhoseAgentsAreReady(t *testing.T) {
	a := &agents{made: newSightings[string](), free: newSightings[string](), up: newSightings[string]()}
	n := &corev1.Node{}
	n.Name = "a"
	n.Spec.Taints = []corev1.Taint{{Key: agentTaint}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated"}}
	a.handleNode(at(0), n)
	if len(a.free.at)+len(a.up.at) > 0 {
		t.Errorf("free: %v, up: %v", a.free.at, a.up.at)
	}
	n.Spec.Taints[0].Key, n.Status.Conditions[0].Reason = "node.kubernetes.io/not-ready", "CiliumIsUp"
	a.handleNode(at(1), n)
	if len(a.free.at)+len(a.up.at) != 2 {
		t.Errorf("free: %v, up: %v", a.free.at, a.up.at)
	}
}

func TestServicesWithAnIP(t *testing.T) {
	s := &services{made: newSightings[string](), given: newSightings[string]()}
	one, two := &corev1.Service{}, &corev1.Service{}
	one.Name, two.Name = "one", "two"
	two.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.64.0.1"}}
	s.handleService(at(0), one)
	s.handleService(at(1), two)
	if got := both(s.made.at, s.given.at); len(got) != 1 || got["two"] != at(1) {
		t.Errorf("with an IP: %v", got)
	}
}
