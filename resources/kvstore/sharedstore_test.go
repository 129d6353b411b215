// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skep-operator/skep/resources/clustertest"
)

type node struct{ Name, Cluster string }

// Rules S4, S5 and S7: local keys are kept, those of others are shown and left
// alone, and values that cannot be read are skipped.
func TestSharedStore(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := direct(t, e), newRig(t, to(e.Endpoints()[0])).ready(t)
	ctx := t.Context()
	for name, value := range map[string]string{
		"c1/a": `{"Name":"a","Cluster":"c1","More":1}`, "c1/bad": "{", "c2/b": `{"Name":"b"}`,
	} {
		must(etcd.Put(ctx, "cilium/state/nodes/v1/"+name, value))(t)
	}
	must(etcd.Put(ctx, "cilium/state/nodes/v10/c1/x", `{}`))(t)
	var mu sync.Mutex
	told := map[string]int{}
	s := must(NewSharedStore(r.client, r.scope, NodesPrefix, JSON[node], func(name string) {
		mu.Lock()
		defer mu.Unlock()
		told[name]++
	}))(t)
	s.UpdateLocal("c1/own", []byte(`{"Name":"own"}`))
	run(t, s.Run)
	<-s.Synced()
	if got, want := slices.Sorted(maps.Keys(maps.Collect(s.All()))), []string{"c1/a", "c2/b"}; !slices.Equal(got[:1], want[:1]) || !slices.Contains(got, "c2/b") || slices.Contains(got, "c1/bad") {
		t.Errorf("at first there are %v", got)
	}
	if v, ok := s.Get("c1/a"); !ok || v != (node{"a", "c1"}) {
		t.Errorf("c1/a is %v", v)
	}
	own := "cilium/state/nodes/v1/c1/own"
	until(t, "the local key, byte for byte", func() bool { return holds(t, etcd, own, `{"Name":"own"}`) })
	until(t, "it is seen", func() bool { _, ok := s.Get("c1/own"); return ok })

	must(etcd.Delete(ctx, own))(t)
	until(t, "the local key is back", func() bool { e := read(t, etcd, own); return e != nil && e.Lease != 0 })
	must(etcd.Put(ctx, "cilium/state/nodes/v1/c1/bad", "["))(t)
	must(etcd.Put(ctx, "cilium/state/nodes/v1/c2/b", "still bad"))(t)
	must(etcd.Put(ctx, "cilium/state/nodes/v1/c1/a", `{"Name":"a2"}`))(t)
	until(t, "the change", func() bool { v, _ := s.Get("c1/a"); return v.Name == "a2" })
	if v, ok := s.Get("c2/b"); !ok || v.Name != "b" {
		t.Errorf("a bad value replaced a good one: %v", v)
	}
	if n := testutil.ToFloat64(r.metrics.BadValues.WithLabelValues("nodes/v1")); n != 3 {
		t.Errorf("%v bad values were counted", n)
	}
	if a, b := r.log.count("WARN", "skipped", "c1/bad"), r.log.count("WARN", "skipped", "c2/b"); a != 1 || b != 1 {
		t.Errorf("bad values were logged %d and %d times", a, b)
	}
	must(etcd.Delete(ctx, "cilium/state/nodes/v1/c2/b"))(t)
	until(t, "it is gone", func() bool { _, ok := s.Get("c2/b"); return !ok })
	s.DeleteLocal("c1/own")
	s.DeleteLocal("c1/a") // not local
	until(t, "the local key is gone", func() bool { return read(t, etcd, own) == nil })
	until(t, "and is seen to be", func() bool { _, ok := s.Get("c1/own"); return !ok })
	for _, key := range []string{"c1/a", "c1/bad"} {
		if read(t, etcd, "cilium/state/nodes/v1/"+key) == nil {
			t.Errorf("%s was deleted", key)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if told["c1/a"] != 2 || told["c2/b"] != 2 || told["c1/bad"] != 0 || told["c1/own"] < 3 {
		t.Errorf("changes told: %v", told)
	}
}

// A second store of the same process, or a client that is not ours, is refused
// or works as asked; a bad client is named.
func TestStoresNeedOurClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, to(nowhere))
	if _, err := NewSyncStore(struct{ Client }{r.client}, r.scope, ServicesPrefix, "c1"); err == nil {
		t.Error("another client was taken")
	}
}
