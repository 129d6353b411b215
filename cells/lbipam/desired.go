// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/runtime/printable"
)

// The types of conditions.
const (
	conditionSatisfied = "cilium.io/IPAMRequestSatisfied"
	conditionConflict  = "cilium.io/PoolConflict"
	conditionInvalid   = "cilium.io/PoolInvalid"
	conditionTotal     = "cilium.io/IPsTotal"
	conditionAvailable = "cilium.io/IPsAvailable"
	conditionUsed      = "cilium.io/IPsUsed"
)

// The reasons of the conditions of pools.
const (
	reasonResolved        = "resolved"
	reasonOverlap         = "cidr_overlap"
	reasonNone            = "noreason"
	reasonInvalidBlock    = "invalid_block"
	reasonInvalidSelector = "invalid_selector"
)

const (
	statusTrue    = "True"
	statusFalse   = "False"
	statusUnknown = "Unknown"
)

// desiredService is what the status of a Service is to have, false if it is left as it is.
func (a *allocator) desiredService(s *service) (w wanted, ok bool) {
	switch {
	case !a.synced, a.excluded[s]:
		return w, false
	case !s.ours:
		w.ingress = func(addr netip.Addr) bool { return !slices.Contains(s.given, addr) }
		w.foreign, w.absent = true, []string{conditionSatisfied}
		return w, true
	case s.result.reason == "" && s.result.message != "": // it waits for what is not known
		return w, false
	case a.dormant() && !slices.ContainsFunc(s.object.Status.Conditions, isSatisfied):
		return w, false
	}
	w.addrs = slices.Clone(s.held)
	w.ingress = func(addr netip.Addr) bool { return slices.Contains(w.addrs, addr) }
	c := wantedCondition{kind: conditionSatisfied, status: statusTrue, reason: reasonSatisfied, generation: s.object.Generation}
	if s.result != (result{}) {
		c.status, c.reason, c.message = statusFalse, s.result.reason, printable.Line(s.result.message)
	}
	w.conditions = []wantedCondition{c}
	return w, true
}

func isSatisfied(c condition) bool { return c.Type.String() == conditionSatisfied }

// mark marks a Service whose status has to be written.
func (a *allocator) mark(s *service) {
	if a.differs(s) {
		a.dirtyServices[s.key] = true
	}
}

func (a *allocator) differs(s *service) bool {
	w, ok := a.desiredService(s)
	return ok && !w.shows(s.object.Status.LoadBalancer.Ingress, s.object.Status.Conditions)
}

// desiredPool is what the status of a pool is to have, false if it is left as it is.
func (a *allocator) desiredPool(p *pool) (w wanted, ok bool) {
	if !a.synced || p.object.CannotDecode(statusPath) {
		return w, false
	}
	add := func(kind, status, reason, message string) {
		w.conditions = append(w.conditions, wantedCondition{kind, status, reason, printable.Line(message), p.object.Generation, true})
	}
	if p.conflict != "" {
		add(conditionConflict, statusTrue, reasonOverlap, p.conflict)
	} else {
		add(conditionConflict, statusFalse, reasonResolved, "")
	}
	if p.problem != nil {
		add(conditionInvalid, statusTrue, p.problem.reason, p.problem.message)
	} else {
		w.absent = append(w.absent, conditionInvalid)
	}
	if len(a.unknownServices) > 0 { // which may have addresses of the pool
		return w, true
	}
	add(conditionTotal, statusUnknown, reasonNone, p.addresses.Total().String())
	add(conditionAvailable, statusUnknown, reasonNone, p.addresses.Free().String())
	add(conditionUsed, statusUnknown, reasonNone, p.addresses.Used().String())
	return w, true
}
