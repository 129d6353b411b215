// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
)

// revoke ends a lease from outside.
func revoke(t *testing.T, c *clientv3.Client, id LeaseID) {
	t.Helper()
	_, err := c.Revoke(context.Background(), clientv3.LeaseID(id))
	check(t, err)
}

// docs/wire/kvstore.md, KV-E10: every key of a lost lease is restored, synced markers
// last.
func TestLostLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0]), quick).ready(t)
	mark := Key(SyncedPrefix, "c1", ServicesPrefix)
	keys := []string{HeartbeatKey, "cilium/state/services/v1/c1/a", "zz/last", mark}
	for _, key := range keys {
		check(t, r.Write(withCause(t), PutLeased(key, []byte("v"))))
	}
	var more []Write
	for i := range 100 {
		more = append(more, PutLeased(fmt.Sprintf("zz/%02d", i), []byte("v")))
	}
	check(t, r.Write(withCause(t), more...))
	check(t, r.Write(withCause(t), PutLeased("left", nil), PutLeased("gone", nil)))
	check(t, r.Write(withCause(t), Put("left", nil))) // KV-L4
	check(t, r.Write(withCause(t), Remove("gone")))

	lost := read(t, etcd, HeartbeatKey).Lease
	if ttl := must(etcd.TimeToLive(t.Context(), clientv3.LeaseID(lost)))(t).GrantedTTL; ttl != 900 {
		t.Errorf("the TTL is %d s, want 900", ttl)
	}
	revoke(t, etcd, lost)
	for _, key := range keys {
		eventually(t, key+" on another lease", func() bool {
			e := read(t, etcd, key)
			return e != nil && e.Lease != lost && e.Lease != 0 && string(e.Value) == "v"
		})
	}
	later := must(etcd.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithMinModRev(read(t, etcd, mark).ModRevision+1)))(t)
	for _, kv := range later.Kvs {
		if kv.Lease != 0 && !strings.HasPrefix(string(kv.Key), initLockPrefix) {
			t.Errorf("%s came after the marker", kv.Key)
		}
	}
	if n := must(etcd.Get(t.Context(), "zz/", clientv3.WithPrefix(), clientv3.WithCountOnly()))(t).Count; n != 101 {
		t.Errorf("%d keys are back, want 101", n)
	}
	if e := read(t, etcd, "left"); e == nil || e.Lease != 0 {
		t.Errorf("a key that was put without a lease is %v", e)
	}
	if e := read(t, etcd, "gone"); e != nil {
		t.Error("a key that was removed came back")
	}
	if s := r.Status(); s.LeasesLost != 1 || s.Leases != 1 {
		t.Errorf("status: %+v", s)
	}
	if n := r.log.count("WARN", "lease lost"); n != 1 {
		t.Errorf("the loss was logged %d times:\n%s", n, r.log)
	}
}

// KV-L2: a put that finds its lease expired succeeds on a new one.
func TestPutOnALostLease(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	check(t, r.Write(withCause(t), PutLeased("a", []byte("1"))))
	check(t, r.Write(withCause(t), PutLeased("b", []byte("1"))))
	revoke(t, etcd, read(t, etcd, "a").Lease)
	check(t, r.Write(withCause(t), PutLeased("a", []byte("2"))))
	if !holds(t, etcd, "a", "2") {
		t.Error("the put said it was done, and was not")
	}
	eventually(t, "b is back", func() bool { return holds(t, etcd, "b", "1") })
}

// docs/wire/kvstore.md, KV-E14.
func TestLeasesHoldAThousandKeys(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	ctx := withCause(t)
	for first := 0; first < 1001; first += 100 {
		var writes []Write
		for i := first; i < min(first+100, 1001); i++ {
			writes = append(writes, PutLeased(fmt.Sprintf("k/%04d", i), nil))
		}
		check(t, r.Write(ctx, writes...))
	}
	perLease := map[int64]int{}
	for _, kv := range must(etcd.Get(ctx, "k/", clientv3.WithPrefix()))(t).Kvs {
		perLease[kv.Lease]++
	}
	if len(perLease) != 2 || r.Status().Leases != 2 {
		t.Errorf("keys per lease: %v, status %v", perLease, r.Status())
	}
	for id, n := range perLease {
		if id == 0 || n > 1000 {
			t.Errorf("lease %x has %d keys", id, n)
		}
	}
	check(t, r.Write(ctx, Remove("k/0000"))) // makes room on one of the two
	check(t, r.Write(ctx, PutLeased("more", nil)))
	if n := r.Status().Leases; n != 2 {
		t.Errorf("with room on a lease there are %d", n)
	}
}

