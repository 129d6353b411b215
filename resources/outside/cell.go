// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// Cell gives every module the scope that its doors are made in.
var Cell = cell.Module("outside", "Guards calls to servers other than Kubernetes and etcd",
	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newBudgets),
	cell.ProvidePerModule(provideScope),
)

// Scope is the module that a door belongs to.
type Scope struct {
	Module cell.ModuleInfo
	Log    *slog.Logger
	Health health.Reporter
	Fence  *leading.Fence   // nil outside the term: the module must not change anything
	Book   *explain.History // nil: calls are not remembered
	Plan   *dryrun.Plan     // nil: a real run

	metrics *callMetrics // nil: calls are not counted
	budgets *budgets     // nil: doors share no rate
	strict  bool         // a change without a cause fails
}

type scopeParams struct {
	cell.In

	Log     *slog.Logger
	Health  health.Reporter
	Metrics *callMetrics
	Budgets *budgets
	Fence   *leading.Fence   `optional:"true"`
	Book    *explain.History `optional:"true"`
	Plan    *dryrun.Plan     `optional:"true"`
}

func provideScope(m cell.ModuleInfo, p scopeParams) Scope {
	return Scope{m, p.Log, p.Health, p.Fence, p.Book, p.Plan, p.Metrics, p.Budgets, os.Getenv(k8s.StrictCause) != ""}
}

// callMetrics are about the calls of all modules.
type callMetrics struct {
	Calls *prometheus.HistogramVec
}

func newMetrics() *callMetrics {
	return &callMetrics{
		Calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "cilium_operator", Name: "outside_call_duration_seconds", Help: "How long calls to servers other than Kubernetes and etcd took",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"module", "server", "verb", "outcome"}),
	}
}
