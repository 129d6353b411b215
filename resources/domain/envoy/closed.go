// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"maps"
	"slices"
)

// close has no wider name of a younger object answer for a host where its owner has nothing, in plain or with TLS: what older objects, and those of the
// owner's namespace, have at a wider name answers, or nothing. For a host whose object has no place in the configuration none of another namespace does.
func (all sharing) close(m Model) Model {
	chains := all.closedChains(m)
	plain, secure := all.closedHosts(m, false, nil), all.closedHosts(m, true, chains)
	m.HTTP = slices.Concat(m.HTTP, plain, secure)
	for _, host := range slices.Sorted(maps.Keys(chains)) {
		s := all[host]
		m.Passthrough = append(m.Passthrough, Passthrough{Source: s.owner.Of, Created: s.owner.Created, Hostnames: []string{host}, Port: chains[host], Exclusive: true})
	}
	return m
}

// closedChains are the hosts whose TLS connections are closed, each with the port of the wider name that would have them.
func (all sharing) closedChains(m Model) map[string]uint32 {
	secure := map[string]uint32{}
	for _, l := range m.HTTP {
		if l.TLS && len(l.Secrets) > 0 {
			secure[orAll(l.Hostname)] = l.Port
		}
	}
	for _, p := range m.Passthrough {
		for _, host := range p.Hostnames {
			if totalWeight(p.Backends) > 0 {
				secure[orAll(host)] = p.Port
			}
		}
	}
	closed := map[string]uint32{}
	for host, s := range all {
		if wider, ok := widerOf(host, secure); ok && !s.terminated && !s.passed && !s.leaves(all[wider].owner) {
			closed[host] = secure[wider]
		}
	}
	return closed
}

// leaves reports whether the owner of a host leaves to another object what comes to a wider name of that.
func (s *shares) leaves(to Claim) bool {
	return to.Of.Namespace == s.owner.Of.Namespace || !s.absent && to.compare(s.owner) < 0
}

// closedHosts are virtual hosts of the table for plain requests, or of that with TLS: for hosts that would have the routes of a wider name, of which some
// are not left to them. Those whose connections are closed need none.
func (all sharing) closedHosts(m Model, tls bool, closed map[string]uint32) (found []Listener) {
	if !tls && !m.hasPlain() {
		return nil
	}
	w := widerNames{named: m.byHost(tls), groups: map[groupKey]*group{}}
	for _, host := range slices.Sorted(maps.Keys(all)) {
		s := all[host]
		if _, isClosed := closed[host]; isClosed || w.named[host] != nil || tls && s.passed {
			continue
		}
		if port := w.close(host, s); port != 0 {
			found = append(found, Listener{Claim: s.owner, Hostname: host, Port: port, TLS: tls, Exclusive: true})
		}
	}
	for _, g := range w.order {
		for _, l := range g.left {
			if l.closed = g.hosts; len(g.hosts) > 0 {
				found = append(found, l)
			}
		}
	}
	return found
}

// byHost are the listeners whose routes are in the table for plain requests, or in that with TLS, by host. The oldest of a host is first.
func (m Model) byHost(tls bool) map[string][]Listener {
	named := map[string][]Listener{}
	for _, l := range m.HTTP {
		if len(l.Routes) == 0 || l.TLS != tls && !(l.TLS && l.ForceHTTPS) {
			continue
		}
		l.forced, l.TLS, l.ForceHTTPS, l.Secrets = l.TLS && !tls, tls, false, nil
		named[orAll(l.Hostname)] = append(named[orAll(l.Hostname)], l)
	}
	for _, at := range named {
		slices.SortStableFunc(at, func(a, b Listener) int { return a.Claim.compare(b.Claim) })
	}
	return named
}

// widerNames are the names of a table, and what hosts without routes of their own have of them.
type widerNames struct {
	named  map[string][]Listener
	groups map[groupKey]*group
	order  []*group
}

// groupKey is equal for hosts that have the same of a wider name: of its listeners by age so many, and those of a namespace.
type groupKey struct {
	wider, namespace string
	older            int
}

// group is what hosts have of the listeners of a wider name.
type group struct {
	left   []Listener
	others bool     // there are listeners that have nothing of the hosts
	hosts  []string // which are to have what is left, and nothing else
}

// close has a host have what is left of the nearest wider name with anything for it, if others would answer as well. If nothing is left at all, it returns a
// port of those.
func (w *widerNames) close(host string, s *shares) (port uint32) {
	others := false
	for wider, ok := widerOf(host, w.named); ok; wider, ok = widerOf(wider, w.named) {
		g := w.group(wider, s)
		others = others || g.others
		if len(g.left) > 0 {
			if others {
				g.hosts = append(g.hosts, host)
			}
			return 0
		}
		port = w.named[wider][0].Port
	}
	return port
}

// group divides the listeners of a wider name by whether they are left to the owner of a host.
func (w *widerNames) group(wider string, s *shares) *group {
	all, key := w.named[wider], groupKey{wider, s.owner.Of.Namespace, 0}
	if !s.absent {
		key.older, _ = slices.BinarySearchFunc(all, s.owner, func(l Listener, owner Claim) int { return cmp.Or(l.Claim.compare(owner), -1) })
	}
	g := w.groups[key]
	if g != nil {
		return g
	}
	g = &group{}
	for i, l := range all {
		if i < key.older || l.Of.Namespace == key.namespace {
			g.left = append(g.left, l)
		} else {
			g.others = true
		}
	}
	w.groups[key], w.order = g, append(w.order, g)
	return g
}
