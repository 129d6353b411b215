// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
)

// KV-L6: keys on a lease that an earlier process left are taken over without a write, the synced marker among them, and
// are written again when the lease is lost. A lease with keys that this process does not maintain, or with another TTL,
// is left alone.
func TestLeasesAreAdopted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ttl     int64
		foreign string
		adopted bool
	}{
		"ours":                         {900, HeartbeatKey, true},
		"with another TTL":             {600, HeartbeatKey, false},
		"with keys of another cluster": {900, "cilium/state/services/v1/c10/x", false},
		"with identities":              {900, "cilium/state/identities/v1/value/k8s:a=b;/10.0.0.1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := clustertest.StartEtcd(t, 1)
			etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0]), quick).ready(t)
			lease := must(etcd.Grant(t.Context(), c.ttl))(t).ID
			for _, key := range []string{c.foreign, servicesOfC1 + "a", syncedOfC1} {
				must(etcd.Put(t.Context(), key, "v", clientv3.WithLease(lease)))(t)
			}
			before := read(t, etcd, syncedOfC1).ModRevision
			s := newServices(t, r)
			s.Upsert("a", []byte("v"))
			s.Synced()
			run(t, s.Run)
			eventually(t, "the initial sync", func() bool { return completedOf(r) == 1 })
			key, marker := read(t, etcd, servicesOfC1+"a"), read(t, etcd, syncedOfC1)
			if kept := key.ModRevision <= before && marker.ModRevision <= before; kept != c.adopted {
				t.Errorf("the keys were written: %t", !kept)
			}
			if !r.leases.has(key.Lease) || !r.leases.has(marker.Lease) {
				t.Error("the keys are not on leases that are kept alive")
			}
			if !c.adopted {
				return
			}
			revoke(t, etcd, LeaseID(lease))
			eventually(t, "the keys are back", func() bool {
				key, marker := read(t, etcd, servicesOfC1+"a"), read(t, etcd, syncedOfC1)
				return key != nil && marker != nil && key.Lease != LeaseID(lease) && r.leases.has(key.Lease)
			})
		})
	}
}

// KV-S5: keys of others are deleted once that is confirmed, and only those that are owned.
func TestStaleKeysAreConfirmed(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	for _, name := range []string{"stale", "kept"} {
		must(etcd.Put(t.Context(), servicesOfC1+name, "v"))(t)
	}
	var calls atomic.Int32
	gate := make(chan struct{})
	s := must(NewSyncStore(r.client, r.scope, ServicesPrefix, "c1", OwnedIf(
		func(name string) bool { return name != "kept" },
		func(ctx context.Context) error {
			if calls.Add(1) == 1 {
				return errors.New("not yet")
			}
			select {
			case <-gate:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})))(t)
	s.Upsert("new", []byte("v"))
	s.Synced()
	run(t, s.Run)
	eventually(t, "it is confirmed again after a failure", func() bool { return calls.Load() == 2 })
	eventually(t, "the synced marker does not wait for it", func() bool { return read(t, etcd, syncedOfC1) != nil })
	if read(t, etcd, servicesOfC1+"stale") == nil {
		t.Error("a key was deleted before that was confirmed")
	}
	close(gate)
	eventually(t, "the stale key is gone", func() bool { return read(t, etcd, servicesOfC1+"stale") == nil })
	s.Delete("kept") // never upserted, and not owned
	s.Delete("new")
	eventually(t, "the key is gone", func() bool { return read(t, etcd, servicesOfC1+"new") == nil })
	if read(t, etcd, servicesOfC1+"kept") == nil {
		t.Error("a key was deleted that is not owned")
	}
}
