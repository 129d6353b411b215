// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Envoy looks for the virtual host of a request by the text of Host, with its port: first among domains without a wildcard, then among
// those that begin with one, then among those that end with one, the longest first, and last for "*". So foo.com:* has any port, and
// *.foo.com has none, for a domain has one wildcard (ENV-41).

// tablePorts are the ports of a table, sorted, and the main one: it serves a request whose Host has no port, or another one.
type tablePorts struct {
	all  []uint32
	main uint32
}

// areApart reports whether requests are told apart by the port in Host.
func (p tablePorts) areApart() bool { return len(p.all) > 1 }

// tablePorts are those of the tables of a part, as far as ports may be told apart.
func (p part) tablePorts(o Options) map[string]tablePorts {
	all := map[string][]uint32{}
	for _, l := range p.HTTP {
		if table := p.table(l); o.PortHosts {
			all[table] = append(all[table], l.Port)
		}
	}
	found := map[string]tablePorts{}
	for table, ports := range all {
		slices.Sort(ports)
		ports = slices.Compact(ports)
		ofScheme := uint32(80)
		if table == p.secureTable {
			ofScheme = 443
		}
		found[table] = tablePorts{ports, mainPort(ports, ofScheme)}
	}
	return found
}

// mainPort is the port that serves a request whose Host has another one: that of the scheme, or the lowest.
func mainPort(all []uint32, ofScheme uint32) uint32 {
	if slices.Contains(all, ofScheme) {
		return ofScheme
	}
	return slices.Min(all)
}

// setDomains gives virtual hosts their domains.
func setDomains(all map[hostKey]*hostRoutes, ports map[string]tablePorts) {
	for key, h := range all {
		h.domains = key.domains(ports[key.table])
		for _, host := range h.closed {
			h.domains = append(h.domains, hostKey{key.table, host, key.port}.domains(ports[key.table])...)
		}
	}
	for table, of := range ports {
		if of.areApart() {
			addAhead(all, table, of.main)
		}
	}
}

// domains are the values of Host that a virtual host stands for. Where ports are told apart, that of the main port has those with other
// ports, as far as they have no listener for the host; a wildcard needs [addAhead] for them.
func (k hostKey) domains(ports tablePorts) []string {
	host := k.hostname
	switch {
	case ports.areApart() && k.port != ports.main:
		return []string{withPort(host, k.port)}
	case host == "*", ports.areApart() && isWildcard(host):
		return []string{host}
	}
	return []string{host, bracketed(host) + ":*"}
}

// bracketed is a host name as it is before a port.
func bracketed(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		return "[" + host + "]"
	}
	return host
}

func withPort(host string, port uint32) string { return fmt.Sprintf("%s:%d", bracketed(host), port) }

// widerHost is a wildcard of the main port.
type widerHost struct {
	hostname string
	of       *hostRoutes
}

func (w widerHost) equal(other widerHost) bool {
	return w.hostname == other.hostname && w.of.equal(other.of)
}

// addAhead has the virtual host for all of the main port serve requests for wildcards of it whose Host has a port: no domain stands for a
// wildcard with any port. One that has a listener for the host has a domain of its own.
func addAhead(all map[hostKey]*hostRoutes, table string, main uint32) {
	var ahead []widerHost
	for key, h := range all {
		if key.table == table && key.port == main && isWildcard(key.hostname) && key.hostname != "*" {
			ahead = append(ahead, widerHost{key.hostname, h})
		}
	}
	if len(ahead) == 0 {
		return
	}
	slices.SortFunc(ahead, func(a, b widerHost) int { // the longest first, as Envoy looks for domains
		return cmp.Or(cmp.Compare(len(b.hostname), len(a.hostname)), strings.Compare(a.hostname, b.hostname))
	})
	key := hostKey{table, "*", main}
	if all[key] == nil {
		all[key] = &hostRoutes{domains: []string{"*"}, filters: ahead[0].of.filters}
	}
	all[key].ahead = ahead
}

// withPort are the routes of a wildcard host for requests whose Host has a port. What none of them is for is not found, as at that host.
func (o Options) withPort(w widerHost, left *budget) ([]*routev3.Route, error) {
	h := &host{of: w.of, backends: usage{}} // what is wrong with the routes, and their backends, are known from the host itself
	found, err := h.translate(o, w.hostname, left)
	if err != nil {
		return nil, err
	}
	notFound := &Route{NoBackend: 404}
	all := append(found.routes, o.authorize(w.of, notFound, []*routev3.Route{notFound.route("")})...)
	for _, r := range all {
		r.Match.Headers = slices.Insert(r.Match.Headers, 0, &routev3.HeaderMatcher{
			Name: ":authority",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_Contains{Contains: strings.TrimPrefix(w.hostname, "*") + ":"}, IgnoreCase: true,
			}},
		})
	}
	return all, nil
}
