// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package heartbeat

import (
	"context"
	"errors"
	"time"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
)

// newController returns the queue that writes the heartbeat. The value may be unchanged: readers wait for the event.
func newController(c Config, store kvstore.Client, s reconcile.Deps, m *beatMetrics) *reconcile.Queue[string] {
	beat := func(ctx context.Context, key string) error {
		err := store.Write(ctx, kvstore.PutLeased(key, time.Now().UTC().AppendFormat(nil, time.RFC3339)))
		switch {
		case err == nil:
			m.LastSuccess.SetToCurrentTime()
		case !errors.Is(ctx.Err(), context.Canceled):
			m.Failures.Inc()
		}
		return err
	}
	// Readers miss the heartbeat after two minutes: the back-off after an outage is short.
	return reconcile.Periodic(s, "beat", kvstore.HeartbeatKey, c.KVStoreHeartbeatInterval, beat,
		reconcile.AwaitReady(store.AwaitConnected), reconcile.Timeout(25*time.Second), reconcile.Backoff(time.Second, 3*time.Second))
}
