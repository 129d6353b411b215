// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"maps"
	"slices"
	"strings"

	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// About what is written once for a Gateway, for a listener of HTTP, for one with TLS, for a certificate, for a cluster, for TLS to it, for one of the names
// that its certificate may have, and for a filter chain of a TLSRoute.
const (
	sizeOfGateway, sizeOfPlain, sizeOfTLS, sizeOfCertificate         = 2000, 200, 1500, 60
	sizeOfCluster, sizeOfUpstreamTLS, sizeOfUpstreamName, sizeOfPass = 500, 700, 100, 500
)

// sizes are about what is written for a Gateway with all that it could have, in bytes.
type sizes struct {
	total int
	parts []envoyres.Part                         // what can be left out
	again func(refused map[envoy.Name]bool) sizes // finds them without filters for authorization
}

// What is left out of a namespace first is younger than all the rest: filters for authorization, which each route has to name, and then what routes and
// ListenerSets have. Their host names, which are closed, are last.
const (
	ageOfRules   slim.Time = 1 << 40
	ageOfFilters slim.Time = 1 << 41
)

const (
	filterPrefix = "ExternalAuth/"
	namesPrefix  = "names of "
)

// namesOf is the host names of a route or a ListenerSet among what can be left out.
func namesOf(id slim.Key) slim.Key {
	return slim.Key{Namespace: id.Namespace, Name: namesPrefix + id.Name}
}

// filterOf is a filter for authorization that a namespace has brought.
func filterOf(namespace, name string) slim.Key {
	return slim.Key{Namespace: namespace, Name: filterPrefix + name}
}

// refusedFilters are the filters among what is left out, by the namespaces that have brought them.
func refusedFilters(out map[slim.Key]bool) (all map[envoy.Name]bool) {
	for id := range out {
		if name, ok := strings.CutPrefix(id.Name, filterPrefix); ok {
			if all == nil {
				all = map[envoy.Name]bool{}
			}
			all[envoy.Name{Namespace: id.Namespace, Name: name}] = true
		}
	}
	return all
}

// leaveOut chooses what a configuration of a size goes without. Without filters the routes of others are smaller.
func (s sizes) leaveOut(most int) map[slim.Key]bool {
	out := s.chosen(most)
	filters := refusedFilters(out)
	if len(filters) == 0 {
		return out
	}
	left := s.again(filters).chosen(most)
	for id := range out {
		if strings.HasPrefix(id.Name, filterPrefix) {
			left[id] = true
		}
	}
	return left
}

// without is the size without what is left out.
func (s sizes) without(out map[slim.Key]bool) int {
	if filters := refusedFilters(out); len(filters) > 0 {
		s = s.again(filters)
	}
	for _, part := range s.parts {
		if out[part.Object] {
			s.total -= part.Size
		}
	}
	return s.total
}

func (s sizes) chosen(most int) map[slim.Key]bool {
	most -= s.total
	for _, part := range s.parts {
		most += part.Size
	}
	out := map[slim.Key]bool{}
	for _, id := range envoyres.LeaveOut(s.parts, most) {
		out[id] = true
		if name, ok := strings.CutPrefix(id.Name, namesPrefix); ok { // what has no space for its names has none for the rest
			out[slim.Key{Namespace: id.Namespace, Name: name}] = true
		}
	}
	return out
}

func (s *sizes) add(id slim.Key, created slim.Time, size int) {
	if s.total += size; size > 0 {
		s.parts = append(s.parts, envoyres.Part{Object: id, Created: created, Size: size})
	}
}

func (s *sizes) addObject(id slim.Key, created slim.Time, size routeSize) {
	s.add(id, created+ageOfRules, size.rules)
	s.add(namesOf(id), created, size.names)
}

// routeSize is the size of what a route or a ListenerSet has, and of its host names, which are written where it is left out, too.
type routeSize struct {
	rules, names int
	// Of a route: what of rules does not depend on others; and what it is itself, wherever: the size at one host, that of the names in its spec, and the
	// number of listeners that accept it.
	own, one, hosts, at int
}

// atLeast is the size of a route of which some listeners are left out: what it had at all of them, as far as it is still as large.
func (s routeSize) atLeast(was routeSize) routeSize {
	names := func(size int) int { return part(part(size, s.hosts, was.hosts), s.at, was.at) }
	rules := func(size int) int { return part(names(size), s.one, was.one) }
	return routeSize{max(s.rules, rules(was.rules)), max(s.names, names(was.names)), max(s.own, rules(was.own)), s.one, s.hosts, s.at}
}

