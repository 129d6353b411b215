// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
)

// syncer brings the keys under a prefix to their desired state and keeps them there.
// A SyncStore is built on it.
//
//   - A key in its desired state costs no request.
//   - A key that another writer changed, deleted or moved to another lease is
//     written again.
//   - Nothing is written or deleted before the first listing.
type syncer struct {
	client *client
	prefix string // with a slash at its end
	// confirm, if set, is called once before the first key of others is deleted.
	confirm func(context.Context) error
	// oneSource says that a key follows one object, or one of its name of a few kinds.
	oneSource bool
	queue     *reconcile.Queue[syncItem]
	metrics   SyncMetrics

	mu      sync.Mutex
	state   *syncState
	pending map[string]struct{} // names not yet in their desired state
	fought  *Contention
	refused *SizeReport // names whose values are too large; they are not written before they have another one (KV-S8)
	// marker is written once the names pending when it was requested are done.
	marker *syncedMarker
}

// syncItem is an item of the queue: a name, the synced marker, or the confirmation that
// keys of others may be deleted.
type syncItem struct {
	name         string
	marker       bool
	confirmation bool
}

func (t syncItem) String() string {
	switch {
	case t.marker:
		return "synced marker"
	case t.confirmation:
		return "keys of other processes"
	}
	return t.name
}

// The back-off of a key that cannot be written. The maximum bounds the recovery time
// after an outage.
const initialRetryDelay, maxRetryDelay = 5 * time.Millisecond, 2 * time.Second

// ownClient is a client of this package.
func ownClient(c Client) (*client, error) {
	own, ok := c.(*client)
	if !ok {
		return nil, fmt.Errorf("a store needs a client of this package, not a %T", c)
	}
	return own, nil
}

func newSyncer(c Client, s reconcile.Deps, prefix, cluster string) (*syncer, error) {
	own, err := ownClient(c)
	if err != nil {
		return nil, err
	}
	metrics, err := NewSyncMetrics(own, prefix, cluster)
	if err != nil {
		return nil, err
	}
	m := &syncer{
		client: own, prefix: Folder(prefix, cluster), metrics: metrics,
		state: newSyncState(), pending: map[string]struct{}{},
	}
	s.Health = s.Health.Child("mirror-" + strings.ReplaceAll(keyClass(m.prefix), "/", "-"))
	m.fought, m.refused = NewContention(s.Health), NewSizeReport(s.Health, "keys")
	m.queue = reconcile.NewQueue(s, "mirror "+keyClass(m.prefix), m.syncKey,
		reconcile.Backoff(initialRetryDelay, maxRetryDelay), reconcile.NamespaceOf(syncItem.namespace))
	return m, nil
}

// run syncs until ctx ends and runs the other functions with it. All names are enqueued
// again every interval; 0 disables that.
func (s *syncer) run(ctx context.Context, interval time.Duration, others ...func(context.Context)) error {
	return runAll(ctx, append(others,
		s.watch,
		func(ctx context.Context) { s.resyncPeriodically(ctx, interval) },
		func(ctx context.Context) { _ = s.queue.Run(ctx) }, // ends with ctx
	)...)
}

// runAll runs all functions until ctx ends. A panic of one ends the others and is
// raised again in the caller.
func runAll(ctx context.Context, parts ...func(context.Context)) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	panics := make(chan any, len(parts))
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					panics <- v
					cancel()
				}
			}()
			part(inner)
		})
	}
	wg.Wait()
	select {
	case v := <-panics:
		panic(v)
	default:
		return ctx.Err()
	}
}

func (s *syncer) resyncPeriodically(ctx context.Context, interval time.Duration) {
	if interval <= 0 {
		return
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.enqueueAll()
		case <-ctx.Done():
			return
		}
	}
}

// upsert sets the desired value of a name.
func (s *syncer) upsert(name string, value []byte, triggers ...k8s.Trigger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if current, ok := s.state.desired[name]; ok && bytes.Equal(current, value) {
		return
	}
	s.state.desired[name] = value
	s.refused.Set(s.prefix+name, "")
	s.fought.Changed(s.prefix+name, true)
	s.enqueue(name, triggers...)
}

// delete removes the desired value of a name. One without a desired value is deleted
// if it is a key of others that may be.
func (s *syncer) delete(name string, triggers ...k8s.Trigger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.state.desired[name]; !ok {
		if s.state.nextAction(name, s.client.leases.has) != noAction {
			s.enqueue(name, triggers...)
		}
		return
	}
	delete(s.state.desired, name)
	s.refused.Set(s.prefix+name, "")
	s.fought.Changed(s.prefix+name, true)
	s.state.written[name] = struct{}{} // perhaps without success
	s.enqueue(name, triggers...)
}

