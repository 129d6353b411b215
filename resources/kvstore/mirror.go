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

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
)

// mirror makes what is under a prefix what it should be, and keeps it so. It is
// what both stores are made of.
//
//   - A key that is as it should be costs no request.
//   - A key that somebody changed, removed or took off our lease is written
//     again.
//   - Nothing is written or deleted before it is known what is there.
type mirror struct {
	client  *client
	prefix  string      // with a slash at its end
	observe func(Event) // told about everything under the prefix, in order
	loop    *reconcile.Loop[task]
	queue   prometheus.Gauge
	failed  prometheus.Counter

	mu    sync.Mutex
	table *table
	open  map[string]struct{} // names that are not yet what they should be
	// A mark is put once the names that were open when it was asked for are
	// done.
	mark *mark
}

// task is a name, or the mark.
type task struct {
	name string
	mark bool
}

func (t task) String() string {
	if t.mark {
		return "synced mark"
	}
	return t.name
}

// mark says that all that was there at first is written.
type mark struct {
	key     string
	await   map[string]struct{}
	written func()
	done    bool
}

// The pauses of a key that cannot be written. The longest bounds how long it
// takes after an outage until all is well.
const firstRetry, longestRetry = 5 * time.Millisecond, 2 * time.Second

func newMirror(c Client, s reconcile.Scope, prefix, cluster string, owns func(string) bool) (*mirror, error) {
	own, ok := c.(*client)
	if !ok {
		return nil, fmt.Errorf("a store needs the client that this package provides, not a %T", c)
	}
	m := &mirror{
		client: own, prefix: prefix,
		observe: func(Event) {},
		queue:   own.metrics.SyncQueue.WithLabelValues(scope(prefix), cluster),
		failed:  own.metrics.SyncErrors.WithLabelValues(scope(prefix), cluster),
		table:   newTable(owns), open: map[string]struct{}{},
	}
	s.Health = s.Health.Part("mirror-" + strings.ReplaceAll(scope(prefix), "/", "-"))
	m.loop = reconcile.New(s, "mirror "+scope(prefix), m.settle, reconcile.Pauses(firstRetry, longestRetry))
	return m, nil
}

// run mirrors until ctx ends, beside what else is to run. Every interval, if
// there is one, all names are looked at again.
func (m *mirror) run(ctx context.Context, interval time.Duration, beside ...func(context.Context)) error {
	return together(ctx, append(beside,
		m.watch,
		func(ctx context.Context) { m.repeat(ctx, interval) },
		func(ctx context.Context) { _ = m.loop.Run(ctx) }, // it ends when ctx does
	)...)
}

// together runs all parts until ctx ends. A panic of one ends the others and
// becomes the caller's, who reports it.
func together(ctx context.Context, parts ...func(context.Context)) error {
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

func (m *mirror) repeat(ctx context.Context, interval time.Duration) {
	if interval <= 0 {
		return
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.addAll()
		case <-ctx.Done():
			return
		}
	}
}

// upsert has a name hold a value from now on.
func (m *mirror) upsert(name string, value []byte, triggers ...k8s.Trigger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if current, ok := m.table.desired[name]; ok && bytes.Equal(current, value) {
		return
	}
	m.table.desired[name] = value
	m.add(name, triggers...)
}

// delete has a name be gone from now on, if this process or a store before it
// wrote it.
func (m *mirror) delete(name string, triggers ...k8s.Trigger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.table.desired[name]; !ok {
		return
	}
	delete(m.table.desired, name)
	m.table.wrote[name] = struct{}{} // or tried to
	m.add(name, triggers...)
}

// complete says that all names that are there at first have been upserted, and
// asks for the mark.
func (m *mirror) complete(k *mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table.complete {
		return
	}
	m.table.complete = true
	k.await = maps.Clone(m.open)
	m.mark = k
	m.markIfDone()
	for _, name := range m.table.stale(m.client.leases.holds) {
		m.add(name)
	}
}

