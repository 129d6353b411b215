// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/health"
)

// KV-S7; number 9.1 of the contract's tenants.md: a key that another writer changes after each of our writes is written slower and
// slower, and named in health. Another key is written as ever, and so is another value.
func TestWritersWhoUndoEachOther(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
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
	began := time.Now()
	s.Upsert("ns/b", []byte("b"))
	eventually(t, "another key is written", func() bool { return holds(t, etcd, servicesOfC1+"ns/b", "b") })
	s.Upsert("ns/a", []byte("new"))
	eventually(t, "another value is written", func() bool { return holds(t, etcd, key, "new") })
	if d := time.Since(began); d > time.Second {
		t.Errorf("they are written after %s", d)
	}
}

// The same with times: what is told, and when it is over.
func TestContention(t *testing.T) {
	tree := health.NewTree()
	c := newContention("cilium/state/x/", tree.Reporter("x"))
	now := time.Unix(1e6, 0)
	for range 4 {
		c.undone("a", now)
		if c.wait("a", now) != 0 || c.rest("a", now) != 0 {
			t.Fatal("the first ones cost nothing")
		}
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		c.undone("a", now)
		if got := c.wait("a", now); got != want {
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
	c.changed("a", true)
	if c.wait("a", now) != 0 {
		t.Error("another value waits")
	}
	if c.rest("a", now.Add(time.Hour)) != 0 || len(c.keys) != 0 || strings.Contains(shown(), "7 times") {
		t.Errorf("it is not over: %q", shown())
	}
}
