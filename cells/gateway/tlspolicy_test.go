// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// testCA is in the form of a certificate.
const testCA = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n"

// policyWorld is the policies of a test, with Services that have the ports http and https, and the ConfigMaps good and bad.
func policyWorld(all ...*tlsPolicy) tlsPolicies {
	return tlsPolicies{
		of: func(service slim.Key) []*tlsPolicy {
			return slices.DeleteFunc(slices.Clone(all), func(p *tlsPolicy) bool { return !slices.Contains(p.services(), service) })
		},
		hasPort: func(_ slim.Key, port string) bool { return port == "http" || port == "https" },
		authority: func(key slim.Key) route.Answer {
			return route.Answer{Exists: key.Name != "none", OK: key.Name == "good"}
		},
	}
}

const caGood = `caCertificateRefs: [{group: "", kind: ConfigMap, name: good}]`

// policyFrom is a policy of the namespace shop. The first of all is the oldest.
func policyFrom(t *testing.T, name, targets, validation string) *tlsPolicy {
	t.Helper()
	return parse[tlsPolicy](t, fmt.Sprintf(`{metadata: {name: %s, namespace: shop, generation: 3}, spec: {targetRefs: [%s], validation: {hostname: a.example.com, %s}}}`, name, targets, validation))
}

func targetRef(service, port string) string {
	if port != "" {
		port = ", sectionName: " + port
	}
	return fmt.Sprintf(`{group: "", kind: Service, name: %s%s}`, service, port)
}

// Number 41 of the contract's gateway-api.md; GW-35, GW-36: what is said of a policy by itself, and how its backends are spoken to.
func TestPolicySettings(t *testing.T) {
	for validation, want := range map[string]string{
		caGood: "Accepted ResolvedRefs a.example.com shop/good []",
		caGood + `, subjectAltNames: [{type: Hostname, hostname: "*.example.com"}, {type: URI, uri: "spiffe://x"}]`: "Accepted ResolvedRefs a.example.com shop/good [{false *.example.com} {true spiffe://x}]",
		`caCertificateRefs: [{group: "", kind: ConfigMap, name: none}]`:                                             "NoValidCACertificate InvalidCACertificateRef",
		`caCertificateRefs: [{group: "", kind: ConfigMap, name: bad}]`:                                              "NoValidCACertificate InvalidCACertificateRef",
		`caCertificateRefs: [{group: "", kind: Secret, name: good}]`:                                                "NoValidCACertificate InvalidKind",
		`caCertificateRefs: [{group: x.io, kind: ConfigMap, name: good}]`:                                           "NoValidCACertificate InvalidKind",
		`caCertificateRefs: [{group: "", kind: ConfigMap, name: good}, {group: "", kind: ConfigMap, name: good}]`:   "Invalid ResolvedRefs",
		`caCertificateRefs: [{group: "", kind: ConfigMap, name: good}, {group: "", kind: ConfigMap, name: none}]`:   "Invalid InvalidCACertificateRef",
		`wellKnownCACertificates: System`:                                                                           "Invalid ResolvedRefs",
		caGood + `, subjectAltNames: [{type: URI}]`:                                                                 "Invalid ResolvedRefs",
		caGood + `, subjectAltNames: [{type: Hostname, hostname: "*"}]`:                                             "Invalid ResolvedRefs",
	} {
		p := policyFrom(t, "p", targetRef("s", ""), validation)
		v := policyWorld(p).evaluate(p)
		got := v.accepted.Reason + " " + v.resolved.Reason
		if v.tls != nil {
			got += fmt.Sprintf(" %s %s %v", v.tls.ServerName, v.tls.Authority, v.tls.Names)
		}
		if got != want || v.accepted.OK != strings.HasPrefix(want, "Accepted") || (v.tls != nil) != v.accepted.OK || v.accepted.Message == "" {
			t.Errorf("%s:\n got %s (%s; %s)\nwant %s", validation, got, v.accepted.Message, v.resolved.Message, want)
		}
	}
}

