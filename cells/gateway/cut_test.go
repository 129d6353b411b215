// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// GW-59, K8S-24: a Service that is cut has its first ports, and all others for the routes of Gateways, so that they stay, and none for those of the mesh.
func TestCutService(t *testing.T) {
	all, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{}
	s.Name = "web"
	for port := range int32(2 * mostPorts) {
		s.Spec.Ports = append(s.Spec.Ports, slim.ServicePort{Port: 1 + port, AppProtocol: slim.MakeString("kubernetes.io/h2c")})
	}
	all.Replace(s)
	c := &controller{}
	if c.services, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, q := route.Query{About: route.AboutPort, Key: s.Key(), Port: 1}, route.Query{About: route.AboutPort, Key: s.Key(), Port: 2*mostPorts + 1}
	if a := c.askPort(q); a.OK || c.hidesPorts(s.Key()) {
		t.Errorf("whole it has a port that it has not: %+v", a)
	}
	cut := *s
	if !slim.CutDown(&cut, 100<<10) || len(cut.Spec.Ports) != mostPorts || slim.SizeOf(&cut) > 32<<10 {
		t.Fatal("it cannot be cut")
	}
	all.Replace(&cut)
	if a := c.askPort(q); !a.Exists || !a.OK || !c.hidesPorts(s.Key()) { // what leads to its ports stays
		t.Errorf("cut it is %+v", a)
	}
	if a := c.askPort(first); !a.OK || a.AppProtocol != "kubernetes.io/h2c" {
		t.Errorf("cut its first port is %+v", a)
	}
	few := *s
	few.Spec.Ports = few.Spec.Ports[:3]
	if !slim.CutDown(&few, 100<<10) || few.hidesPorts() { // it is the status that is large
		t.Error("its ports are not known, which are few")
	}
	r := parse[route.HTTP](t, "{metadata: {name: r}, spec: {rules: [{}]}}").Route()
	a := attachMesh(r, gatewayv1.ParentReference{Name: "web"}, &cut)
	if a.accepted.OK || !strings.Contains(a.accepted.Message, "it needs 100 KiB") || len(a.ports) > 0 {
		t.Errorf("in the mesh it is %+v", a)
	}
}

// GW-59, K8S-24: what is kept of the largest Service, ListenerSet and HTTPRoute that the API server accepts fits into what is kept of any object: ports and
// hosts that are not kept would be those of others.
func TestCutOfTheLargest(t *testing.T) {
	long := func(n int, i int) string { return fmt.Sprintf("%0*d", n, i) }
	status := []metav1.Condition{{Type: "example.com/Large", Message: strings.Repeat("x", 15<<10)}}
	s := &service{}
	s.Name, s.Namespace, s.Status.Conditions = long(63, 0), slim.MakeString(long(63, 1)), status
	for i := range 1000 {
		s.Spec.Ports = append(s.Spec.Ports, slim.ServicePort{
			Name: slim.MakeString(long(63, i)), Protocol: slim.MakeString("SCTP"), AppProtocol: slim.MakeString("example.com/" + long(305, i)), Port: int32(1 + i), NodePort: int32(i),
		})
	}
	if slim.CutDown(s, 400<<10); len(s.Spec.Ports) != mostPorts || len(s.Status.Conditions) != 1 || !s.hidesPorts() {
		t.Errorf("of a Service %d ports are kept, %d bytes", len(s.Spec.Ports), slim.SizeOf(s))
	}
	set, all := &listenerSet{}, gatewayv1.NamespacesFromAll
	set.Name, set.Namespace, set.Status.Conditions = long(253, 0), slim.MakeString(long(63, 1)), status
	for i := range mostListeners {
		var kinds []gatewayv1.RouteGroupKind
		for j := range 8 {
			kinds = append(kinds, gatewayv1.RouteGroupKind{Group: new(gatewayv1.Group(long(253, j))), Kind: gatewayv1.Kind(long(63, j))})
		}
		for _, kind := range route.Kinds {
			kinds = append(kinds, gatewayv1.RouteGroupKind{Group: new(gatewayv1.Group(gatewayv1.GroupName)), Kind: gatewayv1.Kind(kind)})
		}
		set.Spec.Listeners = append(set.Spec.Listeners, gatewayv1.ListenerEntry{
			Name: gatewayv1.SectionName(long(253, i)), Hostname: new(gatewayv1.Hostname(long(253, i))), Port: 443, Protocol: gatewayv1.ProtocolType("example.com/" + long(240, i)),
			TLS:           &gatewayv1.ListenerTLSConfig{Mode: new(gatewayv1.TLSModePassthrough), CertificateRefs: make([]gatewayv1.SecretObjectReference, 64)},
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &all}, Kinds: kinds},
		})
	}
	if slim.CutDown(set, 400<<10); len(set.Spec.Listeners) != mostListeners || len(set.Status.Conditions) != 1 || len(set.Spec.Listeners[63].AllowedRoutes.Kinds) != 1+len(route.Kinds) {
		t.Errorf("of a ListenerSet %d listeners are kept, %d bytes", len(set.Spec.Listeners), slim.SizeOf(set))
	}
	r := &route.HTTP{}
	r.Name, r.Namespace = long(253, 0), slim.MakeString(long(63, 1))
	for i := range 32 {
		r.Spec.ParentRefs = append(r.Spec.ParentRefs, gatewayv1.ParentReference{
			Group: new(gatewayv1.Group(long(253, i))), Kind: new(gatewayv1.Kind(long(63, i))), Namespace: new(gatewayv1.Namespace(long(63, i))), Name: gatewayv1.ObjectName(long(253, i)), SectionName: new(gatewayv1.SectionName(long(253, i))),
		})
	}
	for i := range 16 {
		r.Spec.Hostnames = append(r.Spec.Hostnames, gatewayv1.Hostname(long(253, i)))
	}
	if slim.CutDown(r, 400<<10); len(r.Spec.ParentRefs) != 32 || len(r.Spec.Hostnames) != 16 {
		t.Errorf("of an HTTPRoute %d parents and %d hosts are kept, %d bytes", len(r.Spec.ParentRefs), len(r.Spec.Hostnames), slim.SizeOf(r))
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
		if planned := p.routes[r.Route().ID()]; (len(planned.rules)*len(planned.names) == 1) == (step.cutSet || step.cutRoute) {
			t.Errorf("step %d: %d rules at %d places", i, len(planned.rules), len(planned.names))
		}
	}
}

