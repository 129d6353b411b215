// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"errors"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/resources/k8s"
)

// gatewayResult is what the status of a Gateway says, beside its listeners.
type gatewayResult struct {
	accepted, programmed condition.Condition
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
	// atNodes says that the Gateway has the addresses of nodes then, which are these.
	atNodes   bool
	addresses []gatewayv1.GatewayStatusAddress
	// more says that there are EndpointSlices to be written, or to be deleted, when others have had their turn.
	more bool
	// again is how long an object that changes too often (K8S-25), or whose name another one has (K8S-28), is not written, 0 if there is none.
	again time.Duration
}

// waits records that an object of the Gateway is not written now, since it changes again and again: what else it has does not wait for that.
func (o *outcome) waits(err error) error {
	if contention := new(k8s.ContentionError); errors.As(err, &contention) && contention.Churns {
		if again := max(time.Until(contention.Until), time.Second); o.again == 0 || again < o.again {
			o.again = again
		}
		return nil
	}
	return err
}

// result decides about the conditions and addresses of a Gateway.
func (p *gatewayPlan) result(g *gateway, o outcome) gatewayResult {
	r := gatewayResult{
		accepted:   condition.True(gatewayv1.GatewayReasonAccepted, "Gateway successfully scheduled"),
		programmed: condition.True(gatewayv1.GatewayReasonProgrammed, "Gateway Programmed"),
	}
	if r.addresses = o.addresses; !o.atNodes && o.service != nil {
		if r.addresses = addressesOf(o.service); o.service.IsCut() && len(r.addresses) == 0 { // its status may not be kept
			r.addresses = slices.Clone(g.Status.Addresses)
		}
	}
	notValid := string(gatewayv1.GatewayReasonListenersNotValid)
	isAccepted := func(l *listener.Listener) bool { return l.Accepted.OK } // of the Gateway itself: those of ListenerSets are theirs to report
	ips, supported := staticAddresses(g)
	switch {
	case g.Spec.Infrastructure != nil && g.Spec.Infrastructure.ParametersRef != nil:
		r.accepted = condition.False(gatewayv1.GatewayReasonInvalidParameters, "infrastructure.parametersRef is not supported: GatewayClasses have parameters")
		r.programmed = condition.False(gatewayv1.GatewayReasonInvalid, r.accepted.Message)
	case !supported:
		r.accepted = condition.False(gatewayv1.GatewayReasonUnsupportedAddress, "Only addresses of type IPAddress are supported")
		r.programmed = r.accepted
	case !slices.ContainsFunc(p.own, isAccepted):
		r.accepted = condition.False(notValid, "No Accepted Listeners")
		r.programmed = r.accepted
	case o.failure != "":
		r.programmed = condition.False(gatewayv1.GatewayReasonNoResources, o.failure)
	case !p.isProgrammable():
		r.programmed = condition.False(notValid, "No listener can be programmed")
	case o.addressless && (!o.atNodes || len(r.addresses) > 0):
	case !o.atNodes && !hasAll(r.addresses, ips):
		r.programmed = condition.False(gatewayv1.GatewayReasonAddressNotUsable, "The addresses are not assigned to the Service")
		if len(r.addresses) == 0 {
			r.programmed = condition.False(gatewayv1.GatewayReasonAddressNotAssigned, "Gateway waiting for address")
		}
	case len(r.addresses) == 0:
		r.programmed = condition.False(gatewayv1.GatewayReasonAddressNotAssigned, "Gateway waiting for address")
	}
	if r.accepted.OK && slices.ContainsFunc(p.own, func(l *listener.Listener) bool { return !l.Accepted.OK }) {
		r.accepted.Reason, r.accepted.Message = notValid, "Some listeners are not valid"
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
	// Without ListenerSets there is no number of them, which older definitions do not have.
	if n := p.attachedSets(r); to.AttachedListenerSets == nil && n > 0 || to.AttachedListenerSets != nil && *to.AttachedListenerSets != n {
		to.AttachedListenerSets, changed = &n, true
	}
	listeners, differ := applyListeners(to.Listeners, p.own, p.attached, generation, counts, now)
	to.Listeners = listeners
	return changed || differ
}

// attachedSets is the number of ListenerSets that are accepted.
func (p *gatewayPlan) attachedSets(r gatewayResult) (n int32) {
	for _, s := range p.sets {
		if s.result(r).accepted.OK {
			n++
		}
	}
	return n
}

// applyListeners returns what a status says of listeners, and whether that is something else. Without counts the numbers of
// routes stay as they are.
func applyListeners(has []gatewayv1.ListenerStatus, all []*listener.Listener, attached map[*listener.Listener]int32, generation int64, counts bool, now metav1.Time) (merged []gatewayv1.ListenerStatus, changed bool) {
	for _, l := range all {
		s := gatewayv1.ListenerStatus{Name: l.Of.Name}
		i := slices.IndexFunc(has, func(s gatewayv1.ListenerStatus) bool { return s.Name == l.Of.Name })
		if i >= 0 {
			s = has[i]
			s.Conditions = slices.Clone(s.Conditions)
		}
		changed = applyListener(l, &s, generation, now) || i != len(merged) || changed
		if n := attached[l]; (counts || i < 0) && s.AttachedRoutes != n {
			s.AttachedRoutes, changed = n, true
		}
		merged = append(merged, s)
	}
	return merged, changed || len(has) != len(merged)
}

// applyListener sets what is said of a listener.
func applyListener(l *listener.Listener, to *gatewayv1.ListenerStatus, generation int64, now metav1.Time) (changed bool) {
	changed = len(to.SupportedKinds)+len(l.Kinds) > 0 && !reflect.DeepEqual(to.SupportedKinds, l.Kinds)
	to.SupportedKinds = l.Kinds // also without any: older definitions want a list
	changed = setCondition(&to.Conditions, string(gatewayv1.ListenerConditionAccepted), l.Accepted, generation, now) || changed
	changed = setCondition(&to.Conditions, string(gatewayv1.ListenerConditionProgrammed), l.Programmed(), generation, now) || changed
	changed = setCondition(&to.Conditions, string(gatewayv1.ListenerConditionResolvedRefs), l.Resolved, generation, now) || changed
	if l.Conflicted == nil {
		return condition.Remove(&to.Conditions, string(gatewayv1.ListenerConditionConflicted)) || changed
	}
	return setCondition(&to.Conditions, string(gatewayv1.ListenerConditionConflicted), *l.Conflicted, generation, now) || changed
}