// Number 41 of the contract's gateway-api.md; GW-34: which policy a port is under, and which ones conflict.
func TestPolicyPrecedence(t *testing.T) {
	at := func(p *tlsPolicy, second slim.Time) *tlsPolicy { p.CreationTimestamp = second; return p }
	all := []*tlsPolicy{
		at(policyFrom(t, "young", targetRef("s", ""), caGood), 2), at(policyFrom(t, "b", targetRef("s", ""), caGood), 1), at(policyFrom(t, "a", targetRef("s", ""), caGood), 1),
		at(policyFrom(t, "port", targetRef("s", "https"), caGood), 9), at(policyFrom(t, "late", targetRef("s", "https")+", "+targetRef("other", ""), caGood), 10),
		at(policyFrom(t, "typo", targetRef("s", "htps"), caGood), 1), at(policyFrom(t, "foreign", `{group: x.io, kind: Service, name: s}`, caGood), 0),
	}
	c := policyWorld(all...)
	s := slim.Key{Namespace: "shop", Name: "s"}
	for port, want := range map[string]string{"https": "port", "http": "a", "": "a"} {
		if p := policyOf(c.of(s), s, port); p == nil || p.Name != want {
			t.Errorf("port %q: %v, want %s", port, p, want)
		}
	}
	if p := policyOf(c.of(s), slim.Key{Namespace: "elsewhere", Name: "s"}, "https"); p != nil {
		t.Errorf("the Service of another namespace: %s", p.Name)
	}
	for i, want := range []string{"Conflicted", "Conflicted", "Accepted", "Accepted", "Conflicted", "TargetNotFound", "Accepted"} {
		if v := c.evaluate(all[i]); v.accepted.Reason != want {
			t.Errorf("%s: %s, want %s (%s)", all[i].Name, v.accepted.Reason, want, v.accepted.Message)
		}
	}
	other := slim.Key{Namespace: "shop", Name: "other"}
	if a := c.at(other, "http"); !a.OK || a.TLS == nil {
		t.Errorf("the other target of a policy with a conflict: %+v", a)
	}
	invalid := policyWorld(policyFrom(t, "p", targetRef("s", ""), `wellKnownCACertificates: System`))
	if a := invalid.at(s, "http"); !a.Exists || a.OK || a.TLS != nil {
		t.Errorf("an invalid policy: %+v", a)
	}
}

// GW-37: a backend of a Service, and of a listener, is spoken to with TLS, or not at all; TLS that is passed through is that of the backend.
func TestBackendsUnderPolicies(t *testing.T) {
	key := func(name string) slim.Key { return slim.Key{Namespace: "infra", Name: name} }
	tls := &envoy.UpstreamTLS{ServerName: "a.example.com", Authority: envoy.Name{Namespace: "infra", Name: "ca"}}
	c := objects{
		services: map[slim.Key]bool{key("plain"): true, key("secure"): true, key("broken"): true}, secrets: map[slim.Key]bool{key("cert"): true},
		tls: map[slim.Key]route.Answer{key("secure"): {Exists: true, OK: true, TLS: tls}, key("broken"): {Exists: true}},
	}
	const refs = `[{name: plain, port: 80}, {name: secure, port: 80}, {name: broken, port: 80}]`
	mesh := parse[route.HTTP](t, `{metadata: {name: m, namespace: infra}, spec: {parentRefs: [{group: "", kind: Service, name: web}], rules: [{backendRefs: `+refs+`}]}}`)
	web := parse[service](t, `{metadata: {name: web, namespace: infra}, spec: {ports: [{port: 80, protocol: TCP, appProtocol: http}]}}`)
	if b := planMesh(web, []*route.Route{mesh.Route()}, nil, c.lookup).HTTP[0].Routes[0].Backends; len(b) != 2 || b[0].TLS != nil || b[1].TLS != tls {
		t.Errorf("a route of a Service: %+v", b)
	}
	g := parse[gateway](t, `{metadata: {name: edge, namespace: infra, generation: 1}, spec: {listeners: [
		{name: pass, port: 443, protocol: TLS, hostname: a.example.com, tls: {mode: Passthrough}},
		{name: end, port: 443, protocol: TLS, hostname: b.example.com, tls: {certificateRefs: [{name: cert}]}}]}}`)
	of := parse[route.TLS](t, `{metadata: {name: t, namespace: infra}, spec: {parentRefs: [{name: edge}], hostnames: [a.example.com, b.example.com], rules: [{backendRefs: `+refs+`}]}}`)
	for _, p := range new(planner).plan(g, nil, []*route.Route{of.Route()}, c.lookup).model.Passthrough {
		if p.Exclusive {
			continue
		}
		var with []string
		for _, b := range p.Backends {
			with = append(with, fmt.Sprint(b.Name.Name, b.TLS != nil))
		}
		want := "plainfalse securefalse brokenfalse"
		if len(p.Secrets) > 0 {
			want = "plainfalse securetrue"
		}
		if got := strings.Join(with, " "); got != want {
			t.Errorf("%v: %s, want %s", p.Hostnames, got, want)
		}
	}
}

