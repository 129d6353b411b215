// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// refusals are what the plans of Gateways refuse routes, for the status of these. It is safe for concurrent use.
type refusals struct {
	mu      sync.Mutex
	of      map[slim.Key]map[refusedAt]condition.Condition // by Gateway that was planned
	waiting map[slim.Key]map[slim.Key]bool                 // routes by Gateway that was not yet
	queue   map[slim.Key]bool                              // routes whose status is to be written
	wake    chan struct{}
}

// refusedAt is a route at a listener of a Gateway or a ListenerSet; without a parent, at all of a Gateway and its ListenerSets.
type refusedAt struct {
	route, parent slim.Key
	section       gatewayv1.SectionName
}

func newRefusals() *refusals {
	return &refusals{of: map[slim.Key]map[refusedAt]condition.Condition{}, waiting: map[slim.Key]map[slim.Key]bool{}, queue: map[slim.Key]bool{}, wake: make(chan struct{}, 1)}
}

// set replaces those of a Gateway. Routes of which something else is refused than before are reconciled.
func (s *refusals) set(gateway slim.Key, now map[refusedAt]condition.Condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.of[gateway]
	for at, why := range now {
		if was[at] != why {
			s.queue[at.route] = true
		}
	}
	for at := range was {
		if _, still := now[at]; !still {
			s.queue[at.route] = true
		}
	}
	for id := range s.waiting[gateway] {
		s.queue[id] = true
	}
	delete(s.waiting, gateway)
	s.of[gateway] = now
	s.notify()
}

// forget removes a Gateway that is not served.
func (s *refusals) forget(gateway slim.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.of[gateway] {
		s.queue[at.route] = true
	}
	delete(s.of, gateway)
	delete(s.waiting, gateway)
	s.notify()
}

// enqueue has routes reconciled.
func (s *refusals) enqueue(routes []slim.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range routes {
		s.queue[id] = true
	}
	s.notify()
}

// notify has follow enqueue what is in the queue. The caller has the lock.
func (s *refusals) notify() {
	if len(s.queue) == 0 {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// at is why a listener does not serve a route. planned is false before the Gateway was planned; the route is reconciled then.
func (s *refusals) at(gateway slim.Key, at refusedAt) (why condition.Condition, refused, planned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, planned := s.of[gateway]
	if !planned {
		if s.waiting[gateway] == nil {
			s.waiting[gateway] = map[slim.Key]bool{}
		}
		s.waiting[gateway][at.route] = true
	}
	if why, refused = all[at]; !refused {
		why, refused = all[refusedAt{route: at.route}]
	}
	return why, refused, planned
}

// follow enqueues routes of which something else is refused.
func (s *refusals) follow(ctx context.Context, enqueue reconcile.Enqueue) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		routes := s.queue
		s.queue = map[slim.Key]bool{}
		s.mu.Unlock()
		for id := range routes {
			enqueue(id)
		}
	}
}

// followRefusals has routes reconciled when a Gateway refuses them, or does so no more.
func (c *controller) followRefusals(ctx context.Context, enqueue reconcile.Enqueue) {
	c.refused.follow(ctx, enqueue)
}

// publish has the statuses of routes say what a plan refuses them. Where the status of the route does not say so yet, it and the one that
// has the host get an Event; and so do routes that share one.
func (c *controller) publish(g *gateway, s *state, plan *gatewayPlan) {
	if s.published == plan.assembly {
		return
	}
	c.countConflicts(g.Key(), s.published == nil, plan, len(s.planner.taken))
	s.published = plan.assembly
	now := map[refusedAt]condition.Condition{}
	owners := map[slim.Key]*meeting{}
	for id, byListener := range plan.refused {
		r := s.planner.routes[id].of
		said := wasRefused(r.Status)
		for l, why := range byListener {
			now[refusedAt{id, l.Parent, l.Of.Name}] = why.Condition
			switch {
			case said:
			case why.Reason == leftOut:
				c.Events.Warning(referenceTo(r), "LeftOut", why.Message)
				said = true // it is so at all listeners
			case why.By != nil:
				c.Events.Warning(referenceTo(r), "HostOfAnother", why.Message)
				meet(owners, why.By, r)
			}
		}
	}
	for id, why := range plan.crowd {
		r := s.planner.routes[id].of
		if now[refusedAt{route: id}] = why; !wasRefused(r.Status) {
			c.Events.Warning(referenceTo(r), "LeftOut", why.Message)
		}
	}
	for _, set := range plan.sets {
		if why := set.leftOut(); why != nil && !set.shows(leftOut) {
			c.Events.Warning(set.of.reference(), "LeftOut", why.Message)
		}
		if why := set.withoutPort(); why != nil && !set.shows(why.Reason) {
			c.Events.Warning(set.of.reference(), hostPortOfAnother, why.Message)
		}
	}
	c.refused.set(g.Key(), now)
	for _, m := range owners {
		c.Events.Normal(referenceTo(m.of), "HostOfThis", m.text()+": not served at a host that this has")
	}
	c.publishMeetings(s, plan)
}

