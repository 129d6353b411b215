// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// hostOwners finds listeners of ListenerSets that would have a host name of an older route of another namespace (GW-60). It is asked about them in the
// order of precedence, so that what goes before is decided.
type hostOwners struct {
	plan     *gatewayPlan
	together bool                       // agents have one listener of Envoy for all ports
	rank     map[slim.Key]int           // of objects with listeners, by their precedence
	sets     map[slim.Key]*setPlan      // by id
	all      map[string]listenersByPort // the listeners of all objects, by host name
	named    map[string][]namedRoute    // routes with a host name for which a listener of a ListenerSet is, by that of the listener; the oldest first
	lookup   route.Lookup
	steps    map[between]int
	first    map[gatewayv1.PortNumber]int // the rank of the first object with a listener, by port as in listenersByPort
	byParent map[slim.Key]listenersByPort // of the plan, as far as they were asked for
}

// between is the namespace of ListenerSets, and that of routes; "" for all routes.
type between struct{ sets, routes slim.String }

// listenersByPort are listeners by their port, or those with TLS at 0 where their ports are not apart.
type listenersByPort map[gatewayv1.PortNumber][]*listener.Listener

type namedRoute struct {
	of   *route.Route
	name string
}

const (
	// maxSteps bounds what the ListenerSets of one namespace and the routes of one cost a plan together.
	maxSteps = 1_000_000
	// maxAllSteps bounds what the ListenerSets of one namespace cost.
	maxAllSteps = 8 * maxSteps
)

// merge decides about the listeners of all objects together. None is accepted at a port of the nodes that its object does not have, and no listener of a ListenerSet that would
// have a host name of an older route of another namespace, which has it at a listener with precedence: what matches a name better has all of its requests, and ends its TLS.
func (p *planner) merge(plan *gatewayPlan, objects [][]*listener.Listener, routes []*route.Route, lookup route.Lookup) {
	refuse := p.withoutPort
	if len(plan.sets) > 0 && !p.joins {
		owners := newHostOwners(plan, p.oneListener, routes, lookup)
		refuse = func(l *listener.Listener) *condition.Condition {
			if why := p.withoutPort(l); why != nil {
				return why
			}
			return owners.refuse(l)
		}
	}
	if plan.listeners = listener.Merge(objects, refuse); p.oneListener {
		listener.MarkInseparable(plan.listeners)
	}
}

// withoutPort is why a listener is not accepted at a port of the nodes, nil if its object has it.
func (p *planner) withoutPort(l *listener.Listener) *condition.Condition {
	if why, is := p.taken[portOf{l.Parent, l.Of.Port}]; is && !l.IsPort() {
		return &why
	}
	return nil
}

func newHostOwners(plan *gatewayPlan, together bool, routes []*route.Route, lookup route.Lookup) *hostOwners {
	k := &hostOwners{
		plan: plan, together: together, rank: map[slim.Key]int{}, sets: map[slim.Key]*setPlan{}, all: map[string]listenersByPort{},
		named: map[string][]namedRoute{}, lookup: lookup, steps: map[between]int{}, first: map[gatewayv1.PortNumber]int{},
		byParent: map[slim.Key]listenersByPort{},
	}
	k.add(plan.own)
	for i := range plan.sets {
		s := &plan.sets[i]
		k.rank[s.of.id()], k.sets[s.of.id()] = i+1, s
		k.add(s.listeners)
		for _, l := range s.listeners {
			if l.Hostname != "" {
				k.named[l.Hostname] = nil
			}
		}
	}
	for _, r := range slices.SortedFunc(slices.Values(routes), route.CompareAge) {
		for _, name := range r.Hostnames {
			for wider := range listener.WiderNames(string(name)) {
				if of, is := k.named[wider]; is {
					k.named[wider] = append(of, namedRoute{r, string(name)})
				}
			}
		}
	}
	return k
}

func (k *hostOwners) add(all []*listener.Listener) {
	for _, l := range all {
		if k.all[l.Hostname] == nil {
			k.all[l.Hostname] = listenersByPort{}
		}
		port := k.portOf(l)
		k.all[l.Hostname][port] = append(k.all[l.Hostname][port], l)
		if rank, known := k.first[port]; !known || k.rank[l.Parent] < rank {
			k.first[port] = k.rank[l.Parent]
		}
	}
}

func (k *hostOwners) portOf(l *listener.Listener) gatewayv1.PortNumber {
	if k.together && l.HasTLS() {
		return 0
	}
	return l.Of.Port
}

// listenersOf are the listeners of an object at a port, as in listenersByPort.
func (k *hostOwners) listenersOf(id slim.Key, port gatewayv1.PortNumber) []*listener.Listener {
	of, is := k.byParent[id]
	if !is {
		of = listenersByPort{}
		for _, l := range k.plan.byParent[id] {
			of[k.portOf(l)] = append(of[k.portOf(l)], l)
		}
		k.byParent[id] = of
	}
	return of[port]
}

