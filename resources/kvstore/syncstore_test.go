// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/runtime/waittest"
)

const (
	servicesOfC1 = "cilium/state/services/v1/c1/"
	syncedOfC1   = "cilium/synced/c1/cilium/state/services/v1"
)

func newServices(t *testing.T, r *harness) *SyncStore {
	t.Helper()
	return must(NewSyncStore(r.client, r.scope, ServicesPrefix, "c1"))(t)
}

func errorsOf(r *harness) float64 {
	return testutil.ToFloat64(r.metrics.SyncErrors.WithLabelValues("services/v1", "c1"))
}

func queueOf(r *harness) float64 {
	return testutil.ToFloat64(r.metrics.SyncQueue.WithLabelValues("services/v1", "c1"))
}

func completedOf(r *harness) float64 {
	return testutil.ToFloat64(r.metrics.InitialSync.WithLabelValues("services/v1", "c1", "write"))
}

// docs/wire/kvstore.md, KV-E7, KV-E9 and KV-E11; values are written byte for byte.
func TestSyncStore(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	s := newServices(t, r)
	value := []byte("{\"cluster\":\"c1\",\"labels\":{\"a\":\"\\u003c\x00\xff\"}}")
	s.Upsert("ns/a", value)
	s.Upsert("ns/b", []byte("b"))
	stop := run(t, s.Run)
	eventually(t, "A and B are written", func() bool {
		return holds(t, etcd, servicesOfC1+"ns/a", string(value)) && holds(t, etcd, servicesOfC1+"ns/b", "b")
	})
	if read(t, etcd, syncedOfC1) != nil || completedOf(r) != 0 {
		t.Error("the marker was written before Synced was called")
	}
	s.Synced()
	eventually(t, "the synced marker", func() bool { return read(t, etcd, syncedOfC1) != nil })
	mark := read(t, etcd, syncedOfC1)
	if _, err := time.Parse(time.RFC3339, string(mark.Value)); err != nil || mark.Lease == 0 {
		t.Errorf("the marker is %q on lease %v", mark.Value, mark.Lease)
	}
	eventually(t, "the metric", func() bool { return completedOf(r) == 1 && queueOf(r) == 0 })

	before := read(t, etcd, servicesOfC1+"ns/a")
	if before.Lease == 0 {
		t.Error("the key has no lease")
	}
	s.Upsert("ns/a", append([]byte(nil), value...)) // KV-E9
	s.Delete("ns/never")                            // KV-E11
	s.Upsert("ns/c", []byte("c"))
	eventually(t, "C is written", func() bool { return holds(t, etcd, servicesOfC1+"ns/c", "c") })
	if after := read(t, etcd, servicesOfC1+"ns/a"); after.ModRevision != before.ModRevision {
		t.Error("the same bytes were written again")
	}
	if n := sampleCount(t, r.metrics.Operations, "services/v1", "delete", "txn", "success"); n != 0 {
		t.Errorf("%d deletes of a key that never was", n)
	}
	s.Synced() // only the first call counts
	s.Delete("ns/b")
	eventually(t, "B is gone", func() bool { return read(t, etcd, servicesOfC1+"ns/b") == nil })
	if again := read(t, etcd, syncedOfC1); again.ModRevision != mark.ModRevision {
		t.Error("the marker was written twice")
	}
	stop()
	if !holds(t, etcd, servicesOfC1+"ns/c", "c") {
		t.Error("a key went with the stop")
	}
	if completedOf(r) != 0 {
		t.Error("the metric still says that the sync is complete")
	}
}

// Number 22 of the contract's kvstore.md; docs/wire/kvstore.md, KV-E8: a key that is refused delays the synced marker
// and nothing else.
func TestSyncStoreAwaitsWhatIsRefused(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1, clustertest.EtcdAuth())
	root := directClient(t, e)
	user := newUser(t, root, "operator", "cilium/.", "cilium/synced/", servicesOfC1+"a")
	must(root.RoleGrantPermission(t.Context(), "operator", servicesOfC1, clientv3.GetPrefixRangeEnd(servicesOfC1), clientv3.PermissionType(clientv3.PermRead)))(t)
	r := newHarness(t, user.file(t, e.Endpoints())).ready(t)
	s := newServices(t, r)
	s.Upsert("a", []byte("a"))
	s.Upsert("b", []byte("b"))
	s.Synced()
	run(t, s.Run)
	eventually(t, "B is refused three times", func() bool { return errorsOf(r) >= 3 })
	first := read(t, root, servicesOfC1+"a")
	if first == nil || read(t, root, syncedOfC1) != nil {
		t.Fatalf("A is %v, the marker %v", first, read(t, root, syncedOfC1))
	}
	if n := r.log.count("WARN", "permission denied", `user "operator"`, e.Endpoints()[0]); n != 1 {
		t.Errorf("the refusal was logged %d times:\n%s", n, r.log)
	}
	must(root.RoleGrantPermission(t.Context(), "operator", servicesOfC1, clientv3.GetPrefixRangeEnd(servicesOfC1), clientv3.PermissionType(clientv3.PermReadWrite)))(t)
	eventually(t, "the synced marker", func() bool { return read(t, root, syncedOfC1) != nil })
	b, mark := read(t, root, servicesOfC1+"b"), read(t, root, syncedOfC1)
	if b == nil || b.ModRevision > mark.ModRevision {
		t.Errorf("B is %v, the marker %v", b, mark)
	}
	if a := read(t, root, servicesOfC1+"a"); a.ModRevision != first.ModRevision {
		t.Error("A was written twice")
	}
}