// docs/wire/kvstore.md, KV-E15, and KV-L3: stopping revokes nothing; the successor
// takes the keys over.
func TestLeasesOutliveTheirOwner(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	check(t, r.Write(withCause(t), PutLeased("k", []byte("v")), Put("plain", nil)))
	first := read(t, etcd, "k").Lease
	check(t, r.stop())
	if ttl := must(etcd.TimeToLive(t.Context(), clientv3.LeaseID(first)))(t).TTL; ttl < 800 {
		t.Errorf("after the stop the lease has %d s left", ttl)
	}
	if !holds(t, etcd, "k", "v") || read(t, etcd, "plain") == nil {
		t.Error("keys went with the stop")
	}
	next := newHarness(t, to(e.Endpoints()[0])).ready(t)
	if written := must(next.Ensure(withCause(t), "k", []byte("v")))(t); !written {
		t.Error("a key on the predecessor's lease counts as ours")
	}
	if id := read(t, etcd, "k").Lease; id == first || id == 0 {
		t.Errorf("the key is on lease %v", id)
	}
}

// KV-O3: equal and ours costs nothing; equal and without a lease gets one.
func TestEnsure(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	ctx := withCause(t)
	must(etcd.Put(ctx, "k", "v"))(t)
	for i, want := range []bool{true, false, false} {
		if written := must(r.Ensure(ctx, "k", []byte("v")))(t); written != want {
			t.Errorf("call %d: written %v", i, written)
		}
	}
	if e := read(t, etcd, "k"); e.Lease == 0 {
		t.Error("the key has no lease")
	}
	if written := must(r.Ensure(ctx, "k", []byte("w")))(t); !written || !holds(t, etcd, "k", "w") {
		t.Error("another value was not written")
	}
	alive := must(r.LeaseAlive(ctx, read(t, etcd, "k").Lease))(t)
	if gone := must(r.LeaseAlive(ctx, 4711))(t); !alive || gone {
		t.Errorf("our lease is alive: %v; one that never was: %v", alive, gone)
	}
}

// KV-O3: a lease that is adopted after the key was read, and before a lease is assigned, is one of ours.
func TestEnsureOnALeaseThatIsAdopted(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	lease := LeaseID(must(etcd.Grant(t.Context(), 900))(t).ID)
	must(etcd.Put(t.Context(), "k", "v", clientv3.WithLease(clientv3.LeaseID(lease))))(t)
	r.leases.maintain("k")
	check(t, r.leases.grantLock.Acquire(t.Context(), 1)) // a key without a lease waits
	written := make(chan bool, 1)
	go func() {
		defer close(written)
		wrote, err := r.Ensure(withCause(t), "k", []byte("v"))
		if err != nil {
			t.Error(err)
		}
		written <- wrote
	}()
	eventually(t, "the key is read", func() bool {
		return sampleCount(t, r.metrics.Operations, keyClass("k"), "read", "get", "success") == 1
	})
	check(t, r.adoptLease(t.Context(), lease))
	r.leases.grantLock.Release(1)
	if <-written {
		t.Error("it was written")
	}
	if k := read(t, etcd, "k"); k.ModRevision != k.CreateRevision || k.Lease != lease {
		t.Errorf("the key was written at revision %d, on lease %s", k.ModRevision, k.Lease)
	}
	revoke(t, etcd, lease)
	check(t, r.checkLeases(t.Context()))
	eventually(t, "the key is back", func() bool { return holds(t, etcd, "k", "v") })
}
