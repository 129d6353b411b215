// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lockgc

import (
	"time"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell deletes identity locks whose holders hang.
var Cell = cell.Module("lockgc", "Takes locks of identities away from holders that are stuck",
	cell.Config(Config{KVStoreLockGCInterval: minInterval}),
	cell.EnabledBy(kvstore.InUse),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newController),
	cell.Job("sweep", (*controller).run),
)

// Config is the interval of the checks.
type Config struct {
	KVStoreLockGCInterval time.Duration `flag:"kvstore-lock-gc-interval" usage:"Interval between checks of the identity locks in the kvstore; a lock seen by two checks in a row is deleted" hidden:"true" min:"25s"`
}

// minInterval is the TTL of the leases of locks. A shorter interval would delete locks of slow holders.
const minInterval = 25 * time.Second
