// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/skep-operator/skep/resources/domain/expression"
)

// hostKey names a virtual host.
type hostKey struct {
	table, hostname string
	port            uint32 // 0 unless ports are told apart
}

// hostRoutes are the routes of a virtual host, in the order of their listeners.
type hostRoutes struct {
	routes    []ranked
	forced    []ranked // redirected to HTTPS
	exclusive bool     // the host is there without any route, too
	closed    []string // other hosts with the routes, which are those of a wider name
	wider     string   // that name
	domains   []string
	filters   []string    // for authorization, of all routes of the configuration
	ahead     []widerHost // whose requests with other ports come here, too
}

// ranked is a route, the rank of its namespace at the host, and the port of its listener, if it redirects to that.
type ranked struct {
	*Route
	rank int
	port uint32
}

func (l Listener) ranked(r *Route) ranked {
	at := ranked{Route: r, rank: l.rank}
	if r.Redirect.hasPortOfListener() {
		at.port = l.RedirectPort
	}
	return at
}

// atPort is the route as it is at its listener.
func (r ranked) atPort() *Route {
	if r.port == 0 {
		return r.Route
	}
	of, redirect := *r.Route, *r.Redirect
	redirect.listenerPort = r.port
	of.Redirect = &redirect
	return &of
}

func (h *hostRoutes) equal(other *hostRoutes) bool {
	return slices.Equal(h.routes, other.routes) && slices.Equal(h.forced, other.forced) && h.exclusive == other.exclusive && h.wider == other.wider &&
		slices.Equal(h.domains, other.domains) && slices.Equal(h.filters, other.filters) && slices.EqualFunc(h.ahead, other.ahead, widerHost.equal)
}

// host is a translated virtual host.
type host struct {
	of       *hostRoutes
	json     json.RawMessage // nil: Envoy would refuse it
	expected int             // bytes of its routes, before it was translated
	backends usage
	problems []Problem
}

// orAll is a host name, or * for all.
func orAll(hostname string) string {
	if hostname == "" {
		return "*"
	}
	return hostname
}

// table is the route table of a listener.
func (p part) table(l Listener) string {
	if l.TLS {
		return p.secureTable
	}
	return plainTable
}

// tables divides the routes of a part by virtual host. filters are those for authorization.
func (p part) tables(o Options, filters []string) map[hostKey]*hostRoutes {
	found, ports := map[hostKey]*hostRoutes{}, p.tablePorts(o)
	at := func(l Listener, table, hostname string) *hostRoutes {
		key := hostKey{table: table, hostname: hostname}
		if ports[table].areApart() {
			key.port = l.Port
		}
		if found[key] == nil {
			found[key] = &hostRoutes{filters: filters}
		}
		return found[key]
	}
	for _, l := range p.HTTP {
		if l.Exclusive {
			at(l, p.table(l), l.host()).exclusive = true
		}
		if len(l.closed) > 0 {
			to := at(l, p.table(l), l.host())
			to.closed, to.wider = l.closed[1:], orAll(l.Hostname)
		}
		for _, name := range l.Unserved {
			at(l, p.table(l), orAll(name)).exclusive = true
		}
		for names, r := range l.all() {
			for _, name := range names {
				to := at(l, p.table(l), name)
				if l.forced {
					to.forced = append(to.forced, l.ranked(r))
					continue
				}
				to.routes = append(to.routes, l.ranked(r))
				if l.TLS && l.ForceHTTPS {
					plain := at(l, plainTable, name)
					plain.forced = append(plain.forced, l.ranked(r))
				}
			}
		}
	}
	setDomains(found, ports)
	return found
}

// translateHost translates a virtual host. Routes that are not valid are left out. It ends with an error once routes are longer than what is left.
func (o Options) translateHost(key hostKey, of *hostRoutes, left budget) (*host, error) {
	h := &host{of: of, backends: usage{}}
	v := &routev3.VirtualHost{Name: of.domains[0], Domains: of.domains}
	for _, wider := range of.ahead {
		routes, err := o.withPort(wider, &left)
		if err != nil {
			return nil, err
		}
		v.Routes = append(v.Routes, routes...)
	}
	all, err := h.translate(o, key.hostname, &left)
	if err != nil {
		return nil, err
	}
	if of.wider != "" {
		h.problems = nil // the wider name has them
	}
	v.Routes = append(v.Routes, all.routes...)
	all.routes = nil // each is free once it is encoded
	text, err := encodeHost(v)
	if err != nil {
		for _, r := range all.from {
			h.problems = append(h.problems, Problem{Source: r.Source, Message: fmt.Sprintf("host %s is left out: %v", key.hostname, err)})
		}
		h.backends = nil
	}
	h.json = text
	return h, nil
}

// translated are the routes of a virtual host, and what they are made from.
type translated struct {
	routes []*routev3.Route
	from   []*Route
}

// oneLabel is the name of which requests may replace one label only, "" if they may any number.
func (o Options) oneLabel(of *hostRoutes, hostname string) string {
	if named := cmp.Or(of.wider, hostname); o.OneLabelWildcards && named != "*" {
		return named
	}
	return ""
}

