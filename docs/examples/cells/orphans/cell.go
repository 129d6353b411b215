// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package orphans

import (
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
)

// region declaration

// Cell deletes orphaned CiliumNodes.
var Cell = cell.Module("orphans", "Deletes CiliumNodes whose Node does not exist",
	cell.Config(Config{OrphansInterval: 5 * time.Minute}),
	cell.EnabledBy(cell.When("an interval is set", []string{"orphans-interval"}, func(c Config) bool { return c.OrphansInterval != 0 })),
	k8s.RBAC(k8s.Allow("get", stream.Nodes.Resource().GroupResource())),
	sweep.Controller[*controller](newController, ciliumio.Nodes, sweep.Resets(stream.Nodes, (*controller).nodeAppeared)),
)

// Config says how often CiliumNodes are scanned.
type Config struct {
	OrphansInterval time.Duration `flag:"orphans-interval" usage:"Interval between sweeps; 0 disables them" min:"100ms" zero:"disables the sweep"`
}

// endregion
