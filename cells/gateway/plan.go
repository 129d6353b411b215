// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"maps"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// planner plans the successive states of a Gateway. Listeners and routes that have not changed are not planned again.
type planner struct {
	uid      slim.UID
	holders  map[slim.Key]*plannedListeners // the Gateway and its ListenerSets, by id
	together []listenerState
	routes   map[slim.Key]*plannedRoute // by id
	last     *assembly
}

// assembly is what listeners and routes are together. It is the same one as long as these are.
type assembly struct {
	attached map[*listener]int32 // the number of routes
	model    envoy.Model
}

// plannedListeners are those of a Gateway or a ListenerSet, and the answers that they depend on.
type plannedListeners struct {
	uid    slim.UID
	number int64 // of the generation
	asked  recorded
	all    []*listener
}

// listenerState is what routes depend on of a listener beside others.
type listenerState struct {
	*listener
	isAccepted, isUsable bool
}

// plannedRoute is what a Gateway has of a route.
type plannedRoute struct {
	of     *route
	uid    slim.UID
	number int64 // of the generation
	asked  recorded

	at       []hosts     // the listeners that accept it
	attached []*listener // those of them that serve it
	rules    []attachedRule
	tls      []envoy.Passthrough
}

// attachedRule is a route of Envoy with the host names that it has at a port.
type attachedRule struct {
	at    place
	route *envoy.Route
}

// gatewayPlan is what a Gateway is to be.
type gatewayPlan struct {
	own       []*listener              // of the Gateway itself
	sets      []setPlan                // of all ListenerSets that refer to it, in the order of their precedence
	listeners []*listener              // its own, and those of the ListenerSets that it allows
	byHolder  map[slim.Key][]*listener // by the id of the Gateway or the ListenerSet
	*assembly
}

// isProgrammable reports whether there is a listener of the Gateway itself that accepts connections.
func (p *gatewayPlan) isProgrammable() bool {
	return slices.ContainsFunc(p.own, (*listener).usable)
}

// plan plans a Gateway with the ListenerSets that refer to it, and the routes that refer to any of them.
func (p *planner) plan(g *gateway, sets []*listenerSet, routes []*route, ask asker) *gatewayPlan {
	if p.uid != g.UID {
		*p = planner{uid: g.UID}
	}
	plan := p.planHolders(g, sets, ask)
	moved := p.listenersChanged(plan.listeners)
	changed := moved || p.last == nil || len(routes) != len(p.routes)
	now := make(map[slim.Key]*plannedRoute, len(routes))
	for _, r := range routes {
		id := r.id()
		was := p.routes[id]
		if was == nil || was.uid != r.UID || was.number != r.Generation || !was.asked.isFresh(ask) || moved && !was.stays(plan, r, ask) {
			was = plan.planRoute(r, ask)
			changed = true
		}
		was.of = r
		now[id] = was
	}
	if p.routes = now; changed {
		p.last = p.assemble(plan.listeners)
	}
	plan.assembly = p.last
	return plan
}

// planHolders plans the listeners of a Gateway and of the ListenerSets that it allows.
func (p *planner) planHolders(g *gateway, sets []*listenerSet, ask asker) *gatewayPlan {
	now := map[slim.Key]*plannedListeners{}
	listenersOf := func(h holder) []*listener {
		was := p.holders[h.id()]
		if was == nil || was.uid != h.UID || was.number != h.Generation || !was.asked.isFresh(ask) {
			was = &plannedListeners{uid: h.UID, number: h.Generation, asked: recorded{}}
			was.all = planListeners(h, ask.record(was.asked))
		}
		now[h.id()] = was
		return was.all
	}
	own := g.holder()
	plan := &gatewayPlan{own: listenersOf(own)}
	plan.byHolder = map[slim.Key][]*listener{own.id(): plan.own}
	objects := [][]*listener{plan.own}
	for _, s := range slices.SortedFunc(slices.Values(sets), comparePrecedence) {
		to := setPlan{of: s, allowed: g.allowsSets(s.Namespace.String(), ask)}
		if to.allowed {
			to.listeners = listenersOf(s.holder())
			plan.byHolder[s.id()] = to.listeners
			objects = append(objects, to.listeners)
		}
		plan.sets = append(plan.sets, to)
	}
	plan.listeners = merge(objects)
	p.holders = now
	return plan
}

// listenersChanged reports whether the listeners that are configured together are others than before.
func (p *planner) listenersChanged(all []*listener) bool {
	was := p.together
	p.together = nil
	for _, l := range all {
		p.together = append(p.together, listenerState{l, l.accepted.ok, l.usable()})
	}
	return !slices.Equal(was, p.together)
}

