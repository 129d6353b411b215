// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/plan"
)

// standing is what the supervisor reports about a module, beside what the
// module reports itself.
type standing struct {
	health.Reporter
	close   func()
	blocked bool
}

func (v *supervisor) stand(m *plan.Module) *standing {
	s := v.standing[m]
	if s == nil {
		s = &standing{}
		s.Reporter, s.close = v.scope.hive.health.Open(m.Label() + ".start")
		v.standing[m] = s
	}
	s.blocked = false
	return s
}

func (v *supervisor) forget(m *plan.Module) {
	if s := v.standing[m]; s != nil {
		s.close()
		delete(v.standing, m)
	}
}

func (v *supervisor) forgetAll() {
	for m := range v.standing {
		v.forget(m)
	}
}

// reportBlocked reports modules that are down because of another one.
func (v *supervisor) reportBlocked() {
	blocked := map[*plan.Module]*plan.Module{}
	for i, culprit := range v.scope.blocked {
		if m := v.scope.order.Steps[i].Module; m != culprit && !v.waits(m) {
			blocked[m] = culprit
		}
	}
	for m, culprit := range blocked {
		s := v.stand(m)
		s.blocked = true
		s.Degraded("waits for "+culprit.Label(), nil)
	}
	for m, s := range v.standing {
		if s.blocked && blocked[m] == nil {
			v.forget(m)
		}
	}
}
