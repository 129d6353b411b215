// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// GW-59, K8S-24: a Service that is cut has all ports for the routes of Gateways, so that they stay, and none for those of the mesh.
func TestCutService(t *testing.T) {
	all, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{}
	s.Name, s.Spec.Ports = "web", []slim.ServicePort{{Port: 80}}
	all.Replace(s)
	c := &controller{}
	if c.services, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := route.Query{About: route.AboutPort, Key: s.Key(), Port: 81}
	if a := c.askPort(q); a.OK {
		t.Errorf("whole it has a port that it has not: %+v", a)
	}
	cut := *s
	if !slim.CutDown(&cut, 100<<10) || cut.Spec.Ports != nil {
		t.Fatal("it cannot be cut")
	}
	all.Replace(&cut)
	if a := c.askPort(q); !a.Exists || !a.OK {
		t.Errorf("cut it is %+v", a)
	}
	r := parse[route.HTTP](t, "{metadata: {name: r}, spec: {rules: [{}]}}").Route()
	a := attachMesh(r, gatewayv1.ParentReference{Name: "web"}, &cut)
	if a.accepted.OK || !strings.Contains(a.accepted.Message, "it needs 100 KiB") || len(a.ports) > 0 {
		t.Errorf("in the mesh it is %+v", a)
	}
}

// GW-59, K8S-24: what was cut is planned anew once there is memory for it, and the other way round, although its generation is the same.
func TestCutIsPlannedAnew(t *testing.T) {
	g, c := edgeOf(t, "{from: All}", "[]"), objects{services: map[slim.Key]bool{{Namespace: "bb", Name: "v1"}: true}}
	newSet := func() *listenerSet { return setOf(t, "set", "bb", 0, "[{name: l, port: 80, protocol: HTTP}]") }
	newRoute := func() *route.HTTP {
		return parse[route.HTTP](t, "{metadata: {name: r, namespace: bb, uid: r, generation: 1}, spec: {parentRefs: [{kind: ListenerSet, name: set}], rules: [{backendRefs: [{name: v1, port: 80}]}]}}")
	}
	p := new(planner)
	for i, step := range []struct{ cutSet, cutRoute bool }{{}, {false, true}, {}, {true, false}, {}} {
		set, r := newSet(), newRoute()
		if step.cutSet && !slim.CutDown(set, 100<<10) || step.cutRoute && !slim.CutDown(r, 100<<10) {
			t.Fatal("they cannot be cut")
		}
		plan := p.plan(g, []*listenerSet{set}, []*route.Route{r.Route()}, c.lookup)
		if got := len(plan.model.HTTP); (got == 0) != step.cutSet {
			t.Errorf("step %d: %d listeners", i, got)
		}
		if planned := p.routes[r.Route().ID()]; (len(planned.rules) == 1) == (step.cutSet || step.cutRoute) {
			t.Errorf("step %d: %d rules", i, len(planned.rules))
		}
	}
}
