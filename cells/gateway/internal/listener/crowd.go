// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package listener

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
)

// crowd are routes with too many places to be attached, by the host names that they have themselves, the oldest first. Where a route has a host at a listener
// is found out when another one asks for it there: each name of the crowd is looked at once for a listener at most.
type crowd struct {
	named  map[string][]*route.Route
	at     map[hostAt][]*route.Route // the oldest of two namespaces
	lookup route.Lookup
}

// CloseCrowd has the hosts of a route closed to younger ones of other namespaces, as [HostClaims.Close] does, wherever it would have them. It is to be called
// before any route claims a host, for the older routes first.
func (c *HostClaims) CloseCrowd(r *route.Route, lookup route.Lookup) {
	if c.crowd.named == nil {
		c.crowd = crowd{named: map[string][]*route.Route{}, at: map[hostAt][]*route.Route{}}
	}
	c.crowd.lookup = lookup
	names := r.Hostnames
	if len(names) == 0 {
		names = []gatewayv1.Hostname{"*"}
	}
	for _, name := range names {
		if of := c.crowd.named[string(name)]; len(of) == 0 || of[len(of)-1] != r {
			c.crowd.named[string(name)] = append(of, r)
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
		all = append(all, c.named[name]...)
	}
	slices.SortStableFunc(all, route.CompareAge)
	var found []*route.Route
	for _, r := range all {
		if len(found) == 1 && found[0].Namespace == r.Namespace || !l.servesSome(r, c.lookup) {
			continue
		}
		if found = append(found, r); len(found) == 2 {
			break
		}
	}
	c.at[at] = found
	return found
}

// servesSome reports whether a listener serves a route by one of its references.
func (l *Listener) servesSome(r *route.Route, lookup route.Lookup) bool {
	return l.serves(r.Kind) && slices.ContainsFunc(r.Parents, func(ref gatewayv1.ParentReference) bool {
		id, ok := r.ParentID(ref)
		return ok && id == l.Parent && l.isSelected(ref)
	}) && l.allowsNamespace(r, lookup)
}
