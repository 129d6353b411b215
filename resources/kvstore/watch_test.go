// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
)

// view is what a consumer makes of a watch, and its complaints about it.
type view struct {
	mu     sync.Mutex
	keys   map[string]string
	latest map[string]int64
	events []string
	synced int
	wrong  []string
	hold   chan struct{} // if set, the consumer waits for it at each event
}

func watchView(t *testing.T, r *harness, prefix string) *view {
	v := &view{keys: map[string]string{}, latest: map[string]int64{}}
	run(t, func(ctx context.Context) error { v.consume(ctx, r, prefix); return nil })
	return v
}

func (v *view) consume(ctx context.Context, r *harness, prefix string) {
	for e := range r.Watch(ctx, prefix) {
		if v.hold != nil {
			<-v.hold
		}
		v.take(e)
	}
}

func (v *view) take(e Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.events = append(v.events, fmt.Sprintf("%s %s", e.Kind, e.Key))
	if e.Kind == Synced {
		v.synced++
		return
	}
	if e.ModRevision <= v.latest[e.Key] {
		v.wrong = append(v.wrong, fmt.Sprintf("%s %s at %d comes after %d", e.Kind, e.Key, e.ModRevision, v.latest[e.Key]))
	}
	v.latest[e.Key] = e.ModRevision
	if e.Kind == Upsert {
		v.keys[e.Key] = string(e.Value)
	} else {
		if _, known := v.keys[e.Key]; !known {
			v.wrong = append(v.wrong, "delete of an unknown key "+e.Key)
		}
		delete(v.keys, e.Key)
	}
}

// equals reports whether the view shows exactly what is in etcd.
func (v *view) equals(t *testing.T, c *clientv3.Client, prefix string) bool {
	t.Helper()
	want := map[string]string{}
	for _, kv := range must(c.Get(context.Background(), prefix, clientv3.WithPrefix()))(t).Kvs {
		want[string(kv.Key)] = string(kv.Value)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Equal(want, v.keys)
}

func (v *view) complain(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, w := range v.wrong {
		t.Error(w)
	}
	if v.synced != 1 {
		t.Errorf("%d Synced events", v.synced)
	}
}

// docs/wire/kvstore.md, KV-E12: pages are pinned to the first one's revision.
func TestWatchListsInPages(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0]), option("etcd.limit", "256")).ready(t)
	for i := range 600 {
		must(etcd.Put(t.Context(), fmt.Sprintf("some/long/prefix/v1/%03d", i), "v"))(t)
	}
	v := watchView(t, r, "some/long/prefix/v1/")
	eventually(t, "600 keys and Synced", func() bool { v.mu.Lock(); defer v.mu.Unlock(); return v.synced == 1 })
	if len(v.events) != 601 || v.events[600] != "synced " || v.events[0] != "upsert some/long/prefix/v1/000" {
		t.Errorf("%d events, the last %s", len(v.events), v.events[len(v.events)-1])
	}
	if n := listings(t, r, "prefix/v1"); n != 3 {
		t.Errorf("%d range requests, want 3", n)
	}
	v.complain(t)

	listing := must(r.List(t.Context(), "some/long/", KeysOnly()))(t)
	if len(listing.Entries) != 600 || listing.Entries[0].Value != nil || listing.Entries[599].ModRevision > listing.Revision {
		t.Errorf("%d entries as of %d", len(listing.Entries), listing.Revision)
	}
}

// Number 21 of the contract's kvstore.md; KV-O5: where a member answers that lags behind what is known, the list is asked for with a quorum.
func TestListOfAMemberThatLags(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	known := must(etcd.Put(t.Context(), "k/1", "1"))(t).Header.Revision
	requests := func(atLeast int64) uint64 {
		count := func() uint64 { return sampleCount(t, r.metrics.Operations, keyClass("k/"), "read", "list", "success") }
		before := count()
		_, err := r.pages(t.Context(), etcd, "k/", listOptions{}, atLeast, func() {}, func(Entry) bool { return true })
		check(t, err)
		return count() - before
	}
	if current, behind := requests(known), requests(known+1000); current != 1 || behind != 2 {
		t.Errorf("%d requests to a member that does not lag, %d to one that does", current, behind)
	}
}

