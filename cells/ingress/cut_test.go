// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ING-29, K8S-24: an Ingress that is cut has its hosts, the class and the annotations, and nothing that is served.
func TestCut(t *testing.T) {
	text := `
metadata:
  name: large
  namespace: shop
  labels: {team: shop}
  annotations: {ingress.cilium.io/loadbalancer-mode: shared}
spec:
  ingressClassName: cilium
  defaultBackend: {service: {name: front, port: {number: 80}}}
  tls: [{hosts: [h0.example.com], secretName: key}]
  rules:
`
	for i := range mostHosts + 10 {
		text += fmt.Sprintf("  - {host: h%d.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}}\n", i)
	}
	i := decode(t, text)
	whole, before := slim.SizeOf(i), inputOf(i)
	if !slim.CutDown(i, whole) {
		t.Fatal("it cannot be cut")
	}
	if inputOf(i) == before {
		t.Error("it is ingested as before")
	}
	if n := slim.SizeOf(i); n > whole/2 || i.Spec.TLS != nil || i.Labels != (slim.Labels{}) {
		t.Errorf("%d bytes are kept of %d: %+v", n, whole, i.Spec)
	}
	if !isManaged(i, false) || !settingsOf(i, defaultConfig).shared {
		t.Error("it is another controller's, or has another mode")
	}
	in := ingest(i, settingsOf(i, defaultConfig), defaultConfig.sharedPorts(), envoy.Name{}, func(backendPort) found { return withPort })
	if len(in.model.HTTP) != mostHosts || len(in.model.Passthrough) != 0 {
		t.Fatalf("it has %d listeners", len(in.model.HTTP))
	}
	for n, l := range in.model.HTTP {
		if !l.Absent || l.TLS || len(l.Routes) > 0 || l.Hostname != fmt.Sprintf("h%d.example.com", n) || l.Claim.Of.Name != "large" {
			t.Errorf("listener %d is %+v", n, l)
		}
	}
	if len(in.notices) != 1 || in.notices[0].Reason != "LeftOut" || !strings.Contains(in.notices[0].Message, "GOMEMLIMIT") {
		t.Errorf("it says %v", in.notices)
	}
	if m := in.absent(i); len(m.HTTP) != mostHosts {
		t.Errorf("left out it keeps %d hosts", len(m.HTTP))
	}
}

// ING-29, K8S-24: a Service that is cut has all ports: the Ingresses that refer to it stay.
func TestCutService(t *testing.T) {
	all, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{}
	s.Name, s.Spec.Ports = "web", []servicePort{{Port: 80}}
	all.Replace(s)
	c := &controller{}
	if c.services, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	of := backendPort{envoy.Name{Name: "web"}, "81"}
	if is := c.find(of); is != withoutPort {
		t.Errorf("whole it is %v", is)
	}
	cut := *s
	if !slim.CutDown(&cut, 100<<10) {
		t.Fatal("it cannot be cut")
	}
	all.Replace(&cut)
	if is := c.find(of); is != withPort {
		t.Errorf("cut it is %v", is)
	}
}

// ING-29, K8S-24: of a Service the first addresses are kept, and none of one that is cut whose status is large. Then the Ingress keeps its own.
func TestAddressesOfLargeServices(t *testing.T) {
	s := &service{}
	s.Namespace, s.Name = slim.MakeString("shop"), "web"
	for i := range 100_000 {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)})
	}
	s.Trim()
	if size := slim.SizeOf(s); len(statusOf(s)) > mostAddresses || size > 128<<10 {
		t.Errorf("%d addresses, %d bytes", len(statusOf(s)), size)
	}
	s.Status.Conditions = []metav1.Condition{{Type: "example.com/Large", Message: strings.Repeat("x", 1<<20)}}
	if !slim.CutDown(s, slim.SizeOf(s)) || slim.SizeOf(s) > 1<<10 {
		t.Errorf("cut %d bytes are kept", slim.SizeOf(s))
	}
	all, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	all.Replace(s)
	c := &controller{}
	if c.services, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	i := &ingress{}
	i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "10.0.0.1"}}
	if err := c.writeStatus(t.Context(), i, s.Key()); err != nil { // without a client nothing can be written
		t.Error(err)
	}
}
