// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// Cell gives every module the scope that its sweeps are made in.
var Cell = cell.Module("sweep", "Removes what nobody needs any more, and never at first sight",
	cell.Config(Config{SweepMaxShare: 0.5}),
	cell.Metrics(newMetrics),
	cell.PerModule(provideScope),
)

// Config is what all sweeps have in common.
type Config struct {
	// SweepMaxShare is the brake: of all objects of a kind, the share that one
	// sweep may delete.
	SweepMaxShare float64
}

const maxShareFlag = "sweep-max-share"

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Float64(maxShareFlag, c.SweepMaxShare, "Share of all objects of a kind, from 0 to 1, that one sweep for garbage may delete; one that would delete more deletes nothing, and says so. 1 is no limit")
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if !(c.SweepMaxShare >= 0 && c.SweepMaxShare <= 1) {
		return cell.Invalid(maxShareFlag, "must be a number from 0 to 1")
	}
	return nil
}

// Scope is the module that a sweep belongs to.
type Scope struct {
	Module cell.Scope
	Log    *slog.Logger
	Health health.Reporter
	// MaxShare is the brake, as in Config.
	MaxShare float64
	Plan     *plan.Plan  // nil: a real run
	Events   *k8s.Events // nil: nobody is told by Events

	metrics *sweepMetrics // nil: nobody counts
}

type scopeParams struct {
	cell.In

	Config  Config
	Log     *slog.Logger
	Health  health.Reporter
	Metrics *sweepMetrics
	Plan    *plan.Plan  `optional:"true"`
	Events  *k8s.Events `optional:"true"`
}

func provideScope(m cell.Scope, p scopeParams) Scope {
	s := newScope(m, p.Config, p.Log, p.Health, p.Metrics)
	s.Plan, s.Events = p.Plan, p.Events
	return s
}

func newScope(m cell.Scope, c Config, log *slog.Logger, h health.Reporter, metrics *sweepMetrics) Scope {
	return Scope{Module: m, Log: log, Health: h, MaxShare: c.SweepMaxShare, metrics: metrics}
}
