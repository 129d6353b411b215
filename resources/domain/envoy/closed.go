// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"slices"
	"strings"
)

// Bounds of what is written once more since hosts have a part of what a wider name has. What is beyond is closed, the hosts of the youngest objects first: no
// object makes many routes of those of others.
const (
	mostLeft    = 200     // routes
	mostPaths   = 65_536  // bytes of their paths
	leftCost    = 5       // routes for which each part counts beside its own
	mostSecrets = 100     // certificates, of each
	mostViewed  = 300_000 // claims, of all views
	mostChained = 2_000   // certificates and backends of connections, of all hosts: each host has a filter chain of its own
)

// close has no wider name of a younger object answer for a host where its owner has nothing, in plain or with TLS: what older objects, and those of the
// owner's namespace, have at the nearest wider name answers, as if there was nothing else, or nothing does. asked is what the model was before.
func (all sharing) close(asked, m Model) Model {
	wider := asked.wildcards()
	if len(wider) == 0 {
		return m
	}
	byAge := make([]sharedName, 0, len(all))
	for name, s := range all {
		byAge = append(byAge, sharedName{name, s, strings.Count(name, ".")})
	}
	slices.SortFunc(byAge, compareAge)
	byWidth := slices.SortedFunc(slices.Values(byAge), compareWidth)
	closed := m
	for _, a := range aspects {
		c := &closer{a, wider, map[viewed]left{}, map[string][]*Model{}, mostViewed, mostLeft, mostPaths, mostChained, map[*Model]bool{}}
		own, is := m.named(a), map[string]*Model{}
		for _, at := range byAge {
			if !own[at.name] && !at.unclosed {
				is[at.name] = c.answer(at.name, at.shares)
			}
		}
		for _, at := range c.differing(byWidth, own, is) {
			closed = at.addTo(closed, a)
		}
	}
	return closed
}

// sharedName is a name, and who names it.
type sharedName struct {
	name string
	*shares
	dots int
}

func compareAge(a, b sharedName) int {
	return cmp.Or(a.owner.compare(b.owner), cmp.Compare(a.name, b.name))
}

// compareWidth sorts the names that answer for others before these.
func compareWidth(a, b sharedName) int {
	return cmp.Or(cmp.Compare(a.dots, b.dots), cmp.Compare(a.name, b.name))
}

// closer finds what hosts that lack an aspect have of it.
type closer struct {
	aspect
	wider map[string]*wildcard
	known map[viewed]left
	found map[string][]*Model // that differ, by wildcard
	views int                 // claims of views that may still be made
	left  int                 // routes that may still be written
	paths int                 // bytes of paths that may
	chain int                 // certificates and backends of connections that may be
	// written are what is written once more.
	written map[*Model]bool
}

type viewed struct {
	name string
	view
}

// left is what a wildcard has for some hosts.
type left struct {
	with *Model // nil: nothing
	stop bool   // no wider name answers, either
}

// answer is what is to answer for a host that has nothing of its own: what is left to it at the nearest wider name that has something.
func (c *closer) answer(host string, s *shares) *Model {
	for name, ok := widerOf(host, c.wider); ok; name, ok = widerOf(name, c.wider) {
		w := c.wider[name]
		if !w.has[c.aspect] && !w.absent {
			continue
		}
		if is := c.see(w, w.viewOf(s)); is.with != nil || is.stop {
			return is.with
		}
	}
	return nil
}

// see returns what a wildcard has in a view. Of one wildcard what is equal is the same.
func (c *closer) see(w *wildcard, v view) left {
	key := viewed{w.name, v}
	if is, known := c.known[key]; known {
		return is
	}
	isWhole := v == w.whole()
	if !isWhole {
		c.see(w, w.whole()) // the first one, which is there in any case
		if c.views -= len(w.claims); c.views < 0 {
			return left{stop: true}
		}
	}
	m, absent := w.granted(v)
	is := left{stop: absent}
	if m = m.only(c.aspect); !m.isEmpty() {
		is.with = c.same(w, m, isWhole)
		is.stop = true
	}
	c.known[key] = is
	return is
}

