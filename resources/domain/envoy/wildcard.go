// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import "slices"

// aspect is what a name has, or lacks, on its own.
type aspect int

const (
	plainRoutes  aspect = iota
	secureRoutes        // for requests with TLS
	connections         // with TLS
)

var aspects = []aspect{plainRoutes, secureRoutes, connections}

// has reports whether an aspect of a name is of the listener.
func (l *Listener) has(a aspect) bool {
	switch a {
	case plainRoutes:
		return len(l.Routes) > 0 && (!l.TLS || l.ForceHTTPS)
	case secureRoutes:
		return len(l.Routes) > 0 && l.TLS
	}
	return l.TLS && len(l.Secrets) > 0
}

// only is a model with one aspect alone: the routes of a table, or what filter chains are for.
func (m Model) only(a aspect) (found Model) {
	for _, l := range m.HTTP {
		if !l.has(a) {
			continue
		}
		if l.forced, l.TLS, l.ForceHTTPS = a == plainRoutes && l.TLS, a != plainRoutes, false; a == connections {
			l.Routes = nil
		} else {
			l.Secrets = nil
		}
		found.HTTP = append(found.HTTP, l)
	}
	if a == connections {
		found.Passthrough = m.Passthrough
	}
	return found
}

func (m Model) isEmpty() bool { return len(m.HTTP) == 0 && len(m.Passthrough) == 0 }

// named are the hosts that have an aspect.
func (m Model) named(a aspect) map[string]bool {
	all := map[string]bool{}
	for i := range m.HTTP {
		if l := &m.HTTP[i]; l.has(a) {
			all[orAll(l.Hostname)] = true
		}
	}
	if a != connections {
		return all
	}
	for _, p := range m.Passthrough {
		for _, host := range p.Hostnames {
			all[orAll(host)] = true
		}
	}
	return all
}

// port is a port of a model that is not empty.
func (m Model) port() uint32 {
	if len(m.HTTP) > 0 {
		return m.HTTP[0].Port
	}
	return m.Passthrough[0].Port
}

// sameAs compares what objects have at one name, in one aspect.
func (m Model) sameAs(other Model) bool {
	return slices.EqualFunc(m.HTTP, other.HTTP, func(a, b Listener) bool {
		return a.Claim == b.Claim && a.rank == b.rank && a.forced == b.forced && slices.Equal(a.Routes, b.Routes) && slices.Equal(a.Secrets, b.Secrets)
	}) && slices.EqualFunc(m.Passthrough, other.Passthrough, func(a, b Passthrough) bool { return a.claim() == b.claim() })
}

// wildcard is a name that answers for others, and what objects ask for there.
type wildcard struct {
	name   string
	asked  Model
	claims []Claim        // the oldest first
	last   map[string]int // the place of the youngest one of a namespace
	has    map[aspect]bool
	absent bool // some of the objects are left out
}

// wildcards are what a model asks for at wildcards.
func (m Model) wildcards() map[string]*wildcard {
	all := map[string]*wildcard{}
	at := func(host string, by Claim) *wildcard {
		w := all[host]
		if w == nil {
			w = &wildcard{name: host, last: map[string]int{}, has: map[aspect]bool{}}
			all[host] = w
		}
		w.claims = append(w.claims, by)
		return w
	}
	for _, l := range m.HTTP {
		if host := orAll(l.Hostname); isWildcard(host) {
			w := at(host, l.Claim)
			w.asked.HTTP = append(w.asked.HTTP, l)
			w.absent = w.absent || l.Absent
		}
	}
	for _, p := range m.Passthrough {
		for _, host := range p.Hostnames {
			if isWildcard(orAll(host)) {
				w := at(orAll(host), p.claim())
				p.Hostnames = []string{host}
				w.asked.Passthrough = append(w.asked.Passthrough, p)
			}
		}
	}
	for _, w := range all {
		slices.SortFunc(w.claims, Claim.compare)
		for i, c := range w.claims {
			w.last[c.Of.Namespace] = i
		}
		for _, a := range aspects {
			w.has[a] = len(w.asked.named(a)) > 0
		}
	}
	return all
}

// view is what the owner of a host sees of a wildcard: of its claims so many of the oldest ones, and those of a namespace, if that has younger ones.
type view struct {
	namespace string
	older     int
}

// whole is the view of all claims.
func (w *wildcard) whole() view { return view{older: len(w.claims)} }

// viewOf is what the owner of a host sees: older objects, unless its own one is left out, and those of its namespace.
func (w *wildcard) viewOf(s *shares) view {
	v := view{namespace: s.owner.Of.Namespace}
	if !s.absent {
		v.older, _ = slices.BinarySearchFunc(w.claims, s.owner, Claim.compare)
	}
	if last, has := w.last[v.namespace]; !has || last < v.older {
		v.namespace = ""
		return v
	}
	for v.older > 0 && w.claims[v.older-1].Of.Namespace == v.namespace {
		v.older--
	}
	return v
}

// granted is what objects have at the wildcard if there are those of a view alone. absent says that its owner is left out.
func (w *wildcard) granted(v view) (found Model, absent bool) {
	isSeen := func(c Claim) bool {
		return c.Of.Namespace == v.namespace || v.older > 0 && c.compare(w.claims[v.older-1]) <= 0
	}
	var m Model
	for i := range w.asked.HTTP {
		if isSeen(w.asked.HTTP[i].Claim) {
			m.HTTP = append(m.HTTP, w.asked.HTTP[i])
		}
	}
	for i := range w.asked.Passthrough {
		if isSeen(w.asked.Passthrough[i].claim()) {
			m.Passthrough = append(m.Passthrough, w.asked.Passthrough[i])
		}
	}
	all := m.sharing()
	found, _ = all.grant(m)
	s := all[w.name]
	return found, s != nil && s.absent
}