// hostsOf are the listeners that accept a route by any of its references, with the host names that it has there.
func (p *gatewayPlan) hostsOf(r *route, ask asker) (at []hosts) {
	for _, ref := range r.parents {
		id, ok := r.parentID(ref)
		listeners, here := p.byHolder[id]
		if !ok || !here {
			continue
		}
		for _, h := range attach(r, ref, listeners, p.listeners, ask).at {
			if !slices.ContainsFunc(at, func(other hosts) bool { return other.listener == h.listener }) {
				at = append(at, h)
			}
		}
	}
	return at
}

// stays reports whether the same listeners accept a route as before.
func (was *plannedRoute) stays(p *gatewayPlan, r *route, ask asker) bool {
	return slices.EqualFunc(was.at, p.hostsOf(r, ask.record(was.asked)), hosts.equal)
}

// planRoute plans a route at a Gateway and its ListenerSets.
func (p *gatewayPlan) planRoute(r *route, ask asker) *plannedRoute {
	to := &plannedRoute{uid: r.UID, number: r.Generation, asked: recorded{}}
	ask = ask.record(to.asked)
	if to.at = p.hostsOf(r, ask); len(to.at) == 0 {
		return to
	}
	c := compile(r, ask)
	names := map[*listener][]string{}
	for _, h := range to.at {
		to.attached = append(to.attached, h.listener)
		names[h.listener] = h.names
	}
	to.addRules(c, names)
	if c.isDropped() { // all that it has is closed, and it is not accepted
		to.attached = nil
	}
	for _, l := range to.attached {
		if len(c.passthrough) == 0 || !l.usable() {
			continue
		}
		backends := c.passthrough[0]
		if l.terminates() {
			backends = c.terminated[0]
		}
		to.tls = append(to.tls, envoy.Passthrough{
			Source: r.name(), Hostnames: names[l], Port: uint32(l.of.Port), Backends: backends, Secrets: l.secrets,
		})
	}
	return to
}

// place is where a route of Envoy is: at a port, for HTTPS or without TLS.
type place struct {
	secure bool
	port   uint32
}

func (l *listener) place() place { return place{l.terminates(), uint32(l.of.Port)} }

// addRules adds the routes of Envoy with the host names that they have at all listeners of a place together.
func (to *plannedRoute) addRules(c *compiler, names map[*listener][]string) {
	for _, from := range c.routes {
		at := map[place][]string{}
		for _, l := range to.attached {
			if l.usable() {
				at[l.place()] = append(at[l.place()], names[l]...)
			}
		}
		for _, where := range slices.SortedFunc(maps.Keys(at), comparePlaces) {
			r := from
			r.Hostnames = slices.Compact(slices.Sorted(slices.Values(at[where])))
			if from.Redirect != nil {
				redirect := *from.Redirect
				redirect.ListenerPort = where.port
				r.Redirect = &redirect
			}
			to.rules = append(to.rules, attachedRule{where, &r})
		}
	}
}

func comparePlaces(a, b place) int {
	if a.secure != b.secure {
		if a.secure {
			return 1
		}
		return -1
	}
	return int(a.port) - int(b.port)
}

// assemble puts the model of a Gateway together. Of routes for the same requests, that of the older object goes first.
func (p *planner) assemble(listeners []*listener) *assembly {
	to := &assembly{attached: map[*listener]int32{}}
	all := slices.SortedFunc(maps.Values(p.routes), func(a, b *plannedRoute) int { return compareAge(a.of, b.of) })
	routes := map[place][]*envoy.Route{}
	for _, r := range all {
		for _, l := range r.attached {
			to.attached[l]++
		}
		for _, rule := range r.rules {
			routes[rule.at] = append(routes[rule.at], rule.route)
		}
		to.model.Passthrough = append(to.model.Passthrough, r.tls...)
	}
	// All listeners of a place share its routes, which have host names of their own: the first listener has them.
	for _, l := range listeners {
		if l.accepted.ok && l.hostname != "" && l.of.Protocol != gatewayv1.HTTPProtocolType {
			to.model.Passthrough = append(to.model.Passthrough, envoy.Passthrough{Hostnames: []string{l.hostname}, Port: uint32(l.of.Port), Exclusive: true})
		}
		if !l.usable() || l.of.Protocol == gatewayv1.TLSProtocolType {
			continue
		}
		to.model.HTTP = append(to.model.HTTP, envoy.Listener{Hostname: l.hostname, Port: uint32(l.of.Port), TLS: l.terminates(), Secrets: l.secrets, Exclusive: true, Routes: routes[l.place()]})
		delete(routes, l.place())
	}
	return to
}