// markComplete declares the desired state complete and requests the synced marker.
func (s *syncer) markComplete(k *syncedMarker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.complete {
		return
	}
	s.state.complete = true
	k.waitingFor = maps.Clone(s.pending)
	s.marker = k
	s.enqueueMarkerIfReady()
	s.confirmIfReady()
}

// enqueueStale queues the names to be deleted. The caller holds the lock.
func (s *syncer) enqueueStale() {
	for _, name := range s.state.stale() {
		s.enqueue(name)
	}
}

// enqueue queues a name. The caller holds the lock.
func (s *syncer) enqueue(name string, triggers ...k8s.Trigger) {
	s.pending[name] = struct{}{}
	s.metrics.Queue.Set(float64(len(s.pending)))
	s.queue.Add(syncItem{name: name}, triggers...)
}

// markDone records that a name is in its desired state. The caller holds the lock.
func (s *syncer) markDone(name string) {
	delete(s.pending, name)
	s.state.prune(name)
	s.metrics.Queue.Set(float64(len(s.pending)))
	s.passMarker(name)
}

// passMarker has the marker not wait for a name any more. The caller holds the lock.
func (s *syncer) passMarker(name string) {
	if s.marker != nil {
		delete(s.marker.waitingFor, name)
	}
	s.enqueueMarkerIfReady()
}

// enqueueAll queues all names, including those still undecided.
func (s *syncer) enqueueAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.pending {
		s.enqueue(name)
	}
	for name := range s.state.desired {
		s.enqueue(name)
	}
	s.enqueueStale()
}

// watch follows the keys under the prefix.
func (s *syncer) watch(ctx context.Context) {
	for e := range s.client.watch(ctx, s.prefix, watchHooks{onRestore: s.onRestore, knownKeys: s.knownKeys}) {
		if e.Kind == Synced {
			s.adoptLeases(ctx)
		}
		s.handleEvent(e)
	}
}

// knownKeys returns the observed keys.
func (s *syncer) knownKeys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]string, 0, len(s.state.observed))
	for name := range s.state.observed {
		keys = append(keys, s.prefix+name)
	}
	return keys
}

func (s *syncer) onRestore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.resetRevisions()
}

