// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"maps"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// planner plans the successive states of a Gateway. Listeners and routes that have not changed are not planned again.
type planner struct {
	uid      slim.UID
	parents  map[slim.Key]*plannedListeners // the Gateway and its ListenerSets, by id
	together []listenerState
	routes   map[slim.Key]*plannedRoute // by id
	packing  packing
	last     *assembly
	cache    *route.Cache // which other Gateways and the statuses share; nil: nothing is shared

	// oneListener says that agents have one listener of Envoy for all ports of a Gateway. It is set before plan.
	oneListener bool
	// joins says that namespaces share hosts, whichever object is older. It is set before plan.
	joins bool
	// most is how many places of host names there may be, 0 for as many as are translated. It is set before plan.
	most int
	// taken are the ports of the nodes that the Gateway and its ListenerSets do not have. It is set before plan.
	taken takenPorts
}

// assembly is what listeners and routes are together. It is the same one as long as these are.
type assembly struct {
	attached    map[*listener.Listener]int32 // the number of routes
	model       envoy.Model
	oneListener bool
	out         map[slim.Key]bool                                     // what is left out, by id
	backends    []portTo                                              // of ports of TCP and UDP, sorted by port
	refused     map[slim.Key]map[*listener.Listener]*listener.Refusal // by id of a route
	shared      []listener.Sharing
	crowd       map[slim.Key]condition.Condition // why routes are not attached at all, by id
}

// plannedListeners are those of a Gateway or a ListenerSet, and the answers that they depend on.
type plannedListeners struct {
	uid    slim.UID
	number int64 // of the generation
	cut    slim.Cut
	asked  route.Answers
	all    []*listener.Listener
}

// listenerState is what routes depend on of a listener beside others.
type listenerState struct {
	*listener.Listener
	isAccepted, isUsable bool
}

// plannedRoute is what a Gateway has of a route.
type plannedRoute struct {
	of     *route.Route
	uid    slim.UID
	number int64 // of the generation
	asked  route.Answers

	places   int                                      // of its host names at listeners
	crowded  bool                                     // it is not attached, since the places are too many
	at       []listener.Hosts                         // the listeners that accept it
	compiled bool                                     // the rest is known, for these refusals
	refused  map[*listener.Listener]*listener.Refusal // why listeners of these do not serve it
	attached []*listener.Listener                     // those that serve it
	rules    []envoy.Route                            // what it was compiled to, for all places
	names    map[place][]string                       // the host names that it has
	unserved map[place][]string                       // host names of a route none of whose matches Envoy accepts
	tls      []envoy.Passthrough
	ports    []route.PortBackend

	one      *envoy.Size // of the rules at one host, nil before it is asked for
	byScheme bool        // for which it is
	size     int         // at all hosts, about, without what routes have of others
}

// gatewayPlan is what a Gateway is to be.
type gatewayPlan struct {
	own       []*listener.Listener              // of the Gateway itself
	sets      []setPlan                         // of all ListenerSets that refer to it, in the order of their precedence
	listeners []*listener.Listener              // its own, and those of the ListenerSets that it allows
	index     listener.Index                    // of these
	byParent  map[slim.Key][]*listener.Listener // by the id of the Gateway or the ListenerSet
	*assembly
}

// isProgrammable reports whether there is a listener of the Gateway itself that accepts connections.
func (p *gatewayPlan) isProgrammable() bool {
	return slices.ContainsFunc(p.own, (*listener.Listener).Usable)
}