// KV-S6: a name added and deleted before etcd was reachable does not delay the marker.
func TestSyncStoreForgetsWhatWent(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, door := directClient(t, e), e.NewProxy(t, "etcd-0", clustertest.Link{Refuse: true})
	r := newHarness(t, to("http://"+door.Address()))
	r.scope.Book = explain.NewHistory()
	s := newServices(t, r)
	run(t, s.Run)
	s.Upsert("came", nil)
	s.Delete("came")
	s.Upsert("stays", nil)
	s.Synced()
	for _, name := range []string{"came", "stays"} {
		eventually(t, name+" was reconciled", func() bool { return len(r.scope.Book.For("", "", name).Decisions) > 0 })
	}
	door.Heal(t)
	eventually(t, "the synced marker", func() bool { return read(t, etcd, syncedOfC1) != nil })
	if read(t, etcd, servicesOfC1+"stays") == nil || read(t, etcd, servicesOfC1+"came") != nil {
		t.Error("the keys are not what they should be")
	}
}

// KV-S1, KV-S3 and KV-S5: a successor finds the keys of its predecessor: it takes over what is wanted,
// deletes what is not, and leaves other keys alone.
func TestSyncStoreTakesOver(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	ctx := t.Context()
	lease := must(etcd.Grant(ctx, 900))(t).ID
	for _, key := range []string{servicesOfC1 + "kept", servicesOfC1 + "stale", "cilium/state/services/v1/c10/other"} {
		must(etcd.Put(ctx, key, "v", clientv3.WithLease(lease)))(t)
	}
	s := newServices(t, r)
	s.Upsert("kept", []byte("v"))
	run(t, s.Run)
	eventually(t, "the kept key is on our lease", func() bool { return r.leases.has(read(t, etcd, servicesOfC1+"kept").Lease) })
	if read(t, etcd, servicesOfC1+"stale") == nil {
		t.Error("a key was deleted before all that is wanted was known")
	}
	s.Synced()
	eventually(t, "the stale key is gone", func() bool { return read(t, etcd, servicesOfC1+"stale") == nil })
	must(etcd.Put(ctx, servicesOfC1+"foreign", "v"))(t)
	eventually(t, "a foreign key in our folder is gone", func() bool { return read(t, etcd, servicesOfC1+"foreign") == nil })
	if read(t, etcd, "cilium/state/services/v1/c10/other") == nil {
		t.Error("a key of another cluster was deleted")
	}
	eventually(t, "the queue is empty", func() bool { return queueOf(r) == 0 })
}

// KV-S1, KV-S4 and KV-L2: changes by others are reverted; after that there are no requests.
func TestSyncStoreKeepsItsKeys(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd := directClient(t, e)
	r := newHarness(t, to(e.Endpoints()[0]), func(p *connParams) { p.Config.KVStorePeriodicSync = 20 * time.Millisecond }).ready(t)
	s := newServices(t, r)
	for i := range 20 {
		s.Upsert(fmt.Sprint(i), []byte("v"))
	}
	s.Synced()
	run(t, s.Run)
	eventually(t, "the synced marker", func() bool { return read(t, etcd, syncedOfC1) != nil })
	key := servicesOfC1 + "7"
	for what, harm := range map[string]func() error{
		"deleted": func() error { _, err := etcd.Delete(t.Context(), key); return err },
		"changed": func() error { _, err := etcd.Put(t.Context(), key, "x"); return err },
		"detached": func() error {
			_, err := etcd.Put(t.Context(), key, "v")
			return err
		},
	} {
		check(t, harm())
		eventually(t, "the key is right again after it was "+what, func() bool {
			e := read(t, etcd, key)
			return e != nil && string(e.Value) == "v" && r.leases.has(e.Lease)
		})
	}
	lost := read(t, etcd, key).Lease
	revoke(t, etcd, lost)
	eventually(t, "all keys are back", func() bool {
		return must(etcd.Get(t.Context(), servicesOfC1, clientv3.WithPrefix(), clientv3.WithCountOnly()))(t).Count == 20 && read(t, etcd, syncedOfC1) != nil
	})
	eventually(t, "the queue is empty", func() bool { return queueOf(r) == 0 })
	before := must(etcd.Get(t.Context(), "x"))(t).Header.Revision
	s.syncer.enqueueAll()
	s.Upsert("probe", []byte("p")) // passes the queue behind a comparison of all keys
	eventually(t, "the probe", func() bool { return read(t, etcd, servicesOfC1+"probe") != nil })
	changed := must(etcd.Get(t.Context(), servicesOfC1, clientv3.WithPrefix(), clientv3.WithMinModRev(before+1)))(t)
	if len(changed.Kvs) != 1 {
		t.Errorf("%d keys were written, want the probe alone", len(changed.Kvs))
	}
}

