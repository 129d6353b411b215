// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/resources/domain/expression"
)

// Claim is the object that a part of a model is of, in configurations that several namespaces share: hosts belong to the namespace of
// the oldest object that names them (ENV-33).
type Claim struct {
	Of      Name
	Created time.Time
}

func (c Claim) compare(other Claim) int {
	return cmp.Or(c.Created.Compare(other.Created), cmp.Compare(c.Of.Namespace, other.Of.Namespace), cmp.Compare(c.Of.Name, other.Of.Name))
}

// shares are the namespaces that name a host.
type shares struct {
	owner  Claim
	oldest map[string]Claim // by namespace, nil while there is the owner's alone
	ranks  map[string]int   // of the namespaces, nil until one is asked for
	// What the owner has at the host.
	plain, terminated, passed, absent bool
	unclosed                          bool // there is no space to close it for others
	forced                            bool // plain requests are redirected
	secrets                           []Name
}

// rank is the place of a namespace by age; the owner's is 0.
func (s *shares) rank(namespace string) int {
	if s.ranks == nil {
		s.ranks = map[string]int{}
		for i, oldest := range slices.SortedFunc(maps.Values(s.oldest), Claim.compare) {
			s.ranks[oldest.Of.Namespace] = i
		}
	}
	return s.ranks[namespace]
}

// sharing is who names which hosts.
type sharing map[string]*shares

// sharing finds who names which hosts of a model, and what their owners have there.
func (m Model) sharing() sharing {
	all := make(sharing, len(m.HTTP))
	for i := range m.HTTP {
		all.name(m.HTTP[i].Hostname, m.HTTP[i].Claim)
	}
	for _, p := range m.Passthrough {
		for _, host := range p.Hostnames {
			all.name(host, p.claim())
		}
	}
	for i := range m.HTTP {
		l := &m.HTTP[i]
		s := all[orAll(l.Hostname)]
		if l.Of.Namespace != s.owner.Of.Namespace || l.Claimed {
			continue
		}
		s.plain = s.plain || !l.TLS
		s.absent = s.absent || l.Absent
		s.unclosed = s.unclosed || l.Absent && l.Unclosed
		s.forced = s.forced || l.TLS && l.ForceHTTPS
		if l.TLS && len(l.Secrets) > 0 {
			s.terminated = true
			s.secrets = append(s.secrets, l.Secrets...)
		}
	}
	for _, p := range m.Passthrough {
		for _, host := range p.Hostnames {
			s := all[orAll(host)]
			s.passed = s.passed || p.Source.Namespace == s.owner.Of.Namespace
		}
	}
	return all
}

func (all sharing) name(host string, by Claim) {
	s := all[orAll(host)]
	if s == nil {
		all[orAll(host)] = &shares{owner: by}
		return
	}
	if s.oldest == nil && by.Of.Namespace != s.owner.Of.Namespace {
		s.oldest = map[string]Claim{s.owner.Of.Namespace: s.owner}
	}
	if s.oldest != nil {
		if was, known := s.oldest[by.Of.Namespace]; !known || by.compare(was) < 0 {
			s.oldest[by.Of.Namespace] = by
		}
	}
	if by.compare(s.owner) < 0 {
		s.owner = by
	}
}

// owned is a model without what objects ask for of hosts that belong to another namespace: TLS, default backends, and any connection
// where the owner passes TLS through. [host.join] divides the paths.
func (m Model) owned() (Model, []Problem) {
	all := m.sharing()
	found, problems := all.grant(m)
	return all.close(m, found), problems
}

// grant leaves what objects have at their names.
func (all sharing) grant(m Model) (found Model, problems []Problem) {
	found.HTTP = make([]Listener, 0, len(m.HTTP))
	for _, l := range m.HTTP {
		if l.Claimed {
			continue
		}
		var lost []Problem
		if s := all[orAll(l.Hostname)]; l.Of.Namespace != s.owner.Of.Namespace {
			l, lost = s.grant(l)
			problems = append(problems, lost...)
		}
		if l.TLS || len(l.Routes) > 0 || l.Exclusive {
			found.HTTP = append(found.HTTP, l)
		}
	}
	for _, p := range m.Passthrough {
		var kept []string
		for _, host := range p.Hostnames {
			if s := all[orAll(host)]; p.Source.Namespace != s.owner.Of.Namespace {
				problems = append(problems, s.lost(p.Source, "TLS of host %s is not passed through", orAll(host)))
				continue
			}
			kept = append(kept, host)
		}
		if p.Hostnames = kept; len(kept) > 0 {
			found.Passthrough = append(found.Passthrough, p)
		}
	}
	return found, problems
}

// lost is the problem of an object that asks for what is the owner's.
func (s *shares) lost(of Name, format string, args ...any) Problem {
	return Problem{Source: of, Owner: s.owner.Of, Message: fmt.Sprintf(format, args...) + ": the host belongs to " + s.owner.Of.String() + ", the oldest that names it"}
}