// same is the one that is equal to what a wildcard has, nil if it cannot be left any more.
func (c *closer) same(w *wildcard, m Model, isWhole bool) *Model {
	for _, other := range c.found[w.name] {
		if m.sameAs(*other) {
			return other
		}
	}
	if !isWhole && !c.leave(&m) {
		return nil
	}
	c.found[w.name] = append(c.found[w.name], &m)
	return &m
}

// leave reports whether a part may be written once more.
func (c *closer) leave(m *Model) bool {
	if c.written[m] {
		return true
	}
	cost, secrets := leftCost, 0
	for i := range m.HTTP {
		cost += len(m.HTTP[i].Routes)
		secrets += len(m.HTTP[i].Secrets)
	}
	if cost > c.left || secrets > mostSecrets {
		return false
	}
	paths := 0
	for i := range m.HTTP {
		for _, r := range m.HTTP[i].Routes {
			paths += len(r.Path.Value)
		}
	}
	if paths > c.paths {
		return false
	}
	c.left, c.paths = c.left-cost, c.paths-paths
	c.written[m] = true
	return true
}

// chains reports whether a host may have filter chains like those of a wider name.
func (c *closer) chains(m *Model) bool {
	if c.aspect != connections {
		return true
	}
	cost := len(m.HTTP) + len(m.Passthrough)
	for i := range m.HTTP {
		cost += len(m.HTTP[i].Secrets)
	}
	for i := range m.Passthrough {
		cost += len(m.Passthrough[i].Backends)
	}
	if cost > c.chain {
		return false
	}
	c.chain -= cost
	return true
}

// answered are hosts that have the same of a wider name, in place of what there would be.
type answered struct {
	with  *Model // nil: nothing
	hosts []string
	port  uint32 // if it is nothing
}

// differing are the hosts for which something else is to answer than what the next wider name has. Wider names are first.
func (c *closer) differing(names []sharedName, own map[string]bool, is map[string]*Model) (found []*answered) {
	has, by := map[string]*Model{}, map[*Model]*answered{} // what wildcards have
	for _, at := range names {
		name := at.name
		w := c.wider[name]
		if own[name] {
			if w != nil {
				has[name] = c.see(w, w.whole()).with
			}
			continue
		}
		if at.unclosed {
			continue
		}
		next, _ := widerOf(name, has)
		to := is[name]
		if to != has[next] && to != nil && !(c.leave(to) && c.chains(to)) {
			to = nil
		}
		if to == has[next] {
			continue
		}
		if w != nil {
			has[name] = to
		}
		if by[to] == nil {
			by[to] = &answered{with: to}
			if found = append(found, by[to]); to == nil {
				by[to].port = has[next].port()
			}
		}
		by[to].hosts = append(by[to].hosts, name)
	}
	return found
}

// addTo adds what has hosts answer so to a model.
func (at answered) addTo(m Model, a aspect) Model {
	switch {
	case a == connections && at.with == nil:
		m.Passthrough = append(m.Passthrough, Passthrough{Hostnames: at.hosts, Port: at.port, Exclusive: true})
	case a == connections:
		return at.addConnections(m)
	case at.with == nil:
		m.HTTP = append(m.HTTP, Listener{Hostname: at.hosts[0], Port: at.port, TLS: a == secureRoutes, Exclusive: true, closed: at.hosts})
	default:
		for _, l := range at.with.HTTP {
			l.closed = at.hosts
			m.HTTP = append(m.HTTP, l)
		}
	}
	return m
}

// addConnections adds what has TLS connections of the hosts go where those of the wider name go.
func (at answered) addConnections(m Model) Model {
	for _, host := range at.hosts {
		for _, l := range at.with.HTTP {
			l.Hostname = host
			m.HTTP = append(m.HTTP, l)
		}
	}
	if len(at.with.HTTP) > 0 { // TLS is terminated: none is passed through
		return m
	}
	for _, p := range at.with.Passthrough {
		p.Hostnames = at.hosts
		m.Passthrough = append(m.Passthrough, p)
	}
	return m
}
