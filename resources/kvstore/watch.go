// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
)

func (c *client) Watch(ctx context.Context, prefix string) iter.Seq[Event] {
	return c.watch(ctx, prefix, watchHooks{onRestore: func() {}, knownKeys: func() []string { return nil }})
}

// watchHooks connect a watch to a consumer that also writes the keys. They are called
// in the consumer's goroutine.
type watchHooks struct {
	// onRestore is called after a restore, before all keys are delivered again:
	// earlier revisions are invalid.
	onRestore func()
	// knownKeys returns keys that the consumer takes for existing, from its own
	// writes. A listing without them delivers a Delete.
	knownKeys func() []string
	// endOnRestore ends the watch at a restore: what the new data lack is not delivered as deleted.
	endOnRestore bool
}

func (c *client) watch(ctx context.Context, prefix string, f watchHooks) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		if c.AwaitConnected(ctx) != nil {
			return
		}
		w := &watch{client: c, prefix: prefix, yield: yield, watchHooks: f, delivered: map[string]int64{}, backoff: newBackoff(c.timing.maxRelistDelay)}
		w.run(ctx)
	}
}

// watch is one call of Watch. It runs in the consumer's goroutine.
type watch struct {
	*client
	watchHooks
	prefix string
	yield  func(Event) bool

	delivered      map[string]int64 // revisions of the keys delivered to the consumer
	revision       int64            // up to which all changes are delivered
	dryRunPosition int              // the same in the overlay of a dry run
	listed         bool             // delivered is complete as of revision
	synced         bool             // Synced is delivered

	arrived time.Time // when what is delivered came from etcd
	backoff wait.Backoff
	failing bool
}

// errRestored means that etcd's data was replaced.
var errRestored = errors.New("etcd data was restored or replaced")

// run lists and watches until ctx ends or the consumer stops.
func (w *watch) run(ctx context.Context) {
	replaced := w.restores.dataRestored()
	for ctx.Err() == nil && w.ctx.Err() == nil {
		err := w.list(ctx, replaced)
		if err == nil {
			began := time.Now()
			err = w.watchChanges(ctx, replaced)
			if time.Since(began) > w.timing.maxRelistDelay {
				w.backoff = newBackoff(w.timing.maxRelistDelay)
			}
		}
		switch {
		case errors.Is(err, errStopped), errors.Is(err, errRestored) && w.endOnRestore:
			return
		case errors.Is(err, errRestored):
			replaced = w.restores.dataRestored()
			w.reset()
			continue
		case errors.Is(err, rpctypes.ErrCompacted):
			w.listed = false // the changes in between are lost: list again
		default:
			w.logFailure(ctx, err)
		}
		w.sleep(ctx)
	}
}

// reset makes the next listing deliver all keys again: earlier revisions are invalid.
func (w *watch) reset() {
	w.onRestore()
	w.listed, w.revision = false, 0
	for key := range w.delivered {
		w.delivered[key] = 0
	}
}