// translate translates the routes of a virtual host, and spends what they have.
func (h *host) translate(o Options, hostname string, left *budget) (all translated, err error) {
	oneLabel := o.oneLabel(h.of, hostname)
	isForced := map[*Route]bool{}
	for _, rank := range h.of.ranks() {
		forced := o.merge(ofRank(h.of.forced, rank), func(r *Route) bool {
			return h.isValid(o, r, func() []*routev3.Route { return []*routev3.Route{r.httpsRedirect(oneLabel)} })
		})
		redirected := h.redirects(rank, forced)
		for _, r := range forced {
			isForced[r] = true
		}
		others := slices.DeleteFunc(ofRank(h.of.routes, rank), func(r *Route) bool { return h.isRedirected(hostname, r, redirected) })
		others = o.merge(others, func(r *Route) bool {
			return h.isValid(o, r, func() []*routev3.Route { return o.routes(r, oneLabel) })
		})
		own := slices.Concat(forced, others)
		slices.SortStableFunc(own, comparePrecedence)
		if o.ByAge {
			ages := h.of.ages()
			sortByAge(own, ages)
			h.reportBehind(hostname, own, ages)
		}
		all.from = h.join(hostname, all.from, own)
	}
	for _, r := range all.from {
		var routes []*routev3.Route
		if isForced[r] {
			routes = o.authorize(h.of, &Route{}, []*routev3.Route{r.httpsRedirect(oneLabel)})
		} else {
			routes = o.authorize(h.of, r, o.routes(r, oneLabel))
			h.use(o, r)
		}
		if err := left.spendRoutes(routes); err != nil {
			return all, err
		}
		all.routes = append(all.routes, routes...)
	}
	return all, nil
}

// redirects are requests that are redirected to HTTPS: the route that has it so, and which objects ask for it.
type redirects map[matchKey]*redirected

type redirected struct {
	by      *Route
	askedBy map[Name]bool
}

// redirects are those of a rank, by the routes that are written for them.
func (h *host) redirects(rank int, written []*Route) redirects {
	all := redirects{}
	for _, r := range written {
		all[r.request()] = &redirected{r, map[Name]bool{}}
	}
	for _, r := range ofRank(h.of.forced, rank) {
		if to := all[r.request()]; to != nil {
			to.askedBy[r.Source] = true
		}
	}
	return all
}

// isRedirected reports whether the requests of a route are redirected to HTTPS. An object that does not ask for it is to know.
func (h *host) isRedirected(hostname string, r *Route, all redirects) bool {
	to := all[r.request()]
	if to == nil {
		return false
	}
	if !to.askedBy[r.Source] {
		h.problems = append(h.problems, Problem{Source: r.Source, Message: fmt.Sprintf(
			"path %s of host %s is not served without TLS: %s has it redirected to HTTPS", expression.Quote(r.Path.Value), hostname, to.by.Source)})
	}
	return true
}

// ranks are the ranks of the routes, the lowest first.
func (h *hostRoutes) ranks() (all []int) {
	for _, r := range slices.Concat(h.routes, h.forced) {
		all = append(all, r.rank)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ofRank are the routes of a rank that may be written.
func ofRank(all []ranked, rank int) (found []*Route) {
	for _, r := range all {
		if r.rank == rank && !r.Refused {
			found = append(found, r.atPort())
		}
	}
	return found
}

// isValid reports whether Envoy accepts a route.
func (h *host) isValid(o Options, r *Route, translate func() []*routev3.Route) bool {
	if o.Checked {
		return true
	}
	err := r.checkContent(o.MostProgram)
	for _, to := range translate() {
		if err == nil {
			err = to.ValidateAll()
		}
	}
	if err != nil {
		h.problems = append(h.problems, Problem{Source: r.Source, Message: fmt.Sprintf("the route for path %s is left out: %v", expression.Quote(r.Path.Value), err)})
	}
	return err == nil
}

// use records the backends that a route refers to.
func (h *host) use(o Options, r *Route) {
	if r.Redirect != nil || totalWeight(r.Backends) == 0 || !o.canAsk(h.of, r) {
		return
	}
	for _, b := range r.Backends {
		h.backends.addHTTP(o, b, r.GRPC)
	}
	for _, m := range r.Mirrors {
		h.backends.addHTTP(o, m.Backend, r.GRPC)
	}
}

// request is the key of the requests that a route is for.
func (r *Route) request() matchKey {
	key := r.key()
	key.fallback = false
	return key
}

// request is the key of the requests that a route is for, as far as another one may have those of other schemes.
func (o Options) request(r *Route) matchKey {
	key := r.request()
	if o.isByScheme(r) {
		key.scheme = r.Redirect.Scheme
	}
	return key
}

// merge makes one of routes for the same requests: the first valid one, with the backends of all of them unless it is to take them alone. A
// fallback gives way to another route. A redirect that is for one scheme alone leaves the requests of others to the next route. What
// others have already is not made to be checked: it may be a hundred times as large as what is written.
func (o Options) merge(all []*Route, isValid func(*Route) bool) []*Route {
	var found []*Route
	at, joined := map[matchKey]int{}, map[int]bool{}
	for _, fallbacks := range []bool{false, true} {
		for _, r := range all {
			if r.Fallback != fallbacks {
				continue
			}
			key := o.request(r)
			i, exists := at[key]
			switch {
			case exists && (o.FirstWins || found[i].Fallback != r.Fallback), !isValid(r):
			case !exists:
				at[key] = len(found)
				found = append(found, r)
			case !joined[i]:
				joined[i] = true
				found[i] = new(*found[i])
				found[i].Backends = slices.Concat(found[i].Backends, r.Backends)
			default:
				found[i].Backends = append(found[i].Backends, r.Backends...)
			}
		}
	}
	return found
}
