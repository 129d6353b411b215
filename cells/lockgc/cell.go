// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lockgc

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell removes locks of identities whose holders are stuck.
var Cell = cell.Module("lockgc", "Takes locks of identities away from holders that are stuck",
	cell.Config(Config{KVStoreLockGCInterval: shortest}),
	cell.EnabledBy(kvstore.InUse),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newSweeper),
	cell.Job("sweep", (*sweeper).job),
)

// Config says how often locks are looked at.
type Config struct {
	KVStoreLockGCInterval time.Duration `flag:"kvstore-lock-gc-interval"`
}

const intervalFlag = "kvstore-lock-gc-interval"

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Duration(intervalFlag, c.KVStoreLockGCInterval, "Pause between two looks at the locks in the key-value store; a lock seen by both is taken away")
	_ = fs.MarkHidden(intervalFlag)
}

// shortest is the TTL of the leases that locks hang on. A shorter interval would
// take locks from holders that are only slow.
const shortest = 25 * time.Second

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.KVStoreLockGCInterval < shortest {
		return cell.Invalid(intervalFlag, "must be at least %s: who holds a lock for less is not stuck", shortest)
	}
	return nil
}
