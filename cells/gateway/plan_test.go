// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// objects is what lookups are about: Services with port 80, namespaces by their labels, grants, secrets.
type objects struct {
	services   map[slim.Key]bool
	namespaces map[string]slim.Labels
	grants     map[string]bool // FROM>TO of namespaces, or KIND FROM>TO of a kind
	secrets    map[slim.Key]bool
	tls        map[slim.Key]route.Answer // of Services
}

func (c objects) lookup(q route.Query) route.Answer {
	switch q.About {
	case route.AboutPort:
		return route.Answer{Exists: c.services[q.Key], OK: c.services[q.Key] && q.Port == 80}
	case route.AboutNamespace:
		l, exists := c.namespaces[q.Key.Name]
		return route.Answer{Exists: exists, Labels: l}
	case route.AboutGrant:
		way := q.FromNamespace + ">" + q.Key.Namespace
		return route.Answer{Exists: c.grants[way] || c.grants[q.FromKind+" "+way]}
	case route.AboutSecret:
		return route.Answer{Exists: true, OK: c.secrets[q.Key]}
	case route.AboutTLS:
		return c.tls[q.Key]
	}
	return route.Answer{NoCRD: true}
}

func parse[T any](t testing.TB, text string) *T {
	t.Helper()
	obj := new(T)
	if err := yaml.Unmarshal([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// GW-23: the requests of a rule that is left out are answered with 500, and not by a broader rule, or by that of another route of the host;
// also where no rule is left, so that the route is not accepted.
func TestDroppedRulesAreClosed(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "shop", Name: "v1"}: true}}
	g := parse[gateway](t, "{metadata: {name: edge, namespace: shop, uid: g}, spec: {listeners: [{name: a, port: 80, protocol: HTTP}]}}")
	web := parse[route.HTTP](t, "{metadata: {name: web, namespace: shop, uid: web}, spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: v1, port: 80}]}]}}")
	for name, rule := range map[string]string{
		"authentication": "filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: v1, port: 80}}}], ",
		"sessions":       "sessionPersistence: {sessionName: x}, ",
		"a header":       "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: Host, value: x}]}}], ",
	} {
		admin := parse[route.HTTP](t, "{metadata: {name: admin, namespace: shop, uid: admin}, spec: {parentRefs: [{name: edge}], rules: [{"+rule+
			"matches: [{path: {value: /admin}}], backendRefs: [{name: v1, port: 80}]}]}}")
		plan := new(planner).plan(g, nil, []*route.Route{web.Route(), admin.Route()}, c.lookup)
		t.Run(name, func(t *testing.T) {
			tr, err := new(envoy.Translator).Translate(plan.model, envoy.Options{Service: envoy.Name{Namespace: "shop", Name: "x"}, FirstWins: true})
			if err != nil {
				t.Fatal(err)
			}
			config, err := envoytest.Verify(tr.Spec)
			if err != nil {
				t.Fatal(err)
			}
			routes := config.Tables["listener-insecure"].VirtualHosts[0].Routes
			if len(routes) != 2 || routes[0].Match.GetPathSeparatedPrefix() != "/admin" || routes[0].GetDirectResponse().GetStatus() != 500 {
				t.Errorf("%v", routes)
			}
			if plan.attached[plan.own[0]] != 1 {
				t.Errorf("%d routes are attached, the one that is not accepted among them", plan.attached[plan.own[0]])
			}
		})
	}
}

