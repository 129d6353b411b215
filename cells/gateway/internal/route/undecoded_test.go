// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// decoded decodes a route as a watch does.
func decoded[T any, P interface {
	*T
	Route() *Route
}](spec string) (*Route, error) {
	codec, err := slim.JSON[T]()
	if err != nil {
		return nil, err
	}
	obj := new(T)
	if err := codec.DecodeJSON(fmt.Appendf(nil, `{"metadata":{"name":"r","namespace":"shop","generation":1},"spec":{"parentRefs":[{"name":"edge"}],"hostnames":["a.test"],%s},
		"status":{"parents":[{"parentRef":{"name":"edge"},"controllerName":"other","conditions":[{"type":"Accepted","lastTransitionTime":"2026-01-01t00:00:00z"}]}]}}`, spec), obj); err != nil {
		return nil, err
	}
	return P(obj).Route(), nil
}

// GW-23; K7 of the contract's tenants.md: a rule of which a part cannot be decoded is left out, and closes what it matches; the others are served. A
// route of which it is not known what it matches is not accepted, and neither is one of connections. Of both there are the parents and the hosts.
func TestUndecodedRules(t *testing.T) {
	const (
		backend = `"backendRefs":[{"name":"v1","port":80}]`
		good    = `{"matches":[{"path":{"type":"Exact","value":"/good"}}],` + backend + `}`
		auth    = `{"matches":[{"path":{"type":"Exact","value":"/auth"}}],"filters":[{"type":"ExternalAuth","externalAuth":{"protocol":"HTTP","backendRef":{"name":"v1","port":80},"forwardBody":{"maxSize":%d}}}],` + backend + `}`
		tooWide = `{"matches":[{"path":{"value":7}}],` + backend + `}`
		noPort  = `{"backendRefs":[{"name":"v1","port":"80"}]}`
	)
	c := objects{services: map[slim.Key]bool{{Namespace: "shop", Name: "v1"}: true}}
	rules := func(all ...string) string { return `"rules":[` + strings.Join(all, ",") + "]" }
	for name, test := range map[string]struct {
		decode func(string) (*Route, error)
		spec   string
		routes string // paths of routes of Envoy, those without backends in brackets
		why    string
		isOut  bool
	}{
		"a body that is too large": {decoded[HTTP], rules(fmt.Sprintf(auth, 70000), good), "[/auth] /good", "Dropped Rule 0: cannot decode spec.rules[0].filters[0].externalAuth.forwardBody.maxSize: ", false},
		"one that is negative":     {decoded[HTTP], rules(good, fmt.Sprintf(auth, -1)), "/good [/auth]", "Dropped Rule 1: cannot decode spec.rules[1].filters[0].", false},
		"one alone":                {decoded[HTTP], rules(fmt.Sprintf(auth, -1)), "[/auth]", "Dropped Rule 0: ", true},
		"a match":                  {decoded[HTTP], rules(good, tooWide), "", "It is not served: cannot decode spec.rules[1].matches[0].path.value: ", true},
		"a rule that is none":      {decoded[HTTP], rules(good, "7"), "", "It is not served: cannot decode spec.rules[1]: ", true},
		"all rules":                {decoded[HTTP], `"rules":7`, "", "It is not served: cannot decode spec.rules: ", true},
		"a method":                 {decoded[GRPC], rules(`{"matches":[{"method":{"service":7}}],`+backend+"}", `{"matches":[{"method":{"service":"s","method":"m"}}],`+backend+"}"), "", "It is not served: cannot decode spec.rules[0].matches", true},
		"a backend of gRPC":        {decoded[GRPC], rules(`{"matches":[{"method":{"service":"s","method":"m"}}],"backendRefs":[{"name":7}]}`), "[/s/m]", "Dropped Rule 0: ", true},
		"TLS":                      {decoded[TLS], rules(noPort), "", "It is not served: cannot decode spec.rules[0].backendRefs[0].port: ", true},
		"TCP":                      {decoded[TCP], rules(noPort), "", "It is not served: ", true},
		"UDP":                      {decoded[UDP], rules(noPort), "", "It is not served: ", true},
		"TLS, alpha":               {decoded[TLSAlpha], rules(noPort), "", "It is not served: ", true},
		"TCP, alpha":               {decoded[TCPAlpha], rules(noPort), "", "It is not served: ", true},
		"UDP, alpha":               {decoded[UDPAlpha], rules(noPort), "", "It is not served: ", true},
		"a status":                 {decoded[HTTP], rules(good), "/good", "", false},
	} {
		r, err := test.decode(test.spec)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		compiled := Compile(r, c.lookup)
		var routes []string
		for _, of := range compiled.Routes {
			if path := of.Path.Value; len(of.Backends) > 0 {
				routes = append(routes, path)
			} else {
				routes = append(routes, "["+path+"]")
			}
		}
		why := ""
		if partial := compiled.PartiallyInvalid(); partial != nil {
			why = partial.Message
		}
		if strings.Join(routes, " ") != test.routes || !strings.HasPrefix(why, test.why) || (why == "") != (test.why == "") || compiled.IsDropped() != test.isOut || len(r.Parents) != 1 {
			t.Errorf("%s: %q, %q, dropped %t, parents %v", name, routes, why, compiled.IsDropped(), r.Parents)
		}
		if r.Kind != KindTCP && r.Kind != KindUDP && len(r.Hostnames) != 1 {
			t.Errorf("%s: hosts %v", name, r.Hostnames)
		}
	}
	for _, spec := range []string{`"parentRefs":"edge"`, `"parentRefs":[{"name":"edge","port":"http"}]`} {
		if _, err := decoded[GRPC](spec); err == nil {
			t.Errorf("%s: it is not known where the route is", spec)
		}
	}
	if _, err := decoded[HTTP](`"hostnames":7`); err == nil {
		t.Error("the hosts are not known")
	}
}
