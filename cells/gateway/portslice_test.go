// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"crypto/sha256"
	"errors"
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
		isHidden: func(slim.Key) bool { return false },
		gateway:  parse[gateway](t, "{metadata: {name: l4, namespace: infra, uid: u}}"),
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

// twins are two Services whose EndpointSlices would have one name, since names have 32 bits of a hash.
func twins() (a, b slim.Key) {
	seen := map[string]slim.Key{}
	for i := 0; ; i++ {
		key := slim.Key{Namespace: "aa", Name: fmt.Sprintf("s%d", i)}
		if i%2 == 1 {
			key.Namespace = "bb"
		}
		sum := sumOf(key.String() + "|80|TCP")
		if other, known := seen[sum]; known && other.Namespace != key.Namespace {
			return other, key
		}
		seen[sum] = key
	}
}

// GW-53: a Service whose name is made so that its EndpointSlice would be that of another one gets one of its own, whichever comes first.
func TestPortSlicesOfTwins(t *testing.T) {
	a, b := twins()
	addresses := map[slim.Key]string{a: "10.0.0.1", b: "10.0.0.2"}
	for _, order := range [][]slim.Key{{a, b}, {b, a}} {
		p := portPlan{
			isHidden: func(slim.Key) bool { return false },
			gateway:  parse[gateway](t, "{metadata: {name: l4, namespace: infra, uid: u}}"),
			portName: func(slim.Key, listener.ProtocolPort) (string, bool) { return "in", true },
			slicesOf: func(of slim.Key) []*backendSlice {
				return []*backendSlice{{
					AddressType: slim.MakeString("IPv4"), Ports: []discoveryv1.EndpointPort{{Name: new("in"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
					Endpoints: []discoveryv1.Endpoint{{Addresses: []string{addresses[of]}}},
				}}
			},
		}
		for i, of := range order {
			p.backends = append(p.backends, portTo{listener.ProtocolPort{Protocol: corev1.ProtocolTCP, Port: int32(9000 + i)}, route.PortBackend{Service: of, Port: 80}})
		}
		leadsTo := map[string]string{}
		for _, s := range p.desired() {
			for _, port := range s.Ports {
				leadsTo[*port.Name] += s.Endpoints[0].Addresses[0]
			}
		}
		if want := map[string]string{"port-9000": addresses[order[0]], "port-9001": addresses[order[1]]}; !maps.Equal(leadsTo, want) {
			t.Errorf("%v: %v, want %v", order, leadsTo, want)
		}
	}
}

// GW-53: what the endpoints of one namespace are is not known, and that of the others is written. A backend has at most 16 EndpointSlices of a family,
// and an endpoint one address.
func TestPortSlicesAreBounded(t *testing.T) {
	many := func(of slim.Key) (all []*backendSlice) {
		for n := range int32(100) {
			s := &backendSlice{AddressType: slim.MakeString("IPv4"), Ports: []discoveryv1.EndpointPort{{Name: new("in"), Port: new(n + 1), Protocol: new(corev1.ProtocolTCP)}}}
			s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.0.0.%d", n), "10.1.0.1"}}}
			s.Trim()
			all = append(all, s)
		}
		return all
	}
	p := portPlan{
		isHidden: func(of slim.Key) bool { return of.Namespace == "bb" },
		gateway:  parse[gateway](t, "{metadata: {name: l4, namespace: infra, uid: u}}"),
		portName: func(slim.Key, listener.ProtocolPort) (string, bool) { return "in", true },
		slicesOf: many,
	}
	for i, namespace := range []string{"aa", "bb"} {
		at := listener.ProtocolPort{Protocol: corev1.ProtocolTCP, Port: int32(9000 + i)}
		p.backends = append(p.backends, portTo{at, route.PortBackend{Service: slim.Key{Namespace: namespace, Name: "web"}, Port: 80}})
	}
	got := p.desired()
	for name, s := range got {
		if s.Annotations[backendAnnotation] != "aa/web" || len(s.Endpoints) != 1 || len(s.Endpoints[0].Addresses) != 1 {
			t.Errorf("%s: %v %v", name, s.Annotations, s.Endpoints)
		}
	}
	if len(got) != maxNumbers {
		t.Errorf("%d EndpointSlices", len(got))
	}
	for of, want := range map[string]bool{"bb/web": true, "aa/web": false, "": false} {
		if is := p.isKept(&portSlice{portSliceMeta: portSliceMeta{Annotations: slim.MakeLabels(map[string]string{backendAnnotation: of})}}); is != want {
			t.Errorf("what leads to %q is kept: %t", of, is)
		}
	}
}

// GW-53; K3 of the contract's tenants.md: after so many writes others have their turn. What fails does not keep any of the rest from being written.
func TestSlicesInTurns(t *testing.T) {
	for _, n := range []int{0, slicesPerPass, slicesPerPass + 1, 3 * slicesPerPass} {
		for _, fail := range []int{0, 100} {
			failure, more := errors.New("refused"), false
			var writes []func() error
			done := 0
			for range fail {
				writes = append(writes, func() error { return failure })
			}
			for range n {
				writes = append(writes, func() error { done++; return nil })
			}
			err := inTurn(writes, &more)
			if done != min(n, slicesPerPass) || more != (n > slicesPerPass) || errors.Is(err, failure) != (fail > 0) {
				t.Errorf("%d of %d are written, %d fail: %t, %v", done, n, fail, more, err)
			}
		}
	}
}