// countConflicts counts what is not served of a Gateway since older objects of other namespaces have it. The first time, the log has it in one line.
func (c *controller) countConflicts(of slim.Key, isFirst bool, plan *gatewayPlan, ports int) {
	routes, listeners := 0, 0
	for _, byListener := range plan.refused {
		for _, why := range byListener {
			if why.By != nil {
				routes++
				break
			}
		}
	}
	for _, set := range plan.sets {
		listeners += len(set.lost)
	}
	all := routes + listeners + ports
	if c.conflicts.Set(of, all, of.String()); isFirst && all > 0 {
		c.Log.Warn("hosts or ports of a Gateway belong to older objects of other namespaces; gateway-api-join-namespaces shares them, as the original does",
			"gateway", of.String(), "routes", routes, "listeners", listeners, "ports", ports)
	}
}

// met is that a younger object has, or asks for, a host of an older route of another namespace.
type met struct{ oldest, younger slim.Key }

// publishMeetings has two routes that share a host get an Event each, once, and a ListenerSet that does not have a host, and the route that has it.
// After a start what their status says already is no news, and neither is a shared host of a route that has a status.
func (c *controller) publishMeetings(s *state, plan *gatewayPlan) {
	before, now := s.met, make(map[met]bool, len(plan.shared))
	isNews := func(key met, wasTold bool) bool {
		first := !now[key]
		now[key] = true
		return first && !before[key] && (before != nil || !wasTold)
	}
	for _, set := range plan.sets {
		for _, lost := range set.lost {
			if isNews(met{lost.by.ID(), set.of.id()}, lost.isShown(set.of)) {
				c.Events.Warning(set.of.reference(), "HostOfAnother", lost.at.Accepted.Message)
				c.Events.Normal(referenceTo(lost.by), "HostOfThis", fmt.Sprintf("ListenerSet %s/%s: not served at a host that this has", set.of.Namespace, set.of.Name))
			}
		}
	}
	sharers := map[slim.Key]*meeting{}
	for _, shared := range plan.shared {
		if !isNews(met{shared.Oldest.ID(), shared.Younger.ID()}, len(shared.Younger.Status) > 0) {
			continue
		}
		meet(sharers, shared.Oldest, shared.Younger)
		c.Events.Normal(referenceTo(shared.Younger), "HostShared", fmt.Sprintf("%s %s has host %s, too, and is older: it gets the requests that both describe alike, and its paths go before expressions of this",
			shared.Oldest.Kind, shared.Oldest.Source(), shared.Host))
	}
	s.met = now
	for _, m := range sharers {
		c.Events.Normal(referenceTo(m.of), "HostShared", m.text()+": served at a host of this, too, where it describes requests better")
	}
}

// meeting is routes that ask for what another one has.
type meeting struct {
	of  *route.Route
	ids []string
}

func meet(all map[slim.Key]*meeting, of, other *route.Route) {
	m := all[of.ID()]
	if m == nil {
		m = &meeting{of: of}
		all[of.ID()] = m
	}
	if id := other.Kind + " " + other.Source().String(); !slices.Contains(m.ids, id) {
		m.ids = append(m.ids, id)
	}
}

// text names the first of the routes, and how many more there are.
func (m *meeting) text() string {
	first := slices.Min(m.ids)
	if len(m.ids) == 1 {
		return first
	}
	return fmt.Sprintf("%s, and %d more", first, len(m.ids)-1)
}

func referenceTo(r *route.Route) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: api.String(), Kind: r.Kind, Namespace: r.Namespace.String(), Name: r.Name, UID: r.UID.API()}
}

// wasRefused reports whether a status says that a host or a port is another's, or that the route is left out.
func wasRefused(status []gatewayv1.RouteParentStatus) bool {
	return slices.ContainsFunc(status, func(s gatewayv1.RouteParentStatus) bool { return s.ControllerName == controllerName && hasRefusal(s) })
}

// hasRefusal reports whether an entry of a status does.
func hasRefusal(s gatewayv1.RouteParentStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == string(gatewayv1.RouteConditionAccepted) && slices.Contains([]string{listener.HostConflict, listener.PortsNotApart, leftOut}, c.Reason) {
			return true
		}
	}
	return false
}
