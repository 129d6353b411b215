// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	prefix  string // with a slash at its end
	leased  bool
	observe func(Event) // told about everything under the prefix, in order
	loop    *reconcile.Loop[task]
	queue   prometheus.Gauge
	errors  prometheus.Counter

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

// The pauses of a key that cannot be written.
const firstRetry, longestRetry = 5 * time.Millisecond, 1000 * time.Second

func newMirror(c Client, s reconcile.Scope, prefix, cluster string, leased bool, owns func(string) bool) (*mirror, error) {
	own, ok := c.(*client)
	if !ok {
		return nil, fmt.Errorf("a store needs the client that this package provides, not a %T", c)
	}
	m := &mirror{
		client: own, prefix: prefix, leased: leased,
		observe: func(Event) {},
		queue:   own.metrics.SyncQueue.WithLabelValues(scope(prefix), cluster),
		errors:  own.metrics.SyncErrors.WithLabelValues(scope(prefix), cluster),
		table:   newTable(owns), open: map[string]struct{}{},
	}
	m.loop = reconcile.New(s, "mirror "+scope(prefix), m.settle, reconcile.Pauses(firstRetry, longestRetry))
	return m, nil
}

// run mirrors until ctx ends. Every interval, if there is one, all names are
// looked at again.
func (m *mirror) run(ctx context.Context, interval time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { m.watch(ctx) })
	if interval > 0 {
		wg.Go(func() { m.repeat(ctx, interval) })
	}
	err := m.loop.Run(ctx)
	cancel()
	wg.Wait()
	return err
}

func (m *mirror) repeat(ctx context.Context, interval time.Duration) {
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
	for _, name := range m.table.stale() {
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

func (m *mirror) addAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.table.desired {
		m.add(name)
	}
	for _, name := range m.table.stale() {
		m.add(name)
	}
}

// watch takes in what is under the prefix.
func (m *mirror) watch(ctx context.Context) {
	for e := range m.client.watch(ctx, m.prefix, m.replaced) {
		m.take(e)
		m.observe(e)
	}
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
	if m.table.plan(name, m.holds()) != nothing {
		m.add(name, k8s.Trigger{Kind: "EtcdKey", Name: e.Key, ResourceVersion: fmt.Sprint(e.ModRevision)})
	}
}

// holds reports which leases are right for our keys; nil if it does not matter.
func (m *mirror) holds() func(LeaseID) bool {
	if !m.leased {
		return nil
	}
	return m.client.leases.holds
}

// settle does what is to be done about a name.
func (m *mirror) settle(ctx context.Context, t task) error {
	if t.mark {
		return m.putMark(ctx)
	}
	m.mu.Lock()
	todo, want, revision := m.table.plan(t.name, m.holds()), m.table.desired[t.name], m.table.newest(t.name)
	if todo == put {
		m.table.wrote[t.name] = struct{}{}
	}
	if todo == nothing && m.table.listed {
		m.done(t.name)
	}
	m.mu.Unlock()
	switch todo {
	case put:
		return m.put(ctx, t, want, revision)
	case remove:
		return m.remove(ctx, t, revision)
	}
	return nil
}

// commit makes one write and counts a failure.
func (m *mirror) commit(ctx context.Context, b batch) (int64, error) {
	revision, err := m.client.commit(ctx, b)
	if err != nil && ctx.Err() == nil {
		m.errors.Inc()
	}
	return revision, err
}

// put writes a name of which the newest state known is of the given revision.
func (m *mirror) put(ctx context.Context, t task, value []byte, seen int64) error {
	key := m.prefix + t.name
	b := batch{writes: []Write{{key: key, value: value, leased: m.leased}}}
	if m.leased {
		b.moot = func() bool { return m.restored(key, value, seen) }
	}
	revision, err := m.commit(ctx, b)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loop.Add(t) // to find it done, or changed meanwhile
	lease := LeaseID(0)
	if k, ok := m.client.leases.get(key); m.leased && ok {
		lease = k.lease
		revision = max(revision, k.revision)
	}
	m.table.upserted(t.name, sighting{value, lease, revision})
	return nil
}

// restored reports whether the key was written meanwhile, by what writes keys
// again whose lease was lost.
func (m *mirror) restored(key string, value []byte, seen int64) bool {
	k, ok := m.client.leases.get(key)
	return ok && k.lease != 0 && k.revision > seen && bytes.Equal(k.value, value)
}

// remove deletes a key that is still what it was when it was seen. If it is
// not, the watch is about to tell.
func (m *mirror) remove(ctx context.Context, t task, seen int64) error {
	key := m.prefix + t.name
	guard := Unchanged(Entry{Key: key, ModRevision: seen})
	revision, err := m.commit(ctx, batch{guards: []Guard{guard}, writes: []Write{Remove(key)}})
	if err != nil {
		return err
	}
	if revision == 0 {
		return reconcile.After(time.Second)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loop.Add(t)
	m.table.deleted(t.name, revision)
	return nil
}

func (m *mirror) putMark(ctx context.Context) error {
	now := time.Now().UTC().Format(time.RFC3339)
	if err := m.client.Write(ctx, PutLeased(m.mark.key, []byte(now))); err != nil {
		return err
	}
	m.mark.written()
	return nil
}
