// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// statusesOf is what a plan says in all statuses of a Gateway that has an address.
func statusesOf(p *gatewayPlan, g *gateway) (all []any) {
	now := metav1.NewTime(time.Unix(1, 0))
	r := p.result(g, outcome{addressless: true})
	var of gatewayv1.GatewayStatus
	p.applyStatus(&of, r, g.Generation, true, now)
	all = append(all, of)
	for _, s := range p.sets {
		var status gatewayv1.ListenerSetStatus
		s.applyStatus(&status, s.result(r), p.attached, true, now)
		all = append(all, s.of.Name, status)
	}
	return all
}

// setOf is a ListenerSet of the Gateway infra/edge; the number is its age.
func setOf(t testing.TB, name, namespace string, age int, listeners string) *listenerSet {
	t.Helper()
	return parse[listenerSet](t, fmt.Sprintf("{metadata: {name: %q, namespace: %s, uid: %q, generation: 1, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRef: {name: edge, namespace: infra}, listeners: %s}}",
		name, namespace, name, 59-age, listeners))
}

func edgeOf(t testing.TB, allowed, listeners string) *gateway {
	t.Helper()
	return parse[gateway](t, fmt.Sprintf("{metadata: {name: edge, namespace: infra, uid: g, generation: 1}, spec: {allowedListeners: {namespaces: %s}, listeners: %s}}", allowed, listeners))
}

// summary is the status of a Gateway and of its ListenerSets in a few words.
func summary(p *gatewayPlan, g *gateway) string {
	r := p.result(g, outcome{addressless: true})
	all := []string{fmt.Sprintf("%d sets", p.attachedSets(r))}
	say := func(listeners []*listener.Listener) (text string) {
		for _, l := range listeners {
			text += fmt.Sprintf(" %s:%s", l.Of.Name, l.Programmed().Reason)
		}
		return text
	}
	all = append(all, "edge"+say(p.own))
	for _, s := range p.sets {
		of := s.result(r)
		all = append(all, fmt.Sprintf("%s %t %s, %t %s%s", s.of.Name, of.accepted.OK, of.accepted.Reason, of.programmed.OK, of.programmed.Reason, say(s.listeners)))
	}
	return strings.Join(all, "; ")
}

