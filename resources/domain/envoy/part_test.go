// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	gocmp "cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// perPort are the options of Gateways whose agents know several listeners of a Service.
func perPort() Options {
	o := options
	o.FirstWins, o.PortHosts, o.OneLabelWildcards, o.PerPort = true, true, false, true
	return o
}

func httpsAt(port uint32, host string) Listener {
	return Listener{Hostname: host, Port: port, TLS: true, Secrets: []Name{{"ns", "c"}}, Exclusive: true, Named: []NamedRoutes{{[]string{orAll(host)}, []Route{{
		Path: Match{Prefix, "/"}, Backends: to("https", fmt.Sprint(port)),
	}}}}}
}

func passedAt(port uint32, host string) Passthrough {
	return Passthrough{Hostnames: []string{host}, Port: port, Backends: to("passed", fmt.Sprint(port))}
}

func plainAt(port uint32) Listener {
	return Listener{Port: port, Exclusive: true, Named: []NamedRoutes{{[]string{"*"}, []Route{{Path: Match{Prefix, "/"}, Backends: to("plain", fmt.Sprint(port))}}}}}
}

// ENV-39: numbers 36 and 38 to 40 of the contract's envoy-config.md, and numbers 30 and 31 of its gateway-api.md.
func TestListenersOfPorts(t *testing.T) {
	for name, test := range map[string]struct {
		model    Model
		services string // listener and ports of each entry
		tables   string
		answers  map[string]string // by port and server name
	}{
		"36: two ports of HTTPS": {
			Model{HTTP: []Listener{httpsAt(443, "a.test"), httpsAt(8443, "a.test")}},
			"listener-443[443] listener-8443[8443]", "listener-443 listener-8443",
			map[string]string{"443 a.test": "shop:https:443", "8443 a.test": "shop:https:8443"},
		},
		"38: nothing overlaps": {
			Model{HTTP: []Listener{plainAt(80), plainAt(8080), httpsAt(443, "a.test")}, Passthrough: []Passthrough{passedAt(8443, "b.test")}},
			"[80 443 8080 8443]", "listener-insecure listener-secure",
			map[string]string{"443 a.test": "shop:https:443", "8443 b.test": "shop:passed:8443"},
		},
		"39: one host": {
			Model{HTTP: []Listener{plainAt(80), plainAt(8080), httpsAt(443, "a.test")}, Passthrough: []Passthrough{passedAt(8443, "a.test")}},
			"listener[80 8080] listener-443[443] listener[8443]", "listener-insecure listener-443",
			map[string]string{"443 a.test": "shop:https:443", "8443 a.test": "shop:passed:8443"},
		},
		"a wildcard of HTTPS": {
			Model{HTTP: []Listener{httpsAt(443, "*.test")}, Passthrough: []Passthrough{passedAt(8443, "a.test")}},
			"listener-443[443] listener[8443]", "listener-443",
			map[string]string{"443 a.test": "shop:https:443", "8443 a.test": "shop:passed:8443", "8443 b.test": "closed"},
		},
		"a wildcard of what is passed through": {
			Model{HTTP: []Listener{httpsAt(443, "a.test")}, Passthrough: []Passthrough{passedAt(8443, "*.test")}},
			"listener-443[443] listener[8443]", "listener-443",
			map[string]string{"443 a.test": "shop:https:443", "443 b.test": "closed", "8443 a.test": "shop:passed:8443"},
		},
		"40: a port of both": {
			Model{HTTP: []Listener{httpsAt(443, "a.test")}, Passthrough: []Passthrough{passedAt(443, "b.test"), passedAt(8443, "c.test")}},
			"listener-443[443] listener-8443[8443]", "listener-443",
			map[string]string{"443 a.test": "shop:https:443", "443 b.test": "shop:passed:443", "443 c.test": "closed", "8443 c.test": "shop:passed:8443", "8443 b.test": "closed"},
		},
		"31: one wildcard at two ports": {
			Model{Passthrough: []Passthrough{passedAt(443, "*.test"), passedAt(8443, "*.test")}},
			"listener-443[443] listener-8443[8443]", "",
			map[string]string{"443 a.test": "shop:passed:443", "8443 a.test": "shop:passed:8443"},
		},
		"a port without a certificate": {
			Model{HTTP: []Listener{plainAt(80), httpsAt(443, "a.test")}, HTTPSPorts: []uint32{8443}},
			"listener[80] listener-443[443]", "listener-insecure listener-443",
			map[string]string{"443 a.test": "shop:https:443", "8443 a.test": "closed"},
		},
		"nothing comes to the port of a host without routes": {
			Model{HTTP: []Listener{httpsAt(443, "*.test"), httpsAt(8443, "*.test")}, Passthrough: []Passthrough{{Hostnames: []string{"a.test"}, Port: 9443, Exclusive: true}}},
			"listener-443[443] listener-8443[8443]", "listener-443 listener-8443",
			map[string]string{"443 a.test": "shop:https:443"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			result, c := translate(t, test.model, perPort())
			services, listeners := entriesOf(result.Spec.Services)
			if diff := cmp.Diff(test.services, services); diff != "" {
				t.Error(diff)
			}
			var tables []string
			for _, r := range result.Spec.Resources {
				if v := plain(string(r.Raw)).(map[string]any); strings.HasSuffix(v["@type"].(string), "RouteConfiguration") {
					tables = append(tables, v["name"].(string))
				}
			}
			if diff := cmp.Diff(test.tables, strings.Join(tables, " ")); diff != "" {
				t.Error(diff)
			}
			for at, want := range test.answers {
				port, host, _ := strings.Cut(at, " ")
				got := c.Answer(listeners[port], true, host, "/").To
				if got != want {
					t.Errorf("%s goes to %q, want %q", at, got, want)
				}
			}
			o := perPort()
			o.PerPort = false
			if before, _ := translate(t, test.model, o); len(before.Spec.Services) != 1 || before.Spec.Services[0].Listener != "" {
				t.Errorf("agents that know one listener have the entries %v", before.Spec.Services)
			}
		})
	}
}

