// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package heartbeat

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell writes the heartbeat of the key-value store.
var Cell = cell.Module("heartbeat", "Proves to agents that the key-value store takes writes",
	cell.Config(Config{KVStoreHeartbeatInterval: time.Minute}),
	cell.EnabledBy(kvstore.InUse),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newBeater),
	cell.Job("beat", (*beater).job),
)

// Config says how often the heartbeat is written.
type Config struct {
	KVStoreHeartbeatInterval time.Duration `flag:"kvstore-heartbeat-interval"`
}

const intervalFlag = "kvstore-heartbeat-interval"

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Duration(intervalFlag, c.KVStoreHeartbeatInterval, "Pause between two heartbeats in the key-value store")
	_ = fs.MarkHidden(intervalFlag)
}

// An agent misses the heartbeat after two minutes. One that fails has to be
// repeated before that.
const shortest, longest = time.Second, time.Minute

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.KVStoreHeartbeatInterval < shortest || c.KVStoreHeartbeatInterval > longest {
		return cell.Invalid(intervalFlag, "must be between %s and %s", shortest, longest)
	}
	return nil
}