// GW-37: of a number that is a port of UDP, and one of TCP, it is the latter whose policy and protocol count; one of UDP alone is no port for requests.
func TestPolicyOfPortOfTCP(t *testing.T) {
	services, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	policies, err := stream.NewLocal[tlsPolicy]()
	if err != nil {
		t.Fatal(err)
	}
	services.Replace(parse[service](t, `{metadata: {name: s, namespace: shop}, spec: {ports: [{name: quic, port: 443, protocol: UDP}, {name: https, port: 443, protocol: TCP, appProtocol: kubernetes.io/h2c}, {name: dns, port: 53, protocol: UDP}]}}`))
	policies.Replace(policyFrom(t, "p", targetRef("s", "https"), caGood))
	c := &controller{}
	if c.services, err = services.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.policyStore, err = policies.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	var lookup route.Lookup
	lookup = func(q route.Query) route.Answer {
		switch q.About {
		case route.AboutPort:
			return c.askPort(q)
		case route.AboutTLS:
			return c.askTLS(q, lookup)
		}
		return route.Answer{Exists: true, OK: true}
	}
	r := parse[route.HTTP](t, "{metadata: {name: r, namespace: shop}, spec: {rules: [{matches: [{path: {type: PathPrefix, value: /}}], backendRefs: [{name: s, port: 443}, {name: s, port: 53}]}]}}").Route()
	b := route.Compile(r, lookup).Routes[0].Backends
	if len(b) != 1 || b[0].TLS == nil || b[0].TLS.ServerName != "a.example.com" || b[0].AppProtocol != "kubernetes.io/h2c" {
		t.Errorf("%+v", b)
	}
}

