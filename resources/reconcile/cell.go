// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// Cell provides Deps to every module.
var Cell = cell.Module("reconcile", "Brings objects to their desired state, with a cause for every write",
	cell.Config(Config{}),
	cell.Metrics(newQueueMetrics),
	cell.ProvideProcess(newPanicMemory),
	k8s.EventRBAC(), // of objects whose handling panics, by whichever module
	cell.ProvidePerModule(newDeps),
)

// Config is what all work queues have in common.
type Config struct {
	ControllerGroupMetrics []string `flag:"controller-group-metrics" usage:"Work queues whose attempts are counted as controllers_group_runs_total, by the names of workqueue_depth; all or none select all or none"`
}

// selects reports whether the attempts of a queue are counted.
func (c Config) selects(queue string) bool {
	return slices.Contains(c.ControllerGroupMetrics, queue) || slices.Contains(c.ControllerGroupMetrics, "all")
}

// Deps is the module of a queue, and what the queue needs of it.
type Deps struct {
	Module cell.ModuleInfo
	Log    *slog.Logger
	Health health.Reporter
	Book   *explain.History // nil: decisions are not recorded
	Plan   *dryrun.Plan     // nil: a real run
	Events *k8s.Events      // nil: no Events

	config  Config
	metrics *queueMetrics // nil: not counted
	panics  *panicMemory  // nil: of its own
}

// panicMemory is that of the work queues, watches and mirrors of a process.
type panicMemory struct{ *panics.Memory }

func newPanicMemory() *panicMemory { return &panicMemory{panics.NewMemory()} }

// RuleOf handles objects by a rule of the module, one or two words: a panic is that of its object alone.
func (d Deps) RuleOf(rule string) *panics.Rule {
	if d.panics == nil {
		d.panics = newPanicMemory()
	}
	return &panics.Rule{Name: d.Module.ID + " " + rule, Memory: d.panics.Memory, Log: d.Log, Events: d.Events, Count: d.metrics.panicCounter(d.Module.ID)}
}

// ObjectsOf handles the changes of the objects of a kind by a rule of the module.
func (d Deps) ObjectsOf(rule string) *panics.Objects {
	return panics.NewObjects(d.RuleOf(rule), d.Health.Child("objects-"+strings.ToLower(strings.ReplaceAll(rule, " ", "-"))), d.Book)
}

// TermTrigger is the trigger of work that starts with the term.
func (d Deps) TermTrigger() k8s.Trigger { return k8s.Trigger{Kind: "Term", Name: d.Module.Term} }

type params struct {
	cell.In

	Config  Config
	Log     *slog.Logger
	Health  health.Reporter
	Metrics *queueMetrics
	Book    *explain.History `optional:"true"`
	Plan    *dryrun.Plan     `optional:"true"`
	Events  *k8s.Events      `optional:"true"`
	Panics  *panicMemory
}

func newDeps(m cell.ModuleInfo, p params) Deps {
	return Deps{m, p.Log, p.Health, p.Book, p.Plan, p.Events, p.Config, p.Metrics, p.Panics}
}
