// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// GW-55: number 1.8 of the contract's tenants.md, for Gateways: a port of the nodes belongs to the namespace of the oldest object that asks for
// it, and those of components to no other object.
func TestPortsOfNodes(t *testing.T) {
	at := func(namespace, name string, second int, ports ...string) *gateway {
		listeners := ""
		for i, port := range ports {
			listeners += fmt.Sprintf("{name: l%d, port: %s}, ", i, port)
		}
		return parse[gateway](t, fmt.Sprintf(
			"{metadata: {name: %s, namespace: %s, uid: %s-%s, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {allowedListeners: {namespaces: {from: All}}, listeners: [%s]}}",
			name, namespace, namespace, name, second, listeners))
	}
	set := func(of *gateway, namespace string, second int, port string) *listenerSet {
		return parse[listenerSet](t, fmt.Sprintf(
			"{metadata: {name: s, namespace: %s, uid: set-%s, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRef: {name: %s, namespace: %s}, listeners: [{name: l, port: %s, protocol: HTTP}]}}",
			namespace, namespace, second, of.Name, of.Namespace, port))
	}
	const http = "8080, protocol: HTTP"
	old := at("aa", "old", 1, http)
	for name, test := range map[string]struct {
		gateways []*gateway
		sets     []*listenerSet
		want     []string
	}{
		"the older has it":             {[]*gateway{old, at("bb", "new", 2, http)}, nil, []string{"bb/new 8080: belongs to the Gateway aa/old, which is older"}},
		"the oldest is named":          {[]*gateway{at("cc", "third", 3, http), at("bb", "new", 2, http), old}, nil, []string{"bb/new 8080: belongs to the Gateway aa/old, which is older", "cc/third 8080: belongs to the Gateway aa/old, which is older"}},
		"a namespace shares":           {[]*gateway{old, at("aa", "new", 2, http)}, nil, nil},
		"other ports":                  {[]*gateway{old, at("bb", "new", 2, "8081, protocol: HTTP")}, nil, nil},
		"whatever the protocol":        {[]*gateway{old, at("bb", "new", 2, "8080, protocol: TLS")}, nil, []string{"bb/new 8080: belongs to the Gateway aa/old, which is older"}},
		"TCP is not at the nodes":      {[]*gateway{old, at("bb", "new", 2, "8080, protocol: TCP")}, nil, nil},
		"the kubelet":                  {[]*gateway{at("bb", "new", 2, "10250, protocol: HTTPS")}, nil, []string{"bb/new 10250: is that of the kubelet"}},
		"a younger ListenerSet":        {[]*gateway{old, at("infra", "edge", 3, "80, protocol: HTTP")}, []*listenerSet{set(at("infra", "edge", 3), "bb", 4, "8080")}, []string{"infra/edge 8080: belongs to the Gateway aa/old, which is older"}},
		"an older ListenerSet":         {[]*gateway{at("aa", "new", 9, http), at("infra", "edge", 3, "80, protocol: HTTP")}, []*listenerSet{set(at("infra", "edge", 3), "bb", 4, "8080")}, []string{"aa/new 8080: belongs to the Gateway infra/edge, which is older"}},
		"a ListenerSet of one's own":   {[]*gateway{at("bb", "new", 9, http), at("infra", "edge", 3, "80, protocol: HTTP")}, []*listenerSet{set(at("infra", "edge", 3), "bb", 4, "8080")}, nil},
		"one of a component's, nobody": {[]*gateway{at("aa", "a", 1, "6443, protocol: TLS"), at("bb", "b", 2, "6443, protocol: TLS")}, nil, []string{"aa/a 6443: is that of the API server", "bb/b 6443: is that of the API server"}},
	} {
		setsOf := func(key slim.Key) (of []*listenerSet) {
			for _, s := range test.sets {
				if slices.Contains(s.gatewayKeys(), key) {
					of = append(of, s)
				}
			}
			return of
		}
		var got []string
		for _, g := range test.gateways {
			others := slices.DeleteFunc(slices.Clone(test.gateways), func(other *gateway) bool { return other == g })
			taken, asked := takenPorts(g, others, setsOf, objects{}.lookup)
			for port, by := range asked { // each of them is without
				for _, of := range others {
					beside := slices.DeleteFunc(slices.Clone(test.gateways), func(other *gateway) bool { return other == of })
					if without, _ := takenPorts(of, beside, setsOf, objects{}.lookup); slices.Contains(by, of.Key()) && without[port].Message == "" {
						t.Errorf("%s: %s asks for port %d of %s, and has it", name, of.Key(), port, g.Key())
					}
				}
			}
			for port, why := range taken {
				got = append(got, fmt.Sprintf("%s %d: %s", g.Key(), port, strings.TrimPrefix(why.Message, fmt.Sprintf("Port %d of the nodes ", port))))
			}
			p := planner{taken: taken}
			plan := p.plan(g, setsOf(g.Key()), nil, objects{}.lookup)
			for _, l := range plan.listeners {
				if _, is := taken[l.Of.Port]; is == l.Accepted.OK && !l.IsPort() {
					t.Errorf("%s: the listener at port %d of %s is %+v", name, l.Of.Port, g.Key(), l.Accepted)
				}
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// GW-55: gateway-api-join-namespaces has namespaces share ports of the nodes, also one that the CiliumEnvoyConfig of an Ingress has, but for those of components.
func TestPortsOfNodesByOption(t *testing.T) {
	at := func(namespace string, second int, listeners string) *gateway {
		return parse[gateway](t, fmt.Sprintf("{metadata: {name: edge, namespace: %s, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {gatewayClassName: c, listeners: [%s]}}", namespace, second, listeners))
	}
	older := at("aa", 1, "{name: a, port: 8080, protocol: HTTP}")
	g := at("bb", 2, "{name: a, port: 8080, protocol: HTTP}, {name: b, port: 8081, protocol: HTTP}, {name: c, port: 8082, protocol: HTTP}, {name: d, port: 10250, protocol: HTTP}")
	config := &envoyres.Object{}
	config.Namespace, config.Name, config.Spec.HostPorts = slim.MakeString("cc"), "cilium-ingress-cc-web", envoyres.HostPorts{8081}
	config.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Ingress"), Name: "web", Controller: true})
	c := &controller{
		gateways: localStore(t, older, g), configs: localStore(t, config),
		classes: localStore(t, parse[class](t, "{metadata: {name: c}, spec: {controllerName: io.cilium/gateway-controller}}")),
	}
	c.Config.GatewayAPIHostNetworkEnabled = true
	for joins, want := range map[bool]string{false: "[8080 8081 10250]", true: "[10250]"} {
		c.Config.GatewayAPIJoinNamespaces = joins
		taken, _ := c.takenPorts(g, knownSets{}, objects{}.lookup)
		if got := fmt.Sprint(slices.Sorted(maps.Keys(taken))); got != want {
			t.Errorf("with the option %t it does not have %s, want %s", joins, got, want)
		}
	}
}
