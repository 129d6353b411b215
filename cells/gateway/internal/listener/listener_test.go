// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package listener

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// objects is what lookups are about: namespaces by their labels, and secrets. Nothing is granted.
type objects struct {
	namespaces map[string]slim.Labels
	secrets    map[slim.Key]bool
}

func (c objects) lookup(q route.Query) route.Answer {
	switch q.About {
	case route.AboutNamespace:
		l, exists := c.namespaces[q.Key.Name]
		return route.Answer{Exists: exists, Labels: l}
	case route.AboutSecret:
		return route.Answer{Exists: true, OK: c.secrets[q.Key]}
	}
	return route.Answer{}
}

func parse[T any](t testing.TB, text string) *T {
	t.Helper()
	obj := new(T)
	if err := yaml.Unmarshal([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// parentOf is the Gateway infra/edge with listeners.
func parentOf(t testing.TB, listeners string) Parent {
	t.Helper()
	meta := &route.ObjectMeta{}
	meta.Namespace, meta.Name = slim.MakeString("infra"), "edge"
	return Parent{ObjectMeta: meta, Kind: route.KindGateway, Listeners: *parse[[]gatewayv1.Listener](t, listeners)}
}

func listenersOf(t testing.TB, c objects, text string) []*Listener {
	t.Helper()
	return Plan(parentOf(t, text), c.lookup)
}

// GW-7 to GW-11, GW-E17: what is said of listeners.
func TestPlanListeners(t *testing.T) {
	c := objects{secrets: map[slim.Key]bool{{Namespace: "infra", Name: "cert"}: true, {Namespace: "other", Name: "cert"}: true}}
	for text, want := range map[string]string{
		`[{name: a, port: 80, protocol: HTTP}]`:                                                             "a HTTPRoute,GRPCRoute Accepted ResolvedRefs true",
		`[{name: a, port: 80, protocol: TCP}]`:                                                              "a  UnsupportedProtocol ResolvedRefs false",
		`[{name: a, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}, {kind: X}]}}]`:     "a HTTPRoute Accepted InvalidRouteKinds true",
		`[{name: a, port: 443, protocol: HTTPS}]`:                                                           "a HTTPRoute,GRPCRoute Accepted InvalidCertificateRef false",
		`[{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]`:                   "a HTTPRoute,GRPCRoute Accepted ResolvedRefs true",
		`[{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert, kind: ConfigMap}]}}]`:  "a HTTPRoute,GRPCRoute Accepted InvalidCertificateRef false",
		`[{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert, namespace: other}]}}]`: "a HTTPRoute,GRPCRoute Accepted RefNotPermitted false",
		`[{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: none}, {name: cert}]}}]`:     "a HTTPRoute,GRPCRoute Accepted InvalidCertificateRef false",
		`[{name: a, port: 443, protocol: TLS, tls: {mode: Passthrough}}]`:                                   "a TLSRoute Accepted ResolvedRefs true",
		`[{name: a, port: 443, protocol: TLS}]`:                                                             "a TLSRoute Accepted InvalidCertificateRef false",
		`[{name: a, port: 443, protocol: TLS, tls: {certificateRefs: [{name: cert}]}}]`:                     "a TLSRoute Accepted ResolvedRefs true",
		`[{name: a, port: 443, protocol: HTTPS, tls: {mode: Passthrough}}]`:                                 "a  UnsupportedValue InvalidCertificateRef false",
		`[{name: a, port: 443, protocol: TLS, hostname: a, tls: {certificateRefs: [{name: cert}]}}, {name: b, port: 443, protocol: TLS, hostname: b, tls: {mode: Passthrough}}]`: "a TLSRoute Accepted ResolvedRefs true; b TLSRoute Accepted ResolvedRefs true",
		`[{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP}]`:                                                                                             "a HTTPRoute,GRPCRoute HostnameConflict ResolvedRefs false; b HTTPRoute,GRPCRoute HostnameConflict ResolvedRefs false",
		`[{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: TLS, tls: {mode: Passthrough}}]`:                                                                    "a HTTPRoute,GRPCRoute ProtocolConflict ResolvedRefs false; b TLSRoute ProtocolConflict ResolvedRefs false",
		`[{name: a, port: 80, protocol: HTTP}, {name: b, port: 81, protocol: HTTP}]`:                                                                                             "a HTTPRoute,GRPCRoute Accepted ResolvedRefs true; b HTTPRoute,GRPCRoute Accepted ResolvedRefs true",
	} {
		var got []string
		for _, l := range listenersOf(t, c, text) {
			var kinds []string
			for _, k := range l.Kinds {
				kinds = append(kinds, string(k.Kind))
			}
			got = append(got, fmt.Sprintf("%s %s %s %s %t", l.Of.Name, strings.Join(kinds, ","), l.Accepted.Reason, l.Resolved.Reason, l.Programmed().OK))
		}
		if text2 := strings.Join(got, "; "); text2 != want {
			t.Errorf("%s:\n got %s\nwant %s", text, text2, want)
		}
	}
}

// GW-17 and GW-18: host names of a route at a listener.
func TestIntersect(t *testing.T) {
	for text, want := range map[string]string{
		" | ": "*", " | a.example.com": "a.example.com", "a.example.com | ": "a.example.com", "a.example.com | a.example.com": "a.example.com",
		"a.example.com | *.example.com": "a.example.com", "a.b.example.com | *.example.com": "a.b.example.com", "example.com | *.example.com": "",
		"*.example.com | a.example.com": "a.example.com", "*.example.com | *.b.example.com": "*.b.example.com", "*.b.example.com | *.example.com": "*.b.example.com",
		"other.org | *.example.com": "", "badexample.com | *.example.com": "", "b.org,a.org,a.org | ": "a.org b.org",
	} {
		of, listener, _ := strings.Cut(text, "|")
		var names []gatewayv1.Hostname
		for name := range strings.SplitSeq(strings.TrimSpace(of), ",") {
			if name != "" {
				names = append(names, gatewayv1.Hostname(name))
			}
		}
		if got := strings.Join(intersect(names, strings.TrimSpace(listener)), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// GW-17: each listener decides for itself; the reason is that of the first check that none passes.
func TestAttach(t *testing.T) {
	c := objects{namespaces: map[string]slim.Labels{"shop": slim.MakeLabels(map[string]string{"team": "a"}), "other": {}}}
	const all = `[
		{name: same, port: 80, protocol: HTTP}, {name: all, port: 8080, protocol: HTTP, hostname: "*.example.com", allowedRoutes: {namespaces: {from: All}}},
		{name: team, port: 8081, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: a}}}, kinds: [{kind: GRPCRoute}]}}]`
	ls := listenersOf(t, c, all)
	for _, test := range []struct{ namespace, ref, host, want string }{
		{"infra", "{name: edge}", "", "Accepted same:* all:*.example.com"},
		{"shop", "{name: edge}", "", "Accepted all:*.example.com"},
		{"shop", "{name: edge}", "a.example.com", "Accepted all:a.example.com"},
		{"shop", "{name: edge}", "other.org", "NoMatchingListenerHostname"},
		{"shop", "{name: edge, sectionName: same}", "", "NotAllowedByListeners"},
		{"shop", "{name: edge, sectionName: team}", "", "NotAllowedByListeners"},
		{"other", "{name: edge, sectionName: team}", "", "NotAllowedByListeners"},
		{"infra", "{name: edge, sectionName: nope}", "", "NoMatchingParent"},
		{"infra", "{name: edge, port: 8080}", "", "Accepted all:*.example.com"},
		{"infra", "{name: edge, port: 1}", "", "NoMatchingParent"},
		{"infra", "{name: edge, sectionName: same, port: 8080}", "", "NoMatchingParent"},
	} {
		hosts := ""
		if test.host != "" {
			hosts = fmt.Sprintf("hostnames: [%q], ", test.host)
		}
		r := parse[route.HTTP](t, fmt.Sprintf("{metadata: {name: r, namespace: %s}, spec: {%sparentRefs: [%s]}}", test.namespace, hosts, test.ref)).Route()
		a := Attach(r, r.Parents[0], ls, NewIndex(ls), c.lookup)
		got := a.Accepted.Reason
		for _, h := range a.At {
			got += fmt.Sprintf(" %s:%s", h.Listener.Of.Name, strings.Join(h.Names, ","))
		}
		if got != test.want || a.Accepted.OK != strings.HasPrefix(test.want, "Accepted") {
			t.Errorf("%s %s %s: %s, want %s (%s)", test.namespace, test.ref, test.host, got, test.want, a.Accepted.Message)
		}
	}
}

// GW-18: TLS of a host that a listener for HTTPS of the port has is not passed through by a wider one, unless that cannot serve it.
func TestPassedThroughBesideHTTPS(t *testing.T) {
	c := objects{secrets: map[slim.Key]bool{{Namespace: "infra", Name: "cert"}: true}}
	const all = `[
		{name: https, port: 443, protocol: HTTPS, hostname: a.example.com, tls: {certificateRefs: [{name: %s}]}},
		{name: tls, port: %d, protocol: TLS, hostname: "*.example.com", tls: {mode: Passthrough}}]`
	r := parse[route.TLS](t, "{metadata: {name: r, namespace: infra}, spec: {hostnames: [a.example.com, b.example.com], parentRefs: [{name: edge, sectionName: tls}], rules: [{}]}}").Route()
	for _, test := range []struct {
		secret string
		port   int
		want   string
	}{
		{"cert", 443, "b.example.com"},
		{"none", 443, "a.example.com,b.example.com"},
		{"cert", 8443, "a.example.com,b.example.com"},
	} {
		ls := listenersOf(t, c, fmt.Sprintf(all, test.secret, test.port))
		a := Attach(r, r.Parents[0], ls, NewIndex(ls), c.lookup)
		if !a.Accepted.OK || len(a.At) != 1 || strings.Join(a.At[0].Names, ",") != test.want {
			t.Errorf("%+v: %+v", test, a)
		}
	}
}

// GW-10: a listener with a kind of routes that is not supported serves the others.
func TestUnknownKindOfListener(t *testing.T) {
	all := listenersOf(t, objects{}, "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}, {kind: Other}]}}, {name: b, port: 81, protocol: HTTP, allowedRoutes: {kinds: [{kind: Other}]}}]")
	if !all[0].Usable() || all[0].Resolved.OK || all[1].Usable() {
		t.Errorf("%+v %+v", all[0], all[1])
	}
}

// GW-41: what an older object keeps out contradicts nothing in its own; two that are left contradict each other.
func TestConflictsOfObjects(t *testing.T) {
	const first, tcp = "{name: first, port: 80, protocol: HTTP, hostname: a.com}", "{name: tcp, port: 80, protocol: TCP}"
	for _, test := range []struct{ gateway, set, want string }{
		{first, tcp + ", {name: b, port: 80, protocol: HTTP, hostname: b.com}", "tcp ProtocolConflict, b Accepted"},
		{first, "{name: a, port: 80, protocol: HTTP, hostname: a.com}, {name: b, port: 80, protocol: HTTP, hostname: b.com}", "a HostnameConflict, b Accepted"},
		{"{name: other, port: 81, protocol: HTTP}", tcp + ", {name: b, port: 80, protocol: HTTP, hostname: b.com}", "tcp ProtocolConflict, b ProtocolConflict"},
		{tcp, tcp + ", {name: b, port: 81, protocol: HTTP}", "tcp HostnameConflict, b Accepted"},
	} {
		c := servingPorts{}
		gateway, set := Plan(parentOf(t, "["+test.gateway+"]"), c.lookup), Plan(parentOf(t, "["+test.set+"]"), c.lookup)
		for range 2 { // the same once more: nothing is left of the time before
			Merge([][]*Listener{gateway, set}, nil)
			var got []string
			for _, l := range set {
				got = append(got, string(l.Of.Name)+" "+l.Accepted.Reason)
			}
			if strings.Join(got, ", ") != test.want || !gateway[0].Accepted.OK {
				t.Errorf("%s beside %s: %s, want %s", test.set, test.gateway, got, test.want)
			}
		}
	}
}

// servingPorts is a cluster that has all kinds of routes.
type servingPorts struct{ objects }

func (c servingPorts) lookup(q route.Query) route.Answer {
	if q.About == route.AboutKind {
		return route.Answer{Exists: true, OK: true}
	}
	return c.objects.lookup(q)
}

func TestWiderNames(t *testing.T) {
	for name, want := range map[string]string{
		"a.shop.test": "a.shop.test *.shop.test *.test", "shop.test": "shop.test *.test", "*.shop.test": "*.shop.test *.test", "test": "test", "": "",
	} {
		if got := strings.Join(slices.Collect(WiderNames(name)), " "); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