// part is what a size becomes as what it is of gets smaller.
func part(size, now, was int) int {
	if now >= was {
		return size
	}
	return int(float64(size) * float64(now) / float64(was))
}

// sizeOfOwn is the size of what a route has itself: one is that of its routes of Envoy at one host, and of one that passes TLS through, which has none of these,
// that of its references to backends.
func sizeOfOwn(r *route.Route, ofHTTP int) (one, hosts int) {
	if one = ofHTTP; !r.IsHTTP() {
		for _, key := range r.Targets() {
			one += sizeOfCertificate + len(key.Namespace) + len(key.Name)
		}
	}
	for _, name := range r.Hostnames {
		hosts += envoy.HostSize(string(name))
	}
	return one, hosts
}

// sizes are those of a plan.
func (p *planner) sizes(plan *gatewayPlan, o envoy.Options) sizes {
	return p.sizesWithout(plan, o, nil)
}

func (p *planner) sizesWithout(plan *gatewayPlan, o envoy.Options, refused map[envoy.Name]bool) (s sizes) {
	m := newMeter(plan, o, refused)
	own := sizeOfListeners(plan.own)
	s.total = sizeOfGateway + own.rules + own.names
	for _, set := range plan.sets {
		s.addObject(set.of.id(), set.of.CreationTimestamp, sizeOfListeners(set.listeners))
	}
	was := p.packing.routes
	p.packing.routes = make(map[slim.Key]routeSize, len(p.routes))
	for _, r := range slices.SortedFunc(maps.Values(p.routes), func(a, b *plannedRoute) int { return route.CompareAge(a.of, b.of) }) {
		id := r.of.ID()
		size, filters := m.route(r)
		if slices.ContainsFunc(r.at, func(h listener.Hosts) bool { return h.Listener.LeftOut != nil }) {
			size = size.atLeast(was[id])
		}
		p.packing.routes[id] = size
		s.addObject(id, r.of.CreationTimestamp, size)
		for _, f := range filters {
			s.add(f.Object, f.Created, f.Size)
		}
	}
	s.again = func(refused map[envoy.Name]bool) sizes { return p.sizesWithout(plan, o, refused) }
	return s
}

// meter finds what routes add, from the oldest one on: what several of them have once is that of the oldest.
type meter struct {
	o       envoy.Options
	refused map[envoy.Name]bool // filters for authorization
	main    map[bool]uint32     // the main port of plain HTTP, and of HTTPS, where ports are told apart, else 0
	chains  int                 // of HTTP
	// Of the routes up to here: the hosts and clusters that they have, how many routes of Envoy they are, and their filters by namespace.
	hosts    map[hostAt]bool
	clusters map[clusterOf]bool
	parts    int
	filters  map[string]bool
	number   map[slim.String]int
	switches int // the size of what switches all filters off
}

type hostAt struct {
	place
	host string
}

type clusterOf struct {
	envoy.Name
	port string
	tls  bool
}

func newMeter(plan *gatewayPlan, o envoy.Options, refused map[envoy.Name]bool) *meter {
	m := &meter{
		o: o, refused: refused, main: map[bool]uint32{}, chains: 1,
		hosts: map[hostAt]bool{}, clusters: map[clusterOf]bool{}, filters: map[string]bool{}, number: map[slim.String]int{},
	}
	ports := map[bool][]uint32{}
	for _, l := range plan.listeners {
		if !l.Usable() || l.IsPort() {
			continue
		}
		if l.HasTLS() {
			m.chains++
		}
		if at := placeOf(l); !at.secure || !o.PerPort {
			ports[at.secure] = append(ports[at.secure], at.port)
		}
	}
	for secure, all := range ports {
		slices.Sort(all)
		if all = slices.Compact(all); !o.PortHosts || len(all) < 2 {
			continue
		}
		m.main[secure] = all[0]
		if of := map[bool]uint32{false: 80, true: 443}[secure]; slices.Contains(all, of) {
			m.main[secure] = of
		}
	}
	return m
}

// isTwice reports whether the routes of a host are written once more: those of a wildcard at the main port are for requests with other ports, too.
func (m *meter) isTwice(at hostAt) bool {
	return m.main[at.secure] == at.port && strings.HasPrefix(at.host, "*.")
}

