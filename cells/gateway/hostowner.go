// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// hostOwners finds listeners of ListenerSets that would have a host name of an older route of another namespace.
type hostOwners struct {
	plan   *gatewayPlan
	rank   map[slim.Key]int          // of objects with listeners, by their precedence
	sets   map[slim.Key]*listenerSet // by id
	hosts  map[string]map[gatewayv1.PortNumber][]*listener.Listener
	lookup route.Lookup
	steps  int // that are left
}

// maxSteps is how many listeners are asked about host names of routes, those of the oldest routes first. More than these fit in no configuration (ENV-40).
const maxSteps = 1_000_000

// keepHosts has no listener of a ListenerSet accepted that would have a host name of an older route of another namespace, which has it at a listener
// with precedence: what matches a name better has all of its requests, and ends its TLS (GW-60).
func (p *gatewayPlan) keepHosts(routes []*route.Route, lookup route.Lookup) {
	k := hostOwners{p, map[slim.Key]int{}, map[slim.Key]*listenerSet{}, map[string]map[gatewayv1.PortNumber][]*listener.Listener{}, lookup, maxSteps}
	for i, s := range p.sets {
		k.rank[s.of.id()], k.sets[s.of.id()] = i+1, s.of
		for _, l := range s.listeners {
			if !l.Accepted.OK || l.Hostname == "" {
				continue
			}
			if k.hosts[l.Hostname] == nil {
				k.hosts[l.Hostname] = map[gatewayv1.PortNumber][]*listener.Listener{}
			}
			k.hosts[l.Hostname][l.Of.Port] = append(k.hosts[l.Hostname][l.Of.Port], l)
		}
	}
	if len(k.hosts) == 0 {
		return
	}
	for _, r := range slices.SortedFunc(slices.Values(routes), route.CompareAge) {
		for _, name := range r.Hostnames {
			for wider := range listener.WiderNames(string(name)) {
				if at := k.hosts[wider]; at != nil {
					k.keep(r, string(name), at)
				}
			}
		}
	}
}

// keep has a route keep a host name at its listeners, from the listeners of ListenerSets for it, by port.
func (k *hostOwners) keep(r *route.Route, name string, from map[gatewayv1.PortNumber][]*listener.Listener) {
	for _, ref := range r.Parents {
		id, ok := r.ParentID(ref)
		if !ok {
			continue
		}
		for _, has := range k.plan.byParent[id] {
			if k.steps--; k.steps < 0 {
				return
			}
			for _, l := range from[has.Of.Port] {
				s := k.sets[l.Parent]
				isOlder := s.Namespace != r.Namespace && r.CreationTimestamp < s.CreationTimestamp && k.rank[id] < k.rank[l.Parent]
				if isOlder && l.IsBetter(name, has) && has.Serves(r, ref, name, k.lookup) {
					l.Accepted = condition.False(gatewayv1.ListenerReasonHostnameConflict, fmt.Sprintf(
						"Host %s belongs to %s %s, which is older than the ListenerSet", name, r.Kind, r.Source()))
				}
			}
		}
	}
}
