// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// parentResult is what becomes of a route at one of its parents.
type parentResult struct {
	ref gatewayv1.ParentReference
	// kept says that the parent is not known: what the status says of it stays.
	kept     bool
	accepted condition.Condition
	resolved condition.Condition
	partial  *condition.Condition
}

// parents finds the parents of routes that are served here.
type parents struct {
	// gateway returns a Gateway, and whether its class is ours. known is false while that cannot be said.
	gateway func(slim.Key) (g *gateway, ours, known bool)
	// listenerSet returns a ListenerSet, nil if there is none. known is false while that cannot be said.
	listenerSet func(slim.Key) (s *listenerSet, known bool)
	// service returns a Service, nil if there is none.
	service func(slim.Key) *service
	// refused says why a listener that accepts a route does not serve it. planned is false while that is not known of the Gateway. Without it
	// nothing is refused.
	refused func(gateway slim.Key, at refusedAt) (why condition.Condition, refused, planned bool)
	// cache has the routes as configurations have them. Without it nothing is kept.
	cache *route.Cache
}

// parentState is what is known of a parent, and so what is to be done with the entry of a status.
type parentState int

const (
	decided parentState = iota
	kept                // what it says stays: the parent is not known
	foreign             // it is another controller's
)

// results decides about a route at all parents that are served here. References to others have no result.
func (p parents) results(r *route.Route, lookup route.Lookup) (all []parentResult) {
	dropped := p.cache.Dropped(r, lookup)
	resolved := r.ResolveRefs(lookup)
	for i, ref := range r.Parents {
		if slices.ContainsFunc(r.Parents[:i], func(other gatewayv1.ParentReference) bool { return sameRef(ref, other) }) {
			continue
		}
		result := parentResult{ref: ref, resolved: resolved, partial: dropped.PartiallyInvalid()}
		switch route.ParentKind(ref) {
		case route.KindGateway, route.KindListenerSet:
			a, of := p.attach(r, ref, lookup)
			if of == foreign {
				continue
			}
			result.accepted, result.kept = a.Accepted, of == kept
		case route.KindService:
			if !r.IsHTTP() {
				continue
			}
			result.accepted = attachMesh(r, ref, p.service(route.ParentKey(r.Namespace.String(), ref))).accepted
		default:
			continue
		}
		if result.accepted.OK && dropped.IsDropped() {
			result.accepted, result.partial = condition.False(gatewayv1.RouteReasonUnsupportedValue, result.partial.Message), nil
		}
		all = append(all, result)
	}
	return all
}

// attach decides about a route at a Gateway or a ListenerSet.
func (p parents) attach(r *route.Route, ref gatewayv1.ParentReference, lookup route.Lookup) (listener.Attachment, parentState) {
	key := route.ParentKey(r.Namespace.String(), ref)
	missing := func(what string) (listener.Attachment, parentState) {
		if !hasEntry(r.Status, ref) { // it may be another controller's
			return listener.Attachment{}, foreign
		}
		return listener.Attachment{Accepted: condition.False("Invalid"+r.Kind, fmt.Sprintf("%s %q does not exist", what, key.Name))}, decided
	}
	var set *listenerSet
	if route.ParentKind(ref) == route.KindListenerSet {
		var known, ok bool
		if set, known = p.listenerSet(key); !known {
			return listener.Attachment{}, kept
		}
		if set == nil {
			return missing(route.KindListenerSet)
		}
		if key, ok = set.gatewayKey(); !ok {
			return listener.Attachment{}, foreign
		}
	}
	g, ours, known := p.gateway(key)
	switch {
	case !known:
		return listener.Attachment{}, kept
	case !ours:
		return listener.Attachment{}, foreign
	case g == nil:
		return missing("gateway")
	case set != nil && !g.allowsSets(set.Namespace.String(), lookup):
		return listener.NotAccepted(gatewayv1.RouteReasonNoMatchingParent, "The ListenerSet is not accepted: see its status"), decided
	}
	h := g.asParent()
	if set != nil {
		h = set.asParent()
	}
	listeners := listener.Plan(h, lookup) // those of others have no influence but by what they are refused
	return p.withRefusals(r, ref, key, listener.Attach(r, ref, listeners, listener.NewIndex(listeners), lookup))
}