// GW-23: a route that is left out because Envoy would not accept its only match keeps its host: no wider name serves it.
func TestRouteWithoutMatchesKeepsItsHost(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "shop", Name: "v1"}: true}}
	g := parse[gateway](t, "{metadata: {name: edge, namespace: shop, uid: g}, spec: {listeners: [{name: a, port: 80, protocol: HTTP}]}}")
	wide := parse[route.HTTP](t, `{metadata: {name: wide, namespace: shop, uid: wide}, spec: {parentRefs: [{name: edge}], hostnames: ["*.foo.com"], rules: [{backendRefs: [{name: v1, port: 80}]}]}}`)
	bad := parse[route.HTTP](t, `{metadata: {name: bad, namespace: shop, uid: bad}, spec: {parentRefs: [{name: edge}], hostnames: [a.foo.com], rules: [
{matches: [{path: {type: RegularExpression, value: "/(?=x)"}}], backendRefs: [{name: v1, port: 80}]}]}}`)
	plan := new(planner).plan(g, nil, []*route.Route{wide.Route(), bad.Route()}, c.lookup)
	tr, err := new(envoy.Translator).Translate(plan.model, envoy.Options{Service: envoy.Name{Namespace: "shop", Name: "x"}, FirstWins: true})
	if err != nil {
		t.Fatal(err)
	}
	config, err := envoytest.Verify(tr.Spec)
	if err != nil {
		t.Fatal(err)
	}
	routes := map[string]int{}
	for _, v := range config.Tables["listener-insecure"].VirtualHosts {
		routes[v.Domains[0]] = len(v.Routes)
	}
	if n, exists := routes["a.foo.com"]; !exists || n != 0 || routes["*.foo.com"] != 1 {
		t.Errorf("routes by host: %v", routes)
	}
}

// Number 46 of the contract's gateway-api.md: source ranges that were denied, and are allowed now, are not left denied.
func TestSourceRanges(t *testing.T) {
	s := &corev1.Service{}
	for _, step := range []struct{ policy, want string }{{"Deny", "deny"}, {"Deny", "deny"}, {"Allow", ""}, {"", ""}} {
		desiredService{config: serviceConfig{LoadBalancerSourceRangesPolicy: step.policy}}.setRangesPolicy(s, nil)
		if got := s.Annotations[sourceRangesAnnotation]; got != step.want {
			t.Errorf("%s: %q", step.policy, got)
		}
	}
	s.Annotations[sourceRangesAnnotation] = "Deny" // as the original writes it
	desiredService{config: serviceConfig{LoadBalancerSourceRangesPolicy: "Deny"}}.setRangesPolicy(s, nil)
	if got := s.Annotations[sourceRangesAnnotation]; got != "Deny" {
		t.Errorf("the same meaning is written again: %q", got)
	}
}

// GW-16 and GW-20: entries of others stay, ours of other parents go, and equal ones are not written.
func TestMergeParents(t *testing.T) {
	now := metav1.Now()
	ok := condition.True("Accepted", "Accepted")
	ref := func(name string) gatewayv1.ParentReference {
		return gatewayv1.ParentReference{Name: gatewayv1.ObjectName(name)}
	}
	has := []gatewayv1.RouteParentStatus{{ParentRef: ref("a"), ControllerName: "other"}, {ParentRef: ref("gone"), ControllerName: controllerName}, {ParentRef: ref("kept"), ControllerName: controllerName}}
	results := []parentResult{{ref: ref("kept"), kept: true}, {ref: ref("a"), accepted: ok, resolved: ok}}
	merged, changed := mergeParents(has, results, 1, now)
	if !changed || len(merged) != 3 || merged[0].ControllerName != "other" || merged[1].ParentRef.Name != "kept" || len(merged[1].Conditions) != 0 || len(merged[2].Conditions) != 2 {
		t.Errorf("%t %v", changed, merged)
	}
	if again, changed := mergeParents(merged, results, 1, metav1.NewTime(now.Add(time.Hour))); changed || !cmp.Equal(again, merged) {
		t.Errorf("written again: %v", again)
	}
	if _, changed := mergeParents(merged, results, 2, now); !changed {
		t.Error("the generation does not count")
	}
}

