// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"time"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/logging"
)

// Cell makes a run a dry run if --plan is set.
var Cell = cell.Module("plan", "Finds out what would be written, and writes nothing",
	cell.Config(Config{PlanTimeout: 2 * time.Minute}),
	cell.EnabledBy(cell.When("the run is a plan", []string{"plan"}, func(c Config) bool { return c.Plan })),
	cell.Provide(provide),
)

// Config switches the dry run.
type Config struct {
	Plan        bool          `flag:"plan" usage:"Dry run: write nothing and acquire no lease; print what a leading operator would write now and later, and exit with 0 if that is nothing, 2 if there are changes, 3 on timeout, 4 if none were found and not all could be looked at"`
	PlanTimeout time.Duration `flag:"plan-timeout" usage:"Timeout of --plan" min:"100ms"`
}

// provide makes the plan, and marks the log: what it says was done is planned.
func provide(c Config, tree *health.Tree, log *logging.Log) *Plan {
	log.Mark("plan", true)
	p := New(c.PlanTimeout)
	p.degraded = tree.Degraded
	return p
}
