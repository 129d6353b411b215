// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package listener

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// crowd are routes with too many places to be attached, by the host names that they have themselves, the oldest first. Where a route has a host at a listener
// is found out when another one asks for it there: each name of the crowd is looked at once for a listener at most.
type crowd struct {
	named  map[string][]crowded
	at     map[hostAt][]*route.Route // the oldest of two namespaces
	lookup route.Lookup
}

// crowded is a route of the crowd, with the Gateways and ListenerSets that it refers to.
type crowded struct {
	*route.Route
	parents map[slim.Key]bool
}

func newCrowded(r *route.Route) crowded {
	c := crowded{r, map[slim.Key]bool{}}
	for _, ref := range r.Parents {
		if id, ok := r.ParentID(ref); ok {
			c.parents[id] = true
		}
	}
	return c
}

// CloseCrowd has the hosts of a route closed to younger ones of other namespaces, as [HostClaims.Close] does, wherever it would have them. It is to be called
// before any route claims a host, for the older routes first.
func (c *HostClaims) CloseCrowd(r *route.Route, lookup route.Lookup) {
	if c.crowd.named == nil {
		c.crowd = crowd{named: map[string][]crowded{}, at: map[hostAt][]*route.Route{}}
	}
	c.crowd.lookup = lookup
	of := newCrowded(r)
	names := r.Hostnames
	if len(names) == 0 {
		names = []gatewayv1.Hostname{"*"}
	}
	for _, name := range names {
		if all := c.crowd.named[string(name)]; len(all) == 0 || all[len(all)-1].Route != r {
			c.crowd.named[string(name)] = append(all, of)
		}
	}
}

// oldest are the oldest routes of two namespaces that would have a host at a listener.
func (c *crowd) oldest(l *Listener, host string) []*route.Route {
	if c.named == nil {
		return nil
	}
	at := hostAt{l, host}
	if known, is := c.at[at]; is {
		return known
	}
	var all []*route.Route
	for name := range widerOrAny(host) {
		if name != host && host != orAny(l.Hostname) {
			break // a wider name of a route is the host of a listener, and no other one
		}
		all = append(all, c.oldestNamed(l, name)...)
	}
	slices.SortStableFunc(all, route.CompareAge)
	var found []*route.Route
	for _, r := range all {
		if found = ofTwo(found, r); len(found) == 2 {
			break
		}
	}
	c.at[at] = found
	return found
}

// oldestNamed are the oldest routes of two namespaces that have a name themselves, and are served by a listener.
func (c *crowd) oldestNamed(l *Listener, name string) (found []*route.Route) {
	for _, r := range c.named[name] {
		if !r.parents[l.Parent] || len(found) == 1 && found[0].Namespace == r.Namespace || !l.servesSome(r.Route, c.lookup) {
			continue
		}
		if found = append(found, r.Route); len(found) == 2 {
			break
		}
	}
	return found
}

// ofTwo adds a route unless there is one of its namespace.
func ofTwo(found []*route.Route, r *route.Route) []*route.Route {
	if len(found) == 1 && found[0].Namespace == r.Namespace {
		return found
	}
	return append(found, r)
}

// servesSome reports whether a listener serves a route by one of its references.
func (l *Listener) servesSome(r *route.Route, lookup route.Lookup) bool {
	return l.serves(r.Kind) && slices.ContainsFunc(r.Parents, func(ref gatewayv1.ParentReference) bool {
		id, ok := r.ParentID(ref)
		return ok && id == l.Parent && l.isSelected(ref)
	}) && l.allowsNamespace(r, lookup)
}
