// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/health"
)

// KV-S7; number 9.1 of the contract's tenants.md: a key that another writer changes after each of our writes is written slower and
// slower, and named in health. Another key is written as ever, and so is another value.
func TestWritersWhoUndoEachOther(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	tree := health.NewTree()
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	r.scope.Health = tree.Reporter("test")
	s := newServices(t, r)
	s.Upsert("ns/a", []byte("ours"))
	s.Synced()
	run(t, s.Run)
	key := servicesOfC1 + "ns/a"
	writes := 0
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // the other writer looks each 5 ms
		if holds(t, etcd, key, "ours") {
			writes++
			_, err := etcd.Put(t.Context(), key, "theirs")
			check(t, err)
		}
	}
	if writes < 5 || writes > 8 {
		t.Errorf("the key was written %d times in 4 s, want the first five and then one after 1 s and one after 2 s more", writes)
	}
	if d := fmt.Sprint(tree.Degraded()); !strings.Contains(d, "contended-keys") || !strings.Contains(d, "another writer has changed the key "+key) {
		t.Errorf("degraded is %s", d)
	}
	began := time.Now()
	s.Upsert("ns/b", []byte("b"))
	eventually(t, "another key is written", func() bool { return holds(t, etcd, servicesOfC1+"ns/b", "b") })
	s.Upsert("ns/a", []byte("new"))
	eventually(t, "another value is written", func() bool { return holds(t, etcd, key, "new") })
	if d := time.Since(began); d > time.Second {
		t.Errorf("they are written after %s", d)
	}
}

// foughtFor lets another writer undo what a store does, whenever it has, for 4 s, and returns how often it had to.
func foughtFor(t *testing.T, isDone func() bool, undo func()) (times int) {
	t.Helper()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // the other writer looks each 5 ms
		if isDone() {
			times++
			undo()
		}
	}
	return times
}

// The same for all else that a store writes: keys that it deletes, since it has no such name or none any more, and its marker, which another
// writer deletes or puts without a lease, or which is not wanted.
func TestWritersWhoUndoDeletesAndMarkers(t *testing.T) {
	t.Parallel()
	const key, marker = servicesOfC1 + "ns/a", "cilium/synced/c1/cilium/state/services/v1"
	put := func(e *clientv3.Client, key string) func(*testing.T) {
		return func(t *testing.T) { must(e.Put(t.Context(), key, "theirs"))(t) }
	}
	for name, c := range map[string]struct {
		key    string
		opts   []SyncOption
		absent bool // it is done when the key is not there
		undo   func(e *clientv3.Client, key string) func(*testing.T)
	}{
		"deletes":              {key, nil, true, put},
		"marker without lease": {marker, nil, false, put},
		"marker deleted": {marker, nil, false, func(e *clientv3.Client, key string) func(*testing.T) {
			return func(t *testing.T) { must(e.Delete(t.Context(), key))(t) }
		}},
		"marker not wanted": {marker, []SyncOption{Unmarked()}, true, put},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := clustertest.StartEtcd(t, 1)
			tree := health.NewTree()
			etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
			r.scope.Health = tree.Reporter("test")
			s := must(NewSyncStore(r.client, r.scope, "cilium/state/services/v1", "c1", c.opts...))(t)
			s.Upsert("ns/b", []byte("b"))
			s.Synced()
			run(t, s.Run)
			eventually(t, "the store is at work", func() bool { return holds(t, etcd, servicesOfC1+"ns/b", "b") })
			if !c.absent {
				eventually(t, "the marker is there", func() bool { return read(t, etcd, c.key) != nil })
			}
			times := foughtFor(t, func() bool {
				is := read(t, etcd, c.key)
				return c.absent == (is == nil) && (is == nil || is.Lease != 0)
			}, func() { c.undo(etcd, c.key)(t) })
			if times < 5 || times > 8 {
				t.Errorf("it was undone %d times in 4 s, want the first five and then one after 1 s and one after 2 s more", times)
			}
			if !strings.Contains(fmt.Sprint(tree.Snapshot()), c.key) {
				t.Errorf("health does not name %s: %v", c.key, tree.Snapshot())
			}
			began := time.Now()
			s.Upsert("ns/c", []byte("c"))
			eventually(t, "another key is written", func() bool { return holds(t, etcd, servicesOfC1+"ns/c", "c") })
			if d := time.Since(began); d > time.Second {
				t.Errorf("it is written after %s", d)
			}
		})
	}
}