// KV-O5: a listing during which keys change shows one moment, not two.
func TestListIsOneMoment(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0]), option("etcd.limit", "2")).ready(t)
	for i := range 10 {
		must(etcd.Put(t.Context(), fmt.Sprintf("k/%d", i), "0"))(t)
	}
	run(t, func(ctx context.Context) error {
		for n := 1; ctx.Err() == nil; n++ { // all keys always hold the same number
			var ops []clientv3.Op
			for i := range 10 {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("k/%d", i), fmt.Sprint(n)))
			}
			_, _ = etcd.Txn(ctx).Then(ops...).Commit()
		}
		return nil
	})
	for range 50 {
		entries := must(r.List(t.Context(), "k/"))(t).Entries
		for _, e := range entries {
			if string(e.Value) != string(entries[0].Value) {
				t.Fatalf("values of two moments in one listing: %s and %s", entries[0].Value, e.Value)
			}
		}
	}
}

// KV-W4: where etcd is compacted again and again before a watch begins, what is listed anew is not listed without a pause: the etcd of another cluster may
// answer so for ever.
func TestWatchPausesWhereEtcdCompacts(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd := directClient(t, e)
	r := newHarness(t, to(e.Endpoints()[0]), quick, func(p *connParams) { p.Timing.maxRelistDelay = time.Minute }).ready(t)
	must(etcd.Put(t.Context(), "p/X", "1"))(t)
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	run(t, func(context.Context) error {
		for ctx.Err() == nil {
			if resp, err := etcd.Put(ctx, "p/Y", "1"); err == nil {
				_, _ = etcd.Compact(ctx, resp.Header.Revision)
			}
		}
		return nil
	})
	v := watchView(t, r, "p/")
	<-ctx.Done()
	if n := testutil.ToFloat64(r.metrics.Relists.WithLabelValues(keyClass("p/"))); n > 8 {
		t.Errorf("%v listings in 3 s", n)
	}
	eventually(t, "the view is right at last", func() bool { return v.equals(t, etcd, "p/") })
}

// docs/wire/kvstore.md, KV-E13, and all that can cut a watch: nothing is missed.
func TestWatchSurvives(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, door := directClient(t, e), e.Proxy(t, "etcd-0")
	r := newHarness(t, to(e.ProxyEndpoints()[0]), quick).ready(t)
	for _, key := range []string{"p/X", "p/Y", "p/Z"} {
		must(etcd.Put(t.Context(), key, "1"))(t)
	}
	v := watchView(t, r, "p/")
	same := func() bool { return v.equals(t, etcd, "p/") }
	eventually(t, "the first listing", same)

	compact := func() {
		rev := must(etcd.Put(t.Context(), "else", ""))(t).Header.Revision
		must(etcd.Compact(t.Context(), rev))(t)
	}
	change := func(i int) {
		must(etcd.Put(t.Context(), "p/Y", fmt.Sprint(i)))(t)
		must(etcd.Delete(t.Context(), "p/X"))(t)
		must(etcd.Put(t.Context(), fmt.Sprintf("p/new%d", i), "1"))(t)
	}
	for i, cut := range []func(){
		func() { change(10); door.Cut(t) },
		func() { door.Refuse(t); door.Cut(t); change(20); compact() },
		func() { must(etcd.Put(t.Context(), "p/X", "2"))(t) },
		func() { door.Refuse(t); door.Cut(t); change(30); compact() },
	} {
		cut()
		door.Heal(t)
		eventually(t, fmt.Sprintf("the view is right after cut %d", i), same)
	}
	if relists := testutil.ToFloat64(r.metrics.Relists.WithLabelValues(keyClass("p/"))); relists != 2 {
		t.Errorf("%v listings were repeated, want one for each compaction", relists)
	}
	v.complain(t)
	if !slices.Contains(v.events, "delete p/X") {
		t.Error("the deletion of X was not delivered")
	}
	measured := uint64(0)
	for _, action := range []string{"create", "modify", "delete"} {
		n := sampleCount(t, r.metrics.EventsQueued, keyClass("p/"), action)
		if n == 0 {
			t.Errorf("no wait of a change is measured that is a %s", action)
		}
		measured += n
	}
	if measured != uint64(len(v.events)-v.synced) {
		t.Errorf("the waits of %d changes are measured, of %d", measured, len(v.events)-v.synced)
	}
}