// GW-38: the ancestors of a policy, and what its status says of them.
func TestAncestors(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "shop", Name: "s"}: true, {Namespace: "shop", Name: "other"}: true}, namespaces: map[string]slim.Labels{"shop": {}}}
	listeners := `[{name: a, port: 80, protocol: HTTP}, {name: b, port: 443, protocol: TLS, tls: {mode: Passthrough}}]`
	p := parents{
		gateway: func(key slim.Key) (*gateway, bool, bool) {
			switch key.Name {
			case "gone":
				return nil, true, true
			case "hidden":
				return nil, true, false
			}
			return parse[gateway](t, fmt.Sprintf("{metadata: {name: %s, namespace: shop}, spec: {allowedListeners: {namespaces: {from: Same}}, listeners: %s}}", key.Name, listeners)), key.Name != "foreign", true
		},
		listenerSet: func(key slim.Key) (*listenerSet, bool) {
			if key.Name != "set" {
				return nil, true
			}
			return parse[listenerSet](t, fmt.Sprintf("{metadata: {name: set, namespace: shop}, spec: {parentRef: {name: of-set}, listeners: %s}}", listeners)), true
		},
		service: func(slim.Key) *service {
			return parse[service](t, `{metadata: {name: mesh, namespace: shop}, spec: {ports: [{port: 80, protocol: TCP, appProtocol: http}]}}`)
		},
	}
	routeOf := func(parents, backend string) *route.Route {
		return parse[route.HTTP](t, fmt.Sprintf(`{metadata: {name: r, namespace: shop}, spec: {parentRefs: [%s], rules: [{backendRefs: [{name: %s, port: 80}]}]}}`, parents, backend)).Route()
	}
	routes := []*route.Route{
		routeOf(`{name: two}, {name: foreign}, {name: gone}, {name: hidden}, {name: refused, sectionName: nope}`, "s"), routeOf(`{name: one, sectionName: a}, {name: one}`, "s"),
		routeOf(`{kind: ListenerSet, name: set}, {kind: ListenerSet, name: none}`, "s"), routeOf(`{group: "", kind: Service, name: mesh}`, "s"), routeOf(`{name: three}`, "other"), routeOf(`{name: four}`, "absent"),
		parse[route.TLS](t, `{metadata: {name: t, namespace: shop}, spec: {parentRefs: [{name: five}], rules: [{backendRefs: [{name: s, port: 80}]}]}}`).Route(),
	}
	a := p.ancestors([]slim.Key{{Namespace: "shop", Name: "s"}}, routes, c.lookup)
	names := func(all []gatewayv1.ParentReference) (text string) {
		for _, ref := range all {
			text += fmt.Sprintf("%s/%s ", *ref.Kind, ref.Name)
		}
		return text
	}
	if got, kept := names(a.found), names(a.kept); got != "Gateway/of-set Gateway/one Gateway/two Service/mesh " || kept != "Gateway/hidden " {
		t.Fatalf("%s; kept %s", got, kept)
	}

	now := metav1.Now()
	v := policyResult{accepted: condition.True("Accepted", "x"), resolved: condition.True("ResolvedRefs", "x")}
	others := []gatewayv1.PolicyAncestorStatus{
		{AncestorRef: a.found[0], ControllerName: "other"}, {AncestorRef: gatewayv1.ParentReference{Name: "old"}, ControllerName: controllerName}, {AncestorRef: a.kept[0], ControllerName: controllerName},
	}
	merged, changed := mergeAncestors(others, a, v, 3, now)
	var got []string
	for _, s := range merged {
		got = append(got, fmt.Sprintf("%s %s %d", s.ControllerName, s.AncestorRef.Name, len(s.Conditions)))
	}
	want := []string{"other of-set 0", string(controllerName) + " hidden 0", string(controllerName) + " of-set 2", string(controllerName) + " one 2", string(controllerName) + " two 2", string(controllerName) + " mesh 2"}
	if diff := cmp.Diff(want, got); diff != "" || !changed {
		t.Error(diff)
	}
	if again, changed := mergeAncestors(merged, a, v, 3, metav1.NewTime(now.Add(time.Hour))); changed || !cmp.Equal(again, merged) {
		t.Errorf("written again: %v", again)
	}
	var full []gatewayv1.PolicyAncestorStatus
	for i := range maxAncestors - 1 {
		full = append(full, gatewayv1.PolicyAncestorStatus{AncestorRef: gatewayv1.ParentReference{Name: gatewayv1.ObjectName(fmt.Sprint("g", i))}, ControllerName: "other"})
	}
	if merged, _ := mergeAncestors(full, a, v, 3, now); len(merged) != maxAncestors || merged[maxAncestors-1].AncestorRef.Name != "of-set" {
		t.Errorf("%d entries", len(merged))
	}
}

// GW-35: certificates of authorities.
func TestAuthorities(t *testing.T) {
	key := strings.ReplaceAll(testCA, "CERTIFICATE", "RSA PRIVATE KEY")
	for text, want := range map[string]bool{
		"": false, "garbage": false, testCA: true, "# a comment\n" + testCA + "more\n" + testCA: true, key: false, key + testCA: true,
		testCA + strings.Replace(testCA, "MAMC", "MAkC", 1): false, strings.Replace(testCA, "MAMC", "AgMC", 1): false,
	} {
		if got := areCertificates([]byte(text)); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}
