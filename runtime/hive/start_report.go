// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/resolve"
)

// startReport is the supervisor's health report of a module, beside those of the
// module itself.
type startReport struct {
	health.Reporter
	close   func()
	blocked bool
}

// report is the report of a module, which is blocked no longer.
func (v *supervisor) report(m *resolve.Module) *startReport {
	r := v.reports[m]
	if r == nil {
		r = &startReport{}
		r.Reporter, r.close = v.scope.hive.health.Open(m.Label() + ".start")
		v.reports[m] = r
	}
	r.blocked = false
	return r
}

func (v *supervisor) clearReport(m *resolve.Module) {
	if r := v.reports[m]; r != nil {
		r.close()
		delete(v.reports, m)
	}
}

func (v *supervisor) clearReports() {
	for m := range v.reports {
		v.clearReport(m)
	}
}

// reportBlocked reports modules that are down because of another one.
func (v *supervisor) reportBlocked() {
	blocked := map[*resolve.Module]*resolve.Module{}
	for i, cause := range v.scope.blocked {
		if m := v.scope.order.Steps[i].Module; m != cause && !v.awaitsRebuild(m) {
			blocked[m] = cause
		}
	}
	for m, cause := range blocked {
		r := v.report(m)
		r.blocked = true
		r.Degraded("waits for "+cause.Label(), nil)
	}
	for m, r := range v.reports {
		if r.blocked && blocked[m] == nil {
			v.clearReport(m)
		}
	}
}