// entriesOf are the entries for a Service as text, and the listeners by port.
func entriesOf(all []v2.EnvoyServiceListener) (text string, listeners map[string]string) {
	var texts []string
	listeners = map[string]string{}
	for _, s := range all {
		texts = append(texts, fmt.Sprint(s.Listener, s.Ports))
		for _, port := range s.Ports {
			listeners[fmt.Sprint(port)] = gocmp.Or(s.Listener, listenerName)
		}
	}
	return strings.Join(texts, " "), listeners
}

func (r random) ports() (m Model) {
	ports, hosts := []uint32{443, 8443, 9443}, []string{"", "*.test", "a.test", "b.test", "*.a.test"}
	used := map[string]bool{}
	for range 1 + r.IntN(6) {
		port, host := pick(r, ports...), pick(r, hosts...)
		if used[fmt.Sprint(port, host)] {
			continue // a Gateway has no two listeners of one host at a port
		}
		used[fmt.Sprint(port, host)] = true
		switch r.IntN(4) {
		case 0:
			m.Passthrough = append(m.Passthrough, Passthrough{Hostnames: []string{host}, Port: port, Exclusive: true})
		case 1:
			m.Passthrough = append(m.Passthrough, passedAt(port, orAll(host)))
		default:
			m.HTTP = append(m.HTTP, httpsAt(port, host))
		}
	}
	if r.IntN(2) == 0 {
		m.HTTP = append(m.HTTP, plainAt(80))
	}
	return m
}

// at is what a model has at a port.
func (m Model) at(port uint32) (found Model) {
	for _, l := range m.HTTP {
		if l.Port == port {
			found.HTTP = append(found.HTTP, l)
		}
	}
	for _, p := range m.Passthrough {
		if p.Port == port {
			found.Passthrough = append(found.Passthrough, p)
		}
	}
	return found
}

// ENV-39: what a connection to a port gets is what it would get if there were no other port.
func TestPortsAreApart(t *testing.T) {
	rounds := 3000
	if seedtest.Soak() {
		rounds = 100_000
	}
	r := random{rand.New(rand.NewPCG(seedtest.Seed(t), 0))}
	for range rounds {
		m := r.ports()
		result, c := translate(t, m, perPort())
		_, listeners := entriesOf(result.Spec.Services)
		for _, port := range []uint32{80, 443, 8443, 9443} {
			alone := m.at(port)
			_, own := translate(t, alone, perPort())
			for _, host := range []string{"a.test", "b.test", "c.test", "x.a.test", "other"} {
				if port != 80 && nearest(alone, host) == len(envoytest.NamesFor(host)) {
					continue // no listener of the port has the name: which chain it gets does not matter
				}
				want := request(own, port != 80, host, "/").String()
				if len(portsOf(alone, perPort())) == 0 {
					want = "closed"
				}
				got := c.Answer(listeners[fmt.Sprint(port)], port != 80, host, "/").String()
				if strings.ReplaceAll(got, fmt.Sprintf("listener-%d", port), secureTable) != want {
					t.Fatalf("%s at %d gets %s, alone %s: %+v", host, port, got, want, m)
				}
			}
		}
	}
}

// nearest is the name that a model has for a host, by its distance: 0 for the host itself.
func nearest(m Model, host string) int {
	named := map[string]bool{}
	for _, l := range m.HTTP {
		named[orAll(l.Hostname)] = true
	}
	for _, p := range m.Passthrough {
		named[p.Hostnames[0]] = true
	}
	names := envoytest.NamesFor(host)
	return slices.IndexFunc(append(names, ""), func(name string) bool { return named[name] || name == "" })
}
