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
// it, or to one Gateway for all that it allows, and those of components to no other object.
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
			"{metadata: {name: s, namespace: %s, uid: set-%s, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRef: {name: %s, namespace: %s}, listeners: [{name: l, hostname: %s.test, port: %s, protocol: HTTP}]}}",
			namespace, namespace, second, of.Name, of.Namespace, namespace, port))
	}
	const http = "8080, protocol: HTTP"
	old, edge := at("aa", "old", 1, http), at("infra", "edge", 3, "80, protocol: HTTP")
	for name, test := range map[string]struct {
		gateways []*gateway
		sets     []*listenerSet
		want     []string // who does not have the port, and what asks for it
	}{
		"the older has it": {[]*gateway{old, at("bb", "new", 2, http)}, nil, []string{
			"aa/old 8080 has, asked for by 1: Gateway bb/new", "bb/new 8080: belongs to the Gateway aa/old, which is older"}},
		"the oldest is named": {[]*gateway{at("cc", "third", 3, http), at("bb", "new", 2, http), old}, nil, []string{
			"aa/old 8080 has, asked for by 2: Gateway bb/new", "bb/new 8080: belongs to the Gateway aa/old, which is older", "cc/third 8080: belongs to the Gateway aa/old, which is older"}},
		"a namespace shares": {[]*gateway{old, at("aa", "new", 2, http)}, nil, nil},
		"a namespace shares beside one that has it not": {[]*gateway{old, at("bb", "between", 2, http), at("aa", "new", 3, http)}, nil, []string{
			"aa/old 8080 has, asked for by 1: Gateway bb/between", "bb/between 8080: belongs to the Gateway aa/old, which is older"}},
		"other ports": {[]*gateway{old, at("bb", "new", 2, "8081, protocol: HTTP")}, nil, nil},
		"whatever the protocol": {[]*gateway{old, at("bb", "new", 2, "8080, protocol: TLS")}, nil, []string{
			"aa/old 8080 has, asked for by 1: Gateway bb/new", "bb/new 8080: belongs to the Gateway aa/old, which is older"}},
		"TCP is not at the nodes":            {[]*gateway{at("bb", "new", 0, "8080, protocol: TCP"), old}, nil, nil},
		"a protocol of others is not either": {[]*gateway{at("bb", "new", 0, "8080, protocol: example.com/x"), old}, nil, nil},
		"the kubelet":                        {[]*gateway{at("bb", "new", 2, "10250, protocol: HTTPS")}, nil, []string{"bb/new 10250: is that of the kubelet"}},
		"a younger ListenerSet": {[]*gateway{old, edge}, []*listenerSet{set(edge, "bb", 4, "8080")}, []string{
			"aa/old 8080 has, asked for by 1: ListenerSet bb/s of the Gateway infra/edge", "bb/ListenerSet/s 8080: belongs to the Gateway aa/old, which is older"}},
		"an older ListenerSet": {[]*gateway{at("aa", "new", 9, http), edge}, []*listenerSet{set(edge, "bb", 4, "8080")}, []string{
			"aa/new 8080: belongs to the ListenerSet bb/s of the Gateway infra/edge, which is older", "infra/edge 8080 has, asked for by 1: Gateway aa/new"}},
		"a ListenerSet of one's own elsewhere": {[]*gateway{at("bb", "new", 9, http), edge}, []*listenerSet{set(edge, "bb", 4, "8080")}, []string{
			"bb/new 8080: belongs to the ListenerSet bb/s of the Gateway infra/edge, which is older", "infra/edge 8080 has, asked for by 1: Gateway bb/new"}},
		"a ListenerSet of the Gateway's namespace": {[]*gateway{at("infra", "new", 9, http), edge}, []*listenerSet{set(edge, "infra", 4, "8080")}, nil},
		"a ListenerSet of one's own beside that of another": {[]*gateway{at("bb", "new", 9, http), edge}, []*listenerSet{set(edge, "bb", 4, "8080"), set(edge, "cc", 6, "8080")}, []string{
			"bb/new 8080: belongs to the ListenerSet bb/s of the Gateway infra/edge, which is older", "infra/edge 8080 has, asked for by 1: Gateway bb/new"}},
		"a ListenerSet that is older than its Gateway": {[]*gateway{at("bb", "new", 9, "80, protocol: HTTP"), edge}, []*listenerSet{set(edge, "bb", 1, "80")}, []string{
			"bb/new 80: belongs to the ListenerSet bb/s of the Gateway infra/edge, which is older", "infra/edge 80 has, asked for by 1: Gateway bb/new"}},
		"a younger ListenerSet where a namespace shares": {[]*gateway{at("aa", "other", 2, http), at("aa", "old", 1, http)}, []*listenerSet{set(old, "bb", 4, "8080")}, []string{
			"aa/other 8080 has, asked for by 1: ListenerSet bb/s of the Gateway aa/old", "bb/ListenerSet/s 8080: belongs to the Gateway aa/other, which is older"}},
		"several ListenerSets of one Gateway": {[]*gateway{edge}, []*listenerSet{set(edge, "bb", 4, "8080"), set(edge, "cc", 5, "8080"), set(edge, "dd", 6, "80")}, nil},
		"one of a component's": {[]*gateway{at("aa", "a", 1, "6443, protocol: TLS"), at("bb", "b", 2, "6443, protocol: TLS")}, nil, []string{
			"aa/a 6443: is that of the API server", "bb/b 6443: is that of the API server"}},
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
		asks := portAsks{}
		for _, g := range test.gateways {
			asks.add(g, setsOf(g.Key()), objects{}.lookup)
		}
		d := asks.decide()
		if left := d.unknown(asks); len(left) > 0 {
			t.Errorf("%s: it is not known what was decided about %v", name, left)
		}
		for _, g := range test.gateways {
			taken, asked := d.taken[g.Key()], d.asked[g.Key()]
			for at, why := range taken {
				got = append(got, fmt.Sprintf("%s %d: %s", at.parent, at.port, strings.TrimPrefix(why.Message, fmt.Sprintf("Port %d of the nodes ", at.port))))
			}
			for port, by := range asked {
				got = append(got, fmt.Sprintf("%s %d has, asked for by %d: %s", g.Key(), port, by.n, by.first))
			}
			p := planner{taken: taken}
			plan := p.plan(g, setsOf(g.Key()), nil, objects{}.lookup)
			for _, l := range plan.listeners {
				if _, is := taken[portOf{l.Parent, l.Of.Port}]; is == l.Accepted.OK && !l.IsPort() && l.Of.Protocol != "example.com/x" {
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
	younger := at("dd", 3, "{name: a, port: 8080, protocol: HTTP}, {name: b, port: 8081, protocol: HTTP}, {name: c, port: 8082, protocol: HTTP}, {name: d, port: 10250, protocol: HTTP}")
	g := at("bb", 2, "{name: a, port: 8080, protocol: HTTP}, {name: b, port: 8081, protocol: HTTP}, {name: c, port: 8082, protocol: HTTP}, {name: d, port: 10250, protocol: HTTP}, {name: e, port: 8083, protocol: HTTP}")
	config := &envoyres.Object{}
	config.Namespace, config.Name, config.Spec.HostPorts = slim.MakeString("cc"), "cilium-ingress-cc-web", envoyres.HostPorts{8081}
	config.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Ingress"), Name: "web", Controller: true})
	c := &controller{
		gateways: localStore(t, older, g, younger), configs: localStore(t, config),
		classes: localStore(t, parse[class](t, "{metadata: {name: c}, spec: {controllerName: io.cilium/gateway-controller}}")),
	}
	c.Config.GatewayAPIHostNetworkEnabled = true
	another := &envoyres.Object{} // of an Ingress of the same namespace: Envoy would divide the connections of that, too
	another.Namespace, another.Name, another.Spec.HostPorts = slim.MakeString("bb"), "cilium-ingress-web", envoyres.HostPorts{8083}
	another.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Ingress"), Name: "web", Controller: true})
	c.configs = localStore(t, config, another)
	for joins, want := range map[bool]string{false: "[8080 8081 8083 10250], [8082]", true: "[10250], []"} {
		c.Config.GatewayAPIJoinNamespaces = joins
		taken, asked := c.takenPorts(g, knownSets{}, objects{}.lookup)
		var ports []int
		for at := range taken {
			ports = append(ports, int(at.port))
		}
		slices.Sort(ports)
		if got := fmt.Sprintf("%v, %v", ports, slices.Sorted(maps.Keys(asked))); got != want {
			t.Errorf("with the option %t it does not have, and others ask for: %s, want %s", joins, got, want)
		}
	}
}

// GW-55: a Gateway is asked for its ports by others in one sentence for each, beside what it does not have itself.
func TestNoticesOfPorts(t *testing.T) {
	g := slim.Key{Namespace: "aa", Name: "edge"}
	taken := takenPorts{
		{g, 8081}: unavailable("Port 8081 of the nodes is that of another"), {g, 80}: unavailable("Port 80 of the nodes is that of another"),
		{slim.Key{Namespace: "bb", Name: "ListenerSet/s"}, 90}: unavailable("its status says so"),
	}
	asked := askedPorts{8082: {"Gateway bb/a", 2}, 443: {"ListenerSet dd/s of the Gateway ee/edge", 1}}
	want := []envoyres.Notice{
		{Reason: "HostPortOfAnother", Message: "No listener is at a port that it asks for: Port 80 of the nodes is that of another"},
		{Reason: "HostPortOfAnother", Message: "No listener is at a port that it asks for: Port 8081 of the nodes is that of another"},
		{Reason: "HostOfThis", Message: "The ListenerSet dd/s of the Gateway ee/edge asks for port 443 of the nodes, which this one has, and does not get it: what asks here is older", ByOthers: true},
		{Reason: "HostOfThis", Message: "The Gateway bb/a and 1 more ask for port 8082 of the nodes, which this one has, and does not get it: what asks here is older", ByOthers: true},
	}
	if diff := cmp.Diff(want, portNotices(g, taken, asked)); diff != "" {
		t.Error(diff)
	}
}

// GW-55: what was decided about ports of the nodes is kept until something changes, and what is not known yet is decided about: no port is given unasked.
func TestDecisionOfPortsIsKept(t *testing.T) {
	at := func(namespace string, second int) *gateway {
		return parse[gateway](t, fmt.Sprintf("{metadata: {name: edge, namespace: %s, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {gatewayClassName: c, listeners: [{name: a, port: 8080, protocol: HTTP}]}}", namespace, second))
	}
	older, younger := at("aa", 1), at("bb", 2)
	c := &controller{
		gateways: localStore(t, older), configs: localStore[envoyres.Object](t),
		classes: localStore(t, parse[class](t, "{metadata: {name: c}, spec: {controllerName: io.cilium/gateway-controller}}")),
	}
	c.Config.GatewayAPIHostNetworkEnabled = true
	decision := func() *portDecision { return c.ports.decision(c, knownSets{}, objects{}.lookup) }
	before := decision()
	if decision() != before {
		t.Error("it is made anew without a change")
	}
	c.gateways = localStore(t, older, younger)
	if taken, _ := c.takenPorts(younger, knownSets{}, objects{}.lookup); len(taken) != 1 {
		t.Errorf("a Gateway that is new does not have %v", taken)
	}
	if now := decision(); now == before || len(now.asked[older.Key()]) != 1 {
		t.Errorf("a new Gateway asks for %v of the older one", now.asked)
	}
	before = decision()
	c.hostPortsChanged()
	if decision() == before {
		t.Error("it is kept after a change")
	}
}

// GW-55: a Gateway waits for a port that a younger one has yet to give up, and keeps one that both have.
func TestPortsThatYield(t *testing.T) {
	at := func(namespace string, second int) *gateway {
		return parse[gateway](t, fmt.Sprintf("{metadata: {name: edge, namespace: %s, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {gatewayClassName: c, listeners: [{name: a, port: 8080, protocol: HTTP}]}}", namespace, second))
	}
	config := func(namespace string, created int64) *envoyres.Object {
		o := &envoyres.Object{}
		o.Namespace, o.Name, o.CreationTimestamp, o.Spec.HostPorts = slim.MakeString(namespace), "cilium-gateway-edge", slim.Time(created), envoyres.HostPorts{8080}
		o.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Gateway"), Name: "edge", Controller: true})
		return o
	}
	ofName := func(name string, o *envoyres.Object) *envoyres.Object {
		o.Name = "cilium-gateway-" + name
		o.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Gateway"), Name: name, Controller: true})
		return o
	}
	older, younger := at("aa", 1), at("bb", 2)
	for name, test := range map[string]struct {
		configs []*envoyres.Object
		waits   bool
	}{
		"nothing is there":                           {nil, false},
		"the younger one has it yet":                 {[]*envoyres.Object{config("bb", 1)}, true},
		"both have it":                               {[]*envoyres.Object{config("bb", 1), config("aa", 2)}, false},
		"it has it alone":                            {[]*envoyres.Object{config("aa", 2)}, false},
		"one of its namespace that goes has it, too": {[]*envoyres.Object{ofName("gone", config("aa", 1)), config("aa", 2)}, false},
		"one of its namespace that goes has it":      {[]*envoyres.Object{ofName("gone", config("aa", 1))}, true},
		"one of another that goes has it, too":       {[]*envoyres.Object{ofName("gone", config("cc", 1)), config("aa", 2)}, true},
	} {
		c := &controller{
			gateways: localStore(t, older, younger), configs: localStore(t, test.configs...),
			classes: localStore(t, parse[class](t, "{metadata: {name: c}, spec: {controllerName: io.cilium/gateway-controller}}")),
		}
		c.Config.GatewayAPIHostNetworkEnabled = true
		if taken, _ := c.takenPorts(older, knownSets{}, objects{}.lookup); (len(taken) > 0) != test.waits {
			t.Errorf("%s: the older one does not have %v", name, taken)
		}
		if taken, _ := c.takenPorts(younger, knownSets{}, objects{}.lookup); len(taken) != 1 {
			t.Errorf("%s: the younger one does not have %v", name, taken)
		}
	}
}

// GW-55: a listener without its port of the nodes contradicts none that has it.
func TestListenersWithoutPortContradictNone(t *testing.T) {
	g := parse[gateway](t, "{metadata: {name: edge, namespace: infra, uid: g}, spec: {allowedListeners: {namespaces: {from: All}}, listeners: [{name: l, port: 80, protocol: HTTP}]}}")
	set := func(namespace string, second int, protocol string) *listenerSet {
		return parse[listenerSet](t, fmt.Sprintf(
			"{metadata: {name: s, namespace: %s, uid: set-%s, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRef: {name: edge, namespace: infra}, listeners: [{name: l, hostname: x.test, port: 8080, protocol: %s}]}}",
			namespace, namespace, second, protocol))
	}
	for _, protocol := range []string{"HTTP", "TLS"} {
		without, with := set("bb", 1, protocol), set("aa", 2, "HTTP")
		p := planner{taken: takenPorts{{without.id(), 8080}: unavailable("it is another's")}}
		plan := p.plan(g, []*listenerSet{without, with}, nil, objects{}.lookup)
		if l := plan.byParent[with.id()][0]; !l.Accepted.OK {
			t.Errorf("beside one of %s it is %+v", protocol, l.Accepted)
		}
		if l := plan.byParent[without.id()][0]; l.Accepted.Reason != "PortUnavailable" {
			t.Errorf("the one of %s is %+v", protocol, l.Accepted)
		}
	}
}