// Random Gateways, ListenerSets and routes: what a planner keeps is what a new one plans, all that is written is valid, and a
// route changes no host names but its own.
func TestRandomPlans(t *testing.T) {
	r := rand.New(rand.NewPCG(seedtest.Seed(t), 0))
	c := objects{
		services: map[slim.Key]bool{}, grants: map[string]bool{}, secrets: map[slim.Key]bool{}, tls: map[slim.Key]route.Answer{},
		namespaces: map[string]slim.Labels{"infra": {}, "shop": {}},
	}
	hosts := []string{"", "a.example.com", "*.example.com", "b.example.com", "*.b.example.com"}
	protocols := []string{
		"port: 80, protocol: HTTP", "port: 81, protocol: HTTP", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}",
		"port: 443, protocol: TLS, tls: {mode: Passthrough}", "port: 443, protocol: TLS, tls: {certificateRefs: [{name: cert}]}",
		"port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}", "port: 8443, protocol: TLS, tls: {mode: Passthrough}",
	}
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	listeners := func() string {
		var all []string
		for i := range 1 + r.IntN(4) {
			all = append(all, fmt.Sprintf("{name: l%d, %s, hostname: %q, allowedRoutes: {namespaces: {from: %s}}}", i, pick(protocols...), pick(hosts...), pick("All", "Same", "All")))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	generation := int64(0)
	newRoute := func(i int) *route.Route {
		generation++
		section := pick("", "", "", ", sectionName: l0", ", port: 80")
		parent := pick("name: edge, namespace: infra", "kind: ListenerSet, name: ls0, namespace: infra", "kind: ListenerSet, name: ls1, namespace: shop")
		other := pick("", "", ", {name: edge, namespace: infra}", ", {kind: ListenerSet, name: ls1, namespace: shop}")
		head := fmt.Sprintf("metadata: {name: r%d, namespace: %s, generation: %d}", i, pick("infra", "shop"), generation)
		spec := fmt.Sprintf("parentRefs: [{%s%s}%s], hostnames: [%q]", parent, section, other, pick(hosts[1:]...))
		backend := fmt.Sprintf("{name: %s, namespace: %s, port: 80}", pick("s1", "s2"), pick("infra", "shop"))
		switch r.IntN(5) {
		case 0:
			return parse[route.GRPC](t, fmt.Sprintf("{%s, spec: {%s, rules: [{matches: [{method: {service: %s}}], backendRefs: [%s]}]}}", head, spec, pick("a", "b"), backend)).Route()
		case 1:
			return parse[route.TLS](t, fmt.Sprintf("{%s, spec: {%s, rules: [{backendRefs: [%s]}]}}", head, spec, backend)).Route()
		}
		return parse[route.HTTP](t, fmt.Sprintf("{%s, spec: {%s, rules: [{matches: [{path: {type: %s, value: %s}}], backendRefs: [%s]}]}}", head, spec, pick("PathPrefix", "Exact", "RegularExpression"), pick("/", "/a", "/a/b"), backend)).Route()
	}
	newGateway := func(generation int) *gateway {
		allowed := pick("{from: All}", "{from: Same}", "{from: Selector, selector: {matchLabels: {team: a}}}", "{from: None}", "{from: All}")
		return parse[gateway](t, fmt.Sprintf("{metadata: {name: edge, namespace: infra, generation: %d}, spec: {allowedListeners: {namespaces: %s}, listeners: %s}}", generation, allowed, listeners()))
	}
	newSet := func(i int) *listenerSet {
		generation++
		return parse[listenerSet](t, fmt.Sprintf("{metadata: {name: ls%d, namespace: %s, generation: %d, creationTimestamp: %q}, spec: {parentRef: {name: edge, namespace: infra}, listeners: %s}}",
			i, []string{"infra", "shop"}[i%2], generation, pick("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"), listeners()))
	}
	g := newGateway(1)
	sets := []*listenerSet{newSet(0), newSet(1), newSet(2)}
	routes := make([]*route.Route, 8)
	for i := range routes {
		routes[i] = newRoute(i)
	}
	kept := planner{cache: route.NewCache(func(slim.Key) bool { return true })}
	var translator envoy.Translator
	options := envoy.Options{Service: envoy.Name{Namespace: "infra", Name: "s"}, SecretsNamespace: "x", FirstWins: true, PortHosts: true}
	steps := 120
	if seedtest.Soak() {
		steps = 4000
	}
	for n := range steps {
		switch r.IntN(13) {
		case 7:
			key := slim.Key{Namespace: pick("infra", "shop"), Name: pick("s1", "s2")}
			tls := &envoy.UpstreamTLS{ServerName: pick("a.example.com", "b.example.com"), Authority: envoy.Name{Namespace: key.Namespace, Name: "ca"}}
			c.tls[key] = []route.Answer{{}, {Exists: true}, {Exists: true, OK: true, TLS: tls}}[r.IntN(3)]
		case 0:
			g = newGateway(n + 2)
		case 1:
			key := slim.Key{Namespace: pick("infra", "shop"), Name: pick("s1", "s2")}
			c.services[key] = !c.services[key]
		case 2:
			grant := pick("infra>shop", "shop>infra")
			c.grants[grant] = !c.grants[grant]
		case 3:
			key := slim.Key{Namespace: pick("infra", "shop"), Name: "cert"}
			c.secrets[key] = !c.secrets[key]
		case 4, 5:
			i := r.IntN(len(sets))
			sets[i] = newSet(i)
		case 6:
			c.namespaces[pick("infra", "shop")] = slim.MakeLabels(map[string]string{"team": pick("a", "b")})
		default:
			i := r.IntN(len(routes))
			routes[i] = newRoute(i)
		}
		shuffled := slices.Clone(routes)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		some := slices.Clone(sets)
		r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		some = some[:len(some)-r.IntN(2)]
		one := r.IntN(8) == 0 != kept.oneListener
		kept.oneListener, options.PerPort = one, !one
		if r.IntN(8) == 0 {
			kept.most = r.IntN(12)
		}
		if r.IntN(2) == 0 { // a status asks before the plan, or after it
			checkDropped(t, kept.cache, routes, c.lookup)
		}
		keptPlan, newPlan := kept.plan(g, some, shuffled, c.lookup), (&planner{oneListener: one, most: kept.most}).plan(g, some, routes, c.lookup)
		for _, r := range routes {
			names := 0
			for _, h := range newPlan.hostsOf(r, c.lookup) {
				names += len(h.Names)
			}
			if places := newPlan.places(r, c.lookup); places < names {
				t.Fatalf("step %d: %s has %d host names, %d were counted", n, r.ID(), names, places)
			}
		}
		if diff := cmp.Diff(crowded(newPlan), crowded(keptPlan)); diff != "" {
			t.Fatalf("step %d: what is out of what was kept differs: %s", n, diff)
		}
		checkDropped(t, kept.cache, routes, c.lookup)
		got, err := translator.Translate(keptPlan.model, options)
		if err != nil {
			t.Fatal(err)
		}
		want, err := new(envoy.Translator).Translate(newPlan.model, options)
		if err != nil {
			t.Fatal(err)
		}
		if len(want.Problems) > 0 { // GW-23: a status would not say so
			t.Fatalf("step %d: the translation leaves something out: %v", n, want.Problems)
		}
		if diff := cmp.Diff(refusedBy(newPlan), refusedBy(keptPlan)); diff != "" {
			t.Fatalf("step %d: what is refused of what was kept differs: %s", n, diff)
		}
		if diff := cmp.Diff(statusesOf(newPlan, g), statusesOf(keptPlan, g)); diff != "" {
			t.Fatalf("step %d: the statuses of what was kept differ: %s", n, diff)
		}
		if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
			t.Fatalf("step %d: what was kept differs: %s", n, diff)
		}
		if got.Empty {
			continue
		}
		written, err := envoytest.Verify(got.Spec)
		if err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		for name := range written.Clusters {
			parts := strings.Split(name, ":")
			if !c.services[slim.Key{Namespace: parts[0], Name: parts[1]}] {
				t.Fatalf("step %d: a cluster of a Service that does not exist: %s", n, name)
			}
			if is := c.tls[slim.Key{Namespace: parts[0], Name: parts[1]}]; len(parts) == 4 && !is.OK {
				t.Fatalf("step %d: a cluster with TLS that no policy asks for: %s", n, name)
			}
		}
		for _, table := range written.Tables {
			for _, v := range table.VirtualHosts {
				for _, r := range v.Routes {
					parts := strings.Split(r.GetRoute().GetCluster(), ":")
					if len(parts) == 3 && c.tls[slim.Key{Namespace: parts[0], Name: parts[1]}].Exists {
						t.Fatalf("step %d: %s is spoken to without TLS against its policy", n, r.GetRoute().GetCluster())
					}
				}
			}
		}
	}
}

