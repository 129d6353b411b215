// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (c *client) Watch(ctx context.Context, prefix string) iter.Seq[Event] {
	return c.watch(ctx, prefix, follower{replaced: func() {}, known: func() []string { return nil }})
}

// follower is a consumer that knows more than it is told. Its functions are
// called in the goroutine that consumes.
type follower struct {
	// replaced is called before all is told anew because revisions mean nothing
	// any more.
	replaced func()
	// known are keys that the consumer takes for existing, from its own writes.
	// If a listing does not have them, it is told so.
	known func() []string
}

func (c *client) watch(ctx context.Context, prefix string, f follower) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		if c.AwaitConnected(ctx) != nil {
			return
		}
		w := &watch{client: c, prefix: prefix, yield: yield, follower: f, told: map[string]int64{}}
		w.run(ctx)
	}
}

// watch is one run of Watch, in the goroutine of its consumer.
type watch struct {
	*client
	follower
	prefix string
	yield  func(Event) bool

	told     map[string]int64 // keys that the consumer was told of, with their revisions
	revision int64            // up to which the consumer knows all
	planned  int              // up to which it knows what is planned
	listed   bool             // what it was told is complete as of revision
	synced   bool             // the consumer was told so

	pause   time.Duration
	failing bool
}

// errReplaced says that etcd has other data than before.
var errReplaced = errors.New("etcd's data was replaced")

// run lists and watches until ctx ends or the consumer leaves.
func (w *watch) run(ctx context.Context) {
	replaced := w.data.current()
	for ctx.Err() == nil && w.ctx.Err() == nil {
		err := w.list(ctx)
		if err == nil {
			err = w.follow(ctx, replaced)
		}
		switch {
		case errors.Is(err, errLeft):
			return
		case errors.Is(err, errReplaced):
			replaced = w.data.current()
			w.forget()
			continue
		case errors.Is(err, rpctypes.ErrCompacted):
			w.listed = false // what happened in between is gone: find out by listing
			continue
		}
		w.failed(ctx, err)
		w.wait(ctx)
	}
}

// forget makes the next listing tell everything again: revisions mean nothing
// any more.
func (w *watch) forget() {
	w.replaced()
	w.listed, w.revision = false, 0
	for key := range w.told {
		w.told[key] = 0
	}
}

// list tells the consumer what is there, unless it knows, and what of that it
// knew is gone.
func (w *watch) list(ctx context.Context) error {
	if w.listed {
		return nil
	}
	if w.synced {
		w.metrics.Relists.WithLabelValues(scope(w.prefix)).Inc()
	}
	etcd, release, err := w.admit(ctx)
	if err != nil {
		return err
	}
	release = sync.OnceFunc(release) // the consumer may need a share while it is told
	defer release()
	w.planned = w.gate.overlay.position()
	present := make(map[string]struct{}, len(w.told))
	revision, err := w.pages(clientv3.WithRequireLeader(ctx), etcd, w.prefix, listOptions{}, w.revision, release, func(e Entry) bool {
		present[e.Key] = struct{}{}
		return w.upsert(e)
	})
	if err != nil {
		return err
	}
	for _, key := range w.known() {
		if _, told := w.told[key]; !told {
			w.told[key] = 0
		}
	}
	for key := range w.told {
		if _, ok := present[key]; !ok && !w.remove(key, revision) {
			return errLeft
		}
	}
	w.revision, w.listed = revision, true
	if !w.synced {
		w.synced = true
		if !w.yield(Event{Kind: Synced}) {
			return errLeft
		}
	}
	w.succeeded()
	return nil
}

// follow tells the consumer what changes, until the watch ends.
func (w *watch) follow(ctx context.Context, replaced <-chan struct{}) error {
	etcd, release, err := w.admit(ctx)
	if err != nil {
		return err
	}
	release() // the rate is for starting it
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	changes := etcd.Watch(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(w.revision+1), clientv3.WithProgressNotify())
	for {
		select {
		case <-replaced:
			return errReplaced
		case <-w.gate.overlay.more(w.planned):
			if !w.takePlanned() {
				return errLeft
			}
		case resp, open := <-changes:
			if !open {
				return errors.Join(errors.New("the watch ended"), ctx.Err())
			}
			if err := resp.Err(); err != nil {
				return w.explain("watch", w.prefix, err)
			}
			if err := w.take(resp); err != nil {
				return err
			}
			w.succeeded()
		}
	}
}

// take passes on the changes of one answer.
func (w *watch) take(resp clientv3.WatchResponse) error {
	for _, e := range resp.Events {
		if w.gate.overlay.hides(string(e.Kv.Key), e.Kv.ModRevision) {
			continue
		}
		more := false
		if e.Type == clientv3.EventTypeDelete {
			more = w.remove(string(e.Kv.Key), e.Kv.ModRevision)
		} else {
			more = w.upsert(entryOf(e.Kv))
		}
		if !more {
			return errLeft
		}
	}
	if n := len(resp.Events); n > 0 {
		w.revision = max(w.revision, resp.Events[n-1].Kv.ModRevision)
	} else if resp.IsProgressNotify() {
		w.revision = max(w.revision, resp.Header.Revision)
	}
	return nil
}

// takePlanned passes on what was planned since the last look.
func (w *watch) takePlanned() (more bool) {
	var changes []Event
	changes, w.planned = w.gate.overlay.after(w.planned, w.prefix)
	for _, e := range changes {
		more := false
		if e.Kind == Delete {
			more = w.remove(e.Key, e.ModRevision)
		} else {
			more = w.upsert(e.Entry)
		}
		if !more {
			return false
		}
	}
	return true
}

// upsert reports whether the consumer wants more.
func (w *watch) upsert(e Entry) bool {
	if w.told[e.Key] == e.ModRevision {
		return true // listed again, unchanged
	}
	w.told[e.Key] = e.ModRevision
	return w.yield(Event{Upsert, e})
}

func (w *watch) remove(key string, revision int64) bool {
	if _, ok := w.told[key]; !ok {
		return true
	}
	delete(w.told, key)
	return w.yield(Event{Delete, Entry{Key: key, ModRevision: revision}})
}

// admit waits for the connection and a share of the rate, as long as it takes.
func (w *watch) admit(ctx context.Context) (*clientv3.Client, func(), error) {
	etcd, err := w.etcd(ctx)
	if err != nil {
		return nil, nil, err
	}
	release, err := w.limiter.Acquire(ctx, w.module)
	return etcd, release, err
}

// The first pause after a failure; further ones double.
const firstPause = 50 * time.Millisecond

func (w *watch) wait(ctx context.Context) {
	w.pause = min(max(2*w.pause, firstPause), w.timing.relist)
	select {
	case <-time.After(w.pause/2 + rand.N(w.pause)):
	case <-ctx.Done():
	case <-w.ctx.Done():
	}
}

// failed logs the first of several failures.
func (w *watch) failed(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil || w.ctx.Err() != nil || w.failing {
		return
	}
	w.failing = true
	w.log.Warn("watching etcd, will try again", "module", w.module, "prefix", w.prefix, "error", err)
}

func (w *watch) succeeded() {
	w.pause = 0
	if w.failing {
		w.failing = false
		w.log.Info("watching etcd again", "module", w.module, "prefix", w.prefix)
	}
}