// KV-W3: while a consumer is busy, nothing is lost.
func TestWatchWaitsForItsConsumer(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	v := &view{keys: map[string]string{}, latest: map[string]int64{}, hold: make(chan struct{})}
	run(t, func(ctx context.Context) error { v.consume(ctx, r, "p/"); return nil })
	for i := range 200 {
		must(etcd.Put(t.Context(), fmt.Sprintf("p/%d", i%7), fmt.Sprint(i)))(t)
	}
	close(v.hold)
	eventually(t, "the view is right", func() bool { return v.equals(t, etcd, "p/") })
	v.complain(t)
}

// Metrics have how long changes wait for a consumer that is busy with those before, by what they are.
func TestWaitOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		from := make(chan clientv3.WatchResponse)
		changes, ended := stamped(ctx, from)
		put := func(key string, revision int64) *clientv3.Event {
			return &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision}}
		}
		from <- clientv3.WatchResponse{Events: []*clientv3.Event{put("cilium/state/nodes/v1/a", 1), put("cilium/state/nodes/v1/b", 2)}}
		time.Sleep(time.Second) // in the bubble: the consumer is busy
		from <- clientv3.WatchResponse{Events: []*clientv3.Event{put("cilium/state/nodes/v1/a", 3), {Type: clientv3.EventTypeDelete, Kv: put("cilium/state/nodes/v1/b", 4).Kv}}}
		close(from)

		w := &watch{client: &client{&conn{metrics: newMetrics(), interceptor: &interceptor{}}, "test"}, prefix: "cilium/state/nodes/v1/", delivered: map[string]int64{}}
		w.yield = func(Event) bool { time.Sleep(10 * time.Second); return true } // the work of the consumer, in the bubble
		for resp := range changes {
			w.arrived = resp.at
			check(t, w.handleResponse(resp.WatchResponse))
		}
		<-ended
		for action, want := range map[string]struct {
			n   uint64
			sum float64
		}{"create": {2, 1 + 11}, "modify": {1, 20}, "delete": {1, 30}} {
			var m dto.Metric
			check(t, w.metrics.EventsQueued.WithLabelValues("nodes/v1", action).(prometheus.Metric).Write(&m))
			if h := m.GetHistogram(); h.GetSampleCount() != want.n || h.GetSampleSum() != want.sum {
				t.Errorf("%s: %d changes waited %v s, want %+v", action, h.GetSampleCount(), h.GetSampleSum(), want)
			}
		}
	})
}

// A queue of changes ends with its watch, also when nothing receives from it.
func TestQueueOfChangesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		from := make(chan clientv3.WatchResponse)
		changes, ended := stamped(ctx, from)
		from <- clientv3.WatchResponse{}
		cancel()
		<-ended
		if _, open := <-changes; open {
			t.Error("it is open")
		}
	})
}

// KV-O2: a consumer may write from within the loop, even when one request at a time is
// all it may make.
func TestWritingWhileWatching(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0]), option("etcd.maxInflight", "1")).ready(t)
	must(etcd.Put(t.Context(), "p/a", "1"))(t)
	for e := range r.Watch(withCause(t), "p/") {
		if e.Kind == Synced {
			break
		}
		check(t, r.Write(withCause(t), Put("q/"+e.Key, e.Value)))
	}
	if !holds(t, etcd, "q/p/a", "1") {
		t.Error("not written")
	}
}

// listings is how many range requests were made for a scope.
func listings(t *testing.T, r *harness, scope string) int {
	t.Helper()
	return int(sampleCount(t, r.metrics.Operations, scope, "read", "list", "success"))
}
