// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// gatewayResult is what the status of a Gateway says, beside its listeners.
type gatewayResult struct {
	accepted, programmed condition
	addresses            []gatewayv1.GatewayStatusAddress
}

// outcome is what became of the objects of a Gateway.
type outcome struct {
	// failure is what is for the user to remedy, "" if all was written.
	failure string
	// service is its Service, nil if the cache has none yet.
	service *service
	// addressless says that the Service is of a type without addresses.
	addressless bool
}

// result decides about the conditions and addresses of a Gateway.
func (p *gatewayPlan) result(g *gateway, o outcome) gatewayResult {
	r := gatewayResult{
		accepted:   condition{true, string(gatewayv1.GatewayReasonAccepted), "Gateway successfully scheduled"},
		programmed: condition{true, string(gatewayv1.GatewayReasonProgrammed), "Gateway Programmed"},
	}
	if o.service != nil {
		r.addresses = addressesOf(o.service)
	}
	notValid := string(gatewayv1.GatewayReasonListenersNotValid)
	isAccepted := func(l *listener) bool { return l.accepted.ok }
	ips, supported := staticAddresses(g)
	switch {
	case g.Spec.Infrastructure != nil && g.Spec.Infrastructure.ParametersRef != nil:
		r.accepted = condition{false, string(gatewayv1.GatewayReasonInvalidParameters), "infrastructure.parametersRef is not supported: GatewayClasses have parameters"}
		r.programmed = condition{false, string(gatewayv1.GatewayReasonInvalid), r.accepted.message}
	case !supported:
		r.accepted = condition{false, string(gatewayv1.GatewayReasonUnsupportedAddress), "Only addresses of type IPAddress are supported"}
		r.programmed = r.accepted
	case !slices.ContainsFunc(p.listeners, isAccepted):
		r.accepted = condition{false, notValid, "No Accepted Listeners"}
		r.programmed = r.accepted
	case o.failure != "":
		r.programmed = condition{false, string(gatewayv1.GatewayReasonNoResources), o.failure}
	case !p.isProgrammable():
		r.programmed = condition{false, notValid, "No listener can be programmed"}
	case o.addressless:
	case !hasAll(r.addresses, ips):
		r.programmed = condition{false, string(gatewayv1.GatewayReasonAddressNotUsable), "The addresses are not assigned to the Service"}
		if len(r.addresses) == 0 {
			r.programmed = condition{false, string(gatewayv1.GatewayReasonAddressNotAssigned), "Gateway waiting for address"}
		}
	case len(r.addresses) == 0:
		r.programmed = condition{false, string(gatewayv1.GatewayReasonAddressNotAssigned), "Gateway waiting for address"}
	}
	if r.accepted.ok && slices.ContainsFunc(p.listeners, func(l *listener) bool { return !l.accepted.ok }) {
		r.accepted.reason, r.accepted.message = notValid, "Some listeners are not valid"
	}
	return r
}

func hasAll(has []gatewayv1.GatewayStatusAddress, want []string) bool {
	for _, ip := range want {
		if !slices.ContainsFunc(has, func(a gatewayv1.GatewayStatusAddress) bool { return a.Value == ip }) {
			return false
		}
	}
	return true
}

// applyStatus sets a status, and reports whether it was another one. Without counts the numbers of routes stay as they are.
func (p *gatewayPlan) applyStatus(to *gatewayv1.GatewayStatus, r gatewayResult, generation int64, counts bool, now metav1.Time) (changed bool) {
	changed = setCondition(&to.Conditions, string(gatewayv1.GatewayConditionAccepted), r.accepted, generation, now)
	changed = setCondition(&to.Conditions, string(gatewayv1.GatewayConditionProgrammed), r.programmed, generation, now) || changed
	if !slices.EqualFunc(to.Addresses, r.addresses, func(a, b gatewayv1.GatewayStatusAddress) bool { return reflect.DeepEqual(a, b) }) {
		to.Addresses, changed = r.addresses, true
	}
	has := to.Listeners
	var listeners []gatewayv1.ListenerStatus
	for _, l := range p.listeners {
		s := gatewayv1.ListenerStatus{Name: l.of.Name}
		i := slices.IndexFunc(has, func(s gatewayv1.ListenerStatus) bool { return s.Name == l.of.Name })
		if i >= 0 {
			s = has[i]
			s.Conditions = slices.Clone(s.Conditions)
		}
		changed = l.applyStatus(&s, generation, now) || i != len(listeners) || changed
		if n := p.attached[l]; (counts || i < 0) && s.AttachedRoutes != n {
			s.AttachedRoutes, changed = n, true
		}
		listeners = append(listeners, s)
	}
	to.Listeners = listeners
	return changed || len(has) != len(listeners)
}

// applyStatus sets what is said of a listener.
func (l *listener) applyStatus(to *gatewayv1.ListenerStatus, generation int64, now metav1.Time) (changed bool) {
	if !reflect.DeepEqual(to.SupportedKinds, l.kinds) {
		to.SupportedKinds, changed = l.kinds, true
	}
	changed = setCondition(&to.Conditions, string(gatewayv1.ListenerConditionAccepted), l.accepted, generation, now) || changed
	changed = setCondition(&to.Conditions, string(gatewayv1.ListenerConditionProgrammed), l.programmed(), generation, now) || changed
	changed = setCondition(&to.Conditions, string(gatewayv1.ListenerConditionResolvedRefs), l.resolved, generation, now) || changed
	if l.conflicted == nil {
		return removeCondition(&to.Conditions, string(gatewayv1.ListenerConditionConflicted)) || changed
	}
	return setCondition(&to.Conditions, string(gatewayv1.ListenerConditionConflicted), *l.conflicted, generation, now) || changed
}
