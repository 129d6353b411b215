// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ancestors are the Gateways, and the Services with routes, that are served here and speak TLS to Services as a policy says.
type ancestors struct {
	found []gatewayv1.ParentReference // sorted
	kept  []gatewayv1.ParentReference // of which nothing is known: what the status says of them stays
}

// ancestors finds those of Services among the parents of routes.
func (p parents) ancestors(services []slim.Key, routes []*route.Route, lookup route.Lookup) (a ancestors) {
	for _, r := range routes {
		if !r.Reaches(services, lookup) {
			continue
		}
		for _, ref := range r.Parents {
			at, ok := p.ancestorOf(r, ref)
			if !ok || slices.ContainsFunc(a.found, func(has gatewayv1.ParentReference) bool { return sameRef(has, at) }) {
				continue
			}
			switch serves, known := p.serves(r, ref, at, lookup); {
			case !known:
				a.kept = append(a.kept, at)
			case serves:
				a.found = append(a.found, at)
			}
		}
	}
	slices.SortFunc(a.found, func(a, b gatewayv1.ParentReference) int {
		return cmp.Or(cmp.Compare(*a.Kind, *b.Kind), cmp.Compare(*a.Namespace, *b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return a
}

// ancestorOf is a parent of a route as the status of a policy names it: in place of a ListenerSet its Gateway. ok is false for a
// parent of another kind, and for a ListenerSet that is not known.
func (p parents) ancestorOf(r *route.Route, ref gatewayv1.ParentReference) (at gatewayv1.ParentReference, ok bool) {
	kind, key := route.ParentKind(ref), route.ParentKey(r.Namespace.String(), ref)
	if kind == route.KindListenerSet {
		set, _ := p.listenerSet(key)
		if set == nil {
			return at, false
		}
		if key, ok = set.gatewayKey(); !ok {
			return at, false
		}
		kind = route.KindGateway
	}
	group := gatewayv1.Group(gatewayv1.GroupName)
	if kind == route.KindService {
		group = ""
	}
	return gatewayv1.ParentReference{
		Group: &group, Kind: new(gatewayv1.Kind(kind)), Namespace: new(gatewayv1.Namespace(key.Namespace)), Name: gatewayv1.ObjectName(key.Name),
	}, kind != ""
}

// serves reports whether a parent, whose ancestor is at, serves a route, and does not pass TLS of it through. known is false while
// that cannot be said.
func (p parents) serves(r *route.Route, ref, at gatewayv1.ParentReference, lookup route.Lookup) (serves, known bool) {
	if route.ParentKind(ref) == route.KindService {
		serves = r.IsHTTP() && attachMesh(r, ref, p.service(route.ParentKey(r.Namespace.String(), ref))).accepted.OK
	} else {
		g, ours, known := p.gateway(route.ParentKey("", at))
		if !known {
			return false, false
		}
		if !ours || g == nil || !g.DeletionTimestamp.IsZero() {
			return false, true
		}
		a, of := p.attach(r, ref, lookup)
		if of == kept {
			return false, false
		}
		serves = of == decided && a.Accepted.OK && (r.IsHTTP() || slices.ContainsFunc(a.At, func(h listener.Hosts) bool { return h.Listener.Terminates() }))
	}
	return serves && !p.cache.Dropped(r, lookup).IsDropped(), true
}

// maxAncestors is how many entries the status of a policy has.
const maxAncestors = 16

// mergeAncestors returns a status with what is said of a policy at its ancestors, and whether it differs. Entries of others stay,
// those of ours for others go.
func mergeAncestors(has []gatewayv1.PolicyAncestorStatus, a ancestors, v policyResult, generation int64, now metav1.Time) (merged []gatewayv1.PolicyAncestorStatus, changed bool) {
	among := func(all []gatewayv1.ParentReference, ref gatewayv1.ParentReference) int {
		return slices.IndexFunc(all, func(one gatewayv1.ParentReference) bool { return sameRef(one, ref) })
	}
	done := make([]bool, len(a.found))
	merged = []gatewayv1.PolicyAncestorStatus{} // the API server wants a list
	for _, s := range has {
		if s.ControllerName != controllerName || among(a.kept, s.AncestorRef) >= 0 {
			merged = append(merged, s)
			continue
		}
		i := among(a.found, s.AncestorRef)
		if i < 0 || done[i] {
			changed = true
			continue
		}
		done[i] = true
		s.Conditions = slices.Clone(s.Conditions)
		changed = v.apply(&s.Conditions, generation, now) || changed
		merged = append(merged, s)
	}
	for i, ref := range a.found {
		if done[i] || len(merged) >= maxAncestors || among(a.kept, ref) >= 0 {
			continue
		}
		s := gatewayv1.PolicyAncestorStatus{AncestorRef: ref, ControllerName: controllerName}
		v.apply(&s.Conditions, generation, now)
		merged, changed = append(merged, s), true
	}
	return merged, changed
}

// apply sets the conditions of an ancestor.
func (v policyResult) apply(to *[]metav1.Condition, generation int64, now metav1.Time) (changed bool) {
	changed = setCondition(to, string(gatewayv1.PolicyConditionAccepted), v.accepted, generation, now)
	return setCondition(to, string(gatewayv1.BackendTLSPolicyConditionResolvedRefs), v.resolved, generation, now) || changed
}