// KV-L2: a key in its desired state by an unanswered write of ours is moved to another
// lease like all keys of a lost one.
func TestSyncStoreKeepsWhatItFinds(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	check(t, r.Write(withCause(t), PutLeased("k", nil)))
	lease := read(t, etcd, "k").Lease
	key := servicesOfC1 + "a"
	put := must(etcd.Put(t.Context(), key, "v", clientv3.WithLease(clientv3.LeaseID(lease))))(t)
	s := newServices(t, r)
	s.Upsert("a", []byte("v"))
	s.Synced()
	run(t, s.Run)
	eventually(t, "the synced marker", func() bool { return read(t, etcd, syncedOfC1) != nil })
	if is := read(t, etcd, key); is.ModRevision != put.Header.Revision {
		t.Errorf("the key was written: %v", is)
	}
	r.leases.markLost(lease) // for us: in etcd it lives
	eventually(t, "the key on another lease", func() bool {
		is := read(t, etcd, key)
		return is.Lease != lease && r.leases.has(is.Lease)
	})
}

// KV-L5: another etcd, empty, in the place of the one before. Its
// revisions are lower: a watch would wait for ever.
func TestDataReplaced(t *testing.T) {
	t.Parallel()
	old, empty := clustertest.StartEtcd(t, 1), clustertest.StartEtcd(t, 1)
	door := newSwitchProxy(t, old.Endpoints()[0])
	r := newHarness(t, to(door.address()), quick).ready(t)
	s := newServices(t, r)
	s.Upsert("a", []byte("1"))
	s.Synced()
	run(t, s.Run)
	check(t, r.Write(withCause(t), PutLeased(HeartbeatKey, []byte("now"))))
	v := watchView(t, r, "p/")
	first := directClient(t, old)
	for i := range 50 {
		must(first.Put(t.Context(), fmt.Sprintf("p/%d", i), "old"))(t)
	}
	eventually(t, "the first etcd has the marker, and the view is right", func() bool {
		return read(t, first, syncedOfC1) != nil && v.equals(t, first, "p/")
	})
	second := directClient(t, empty)
	must(second.Put(t.Context(), "p/0", "new"))(t)
	door.lead(t, empty.Endpoints()[0])
	for _, key := range []string{servicesOfC1 + "a", syncedOfC1, HeartbeatKey} {
		eventually(t, key+" in the other etcd", func() bool { return read(t, second, key) != nil })
	}
	eventually(t, "the view shows the other etcd", func() bool { return v.equals(t, second, "p/") })
	s.Upsert("b", []byte("2"))
	must(second.Put(t.Context(), "p/later", "new"))(t)
	eventually(t, "life goes on", func() bool {
		return holds(t, second, servicesOfC1+"b", "2") && v.equals(t, second, "p/")
	})
}

// KV-S3: a store stops while etcd hangs.
func TestSyncStoreStopsWithoutEtcd(t *testing.T) {
	t.Parallel()
	r := newHarness(t, to(nowhere))
	s := newServices(t, r)
	s.Upsert("a", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	cancel()
	select {
	case <-done:
	case <-time.After(waittest.Limit):
		t.Fatal("the store still runs")
	}
}

// A client of another kind is refused.
func TestStoresNeedOurClient(t *testing.T) {
	t.Parallel()
	r := newHarness(t, to(nowhere))
	if _, err := NewSyncStore(struct{ Client }{r.client}, r.scope, ServicesPrefix, "c1"); err == nil {
		t.Error("another client was taken")
	}
}
