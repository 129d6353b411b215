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

// planner plans the successive states of a Gateway. Routes that have not changed are not planned again.
type planner struct {
	uid        slim.UID
	generation int64
	listeners  planned[[]*listener]
	routes     map[slim.Key]*plannedRoute // by id
}

// planned is a result, and the answers that it depends on.
type planned[T any] struct {
	result T
	asked  recorded
}

// plannedRoute is what a Gateway has of a route.
type plannedRoute struct {
	of     *route
	uid    slim.UID
	number int64 // of the generation
	asked  recorded

	attached []*listener // those that have accepted it
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
	listeners []*listener
	attached  map[*listener]int32 // the number of routes
	model     envoy.Model
}

// isProgrammable reports whether there is a listener that accepts connections.
func (p *gatewayPlan) isProgrammable() bool {
	return slices.ContainsFunc(p.listeners, (*listener).usable)
}

// plan plans a Gateway with the routes that refer to it.
func (p *planner) plan(g *gateway, routes []*route, ask asker) *gatewayPlan {
	if p.uid != g.UID || p.generation != g.Generation || !p.listeners.asked.isFresh(ask) {
		asked := recorded{}
		*p = planner{g.UID, g.Generation, planned[[]*listener]{planListeners(g, ask.record(asked)), asked}, nil}
	}
	now := make(map[slim.Key]*plannedRoute, len(routes))
	for _, r := range routes {
		id := r.id()
		was := p.routes[id]
		if was == nil || was.uid != r.UID || was.number != r.Generation || !was.asked.isFresh(ask) {
			was = p.planRoute(g, r, ask)
		}
		was.of = r
		now[id] = was
	}
	p.routes = now
	return p.assemble()
}

// planRoute plans a route at a Gateway.
func (p *planner) planRoute(g *gateway, r *route, ask asker) *plannedRoute {
	to := &plannedRoute{uid: r.UID, number: r.Generation, asked: recorded{}}
	ask = ask.record(to.asked)
	names := map[*listener][]string{}
	for _, ref := range r.parents {
		if !r.isParent(ref, kindGateway, g.Key()) {
			continue
		}
		for _, h := range attach(r, ref, g, p.listeners.result, ask).at {
			if _, twice := names[h.listener]; !twice {
				to.attached = append(to.attached, h.listener)
			}
			names[h.listener] = h.names
		}
	}
	if len(to.attached) == 0 {
		return to
	}
	c := compile(r, ask)
	if c.isDropped() {
		to.attached = nil
		return to
	}
	to.addRules(c, names)
	for _, l := range to.attached {
		if len(c.passthrough) > 0 && l.usable() {
			to.tls = append(to.tls, envoy.Passthrough{
				Source: r.name(), Hostnames: names[l], Port: uint32(l.of.Port), Backends: c.passthrough[0], Secrets: l.secrets,
			})
		}
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
func (p *planner) assemble() *gatewayPlan {
	plan := &gatewayPlan{listeners: p.listeners.result, attached: map[*listener]int32{}}
	all := slices.SortedFunc(maps.Values(p.routes), func(a, b *plannedRoute) int { return compareAge(a.of, b.of) })
	routes := map[place][]*envoy.Route{}
	for _, r := range all {
		for _, l := range r.attached {
			plan.attached[l]++
		}
		for _, rule := range r.rules {
			routes[rule.at] = append(routes[rule.at], rule.route)
		}
		plan.model.Passthrough = append(plan.model.Passthrough, r.tls...)
	}
	// All listeners of a place share its routes, which have host names of their own: the first listener has them.
	for _, l := range plan.listeners {
		if !l.usable() || l.of.Protocol == gatewayv1.TLSProtocolType {
			continue
		}
		to := envoy.Listener{Hostname: l.hostname, Port: uint32(l.of.Port), TLS: l.terminates(), Secrets: l.secrets, Exclusive: true, Routes: routes[l.place()]}
		delete(routes, l.place())
		plan.model.HTTP = append(plan.model.HTTP, to)
	}
	return plan
}