// plan plans a Gateway with the ListenerSets that refer to it, and the routes that refer to any of them.
func (p *planner) plan(g *gateway, sets []*listenerSet, routes []*route.Route, lookup route.Lookup) *gatewayPlan {
	if p.uid != g.UID {
		*p = planner{uid: g.UID, cache: p.cache, oneListener: p.oneListener, joins: p.joins, most: p.most, taken: p.taken}
	}
	plan := p.planParents(g, sets, routes, lookup)
	moved := p.listenersChanged(plan.listeners)
	changed := moved || p.last == nil || p.last.oneListener != p.oneListener || !maps.Equal(p.last.out, p.packing.out) || len(routes) != len(p.routes)
	now, isNew := make(map[slim.Key]*plannedRoute, len(routes)), map[slim.Key]bool{}
	for _, r := range routes {
		id := r.ID()
		was := p.routes[id]
		if was == nil || was.uid != r.UID || was.number != r.Generation || was.of.Cut != r.Cut || !was.asked.IsFresh(lookup) {
			was, isNew[id] = newPlannedRoute(r), true
		}
		if moved || isNew[id] {
			was.places = plan.places(r, lookup.Record(was.asked))
		}
		was.of = r
		now[id] = was
	}
	crowd := crowdOf(now, p.mostPlaces())
	for id, was := range now {
		switch {
		case crowd[id] && was.crowded && !moved:
		case crowd[id]:
			now[id], changed = &plannedRoute{of: was.of, uid: was.uid, number: was.number, asked: was.asked, places: was.places, crowded: true}, true
		case isNew[id]:
			was.at, changed = plan.hostsOf(was.of, lookup.Record(was.asked)), true
		case was.crowded || moved && !was.stays(plan, was.of, lookup):
			again := newPlannedRoute(was.of)
			again.places, again.at = was.places, plan.hostsOf(was.of, lookup.Record(again.asked))
			now[id], changed = again, true
		}
	}
	if p.routes = now; changed {
		p.last = p.assemble(plan.listeners, lookup)
	}
	plan.assembly = p.last
	return plan
}

func (p *planner) mostPlaces() int { return cmp.Or(p.most, envoy.MostPlaces) }

func newPlannedRoute(r *route.Route) *plannedRoute {
	return &plannedRoute{of: r, uid: r.UID, number: r.Generation, asked: route.Answers{}}
}

// planParents plans the listeners of a Gateway and of the ListenerSets that it allows.
func (p *planner) planParents(g *gateway, sets []*listenerSet, routes []*route.Route, lookup route.Lookup) *gatewayPlan {
	now := map[slim.Key]*plannedListeners{}
	listenersOf := func(h listener.Parent) []*listener.Listener {
		was := p.parents[h.ID()]
		if was == nil || was.uid != h.UID || was.number != h.Generation || was.cut != h.Cut || !was.asked.IsFresh(lookup) {
			was = &plannedListeners{uid: h.UID, number: h.Generation, cut: h.Cut, asked: route.Answers{}}
			was.all = listener.Plan(h, lookup.Record(was.asked))
		}
		now[h.ID()] = was
		return was.all
	}
	own := g.asParent()
	plan := &gatewayPlan{own: listenersOf(own)}
	plan.byParent = map[slim.Key][]*listener.Listener{own.ID(): plan.own}
	objects := [][]*listener.Listener{plan.own}
	for _, s := range slices.SortedFunc(slices.Values(sets), comparePrecedence) {
		to := setPlan{of: s, allowed: g.allowsSets(s.Namespace.String(), lookup)}
		if to.allowed {
			to.listeners = listenersOf(s.asParent())
			plan.byParent[s.id()] = to.listeners
			objects = append(objects, to.listeners)
		}
		plan.sets = append(plan.sets, to)
	}
	p.merge(plan, objects, routes, lookup)
	plan.index = listener.NewIndex(plan.listeners)
	p.markLeftOut(plan)
	p.parents = now
	return plan
}

// listenersChanged reports whether the listeners that are configured together are others than before.
func (p *planner) listenersChanged(all []*listener.Listener) bool {
	was := p.together
	p.together = nil
	for _, l := range all {
		p.together = append(p.together, listenerState{l, l.Accepted.OK, l.Usable()})
	}
	return !slices.Equal(was, p.together)
}

// hostsOf are the listeners that accept a route by any of its references, with the host names that it has there.
func (p *gatewayPlan) hostsOf(r *route.Route, lookup route.Lookup) (at []listener.Hosts) {
	seen := map[*listener.Listener]bool{}
	for _, ref := range r.Parents {
		id, ok := r.ParentID(ref)
		listeners, here := p.byParent[id]
		if !ok || !here {
			continue
		}
		for _, h := range listener.Attach(r, ref, listeners, p.index, lookup).At {
			if !seen[h.Listener] {
				seen[h.Listener] = true
				at = append(at, h)
			}
		}
	}
	return at
}