// route is the size of a route, and the filters that it brings, each with the size of what all routes up to here have for it. Younger ones count it as theirs: what
// is older is not left out for them.
func (m *meter) route(r *plannedRoute) (s routeSize, filters []envoyres.Part) {
	one, places := r.measure(m.o), 0
	for at, names := range r.names {
		for _, name := range names {
			at := hostAt{at, name}
			if places++; !m.hosts[at] {
				m.hosts[at] = true
				s.names += envoy.HostSize(name)
			}
			if m.isTwice(at) {
				places++
				s.rules += one.Routes * envoy.HostSize(name)
			}
		}
	}
	s.rules += places * one.Total
	for _, p := range r.tls {
		s.rules += sizeOfPass + sizeOfSecrets(p.Secrets)
		for _, name := range p.Hostnames {
			s.names += 2 * (len(name) + len(`"",`))
		}
		for _, b := range p.Backends {
			s.rules += 2 * (len(b.Namespace) + len(b.Name.Name) + sizeOfCertificate)
		}
	}
	s.own, r.size = s.rules, s.rules
	s.at = len(r.at)
	s.one, s.hosts = sizeOfOwn(r.of, one.Total)
	s.rules += m.addClusters(r) + places*one.Routes*m.switches
	m.parts += places * one.Routes
	return s, m.addFilters(r)
}

// addClusters adds the clusters of a route, and returns the size of those that no older one has.
func (m *meter) addClusters(r *plannedRoute) (size int) {
	add := func(all []envoy.Backend) {
		for _, b := range all {
			key := clusterOf{b.Name, b.Port, b.TLS != nil}
			if m.clusters[key] {
				continue
			}
			m.clusters[key] = true
			if size += sizeOfCluster + 4*(len(b.Namespace)+len(b.Name.Name)); b.TLS != nil {
				size += sizeOfUpstreamTLS + 2*len(b.TLS.ServerName)
				for _, n := range b.TLS.Names {
					size += sizeOfUpstreamName + len(n.Value)
				}
			}
		}
	}
	for i := range r.rules {
		if i > 0 && len(r.rules[i].Mirrors) == 0 && sameBackends(r.rules[i].Backends, r.rules[i-1].Backends) {
			continue
		}
		add(r.rules[i].Backends)
		for _, m := range r.rules[i].Mirrors {
			add([]envoy.Backend{m.Backend})
		}
	}
	for _, p := range r.tls {
		add(p.Backends)
	}
	return size
}

// sameBackends reports whether backends are those of one rule.
func sameBackends(a, b []envoy.Backend) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// addFilters adds the filters for authorization that no older route has.
func (m *meter) addFilters(r *plannedRoute) (parts []envoyres.Part) {
	var last *envoy.ExternalAuth
	for i := range r.rules {
		auth := r.rules[i].Auth
		if auth == last || auth == nil {
			continue
		}
		last = auth
		name := auth.Filter()
		if name == "" || m.filters[name] {
			continue
		}
		id := filterOf(r.of.Namespace.String(), name)
		if m.refused[envoy.Name{Namespace: id.Namespace, Name: name}] {
			continue
		}
		if m.number[r.of.Namespace]++; m.number[r.of.Namespace] > envoy.MostAuths {
			continue // another namespace may bring it
		}
		m.filters[name] = true
		route, chain := auth.Sizes()
		m.switches += route
		parts = append(parts, envoyres.Part{Object: id, Created: r.of.CreationTimestamp + ageOfFilters, Size: m.parts*route + m.chains*chain + sizeOfCluster})
	}
	return parts
}

// measure is the size of the routes of Envoy at one host.
func (to *plannedRoute) measure(o envoy.Options) envoy.Size {
	if to.one == nil || to.byScheme != o.RedirectsByScheme {
		to.one, to.byScheme = new(envoy.SizeOf(to.rules, o)), o.RedirectsByScheme
	}
	return *to.one
}

// sizeOfListeners is about what is written for listeners without routes.
func sizeOfListeners(all []*listener.Listener) (s routeSize) {
	for _, l := range all {
		switch {
		case !l.Accepted.OK || !l.Ready || l.IsPort():
		case l.HasTLS():
			s.rules += sizeOfTLS + sizeOfSecrets(l.Secrets)
			s.names += envoy.HostSize(l.Hostname)
		default:
			s.rules += sizeOfPlain
			s.names += envoy.HostSize(l.Hostname)
		}
	}
	return s
}

func sizeOfSecrets(all []envoy.Name) (size int) {
	for _, name := range all {
		size += sizeOfCertificate + len(name.Namespace) + len(name.Name)
	}
	return size
}
