// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"log/slog"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// Cell gives every module the scope that its loops are made in.
var Cell = cell.Module("reconcile", "Brings objects to their desired state, with a cause for every write",
	cell.PerModule(newScope),
)

// Scope is the module that a loop belongs to.
type Scope struct {
	Module cell.Scope
	Log    *slog.Logger
	Health health.Reporter
	Book   *explain.Book // nil: decisions are not remembered
	Plan   *plan.Plan    // nil: a real run
}

type scopeParams struct {
	cell.In

	Log    *slog.Logger
	Health health.Reporter
	Book   *explain.Book `optional:"true"`
	Plan   *plan.Plan    `optional:"true"`
}

func newScope(m cell.Scope, p scopeParams) Scope { return Scope{m, p.Log, p.Health, p.Book, p.Plan} }
