// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:4])
}

// GW-53: one EndpointSlice for each backend, port, protocol, family and number; names are those of number 25 of the contract's gateway-api.md.
func TestPortSlices(t *testing.T) {
	web := slim.Key{Namespace: "infra", Name: "web"}
	slice := func(family string, port int32, addresses ...string) *backendSlice {
		s := &backendSlice{AddressType: slim.MakeString(family), Ports: []discoveryv1.EndpointPort{{Name: new("in"), Port: new(port), Protocol: new(corev1.ProtocolTCP)}}}
		for _, a := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
		}
		return s
	}
	p := portPlan{
		gateway: parse[gateway](t, "{metadata: {name: l4, namespace: infra, uid: u}}"),
		backends: []portTo{
			{listener.ProtocolPort{Protocol: corev1.ProtocolTCP, Port: 9000}, route.PortBackend{Service: web, Port: 9000, Weight: new(int32(70000))}},
			{listener.ProtocolPort{Protocol: corev1.ProtocolTCP, Port: 9100}, route.PortBackend{Service: web, Port: 9000}},
			{listener.ProtocolPort{Protocol: corev1.ProtocolTCP, Port: 9100}, route.PortBackend{Service: slim.Key{Namespace: "infra", Name: "none"}, Port: 80}},
		},
		portName: func(of slim.Key, at listener.ProtocolPort) (string, bool) { return "in", of == web && at.Port == 9000 },
		slicesOf: func(of slim.Key) []*backendSlice {
			return []*backendSlice{slice("IPv4", 9001, "10.0.1.8"), slice("IPv4", 9001, "10.0.1.7", "10.0.1.8"), slice("IPv4", 9002, "10.0.1.9"), slice("IPv6", 9001, "fd00::1"), slice("FQDN", 9001, "a.test")}
		},
	}
	shown := func() (all []string) {
		for _, name := range slices.Sorted(maps.Keys(p.desired())) {
			s := p.desired()[name]
			line := name + " weight " + s.Annotations[weightAnnotation]
			for _, port := range s.Ports {
				line += fmt.Sprintf(" %s=%d", *port.Name, *port.Port)
			}
			for _, e := range s.Endpoints {
				line += " " + strings.Join(e.Addresses, ",")
			}
			all = append(all, line)
		}
		return all
	}
	want := []string{
		"cilium-gateway-l4-d4fc93c3-ipv4 weight 65535 port-9000=9001 port-9100=9001 10.0.1.7 10.0.1.8",
		"cilium-gateway-l4-d4fc93c3-ipv4-9002 weight 65535 port-9000=9002 port-9100=9002 10.0.1.9",
		"cilium-gateway-l4-d4fc93c3-ipv6 weight 65535 port-9000=9001 port-9100=9001 fd00::1",
	}
	if diff := cmp.Diff(want, shown()); diff != "" {
		t.Error(diff)
	}
	empty := &portSlice{AddressType: slim.MakeString("IPv4")}
	empty.Name = "cilium-gateway-l4-" + sumOf("infra/none|80|TCP") + "-ipv4"
	p.has = []*portSlice{empty}
	if got := shown(); !slices.Contains(got, empty.Name+" weight  port-9100=9100") || len(got) != 4 {
		t.Errorf("what leads to a Service that is gone stays: %q", got)
	}
}