// list delivers the difference between the listing and the keys delivered so far.
func (w *watch) list(ctx context.Context, replaced <-chan struct{}) error {
	if w.listed {
		return nil
	}
	if w.synced {
		w.metrics.Relists.WithLabelValues(keyClass(w.prefix)).Inc()
	}
	etcd, release, err := w.acquire(ctx)
	if err != nil {
		return err
	}
	release = sync.OnceFunc(release)
	defer release()
	arrived := func() {
		release() // the consumer may need the limiter itself
		w.arrived = time.Now()
	}
	w.dryRunPosition = w.interceptor.overlay.position()
	present := make(map[string]struct{}, len(w.delivered))
	revision, err := w.pages(clientv3.WithRequireLeader(ctx), etcd, w.prefix, listOptions{}, w.revision, arrived, func(e Entry) bool {
		present[e.Key] = struct{}{}
		return w.upsert(e)
	})
	if err != nil {
		return err
	}
	if w.endOnRestore && isClosed(replaced) {
		return errRestored
	}
	for _, key := range w.knownKeys() {
		if _, told := w.delivered[key]; !told {
			w.delivered[key] = 0
		}
	}
	for key := range w.delivered {
		if _, ok := present[key]; !ok && !w.delete(key, revision) {
			return errStopped
		}
	}
	w.revision, w.listed = revision, true
	if !w.synced {
		w.synced = true
		if !w.yield(Event{Kind: Synced}) {
			return errStopped
		}
	}
	w.markHealthy()
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// watchChanges delivers changes until the watch ends.
func (w *watch) watchChanges(ctx context.Context, replaced <-chan struct{}) error {
	etcd, release, err := w.acquire(ctx)
	if err != nil {
		return err
	}
	release() // only the start of a watch is limited
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	changes, ended := stamped(ctx, etcd.Watch(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(w.revision+1), clientv3.WithProgressNotify(), clientv3.WithFragment()))
	defer func() { cancel(); <-ended }()
	for {
		select {
		case <-replaced:
			return errRestored
		case <-w.interceptor.overlay.changedSince(w.dryRunPosition):
			w.arrived = time.Now()
			if !w.deliverPlanned() {
				return errStopped
			}
		case resp, open := <-changes:
			if !open {
				return errors.Join(errors.New("watch closed"), ctx.Err())
			}
			if err := resp.Err(); err != nil {
				return w.wrapError("watch", w.prefix, err)
			}
			w.arrived = resp.at
			if err := w.handleResponse(resp.WatchResponse); err != nil {
				return err
			}
			w.markHealthy()
		}
	}
}

// handleResponse delivers the changes of one response.
func (w *watch) handleResponse(resp clientv3.WatchResponse) error {
	for _, e := range resp.Events {
		if w.interceptor.overlay.overrides(string(e.Kv.Key), e.Kv.ModRevision) {
			continue
		}
		more := false
		if e.Type == clientv3.EventTypeDelete {
			more = w.delete(string(e.Kv.Key), e.Kv.ModRevision)
		} else {
			more = w.upsert(entryOf(e.Kv))
		}
		if !more {
			return errStopped
		}
	}
	if n := len(resp.Events); n > 0 {
		w.revision = max(w.revision, resp.Events[n-1].Kv.ModRevision)
	} else if resp.IsProgressNotify() {
		w.revision = max(w.revision, resp.Header.Revision)
	}
	return nil
}

// deliverPlanned delivers the writes planned since the last call.
func (w *watch) deliverPlanned() (more bool) {
	var changes []Event
	changes, w.dryRunPosition = w.interceptor.overlay.changesSince(w.dryRunPosition, w.prefix)
	for _, e := range changes {
		more := false
		if e.Kind == Delete {
			more = w.delete(e.Key, e.ModRevision)
		} else {
			more = w.upsert(e.Entry)
		}
		if !more {
			return false
		}
	}
	return true
}

// upsert delivers a key unless it is unchanged, and reports whether to go on.
func (w *watch) upsert(e Entry) bool {
	if w.delivered[e.Key] == e.ModRevision {
		return true // unchanged since it was delivered
	}
	action := actionCreate
	if _, known := w.delivered[e.Key]; known {
		action = actionModify
	}
	w.observeWait(action)
	w.delivered[e.Key] = e.ModRevision
	return w.yield(Event{Upsert, e})
}

func (w *watch) delete(key string, revision int64) bool {
	if _, ok := w.delivered[key]; !ok {
		return true
	}
	w.observeWait(actionDelete)
	delete(w.delivered, key)
	return w.yield(Event{Delete, Entry{Key: key, ModRevision: revision}})
}

// acquire waits for the connection and the rate limit, without a timeout.
func (w *watch) acquire(ctx context.Context) (*clientv3.Client, func(), error) {
	etcd, err := w.awaitClient(ctx)
	if err != nil {
		return nil, nil, err
	}
	release, err := w.limiter.Acquire(ctx, w.module)
	return etcd, release, err
}

// initialPause is the mean delay after a first failure.
const initialPause = 50 * time.Millisecond

// newBackoff returns delays between half and one and a half of a mean that doubles up to
// longest.
func newBackoff(longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: initialPause / 2, Factor: 2, Jitter: 2, Steps: 32, Cap: longest / 2}
}

func (w *watch) sleep(ctx context.Context) {
	select {
	case <-time.After(w.backoff.Step()):
	case <-ctx.Done():
	case <-w.ctx.Done():
	}
}

// logFailure logs the first of consecutive failures.
func (w *watch) logFailure(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil || w.ctx.Err() != nil || w.failing {
		return
	}
	w.failing = true
	w.log.Warn("etcd watch failed, retrying", "module", w.module, "prefix", w.prefix, "error", err)
}

func (w *watch) markHealthy() {
	if w.failing {
		w.failing = false
		w.log.Info("etcd watch recovered", "module", w.module, "prefix", w.prefix)
	}
}
