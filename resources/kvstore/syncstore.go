// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
)

// SyncStore keeps the keys of one cluster under a prefix as they are desired,
// leased, and says when they are complete. Its methods are safe for concurrent
// use; names may be upserted before it runs.
//
//   - The last value of a name wins, and one that is in etcd already costs no
//     request.
//   - A key that is lost, changed by others or on a lease of another process is
//     written again.
//   - Keys that are left from before and not desired are deleted once Synced
//     was called, guarded by the revision they were seen in.
//   - The mark cilium/synced/<cluster>/<prefix> appears after all that was
//     upserted before Synced.
type SyncStore struct {
	mirror *mirror
	mark   mark
	done   prometheus.Gauge
}

// NewSyncStore returns a store of <prefix>/<cluster>/<name>. c is the client of
// the module that the scope belongs to. No two stores of a process may share a
// prefix and cluster.
func NewSyncStore(c Client, s reconcile.Scope, prefix, cluster string) (*SyncStore, error) {
	m, err := newMirror(c, s, Folder(prefix, cluster), cluster, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	done := m.client.metrics.InitialSync.WithLabelValues(scope(m.prefix), cluster, "write")
	done.Set(0)
	return &SyncStore{mirror: m, done: done, mark: mark{
		key:     Key(SyncedPrefix, cluster, prefix),
		written: func() { done.Set(1) },
	}}, nil
}

// Run writes and deletes until ctx ends; it is made for a job, and runs once.
// What was written stays.
func (s *SyncStore) Run(ctx context.Context) error {
	defer s.done.Set(0)
	return s.mirror.run(ctx, s.mirror.client.config.KVStorePeriodicSync, func(ctx context.Context) {
		s.mirror.watchMark(ctx, s.mark.key)
	})
}

// Upsert has a name hold a value from now on. The value must not be changed
// afterwards. The triggers say why, for the cause of the write.
func (s *SyncStore) Upsert(name string, value []byte, triggers ...k8s.Trigger) {
	s.mirror.upsert(name, value, triggers...)
}

// Delete has a name be gone from now on. One that was never upserted costs
// nothing.
func (s *SyncStore) Delete(name string, triggers ...k8s.Trigger) { s.mirror.delete(name, triggers...) }

// Synced says that all that there is at first was upserted. Only the first call
// counts.
func (s *SyncStore) Synced() { s.mirror.complete(&s.mark) }
