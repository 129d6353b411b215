// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// Cell makes a run a dry run if --plan is set.
var Cell = cell.Module("plan", "Finds out what would be written, and writes nothing",
	cell.Config(Config{PlanTimeout: 2 * time.Minute}),
	cell.EnabledBy(cell.When("the run is a plan", []string{"plan"}, func(c Config) bool { return c.Plan })),
	cell.Provide(provide),
)

// Config switches the dry run.
type Config struct {
	Plan        bool
	PlanTimeout time.Duration
}

const timeoutFlag = "plan-timeout"

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Bool("plan", c.Plan, "Write nothing and take no lease: find out what an operator that leads would write now and later, print it, and exit with 0 if that is nothing, 2 if there is something to do, 3 if it was not found out in time")
	fs.Duration(timeoutFlag, c.PlanTimeout, "How long --plan may take")
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.PlanTimeout <= 0 {
		return cell.Invalid(timeoutFlag, "must be greater than 0")
	}
	return nil
}

func provide(c Config, tree *health.Tree) *Plan {
	p := New(c.PlanTimeout)
	p.degraded = tree.Degraded
	return p
}