// GW-53, K8S-24: an EndpointSlice of a Gateway that is cut stays as it is, whether it is wanted or not: it is not known what it leads to. So is
// one of a backend cut down to whose it is.
func TestCutPortSlices(t *testing.T) {
	labels := map[string]string{discoveryv1.LabelServiceName: "web"}
	for i := range 1000 {
		labels[fmt.Sprintf("example.com/%050d", i)] = fmt.Sprintf("%060d", i)
	}
	s := &portSlice{AddressType: slim.MakeString("IPv4")}
	s.Name, s.Namespace, s.Labels, s.Annotations = "surplus", slim.MakeString("infra"), slim.MakeLabels(labels), slim.MakeLabels(labels)
	s.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString(route.KindGateway), Name: "l4", UID: slim.ParseUID("u")})
	b := &backendSlice{}
	b.Labels = s.Labels
	for range 1000 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})
	}
	b.Endpoints = s.Endpoints
	if !slim.CutDown(s, slim.SizeOf(s)) || slim.SizeOf(s) > 2<<10 || s.Controller.Name() != "l4" {
		t.Fatalf("%d bytes stay, of %s", slim.SizeOf(s), s.Controller.Name())
	}
	if !slim.CutDown(b, slim.SizeOf(b)) || slim.SizeOf(b) > 2<<10 || b.service().Name != "web" {
		t.Errorf("%d bytes stay, of %s", slim.SizeOf(b), b.service())
	}
	wanted := *s
	wanted.Name = "cilium-gateway-l4-" + sumOf("infra/web|80|TCP") + "-ipv4"
	p := portPlan{
		gateway: parse[gateway](t, "{metadata: {name: l4, namespace: infra, uid: u}}"), has: []*portSlice{s, &wanted},
		backends: []portTo{{listener.ProtocolPort{Protocol: corev1.ProtocolTCP, Port: 80}, route.PortBackend{Service: slim.Key{Namespace: "infra", Name: "web"}, Port: 80}}},
		portName: func(slim.Key, listener.ProtocolPort) (string, bool) { return "", false },
		slicesOf: func(slim.Key) []*backendSlice { return nil }, isHidden: func(slim.Key) bool { return false },
	}
	if len(p.desired()) != 1 || p.desired()[wanted.Name] == nil {
		t.Fatalf("wanted are %v", p.desired())
	}
	more := false
	if err := (&controller{}).bringPorts(t.Context(), p, &more); err != nil || more { // without a client nothing can be written
		t.Errorf("%v, %t", err, more)
	}
}

// GW-59, K8S-24: of a Service the first addresses are kept, and none of one that is cut whose status is large. Then the Gateway keeps its own.
func TestAddressesOfLargeServices(t *testing.T) {
	s := &service{}
	for i := range 100_000 {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)})
	}
	s.Trim()
	if size := slim.SizeOf(s); len(addressesOf(s)) > mostAddresses || size > 128<<10 {
		t.Errorf("%d addresses, %d bytes", len(addressesOf(s)), size)
	}
	s.Status.Conditions = []metav1.Condition{{Type: "example.com/Large", Message: strings.Repeat("x", 1<<20)}}
	if !slim.CutDown(s, slim.SizeOf(s)) || slim.SizeOf(s) > 1<<10 {
		t.Errorf("cut %d bytes are kept", slim.SizeOf(s))
	}
	g := parse[gateway](t, "{metadata: {name: edge, namespace: bb}, spec: {listeners: [{name: l, port: 80, protocol: HTTP}]}, status: {addresses: [{type: IPAddress, value: 10.0.0.1}]}}")
	p := new(planner).plan(g, nil, nil, objects{}.lookup)
	if r := p.result(g, outcome{service: s}); len(r.addresses) != 1 || r.addresses[0].Value != "10.0.0.1" {
		t.Errorf("addresses are %v", r.addresses)
	}
	if r := p.result(g, outcome{service: &service{}}); len(r.addresses) > 0 {
		t.Errorf("of a Service without any they are %v", r.addresses)
	}
}
