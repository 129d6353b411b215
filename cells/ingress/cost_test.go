// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// within fails a test in which something takes much longer than it may for one object among those of all.
func within(t *testing.T, most time.Duration, do func()) {
	t.Helper()
	if seedtest.RaceEnabled { // which is slower, and shares the machine with many others
		most *= 5
	}
	begin := time.Now()
	do()
	if took := time.Since(begin); took > most {
		t.Errorf("it took %v, of %v", took, most)
	}
}

// ING-17: of a Service with 40,000 ports 27,000 paths find each its own, by number and by name.
func TestManyPortsOfAService(t *testing.T) {
	all, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{}
	s.Name = "web"
	for n := range 40_000 {
		s.Spec.Ports = append(s.Spec.Ports, servicePort{Name: slim.MakeString(fmt.Sprintf("p%d", 40_000-n)), Port: int32(40_000 - n)})
	}
	s.Trim()
	all.Replace(s)
	c := &controller{}
	if c.services, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	of := cached{ingested: ingested{backends: map[backendPort]found{}}}
	for n := range 13_500 {
		of.backends[backendPort{envoy.Name{Name: "web"}, strconv.Itoa(n + 1)}] = withPort
		of.backends[backendPort{envoy.Name{Name: "web"}, fmt.Sprintf("p%d", n+1)}] = withPort
	}
	within(t, time.Second, func() {
		if !of.isFresh(input{}, c.find) {
			t.Error("a port is not found")
		}
	})
	for _, port := range []string{"0", "40001", "p0", "+80", "080", "4294967376", ""} {
		if is := c.find(backendPort{envoy.Name{Name: "web"}, port}); is != withoutPort {
			t.Errorf("port %q: %v", port, is)
		}
	}
}

// ENV-34: an Ingress with 50,000 findings keeps a few, and counts the others.
func TestManyFindings(t *testing.T) {
	i := &ingress{}
	i.Namespace, i.Name = slim.MakeString("bb"), "x"
	tls := networkingv1.IngressTLS{SecretName: "s"}
	for n := range 50_000 {
		tls.Hosts = append(tls.Hosts, fmt.Sprintf("h%d", n))
	}
	i.Spec.TLS = []networkingv1.IngressTLS{tls}
	within(t, 5*time.Second, func() {
		got := ingest(i, settings{shared: true}, loadBalancerPorts, envoy.Name{}, nil)
		if len(got.notices) != mostNotices || got.notices[mostNotices-1].Others != 50_000-mostNotices {
			t.Errorf("%d notices, the last of which stands for %d others", len(got.notices), got.notices[len(got.notices)-1].Others)
		}
	})
}