// use uses a step of two namespaces, and one of the first of these, if both have one.
func (k *hostOwners) use(of between) bool {
	all := between{sets: of.sets}
	if k.steps[of] >= maxSteps || k.steps[all] >= maxAllSteps {
		return false
	}
	k.steps[of]++
	k.steps[all]++
	return true
}

// isSpent reports whether the ListenerSets of a namespace have cost all that they may. Each route that is not asked about any more costs a step, too.
func (k *hostOwners) isSpent(sets slim.String) bool {
	k.steps[between{sets: sets}]++
	return k.steps[between{sets: sets}] > maxAllSteps
}

// refuse says why a listener of a ListenerSet does not have its host, nil if it may. Of a host name the oldest route decides that has it.
func (k *hostOwners) refuse(l *listener.Listener) *condition.Condition {
	s := k.sets[l.Parent]
	if s == nil {
		return nil
	}
	if first, is := k.first[k.portOf(l)]; !is || first >= k.rank[l.Parent] { // there is nothing that it could have requests from
		return nil
	}
	decided := map[string]bool{}
	for _, r := range k.named[l.Hostname] {
		if route.CompareObjects(&s.of.ObjectMeta, r.of.ObjectMeta) < 0 { // and so are all that follow: it costs nothing how many there are
			return nil
		}
		if decided[r.name] {
			continue
		}
		has, known := k.hasBefore(l, r, s.of.Namespace)
		switch {
		case !known && (k.isSpent(s.of.Namespace) || !k.gives(r, l, s.of)):
			return new(condition.False(gatewayv1.ListenerReasonHostnameConflict, "The ListenerSets of the namespace have too many listeners for host names of too many routes"))
		case has:
			if decided[r.name] = true; !k.gives(r, l, s.of) {
				s.lost = append(s.lost, lostHost{l, r.of})
				return new(condition.False(gatewayv1.ListenerReasonHostnameConflict, fmt.Sprintf(
					"Host %s belongs to %s %s, which is older than the ListenerSet", r.name, r.of.Kind, r.of.Source())))
			}
		}
	}
	return nil
}

// hasBefore reports whether a route has a host name at a listener with precedence over another one, which would take it from that. It is not known if that
// costs too much.
func (k *hostOwners) hasBefore(l *listener.Listener, r namedRoute, sets slim.String) (has, known bool) {
	of := between{sets, r.of.Namespace}
	for _, ref := range r.of.Parents {
		if !k.use(of) {
			return false, false
		}
		id, ok := r.of.ParentID(ref)
		if !ok || k.rank[id] >= k.rank[l.Parent] {
			continue
		}
		for _, at := range k.listenersOf(id, k.portOf(l)) {
			if !k.use(of) {
				return false, false
			}
			if !l.Shadows(at, r.name, k.together) || !at.Serves(r.of, ref, r.name, k.lookup) {
				continue
			}
			if isBeside, known := k.isBeside(of, at, r.name, l); !known || !isBeside {
				return known, known
			}
		}
	}
	return false, true
}

// isBeside reports whether another listener with precedence matches a host name better than one, so that no route has it there. It is not known if that costs
// too much.
func (k *hostOwners) isBeside(of between, at *listener.Listener, name string, l *listener.Listener) (is, known bool) {
	for wider := range listener.WiderNames(name) {
		for _, other := range k.all[wider][k.portOf(at)] {
			if !k.use(of) {
				return false, false
			}
			if other != at && k.rank[other.Parent] < k.rank[l.Parent] && other.Shadows(at, name, false) {
				return true, true
			}
		}
	}
	return false, true
}

// gives reports whether a route leaves a host name to a listener: that is of its namespace, or older, or one that it attaches to
// itself. Of one second the name decides.
func (k *hostOwners) gives(r namedRoute, l *listener.Listener, s *listenerSet) bool {
	if s.Namespace == r.of.Namespace || route.CompareObjects(&s.ObjectMeta, r.of.ObjectMeta) < 0 {
		return true
	}
	return slices.ContainsFunc(r.of.Parents, func(ref gatewayv1.ParentReference) bool {
		id, ok := r.of.ParentID(ref)
		return ok && id == l.Parent && l.Serves(r.of, ref, r.name, k.lookup)
	})
}

// lostHost is a listener of a ListenerSet without a host name that a route has.
type lostHost struct {
	at *listener.Listener
	by *route.Route
}

// isShown reports whether the status of the ListenerSet says so.
func (l lostHost) isShown(in *listenerSet) bool {
	return slices.ContainsFunc(in.Status.Listeners, func(s gatewayv1.ListenerEntryStatus) bool {
		if s.Name != l.at.Of.Name {
			return false
		}
		has := meta.FindStatusCondition(s.Conditions, string(gatewayv1.ListenerConditionAccepted))
		return has != nil && has.Reason == l.at.Accepted.Reason && has.Message == shown(l.at.Accepted).Message
	})
}
