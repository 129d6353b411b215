// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// GW-60; numbers 1.4 and 1.5 of the contract's tenants.md: a younger ListenerSet of another namespace does not have the host of an older route.
func TestHostsOfOlderRoutes(t *testing.T) {
	const own = `[{name: plain, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}}]`
	for name, test := range map[string]struct {
		created         int
		kind, namespace string // of the route, which is as old as 10
		hosts, parent   string
		port            int
		protocol, host  string
		want            bool
	}{
		"younger":                          {20, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", false},
		"a wildcard":                       {20, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "*.test", false},
		"older":                            {5, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", true},
		"of one second":                    {10, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", true},
		"of one namespace":                 {20, "HTTPRoute", "bb", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", true},
		"another host":                     {20, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "other.test", true},
		"another port":                     {20, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 81, "HTTP", "shop.test", true},
		"a route for all hosts":            {20, "HTTPRoute", "aa", "[]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", true},
		"a route of another listener":      {20, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra, sectionName: tls}", 80, "HTTP", "shop.test", true},
		"TLS that is passed through":       {20, "TLSRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 443, "TLS", "shop.test", false},
		"a route of the ListenerSet alone": {20, "HTTPRoute", "aa", "[shop.test]", "{name: x, namespace: bb, kind: ListenerSet}", 80, "HTTP", "shop.test", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := edgeOf(t, "{from: All}", own)
			mode := ""
			if test.protocol == "TLS" {
				mode = ", tls: {mode: Passthrough}"
			}
			set := setOf(t, "x", "bb", 1, fmt.Sprintf(`[{name: mine, port: %d, protocol: %s, hostname: "%s"%s, allowedRoutes: {namespaces: {from: All}}}]`, test.port, test.protocol, test.host, mode))
			set.CreationTimestamp = slim.Time(test.created)
			text := fmt.Sprintf("{metadata: {name: r, namespace: %s, generation: 1}, spec: {parentRefs: [%s], hostnames: %s, rules: [{}]}}", test.namespace, test.parent, test.hosts)
			var r *route.Route
			if test.kind == "TLSRoute" {
				r = parse[route.TLS](t, text).Route()
			} else {
				r = parse[route.HTTP](t, text).Route()
			}
			r.CreationTimestamp = 10
			plan := new(planner).plan(g, []*listenerSet{set}, []*route.Route{r}, objects{}.lookup)
			l := plan.sets[0].listeners[0]
			if l.Accepted.OK != test.want || !test.want && !strings.Contains(l.Accepted.Message, "which is older than the ListenerSet") {
				t.Errorf("the listener is accepted: %v", l.Accepted)
			}
		})
	}
}
