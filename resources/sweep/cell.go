// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"log/slog"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// Cell provides each module with the dependencies of its sweeps.
var Cell = cell.Module("sweep", "Deletes unused objects and keys, at the second sight at the earliest",
	cell.Config(Config{SweepMaxShare: 0.5}),
	cell.Metrics(newMetrics),
	cell.ProvideProcess(newCompleted, newPanicMemory),
	k8s.EventRBAC(), // of objects whose handling panics, by whichever module
	cell.ProvidePerModule(newDeps),
)

// Config is what all sweeps have in common.
type Config struct {
	// SweepMaxShare is the safety limit: of all objects of a kind, the share that one
	// sweep may delete.
	SweepMaxShare float64 `flag:"sweep-max-share" usage:"Maximum share, from 0 to 1, of all objects of a kind that one garbage collection may delete; one that would delete more deletes nothing and reports it. 1 is no limit" min:"0" max:"1"`
}

// Deps is the module that a sweep belongs to.
type Deps struct {
	Module cell.ModuleInfo
	Log    *slog.Logger
	Health health.Reporter
	// MaxShare is the safety limit, as in Config.
	MaxShare float64
	Plan     *dryrun.Plan // nil: a real run
	Events   *k8s.Events  // nil: no Events

	metrics   *sweepMetrics // nil: not counted
	completed *completed    // nil: of its own
	panics    *panicMemory  // nil: of its own
	book      *explain.History
}

// panicMemory is that of the sweeps of a process.
type panicMemory struct{ *panics.Memory }

func newPanicMemory() *panicMemory { return &panicMemory{panics.NewMemory()} }

func (d Deps) ruleOf(name string) *panics.Rule {
	memory := d.panics
	if memory == nil {
		memory = newPanicMemory()
	}
	return &panics.Rule{Name: name, Memory: memory.Memory, Log: d.Log, Events: d.Events, Next: "with the next sweep"}
}

type depsParams struct {
	cell.In

	Config    Config
	Log       *slog.Logger
	Health    health.Reporter
	Metrics   *sweepMetrics
	Completed *completed
	Plan      *dryrun.Plan `optional:"true"`
	Events    *k8s.Events  `optional:"true"`
	Panics    *panicMemory
	Book      *explain.History `optional:"true"`
}

func newDeps(m cell.ModuleInfo, p depsParams) Deps {
	s := makeDeps(m, p.Config, p.Log, p.Health, p.Metrics)
	s.Plan, s.Events, s.completed, s.panics, s.book = p.Plan, p.Events, p.Completed, p.Panics, p.Book
	return s
}

func makeDeps(m cell.ModuleInfo, c Config, log *slog.Logger, h health.Reporter, metrics *sweepMetrics) Deps {
	return Deps{Module: m, Log: log, Health: h, MaxShare: c.SweepMaxShare, metrics: metrics}
}