// add is called with the lock held.
func (m *mirror) add(name string, triggers ...k8s.Trigger) {
	m.open[name] = struct{}{}
	m.queue.Set(float64(len(m.open)))
	m.loop.Add(task{name: name}, triggers...)
}

// done is called with the lock held, for a name that is what it should be.
func (m *mirror) done(name string) {
	delete(m.open, name)
	m.table.forget(name)
	m.queue.Set(float64(len(m.open)))
	if m.mark != nil {
		delete(m.mark.await, name)
	}
	m.markIfDone()
}

func (m *mirror) markIfDone() {
	if m.mark != nil && len(m.mark.await) == 0 && m.table.listed && !m.mark.done {
		m.mark.done = true
		m.loop.Add(task{mark: true})
	}
}

// addAll has all names looked at again, those included of which nothing could
// be decided so far.
func (m *mirror) addAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.open {
		m.add(name)
	}
	for name := range m.table.desired {
		m.add(name)
	}
	for _, name := range m.table.stale(m.client.leases.holds) {
		m.add(name)
	}
}

// watch takes in what is under the prefix.
func (m *mirror) watch(ctx context.Context) {
	for e := range m.client.watch(ctx, m.prefix, follower{m.replaced, m.known}) {
		m.take(e)
		m.observe(e)
	}
}

// known are the keys that are there as far as is known.
func (m *mirror) known() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]string, 0, len(m.table.seen))
	for name := range m.table.seen {
		keys = append(keys, m.prefix+name)
	}
	return keys
}

func (m *mirror) replaced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table.replaced()
}

func (m *mirror) take(e Event) {
	if e.Kind == Synced {
		m.mu.Lock()
		m.table.listed = true
		m.markIfDone()
		m.mu.Unlock()
		m.addAll()
		return
	}
	name := strings.TrimPrefix(e.Key, m.prefix)
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Kind == Delete {
		m.table.deleted(name, e.ModRevision)
	} else {
		m.table.upserted(name, sighting{e.Value, e.Lease, e.ModRevision})
	}
	if m.table.plan(name, m.client.leases.holds) != nothing {
		m.add(name, k8s.Trigger{Kind: "EtcdKey", Name: e.Key, ResourceVersion: fmt.Sprint(e.ModRevision)})
	}
}

// settle does what is to be done about a name.
func (m *mirror) settle(ctx context.Context, t task) error {
	if t.mark {
		return m.putMark(ctx)
	}
	m.mu.Lock()
	todo, revision, listed := m.table.plan(t.name, m.client.leases.holds), m.table.newest(t.name), m.table.listed
	want, wanted := m.table.desired[t.name]
	if todo == put {
		m.table.wrote[t.name] = struct{}{}
	}
	if todo == nothing && listed && wanted {
		m.found(t)
	}
	m.mu.Unlock()
	switch {
	case todo == put:
		return m.put(ctx, t, want, revision)
	case todo == remove:
		return m.remove(ctx, t, revision)
	case listed && !wanted:
		return m.letGo(ctx, t)
	}
	return nil
}

// found ends with a name whose key is as it should be. It is called with the lock held.
func (m *mirror) found(t task) {
	is := m.table.seen[t.name]
	if !m.client.leases.adopt(m.prefix+t.name, is.value, is.lease, is.revision) {
		m.loop.Add(t) // lost just now
		return
	}
	m.done(t.name)
}

// letGo ends with a name that is not wanted and not there. It may have gone with a
// lease, whose keys are written again: this one is not, or not for long.
func (m *mirror) letGo(ctx context.Context, t task) error {
	key := m.prefix + t.name
	unlock, err := m.client.locks.lock(ctx, key)
	if err != nil {
		return m.client.explain("write", key, err)
	}
	defer unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, wanted := m.table.desired[t.name]; wanted {
		return nil // again: there is another look to come
	}
	switch k, ok := m.client.leases.get(key); {
	case ok && k.lease == 0: // it was being written again, and may yet be
		m.table.doubtful[t.name] = struct{}{}
	case ok && k.revision > m.table.newest(t.name):
		m.table.upserted(t.name, sighting(k))
		m.loop.Add(t)
		return nil
	}
	m.client.leases.release(key)
	m.done(t.name)
	return nil
}