// The same with times: what is told, and when it is over.
func TestContention(t *testing.T) {
	tree := health.NewTree()
	const a = "cilium/state/x/a"
	c := NewContention(tree.Reporter("x"))
	now := time.Unix(1e6, 0)
	for range 4 {
		c.Undone(a, now)
		if c.Wait(a, now) != 0 || c.Rest(a, now) != 0 {
			t.Fatal("the first ones cost nothing")
		}
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		c.Undone(a, now)
		if got := c.Wait(a, now); got != want {
			t.Errorf("%d: the pause is %s, want %s", i, got, want)
		}
		now = now.Add(want)
	}
	shown := func() string {
		var all []string
		for _, s := range tree.Snapshot() {
			all = append(all, s.Message)
		}
		return strings.Join(all, "\n")
	}
	if !strings.Contains(shown(), "cilium/state/x/a 7 times") {
		t.Errorf("health says %q", shown())
	}
	c.Changed(a, true)
	if c.Wait(a, now) != 0 {
		t.Error("another value waits")
	}
	if c.Rest(a, now.Add(time.Hour)) != 0 || len(c.keys) != 0 || strings.Contains(shown(), "7 times") {
		t.Errorf("it is not over: %q", shown())
	}
}

// KV-S9; K9 of the contract's tenants.md: a key whose input flips is deleted and written less and less often, and named; the last state is written
// after the pause. So is one with one source whose value flips. One with many sources, and another key, are written as ever.
func TestKeysThatFlip(t *testing.T) {
	t.Parallel()
	const key = servicesOfC1 + "ns/a"
	for name, c := range map[string]struct {
		opts []SyncOption
		flip func(s *SyncStore, i int)
		most int64 // revisions, 0 for no limit
	}{
		"chain": {nil, func(s *SyncStore, i int) {
			if i%2 == 0 {
				s.Upsert("ns/a", []byte("a"))
			} else {
				s.Delete("ns/a")
			}
		}, 2 * (mostDeletes + 4)},
		"value":        {[]SyncOption{OneSource()}, func(s *SyncStore, i int) { s.Upsert("ns/a", fmt.Append(nil, i)) }, mostPuts + 4},
		"many sources": {nil, func(s *SyncStore, i int) { s.Upsert("ns/a", fmt.Append(nil, i)) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := clustertest.StartEtcd(t, 1)
			tree := health.NewTree()
			etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
			r.scope.Health = tree.Reporter("test")
			s := must(NewSyncStore(r.client, r.scope, ServicesPrefix, "c1", c.opts...))(t)
			s.Synced()
			run(t, s.Run)
			eventually(t, "the marker is there", func() bool { return read(t, etcd, syncedOfC1) != nil })
			var written atomic.Int64
			changes := etcd.Watch(t.Context(), key)
			go func() {
				for resp := range changes {
					written.Add(int64(len(resp.Events)))
				}
			}()
			i := 0
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) { // the input flips each 20 ms
				c.flip(s, i)
				i++
			}
			if n := written.Load(); c.most > 0 && (n < mostDeletes || n > c.most) || c.most == 0 && n <= mostPuts {
				t.Errorf("there were %d writes of %d changes in 4 s, want at most %d", n, i, c.most)
			}
			if named := strings.Contains(fmt.Sprint(tree.Snapshot()), key+" changes again and again"); named != (c.most > 0) {
				t.Errorf("health says %v", tree.Snapshot())
			}
			began := time.Now()
			s.Upsert("ns/b", []byte("b"))
			eventually(t, "another key is written", func() bool { return holds(t, etcd, servicesOfC1+"ns/b", "b") })
			if d := time.Since(began); d > time.Second {
				t.Errorf("it is written after %s", d)
			}
			s.Upsert("ns/a", []byte("last"))
			eventually(t, "the last value is written", func() bool { return holds(t, etcd, key, "last") })
		})
	}
}