// crowded are the ids of routes that are not attached since they have too many places.
func crowded(p *gatewayPlan) map[slim.Key]bool {
	ids := map[slim.Key]bool{}
	for id := range p.crowd {
		ids[id] = true
	}
	return ids
}

// checkDropped checks what a cache has for the statuses of routes.
func checkDropped(t *testing.T, cache *route.Cache, routes []*route.Route, lookup route.Lookup) {
	t.Helper()
	for _, r := range routes {
		if diff := cmp.Diff(route.Compile(r, lookup.WithoutPolicies()).Dropped, cache.Dropped(r, lookup).Dropped); diff != "" {
			t.Fatalf("%s: %s", r.ID(), diff)
		}
	}
}

// GW-32, GW-E16: a listener has the routes that are attached to it, whatever other ports have for its host name.
func TestPorts(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "infra", Name: "s1"}: true, {Namespace: "infra", Name: "s2"}: true}}
	g := parse[gateway](t, `{metadata: {name: edge, namespace: infra, generation: 1}, spec: {listeners: [
		{name: a, port: 80, protocol: HTTP, hostname: foo.com}, {name: b, port: 8080, protocol: HTTP, hostname: foo.com}, {name: c, port: 8080, protocol: HTTP, hostname: bar.com}]}}`)
	routeAt := func(port, backend string) *route.Route {
		return parse[route.HTTP](t, fmt.Sprintf(`{metadata: {name: at-%s, namespace: infra}, spec: {parentRefs: [{name: edge, %s}], rules: [{backendRefs: [{name: %s, port: 80}]}]}}`, backend, port, backend)).Route()
	}
	plan := new(planner).plan(g, nil, []*route.Route{routeAt("port: 80", "s1"), routeAt("sectionName: b", "s2")}, c.lookup)
	result, err := new(envoy.Translator).Translate(plan.model, envoy.Options{Service: envoy.Name{Namespace: "infra", Name: "s"}, FirstWins: true, PortHosts: true})
	if err != nil {
		t.Fatal(err)
	}
	written, err := envoytest.Verify(result.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range written.Tables["listener-insecure"].VirtualHosts {
		line := v.Name
		for _, r := range v.Routes {
			line += " " + r.GetRoute().GetCluster()
		}
		got = append(got, line)
	}
	if diff := cmp.Diff([]string{"bar.com:8080", "foo.com infra:s1:80", "foo.com:8080 infra:s2:80"}, got); diff != "" {
		t.Error(diff)
	}
}

// GW-33: parameters of a Gateway are not supported, whatever they are.
func TestParametersOfGateways(t *testing.T) {
	g := parse[gateway](t, `{metadata: {name: edge, namespace: infra, generation: 1}, spec: {listeners: [{name: a, port: 80, protocol: HTTP}], infrastructure: {parametersRef: {group: x, kind: Y, name: z}}}}`)
	r := new(planner).plan(g, nil, nil, objects{}.lookup).result(g, outcome{})
	if r.accepted.OK || r.accepted.Reason != string(gatewayv1.GatewayReasonInvalidParameters) || r.programmed.OK {
		t.Errorf("%+v", r)
	}
}