// commit makes one write and counts a failure.
func (m *mirror) commit(ctx context.Context, b batch) (int64, error) {
	revision, err := m.client.commit(ctx, b)
	if err != nil && ctx.Err() == nil {
		m.failed.Inc()
	}
	return revision, err
}

// put writes a name of which the newest state known is of the given revision.
func (m *mirror) put(ctx context.Context, t task, value []byte, seen int64) error {
	key := m.prefix + t.name
	b := batch{
		writes: []Write{PutLeased(key, value)},
		moot: func(context.Context, *clientv3.Client) (bool, error) {
			return m.restored(key, value, seen), nil
		},
		doubt: func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.table.doubtful[t.name] = struct{}{}
		},
	}
	revision, err := m.commit(ctx, b)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loop.Add(t) // to find it done, or changed meanwhile
	if k, ok := m.client.leases.get(key); ok {
		m.table.upserted(t.name, sighting{k.value, k.lease, max(revision, k.revision)})
	}
	return nil
}

// restored reports whether the key was written meanwhile, by what writes keys
// again whose lease was lost.
func (m *mirror) restored(key string, value []byte, seen int64) bool {
	k, ok := m.client.leases.get(key)
	return ok && k.lease != 0 && k.revision > seen && bytes.Equal(k.value, value)
}

// remove deletes a key that is still what it was when it was seen.
func (m *mirror) remove(ctx context.Context, t task, seen int64) error {
	key := m.prefix + t.name
	guard := Unchanged(Entry{Key: key, ModRevision: seen})
	revision, err := m.commit(ctx, batch{guards: []Guard{guard}, writes: []Write{Remove(key)}})
	if err == nil && revision == 0 || errors.Is(err, errUnanswered) {
		return m.lookAgain(ctx, t)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loop.Add(t)
	m.table.deleted(t.name, revision)
	return nil
}

// lookAgain asks what became of a name, of which the watch is yet to tell.
func (m *mirror) lookAgain(ctx context.Context, t task) error {
	is, revision, err := m.client.look(ctx, m.prefix+t.name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if is == nil {
		m.table.deleted(t.name, revision)
	} else {
		m.table.upserted(t.name, sighting{is.Value, is.Lease, is.ModRevision})
	}
	return reconcile.After(firstPause)
}

// putMark says that all is there.
func (m *mirror) putMark(ctx context.Context) error {
	if m.client.leases.orphaned() {
		return reconcile.After(firstPause) // not all is
	}
	now := time.Now().UTC().Format(time.RFC3339)
	if err := m.client.Write(ctx, PutLeased(m.mark.key, []byte(now))); err != nil {
		return err
	}
	m.mark.written()
	return nil
}

// watchMark puts the mark again when somebody took it away or put it on another
// lease, as a predecessor does whose last write comes late.
func (m *mirror) watchMark(ctx context.Context, key string) {
	for e := range m.client.Watch(ctx, key) {
		m.mu.Lock()
		ours := m.mark != nil && m.mark.done && e.Key == key
		m.mu.Unlock()
		if !ours || e.Kind == Upsert && m.client.leases.holds(e.Lease) {
			continue
		}
		if err := m.client.status.leaseCheck(ctx); err != nil { // what else went with it comes first
			m.client.log.Debug("etcd leases could not be checked", "error", err)
		}
		m.loop.Add(task{mark: true}, k8s.Trigger{Kind: "EtcdKey", Name: e.Key, ResourceVersion: fmt.Sprint(e.ModRevision)})
	}
}