// withRefusals leaves out the listeners that do not serve a route for what others have. If none is left, it is not accepted. While the
// Gateway was not planned, a status that says so stays.
func (p parents) withRefusals(r *route.Route, ref gatewayv1.ParentReference, gateway slim.Key, a listener.Attachment) (listener.Attachment, parentState) {
	if p.refused == nil {
		return a, decided
	}
	var left []listener.Hosts
	var first *condition.Condition
	for _, h := range a.At {
		why, refused, planned := p.refused(gateway, refusedAt{r.ID(), h.Listener.Parent, h.Listener.Of.Name})
		if !planned && slices.ContainsFunc(r.Status, func(s gatewayv1.RouteParentStatus) bool {
			return s.ControllerName == controllerName && sameRef(s.ParentRef, ref) && hasRefusal(s)
		}) {
			return listener.Attachment{}, kept
		}
		if !refused {
			left = append(left, h)
		} else if first == nil {
			first = &why
		}
	}
	if a.At = left; first != nil && len(left) == 0 {
		a.Accepted = *first
	}
	return a, decided
}

// hasEntry reports whether a status has an entry of ours for a parent.
func hasEntry(status []gatewayv1.RouteParentStatus, ref gatewayv1.ParentReference) bool {
	return slices.ContainsFunc(status, func(s gatewayv1.RouteParentStatus) bool {
		return s.ControllerName == controllerName && sameRef(s.ParentRef, ref)
	})
}

// sameRef compares references to parents, with the defaults of the API server.
func sameRef(a, b gatewayv1.ParentReference) bool {
	return route.ParentKind(a) == route.ParentKind(b) && a.Name == b.Name && reflect.DeepEqual(a.Namespace, b.Namespace) &&
		reflect.DeepEqual(a.SectionName, b.SectionName) && reflect.DeepEqual(a.Port, b.Port)
}

// mergeParents returns a status with the results, and whether it differs. Entries of others stay, those of ours for other
// parents go.
func mergeParents(has []gatewayv1.RouteParentStatus, results []parentResult, generation int64, now metav1.Time) (merged []gatewayv1.RouteParentStatus, changed bool) {
	done := make([]bool, len(results))
	merged = []gatewayv1.RouteParentStatus{} // the API server wants a list
	for _, s := range has {
		if s.ControllerName != controllerName {
			merged = append(merged, s)
			continue
		}
		i := slices.IndexFunc(results, func(r parentResult) bool { return sameRef(r.ref, s.ParentRef) })
		if i < 0 || done[i] {
			changed = true
			continue
		}
		done[i] = true
		if !results[i].kept {
			s.Conditions = slices.Clone(s.Conditions)
			changed = results[i].apply(&s.Conditions, generation, now) || changed
		}
		merged = append(merged, s)
	}
	for i, r := range results {
		if done[i] || r.kept {
			continue
		}
		s := gatewayv1.RouteParentStatus{ParentRef: r.ref, ControllerName: controllerName}
		r.apply(&s.Conditions, generation, now)
		merged, changed = append(merged, s), true
	}
	return merged, changed
}

// apply sets the conditions of a parent.
func (r parentResult) apply(to *[]metav1.Condition, generation int64, now metav1.Time) (changed bool) {
	changed = setCondition(to, string(gatewayv1.RouteConditionAccepted), r.accepted, generation, now)
	changed = setCondition(to, string(gatewayv1.RouteConditionResolvedRefs), r.resolved, generation, now) || changed
	if r.partial == nil {
		return condition.Remove(to, string(gatewayv1.RouteConditionPartiallyInvalid)) || changed
	}
	return setCondition(to, string(gatewayv1.RouteConditionPartiallyInvalid), *r.partial, generation, now) || changed
}
