// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package heartbeat

import (
	"time"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell writes the heartbeat of the kvstore.
var Cell = cell.Module("heartbeat", "Proves to agents that the key-value store takes writes",
	cell.Config(Config{KVStoreHeartbeatInterval: time.Minute}),
	cell.EnabledBy(kvstore.InUse),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newController),
	cell.Job("beat", (*reconcile.Queue[string]).Run),
)

// Config is the interval of the heartbeat. Agents miss it after two minutes.
type Config struct {
	KVStoreHeartbeatInterval time.Duration `flag:"kvstore-heartbeat-interval" usage:"Interval between updates of the heartbeat key in the kvstore" hidden:"true" min:"1s" max:"1m"`
}
