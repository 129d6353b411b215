// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The changes of a key, as metrics have them.
const (
	actionCreate = "create"
	actionModify = "modify"
	actionDelete = "delete"
)

// observeWait records how long a change has waited that is delivered now. Its class is that of the prefix: a short key is one of its own.
func (w *watch) observeWait(action string) {
	w.metrics.EventsQueued.WithLabelValues(keyClass(w.prefix), action).Observe(time.Since(w.arrived).Seconds())
}

// arrival is a response of a watch, and when it came.
type arrival struct {
	clientv3.WatchResponse
	at time.Time
}

// stamped passes the responses of a watch on with the times at which they came. etcd's client queues them as well while the consumer is busy, but
// does not say since when. The queue ends with ctx, or when the watch has; ended is closed then.
func stamped(ctx context.Context, from clientv3.WatchChan) (to <-chan arrival, ended <-chan struct{}) {
	queue, done := make(chan arrival), make(chan struct{})
	go func() {
		defer close(done)
		defer close(queue)
		passOn(ctx, from, queue)
	}()
	return queue, done
}

func passOn(ctx context.Context, from clientv3.WatchChan, to chan<- arrival) {
	var waiting []arrival
	for from != nil || len(waiting) > 0 {
		var next arrival
		var ready chan<- arrival // nil while nothing waits
		if len(waiting) > 0 {
			next, ready = waiting[0], to
		}
		select {
		case <-ctx.Done():
			return
		case ready <- next:
			waiting[0] = arrival{} // a response may be large
			waiting = waiting[1:]
		case resp, open := <-from:
			if !open {
				from = nil
				continue
			}
			waiting = append(waiting, arrival{resp, time.Now()})
		}
	}
}