// grant is what a listener of another namespace than the owner's has at the host.
func (s *shares) grant(l Listener) (Listener, []Problem) {
	var lost []Problem
	host := orAll(l.Hostname)
	nothing := Listener{Claim: l.Claim, Hostname: l.Hostname, Port: l.Port}
	switch {
	case s.absent, !s.plain && !s.terminated && !s.passed:
		return nothing, []Problem{s.lost(l.Of, "host %s is not served", host)}
	case s.passed && !s.plain:
		return nothing, []Problem{s.lost(l.Of, "host %s is not served, since its TLS is passed through", host)}
	case !l.TLS && !s.plain && !s.forced:
		return nothing, []Problem{s.lost(l.Of, "host %s is not served without TLS", host)}
	case l.TLS && !s.terminated:
		return nothing, []Problem{s.lost(l.Of, "host %s has neither TLS nor a redirect to it", host)}
	}
	if l.TLS && slices.ContainsFunc(l.Secrets, func(n Name) bool { return !slices.Contains(s.secrets, n) }) {
		lost = append(lost, s.lost(l.Of, "TLS of host %s has the certificate of the owner alone", host))
	}
	l.Secrets, l.Exclusive, l.rank = nil, false, s.rank(l.Of.Namespace)
	l.ForceHTTPS = l.ForceHTTPS && (s.plain || s.forced) // else the host is not there for requests without TLS
	isDefault := func(r *Route) bool { return r.Fallback }
	if slices.ContainsFunc(l.Routes, isDefault) {
		lost = append(lost, s.lost(l.Of, "host %s has not the default backend", host))
		l.Routes = slices.DeleteFunc(slices.Clone(l.Routes), isDefault)
	}
	return l, lost
}

func isWildcard(host string) bool { return strings.HasPrefix(host, "*") }

// widerOf finds the name that answers for a host which is not among them: that of the nearest wildcard.
func widerOf[V any](host string, among map[string]V) (wider string, found bool) {
	for rest := strings.TrimPrefix(host, "*."); rest != ""; {
		_, after, deeper := strings.Cut(rest, ".")
		if !deeper {
			break
		}
		rest = after
		if _, found = among["*."+rest]; found {
			return "*." + rest, true
		}
	}
	_, found = among["*"]
	return "*", found && host != "*"
}

// join adds the routes of a younger namespace to those of older ones at a host. A path that Kubernetes' rule puts before one of them,
// since it is exact or the longer prefix, goes right before that; everything else goes after all of them. What they have already, and
// an expression where they have all paths, is left out.
func (h *host) join(hostname string, older, younger []*Route) []*Route {
	if len(older) == 0 {
		return younger
	}
	paths := newPaths(older)
	before := make([][]*Route, len(older)+1) // by the place in older
	for _, r := range younger {
		if by := paths.owning(r); by != nil {
			h.problems = append(h.problems, Problem{Source: r.Source, Owner: by.Source, Message: fmt.Sprintf(
				"path %s of host %s is not served: it belongs to %s, the oldest that names it", expression.Quote(r.Path.Value), hostname, by.Source)})
			continue
		}
		at := len(older)
		if r.normalPath().Kind != Regex {
			at = paths.covering(r)
		}
		before[at] = append(before[at], r)
	}
	all := make([]*Route, 0, len(older)+len(younger))
	for i, r := range older {
		all = append(append(all, before[i]...), r)
	}
	return append(all, before[len(older)]...)
}

// paths finds routes by their paths. Longer ones of nested prefixes go first among the routes.
type paths struct {
	routes   []*Route
	requests map[matchKey]*Route
	next     map[segment]int // the node of a path
	at       []int           // by node: the route for the prefix, or none
	rest     int             // the route for all that no other one is for, or none
}

// segment is a part of a path, below the node of another one. That of / is 0.
type segment struct {
	parent int
	text   string
}

// none is no route.
const none = -1

func newPaths(routes []*Route) *paths {
	p := &paths{routes, map[matchKey]*Route{}, map[segment]int{}, []int{none}, none}
	for i, r := range routes {
		if p.requests[r.request()] == nil {
			p.requests[r.request()] = r
		}
		path := r.normalPath()
		if r.Fallback {
			p.rest = i
		}
		if r.Fallback || path.Kind != Prefix {
			continue
		}
		node := 0
		for text := range segmentsOf(path.Value) {
			next, known := p.next[segment{node, text}]
			if !known {
				next = len(p.at)
				p.next[segment{node, text}] = next
				p.at = append(p.at, none)
			}
			node = next
		}
		p.at[node] = i
	}
	return p
}

// segmentsOf are the parts of a path; / has none.
func segmentsOf(path string) iter.Seq[string] {
	if path = strings.TrimPrefix(path, "/"); path == "" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(path, "/")
}

// covering is the place of the route with the longest prefix of the path of another one; the number of routes, if there is none.
func (p *paths) covering(r *Route) int {
	found, node := p.at[0], 0
	for text := range segmentsOf(r.normalPath().Value) {
		next, known := p.next[segment{node, text}]
		if !known {
			break
		}
		if node = next; p.at[node] != none {
			found = p.at[node]
		}
	}
	switch {
	case found != none:
		return found
	case p.rest != none:
		return p.rest
	}
	return len(p.routes)
}

// owning is the route that has all that another one is for; nil if there is none.
func (p *paths) owning(r *Route) *Route {
	if by := p.requests[r.request()]; by != nil {
		return by
	}
	switch path := r.normalPath(); path.Kind {
	case Exact:
		if at := p.covering(r); at < len(p.routes) && p.routes[at].normalPath().Value == path.Value {
			return p.routes[at]
		}
	case Regex:
		switch {
		case p.at[0] != none:
			return p.routes[p.at[0]]
		case p.rest != none:
			return p.routes[p.rest]
		}
	}
	return nil
}