// GW-40 to GW-42, GW-44, GW-E25, GW-E26: which ListenerSets a Gateway takes, whose listener stays, and what the statuses say.
func TestListenerSets(t *testing.T) {
	c := objects{
		namespaces: map[string]slim.Labels{"infra": {}, "shop": slim.MakeLabels(map[string]string{"team": "a"})},
		secrets:    map[slim.Key]bool{{Namespace: "infra", Name: "cert"}: true, {Namespace: "shop", Name: "cert"}: true},
		grants:     map[string]bool{"Gateway shop>infra": true},
	}
	const plain, other = "[{name: a, port: 80, protocol: HTTP, hostname: a.com}]", "[{name: b, port: 80, protocol: HTTP, hostname: b.com}]"
	selector := "{from: Selector, selector: {matchLabels: {team: a}}}"
	for _, test := range []struct {
		allowed, listeners string
		sets               []*listenerSet
		want               string
	}{
		{"{}", plain, []*listenerSet{setOf(t, "x", "infra", 1, other)}, "0 sets; edge a:Programmed; x false NotAllowed, false NotAllowed"},
		{"{from: None}", plain, []*listenerSet{setOf(t, "x", "infra", 1, other)}, "0 sets; edge a:Programmed; x false NotAllowed, false NotAllowed"},
		{
			"{from: Same}", plain, []*listenerSet{setOf(t, "x", "infra", 1, other), setOf(t, "y", "shop", 2, other)},
			"1 sets; edge a:Programmed; y false NotAllowed, false NotAllowed; x true Accepted, true Programmed b:Programmed",
		},
		{
			selector, plain, []*listenerSet{setOf(t, "x", "infra", 1, other), setOf(t, "y", "shop", 1, other)},
			"1 sets; edge a:Programmed; x false NotAllowed, false NotAllowed; y true Accepted, true Programmed b:Programmed",
		},
		{ // the older one stays, then the one whose name is first
			"{from: All}", plain, []*listenerSet{setOf(t, "x", "infra", 1, other), setOf(t, "y", "shop", 1, other), setOf(t, "z", "shop", 2, other)},
			"1 sets; edge a:Programmed; z true Accepted, true Programmed b:Programmed; " +
				"x false ListenersNotValid, false ListenersNotValid b:HostnameConflict; y false ListenersNotValid, false ListenersNotValid b:HostnameConflict",
		},
		{ // what is not accepted takes nothing from others
			"{from: All}", plain, []*listenerSet{
				setOf(t, "x", "shop", 2, "[{name: x, port: 80, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}, {name: c, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]"),
				setOf(t, "y", "shop", 1, other),
			},
			"2 sets; edge a:Programmed; x true ListenersNotValid, true Programmed x:ProtocolConflict c:Programmed; y true Accepted, true Programmed b:Programmed",
		},
		{ // TCP, which is not served, takes no port from others
			"{from: All}", plain, []*listenerSet{setOf(t, "x", "shop", 1, "[{name: x, port: 80, protocol: TCP}, {name: b, port: 80, protocol: HTTP, hostname: b.com}, {name: z, port: 81, protocol: TCP}, {name: u, port: 80, protocol: UDP}]")},
			"1 sets; edge a:Programmed; x true ListenersNotValid, true Programmed x:ProtocolConflict b:Programmed z:Invalid u:Invalid",
		},
		{ // of one object neither stays (GW-10), and others may
			"{from: All}", "[{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: TLS, tls: {mode: Passthrough}}, {name: c, port: 81, protocol: HTTP}]",
			[]*listenerSet{setOf(t, "x", "shop", 1, other)},
			"1 sets; edge a:ProtocolConflict b:ProtocolConflict c:Programmed; x true Accepted, true Programmed b:Programmed",
		},
		{ // a grant for Gateways is none for ListenerSets
			"{from: All}", plain, []*listenerSet{setOf(t, "x", "shop", 1, "[{name: x, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert, namespace: infra}]}}]")},
			"0 sets; edge a:Programmed; x false ListenersNotValid, false ListenersNotValid x:Invalid",
		},
		{
			"{from: All}", plain, []*listenerSet{setOf(t, "x", "shop", 1, "[{name: x, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]")},
			"1 sets; edge a:Programmed; x true Accepted, true Programmed x:Programmed",
		},
		{
			"{from: All}", "[{name: a, port: 80, protocol: TCP}]", []*listenerSet{setOf(t, "x", "shop", 1, other)},
			"0 sets; edge a:Invalid; x false ParentNotAccepted, false ParentNotProgrammed b:Programmed",
		},
		{
			"{from: All}", "[{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: none}]}}]", []*listenerSet{setOf(t, "x", "shop", 1, other)},
			"1 sets; edge a:Invalid; x true Accepted, false ParentNotProgrammed b:Programmed",
		},
	} {
		g := edgeOf(t, test.allowed, test.listeners)
		slices.Reverse(test.sets)
		if got := summary(new(planner).plan(g, test.sets, nil, c.lookup), g); got != test.want {
			t.Errorf("%s %s:\n got %s\nwant %s", test.allowed, test.listeners, got, test.want)
		}
	}
}

// GW-42: a status is ours by its message, and reset once.
func TestResetStatus(t *testing.T) {
	g := edgeOf(t, "{from: All}", "[{name: a, port: 80, protocol: HTTP}]")
	p := new(planner).plan(g, []*listenerSet{setOf(t, "x", "infra", 1, "[{name: b, port: 81, protocol: HTTP}]")}, nil, objects{}.lookup)
	now := metav1.Now()
	status := gatewayv1.ListenerSetStatus{Conditions: []metav1.Condition{{Type: "Accepted", Message: "another's"}, {Type: "Other"}}}
	if resetStatus(&status, "why", now) {
		t.Error("the status of another controller was reset")
	}
	r := p.sets[0].result(p.result(g, outcome{addressless: true}))
	if !p.sets[0].applyStatus(&status, r, p.attached, true, now) || p.sets[0].applyStatus(&status, r, p.attached, true, metav1.NewTime(now.Add(time.Hour))) {
		t.Errorf("it is not written once: %v", status)
	}
	if !resetStatus(&status, "why", now) || len(status.Listeners) != 0 || len(status.Conditions) != 3 || says(status.Conditions, "Accepted") != "Unknown Pending: why" || resetStatus(&status, "why", now) {
		t.Errorf("%v", status)
	}
}