// stays reports whether the same listeners accept a route as before.
func (was *plannedRoute) stays(p *gatewayPlan, r *route.Route, lookup route.Lookup) bool {
	return slices.EqualFunc(was.at, p.hostsOf(r, lookup.Record(was.asked)), listener.Hosts.Equal)
}

// compile makes what a route is at the listeners that do not refuse it.
func (to *plannedRoute) compile(refused map[*listener.Listener]*listener.Refusal, cache *route.Cache, lookup route.Lookup) {
	to.compiled, to.refused, to.attached, to.rules, to.names, to.unserved, to.tls, to.ports, to.one = true, refused, nil, nil, nil, nil, nil, nil, nil
	names := map[*listener.Listener][]string{}
	for _, h := range to.at {
		if refused[h.Listener] == nil {
			to.attached = append(to.attached, h.Listener)
			names[h.Listener] = h.Names
		}
	}
	if len(to.attached) == 0 {
		return
	}
	r := to.of
	c := cache.Compile(r, lookup.Record(to.asked))
	to.addRules(c, names)
	to.ports = c.Ports
	if r.Kind == route.KindTLS {
		to.addConnections(c, names)
	}
	if c.IsDropped() { // all that it has is closed, and it is not accepted
		to.attached = nil
	}
}

// addConnections adds where the connections of a TLSRoute go at its listeners. Those of which that is not known are closed.
func (to *plannedRoute) addConnections(c *route.Compiled, names map[*listener.Listener][]string) {
	for _, l := range to.attached {
		at := envoy.Passthrough{Source: to.of.Source(), Hostnames: names[l], Port: uint32(l.Of.Port)}
		switch {
		case !l.Usable():
			continue
		case c.Unknown:
			at.Exclusive = true
		case len(c.Passthrough) == 0:
			continue
		case l.Terminates():
			at.Backends, at.Secrets = c.Terminated[0], l.Secrets
		default:
			at.Backends, at.Secrets = c.Passthrough[0], l.Secrets
		}
		to.tls = append(to.tls, at)
	}
}

// claim claims the hosts of a route at all its listeners. It returns why some do not serve it.
func (to *plannedRoute) claim(at *listener.HostClaims) (refused map[*listener.Listener]*listener.Refusal) {
	for _, h := range to.at {
		if why := at.Claim(to.of, h); why != nil {
			if refused == nil {
				refused = map[*listener.Listener]*listener.Refusal{}
			}
			refused[h.Listener] = why
		}
	}
	return refused
}

// place is where a route of Envoy is: at a port, for HTTPS or without TLS.
type place struct {
	secure bool
	port   uint32
}

func placeOf(l *listener.Listener) place { return place{l.Terminates(), uint32(l.Of.Port)} }

// addRules adds the routes of Envoy, and the host names that they have at all listeners of a place together. All places have the same
// routes: one with many rules costs no more at many listeners.
func (to *plannedRoute) addRules(c *route.Compiled, names map[*listener.Listener][]string) {
	at, several := map[place][]string{}, map[place][][]string{}
	for _, l := range to.attached {
		if !l.Usable() {
			continue
		}
		where := placeOf(l)
		switch has, exists := at[where]; {
		case !exists:
			at[where] = names[l] // which are sorted, and shared with other listeners
		case several[where] == nil:
			several[where] = [][]string{has, names[l]}
		default:
			several[where] = append(several[where], names[l])
		}
	}
	for where, all := range several {
		joined := slices.Concat(all...)
		slices.Sort(joined)
		at[where] = slices.Compact(joined)
	}
	to.names, to.rules = at, c.Routes
	if len(c.Routes) == 0 && c.IsDropped() {
		to.unserved = at
	}
}

