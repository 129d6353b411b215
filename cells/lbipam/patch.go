// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// wanted is what a status is to have. What it does not name is left alone.
type wanted struct {
	ingress    func(netip.Addr) bool // entries with such addresses stay, others are removed; nil leaves all
	foreign    bool                  // entries without an address stay, too
	addrs      []netip.Addr          // of entries that are to be there
	conditions []wantedCondition
	absent     []string // types of conditions
}

type wantedCondition struct {
	kind, status, reason, message string
	generation                    int64 // of the object
	anyGeneration                 bool  // that of the present condition may stay
}

// addStatus comes before other operations where an object has no status.
var addStatus = operation{"add", "/status", map[string]any{}}

// difference returns the operations that bring a status to what is wanted, none if it is that.
func difference(entries []ingress, conditions []condition, want wanted, now time.Time) []operation {
	ops := ingressDifference(entries, want)
	return append(ops, conditionDifference(conditions, want, now)...)
}

const ingressPath = "/status/loadBalancer/ingress"

func ingressDifference(entries []ingress, want wanted) (ops []operation) {
	if want.ingress == nil {
		return nil
	}
	if n := len(entries); n > 0 && entries[n-1].isMore && !want.foreign { // all of them are replaced
		all := []any{}
		for _, addr := range want.addrs {
			all = append(all, map[string]string{"ip": addr.String()})
		}
		return []operation{{"add", ingressPath, all}}
	}
	var kept []netip.Addr
	removed := 0
	for i, e := range entries {
		addr, err := netip.ParseAddr(e.IP)
		addr = addr.Unmap()
		if want.foreign && err != nil || err == nil && want.ingress(addr) && !slices.Contains(kept, addr) {
			kept = append(kept, addr)
			continue
		}
		ops = append(ops, operation{Op: "remove", Path: fmt.Sprintf("%s/%d", ingressPath, i-removed)})
		removed++
	}
	var added []any
	for _, addr := range want.addrs {
		if !slices.Contains(kept, addr) {
			added = append(added, map[string]string{"ip": addr.String()})
		}
	}
	if len(added) > 0 && len(entries) == 0 {
		return append(ops, operation{"add", ingressPath, added})
	}
	for _, e := range added {
		ops = append(ops, operation{"add", ingressPath + "/-", e})
	}
	return ops
}

const conditionsPath = "/status/conditions"

func conditionDifference(conditions []condition, want wanted, now time.Time) (ops []operation) {
	var added []any
	if n := len(conditions); n > 0 && conditions[n-1].isMore {
		for _, w := range want.conditions { // which replace all
			added = append(added, w.value(now))
		}
		if len(added) > 0 {
			ops = append(ops, operation{"add", conditionsPath, added})
		}
		return ops
	}
	for _, w := range want.conditions {
		i := slices.IndexFunc(conditions, func(c condition) bool { return c.Type.String() == w.kind })
		if i < 0 {
			added = append(added, w.value(now))
			continue
		}
		ops = append(ops, w.changes(conditions[i], fmt.Sprintf("%s/%d", conditionsPath, i), now)...)
	}
	if len(added) > 0 && len(conditions) == 0 {
		ops = append(ops, operation{"add", conditionsPath, added})
	} else {
		for _, c := range added {
			ops = append(ops, operation{"add", conditionsPath + "/-", c})
		}
	}
	for i, c := range slices.Backward(conditions) {
		if slices.Contains(want.absent, c.Type.String()) {
			ops = append(ops, operation{Op: "remove", Path: fmt.Sprintf("%s/%d", conditionsPath, i)})
		}
	}
	return ops
}

// value is a new condition.
func (w wantedCondition) value(now time.Time) map[string]any {
	c := map[string]any{
		"type": w.kind, "status": w.status, "reason": w.reason, "message": w.message,
		"lastTransitionTime": transition(now),
	}
	if w.generation != 0 {
		c["observedGeneration"] = w.generation
	}
	return c
}

// transition is the time as conditions have it.
func transition(now time.Time) string { return now.UTC().Format(time.RFC3339) }

// changes are the operations on the fields of a condition that differ. The time changes with the status alone.
func (w wantedCondition) changes(is condition, path string, now time.Time) (ops []operation) {
	set := func(field string, value any, differs bool) {
		if differs {
			ops = append(ops, operation{"add", path + "/" + field, value})
		}
	}
	set("status", w.status, is.Status != slim.MakeString(w.status))
	set("lastTransitionTime", transition(now), is.Status != slim.MakeString(w.status))
	set("reason", w.reason, is.Reason != slim.MakeString(w.reason))
	set("message", w.message, is.Message != w.message)
	set("observedGeneration", w.generation, w.generation != is.ObservedGeneration && (!w.anyGeneration || len(ops) > 0))
	return ops
}

// shows reports whether a status has what is wanted.
func (w wanted) shows(entries []ingress, conditions []condition) bool {
	return len(difference(entries, conditions, w, time.Time{})) == 0
}

// String tells desired states apart.
func (w wanted) String() string { return fmt.Sprint(w.addrs, w.conditions, w.absent) }