// GW-43, GW-E27: a route is attached to what its reference names alone, and its namespace is compared with that of the ListenerSet.
func TestRoutesOfListenerSets(t *testing.T) {
	g := edgeOf(t, "{from: All}", "[{name: own, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]")
	set := setOf(t, "x", "shop", 1, "[{name: a, port: 81, protocol: HTTP}, {name: b, port: 82, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]")
	closed := setOf(t, "closed", "shop", 1, "[{name: a, port: 83, protocol: HTTP}]")
	closed.Spec.ParentRef.Name = "elsewhere"
	p := parents{
		gateway: func(key slim.Key) (*gateway, bool, bool) {
			if key.Name == "edge" {
				return g, true, true
			}
			return parse[gateway](t, "{metadata: {name: elsewhere, namespace: infra}, spec: {listeners: []}}"), true, true
		},
		listenerSet: func(key slim.Key) (*listenerSet, bool) {
			return map[slim.Key]*listenerSet{set.Key(): set, closed.Key(): closed}[key], key.Name != "hidden"
		},
	}
	for _, test := range []struct{ namespace, ref, want, at string }{
		{"shop", "{kind: ListenerSet, name: x}", "Accepted", "a b"},
		{"infra", "{kind: ListenerSet, name: x, namespace: shop}", "Accepted", "b"},
		{"infra", "{kind: ListenerSet, name: x, namespace: shop, sectionName: a}", "NotAllowedByListeners", ""},
		{"shop", "{kind: ListenerSet, name: x, port: 82}", "Accepted", "b"},
		{"shop", "{kind: ListenerSet, name: x, sectionName: own}", "NoMatchingParent", ""},
		{"infra", "{name: edge}", "Accepted", "own"},
		{"infra", "{name: edge, sectionName: a}", "NoMatchingParent", ""},
		{"shop", "{kind: ListenerSet, name: closed}", "NoMatchingParent", ""},
		{"shop", "{kind: ListenerSet, name: none}", "", ""},
		{"shop", "{kind: ListenerSet, name: hidden}", "kept", ""},
	} {
		r := parse[route.HTTP](t, fmt.Sprintf("{metadata: {name: r, namespace: %s, generation: 1}, spec: {parentRefs: [%s], rules: [{}]}}", test.namespace, test.ref)).Route()
		got := ""
		for _, result := range p.results(r, objects{}.lookup) {
			if got = result.accepted.Reason; result.kept {
				got = "kept"
			}
		}
		plan, at := new(planner).plan(g, []*listenerSet{set}, []*route.Route{r}, objects{}.lookup), []string{}
		for _, l := range plan.listeners {
			if plan.attached[l] > 0 {
				at = append(at, string(l.Of.Name))
			}
		}
		if got != test.want || strings.Join(at, " ") != test.at {
			t.Errorf("%s %s: %s at %q, want %s at %q", test.namespace, test.ref, got, at, test.want, test.at)
		}
	}
	r := parse[route.HTTP](t, `{metadata: {name: r, namespace: shop}, spec: {parentRefs: [{kind: ListenerSet, name: none}]}, status: {parents: [{controllerName: io.cilium/gateway-controller, parentRef: {kind: ListenerSet, name: none}}]}}`).Route()
	if all := p.results(r, objects{}.lookup); len(all) != 1 || all[0].accepted.Message != `ListenerSet "none" does not exist` {
		t.Errorf("%v", all)
	}
}