// assemble puts the model of a Gateway together. Of routes for the same requests, that of the older object goes first.
func (p *planner) assemble(listeners []*listener.Listener, lookup route.Lookup) *assembly {
	to := &assembly{
		attached: map[*listener.Listener]int32{}, oneListener: p.oneListener, out: p.packing.out,
		refused: map[slim.Key]map[*listener.Listener]*listener.Refusal{}, crowd: map[slim.Key]condition.Condition{},
	}
	all := slices.SortedFunc(maps.Values(p.routes), func(a, b *plannedRoute) int { return route.CompareAge(a.of, b.of) })
	claims := listener.NewHostClaims(listeners, !p.oneListener, p.joins)
	routes, unserved, ports := map[place][]envoy.NamedRoutes{}, map[place][]string{}, map[listener.ProtocolPort]bool{}
	for _, r := range all {
		if r.crowded {
			claims.CloseCrowd(r.of, lookup)
		}
		isUnknown := p.cache.IsUnknown(r.of, lookup)
		for _, h := range r.at {
			if claims.Expect(r.of, h); isUnknown || p.packing.out[r.of.ID()] {
				claims.Close(r.of, h, isUnknown)
			}
		}
	}
	for _, r := range all {
		if r.crowded {
			to.crowd[r.of.ID()] = tooManyPlaces(r.places, p.mostPlaces())
			continue
		}
		refused := r.claim(claims)
		if !r.compiled || !maps.EqualFunc(refused, r.refused, (*listener.Refusal).Equal) {
			r.compile(refused, p.cache, lookup)
		}
		out := p.packing.out[r.of.ID()]
		if out {
			refused = r.withLeftOut(refused, p.packing.routes[r.of.ID()])
		}
		if len(refused) > 0 {
			to.refused[r.of.ID()] = refused
		}
		if out {
			to.close(r, unserved)
			continue
		}
		for _, l := range r.attached {
			if to.attached[l]++; l.IsPort() && l.Usable() && !ports[l.ProtocolPort()] { // the oldest route has the port
				ports[l.ProtocolPort()] = true
				to.addBackends(l.ProtocolPort(), r.ports)
			}
		}
		for at, names := range r.names {
			routes[at] = append(routes[at], envoy.NamedRoutes{Hostnames: names, Routes: r.rules})
		}
		for at, names := range r.unserved {
			unserved[at] = append(unserved[at], names...)
		}
		to.model.Passthrough = append(to.model.Passthrough, r.tls...)
	}
	to.shared, to.model.RefusedAuths = claims.Shared, refusedFilters(p.packing.out)
	slices.SortStableFunc(to.backends, func(a, b portTo) int { return listener.ComparePorts(a.at, b.at) })
	to.closePlain(listeners)
	// All listeners of a place share its routes, which have host names of their own: the first listener has them.
	for _, l := range listeners {
		if l.Accepted.OK && l.Hostname != "" && l.Of.Protocol != gatewayv1.HTTPProtocolType {
			to.model.Passthrough = append(to.model.Passthrough, envoy.Passthrough{Hostnames: []string{l.Hostname}, Port: uint32(l.Of.Port), Exclusive: true})
		}
		if l.Accepted.OK && !l.Usable() && l.Of.Protocol == gatewayv1.HTTPSProtocolType {
			to.model.HTTPSPorts = append(to.model.HTTPSPorts, uint32(l.Of.Port))
		}
		if !l.Usable() || l.Of.Protocol == gatewayv1.TLSProtocolType || l.IsPort() {
			continue
		}
		port := uint32(l.Of.Port)
		to.model.HTTP = append(to.model.HTTP, envoy.Listener{
			Hostname: l.Hostname, Port: port, RedirectPort: port, TLS: l.Terminates(), Secrets: l.Secrets, Exclusive: true,
			Unserved: unserved[placeOf(l)], Named: routes[placeOf(l)],
		})
		delete(routes, placeOf(l))
		delete(unserved, placeOf(l))
	}
	return to
}

// addBackends has a port lead to backends.
func (to *assembly) addBackends(at listener.ProtocolPort, all []route.PortBackend) {
	for _, b := range all {
		to.backends = append(to.backends, portTo{at, b})
	}
}

// hasWeights reports whether backends of ports have weights.
func (to *assembly) hasWeights() bool {
	return slices.ContainsFunc(to.backends, func(b portTo) bool { return b.Weight != nil })
}