func (s *syncer) handleEvent(e Event) {
	if e.Kind == Synced {
		s.mu.Lock()
		s.state.listed = true
		s.enqueueMarkerIfReady()
		s.confirmIfReady()
		s.mu.Unlock()
		s.enqueueAll()
		return
	}
	name := strings.TrimPrefix(e.Key, s.prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	wasDone := s.state.isDone(name, s.client.leases.has) || s.isDeleted(name)
	if e.Kind == Delete {
		s.state.observeDelete(name, e.ModRevision)
	} else {
		s.state.observePut(name, observedKey{e.Value, e.Lease, e.ModRevision})
	}
	if s.state.nextAction(name, s.client.leases.has) != noAction {
		if wasDone {
			s.fought.Undone(e.Key, time.Now())
		}
		s.enqueue(name, k8s.Trigger{Kind: "EtcdKey", Name: e.Key, ResourceVersion: fmt.Sprint(e.ModRevision)})
	}
}

// isDeleted reports whether a name is not desired and is not there: one that appears is put by another writer. A name without a memory of its
// deletion that is pending may be one whose put has not been answered yet. The caller holds the lock.
func (s *syncer) isDeleted(name string) bool {
	_, wanted := s.state.desired[name]
	_, exists := s.state.observed[name]
	_, pending := s.pending[name]
	_, deleted := s.state.deletedAt[name]
	return s.state.listed && !wanted && !exists && (deleted || !pending)
}

// namespace is that of the object that a key is of, "" for none.
func (t syncItem) namespace() string {
	namespace, _, is := strings.Cut(t.name, "/")
	if !is {
		return ""
	}
	return namespace
}

// syncKey brings a name to its desired state.
func (s *syncer) syncKey(ctx context.Context, t syncItem) error {
	switch {
	case t.marker:
		return s.writeMarker(ctx)
	case t.confirmation:
		return s.confirmStale(ctx)
	}
	next := s.nextStep(t)
	switch {
	case next.pause > 0:
		return reconcile.RequeueAfter(next.pause)
	case next.todo == putKey:
		return s.put(ctx, t, next.want, next.revision)
	case next.todo == deleteKey:
		return s.remove(ctx, t, next.revision)
	case next.isGone:
		return s.finishDelete(ctx, t)
	}
	return nil
}

// step is what is to be done for a name.
type step struct {
	todo     action
	revision int64
	want     []byte
	isGone   bool          // it is not desired, and all keys are known
	pause    time.Duration // before it, since another writer undoes it
}

func (s *syncer) nextStep(t syncItem) step {
	s.mu.Lock()
	defer s.mu.Unlock()
	want, wanted := s.state.desired[t.name]
	next := step{todo: s.state.nextAction(t.name, s.client.leases.has), revision: s.state.lastRevision(t.name), want: want, isGone: s.state.listed && !wanted}
	key := s.prefix + t.name
	switch {
	case next.todo == putKey && s.refused.Has(key):
		next.todo = noAction
		s.keep(t)
	case next.todo != noAction:
		if next.pause = s.fought.Wait(key, time.Now()); next.pause == 0 {
			s.begin(t, next.todo)
		} else {
			s.passMarker(t.name) // it has been done before
		}
	case s.state.listed && wanted:
		s.finishPut(t)
		next.pause = s.fought.Rest(key, time.Now())
	}
	return next
}

// begin records that a name is about to be written or deleted. The caller holds the lock.
func (s *syncer) begin(t syncItem, todo action) {
	if todo == putKey {
		s.state.written[t.name] = struct{}{}
	}
	s.fought.Changed(s.prefix+t.name, false)
}

// finishPut stops tracking a name whose key has its desired state. The caller holds the
// lock.
func (s *syncer) finishPut(t syncItem) {
	is := s.state.observed[t.name]
	if !s.client.leases.adopt(s.prefix+t.name, is.value, is.lease, is.revision) {
		s.queue.Add(t) // the lease was lost meanwhile
		return
	}
	s.markDone(t.name)
}

// finishDelete stops tracking a key that is neither desired nor present. If it vanished
// with a lost lease, it must not be restored.
func (s *syncer) finishDelete(ctx context.Context, t syncItem) error {
	key := s.prefix + t.name
	unlock, err := s.client.locks.lock(ctx, key)
	if err != nil {
		return s.client.wrapError("write", key, err)
	}
	defer unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, wanted := s.state.desired[t.name]; wanted {
		return nil // desired again, and queued
	}
	if k, ok := s.client.leases.get(key); ok && k.lease != 0 && k.revision > s.state.lastRevision(t.name) {
		s.state.observePut(t.name, observedKey(k))
		s.queue.Add(t)
		return nil
	}
	s.client.leases.release(key)
	s.markDone(t.name)
	return s.fought.Done(key)
}

// commit makes one write and counts failures.
func (s *syncer) commit(ctx context.Context, b batch) (int64, error) {
	revision, err := s.client.commit(ctx, b)
	if err != nil && ctx.Err() == nil {
		s.metrics.Errors.Inc()
	}
	return revision, err
}

// put writes a name whose last known revision is seen.
func (s *syncer) put(ctx context.Context, t syncItem, value []byte, seen int64) error {
	key := s.prefix + t.name
	b := batch{
		writes: []Write{PutLeased(key, value)},
		skipIf: func(context.Context, *clientv3.Client) (bool, error) {
			return s.alreadyRestored(key, value, seen), nil
		},
	}
	revision, err := s.commit(ctx, b)
	var tooLarge *TooLargeError
	if errors.As(err, &tooLarge) {
		s.refuse(t, value, tooLarge)
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision != 0 {
		s.fought.Put(key, s.oneSource, time.Now())
	}
	s.queue.Add(t) // to finish it, or to write what changed meanwhile
	if k, ok := s.client.leases.get(key); ok {
		s.state.observePut(t.name, observedKey{k.value, k.lease, max(revision, k.revision)})
	}
	return nil
}

// alreadyRestored reports whether the key was written meanwhile, when its lost lease
// was replaced.
func (s *syncer) alreadyRestored(key string, value []byte, seen int64) bool {
	k, ok := s.client.leases.get(key)
	return ok && k.lease != 0 && k.revision > seen && bytes.Equal(k.value, value)
}

// remove deletes a key that is unchanged since the revision seen.
func (s *syncer) remove(ctx context.Context, t syncItem, seen int64) error {
	key := s.prefix + t.name
	guard := Unchanged(Entry{Key: key, ModRevision: seen})
	revision, err := s.commit(ctx, batch{guards: []Guard{guard}, writes: []Write{Remove(key)}})
	if err == nil && revision == 0 || errors.Is(err, errUnanswered) {
		return s.refetch(ctx, t)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fought.Deleted(key, time.Now())
	s.queue.Add(t)
	s.state.observeDelete(t.name, revision)
	return nil
}

// refetch reads a name whose state the watch has not delivered yet.
func (s *syncer) refetch(ctx context.Context, t syncItem) error {
	is, revision, err := s.client.getWithRevision(ctx, s.prefix+t.name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if is == nil {
		s.state.observeDelete(t.name, revision)
	} else {
		s.state.observePut(t.name, observedKey{is.Value, is.Lease, is.ModRevision})
	}
	return reconcile.RequeueAfter(initialPause)
}