// GW-27: a ListenerSet that comes, changes or goes has no other routes planned than those whose listeners or host names change.
func TestListenerSetsPlanWhatTheyTouch(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "infra", Name: "s1"}: true}}
	g := edgeOf(t, "{from: All}", `[{name: own, port: 80, protocol: HTTP, hostname: "*.own.com"}]`)
	x, y := setOf(t, "x", "infra", 2, "[{name: l, port: 80, protocol: HTTP, hostname: x.com}]"), setOf(t, "y", "infra", 1, "[{name: l, port: 80, protocol: HTTP, hostname: y.com}]")
	var routes []*route.Route
	for _, ref := range []string{"{name: edge}", "{kind: ListenerSet, name: x}", "{kind: ListenerSet, name: 'y'}"} {
		routes = append(routes, parse[route.HTTP](t, fmt.Sprintf("{metadata: {name: r%d, namespace: infra, generation: 1}, spec: {parentRefs: [%s], rules: [{backendRefs: [{name: s1, port: 80}]}]}}", len(routes), ref)).Route())
	}
	var p planner
	planned := func() (all [3]*plannedRoute) {
		for i, r := range routes {
			all[i] = p.routes[r.ID()]
		}
		return all
	}
	step := func(what string, sets []*listenerSet, again ...int) {
		t.Helper()
		before := planned()
		p.plan(g, sets, routes, c.lookup)
		for i, now := range planned() {
			if (now != before[i]) != slices.Contains(again, i) {
				t.Errorf("%s: the route %d is planned again: %t", what, i, now != before[i])
			}
		}
	}
	step("at first", []*listenerSet{x}, 0, 1, 2)
	step("nothing has changed", []*listenerSet{x})
	step("another ListenerSet comes", []*listenerSet{x, y}, 2)
	changed := setOf(t, "y", "infra", 1, "[{name: l, port: 80, protocol: HTTP, hostname: x.com}]")
	changed.Generation = 2
	step("it has a conflict now", []*listenerSet{x, changed}, 2)
	step("what it conflicts with goes", []*listenerSet{changed}, 1, 2)
	narrow := setOf(t, "z", "infra", 1, "[{name: l, port: 80, protocol: HTTP, hostname: a.own.com}]")
	step("one that has no host name of a route", []*listenerSet{changed, narrow})
}

// GW-E30: a Secret, a Gateway, a ReferenceGrant, a ListenerSet and a route that come in any order end in the same bytes.
func TestOrdersOfArrival(t *testing.T) {
	var first []byte
	for n, order := range permutations(5) {
		c := objects{services: map[slim.Key]bool{{Namespace: "shop", Name: "s1"}: true}, secrets: map[slim.Key]bool{}, grants: map[string]bool{}}
		var g *gateway
		var sets []*listenerSet
		var routes []*route.Route
		arrive := []func(){
			func() { c.secrets[slim.Key{Namespace: "certs", Name: "cert"}] = true },
			func() {
				g = edgeOf(t, "{from: All}", "[{name: own, port: 443, protocol: HTTPS, hostname: own.com, tls: {certificateRefs: [{name: cert, namespace: certs}]}}]")
			},
			func() { c.grants["ListenerSet shop>certs"] = true },
			func() {
				sets = append(sets, setOf(t, "x", "shop", 1, "[{name: x, port: 443, protocol: HTTPS, hostname: x.com, tls: {certificateRefs: [{name: cert, namespace: certs}]}}, {name: yy, port: 81, protocol: HTTP}]"))
			},
			func() {
				routes = append(routes, parse[route.HTTP](t, "{metadata: {name: r, namespace: shop, generation: 1}, spec: {parentRefs: [{name: edge, namespace: infra}, {kind: ListenerSet, name: x}], rules: [{backendRefs: [{name: s1, port: 80}]}]}}").Route())
			},
		}
		var p planner
		var translator envoy.Translator
		options := envoy.Options{Service: envoy.Name{Namespace: "infra", Name: "s"}, SecretsNamespace: "secrets", FirstWins: true, PortHosts: true}
		var text []byte
		for _, i := range order {
			if arrive[i](); g == nil {
				continue
			}
			plan := p.plan(g, sets, routes, c.lookup)
			result, err := translator.Translate(plan.model, options)
			if err != nil {
				t.Fatal(err)
			}
			if text, err = json.MarshalIndent([]any{result.Spec, statusesOf(plan, g), listener.PortsOf(plan.listeners)}, "", " "); err != nil {
				t.Fatal(err)
			}
		}
		if n == 0 {
			first = text
		}
		if diff := cmp.Diff(string(first), string(text)); diff != "" {
			t.Fatalf("in the order %v: %s", order, diff)
		}
	}
	if !strings.Contains(string(first), "secrets/certs-cert") || !strings.Contains(string(first), "shop:s1:80") {
		t.Errorf("not all is served: %s", first)
	}
}

// permutations are all orders of the numbers below n.
func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, rest := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(rest), at, n-1))
		}
	}
	return all
}
