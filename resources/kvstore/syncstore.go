// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
)

// SyncStore keeps the keys of one cluster under a prefix in their desired state, on
// leases, and marks them as complete. Its methods are safe for concurrent use; names may
// be upserted before it runs.
//
//   - The last value of a name wins; a value already in etcd costs no request.
//   - A key that is lost, changed by others or put on another lease is written again.
//   - Leases that keys of earlier processes are on are kept alive, if all their keys are
//     maintained by this process: taking over costs no write.
//   - Keys of earlier processes that are not desired are deleted once Synced was
//     called, guarded by their mod revision.
//   - The key cilium/synced/<cluster>/<prefix> is written after all keys upserted
//     before Synced.
type SyncStore struct {
	syncer *syncer
	marker syncedMarker
}

// SyncOption changes a SyncStore.
type SyncOption func(*SyncStore)

// OwnedIf restricts the keys without a desired value that are deleted to those that owns
// reports: it is called with the name, at any time, and must not call the store. confirm
// is called before the first of them is deleted, and again if it fails: it returns when
// what owns reads is up to date.
func OwnedIf(owns func(name string) bool, confirm func(context.Context) error) SyncOption {
	return func(s *SyncStore) { s.syncer.state.owns, s.syncer.confirm = owns, confirm }
}

// Unmarked has the store write no synced marker, and delete one that is there: what is not marked is never complete for its readers.
func Unmarked() SyncOption { return func(s *SyncStore) { s.marker.unwanted = true } }

// OneSource says that each key follows one object of a user, or one of its name of a few kinds, and not what many of them have, such as
// backends: one that is to be written more than thirty times within a minute gets the pauses of KV-S9.
func OneSource() SyncOption { return func(s *SyncStore) { s.syncer.oneSource = true } }

// NewSyncStore returns a store of <prefix>/<cluster>/<name>. c is the client of the
// module that the scope belongs to. A process may have only one store per prefix and
// cluster.
func NewSyncStore(c Client, s reconcile.Deps, prefix, cluster string, opts ...SyncOption) (*SyncStore, error) {
	m, err := newSyncer(c, s, prefix, cluster)
	if err != nil {
		return nil, err
	}
	store := &SyncStore{syncer: m, marker: syncedMarker{
		key:       Key(SyncedPrefix, cluster, prefix),
		onWritten: func() { m.metrics.Initial.Set(1) },
	}}
	for _, o := range opts {
		o(store)
	}
	m.client.leases.maintain(m.prefix, Folder(SyncedPrefix, cluster), Key(ClusterConfigPrefix, cluster), HeartbeatKey)
	return store, nil
}

// Run writes and deletes until ctx ends. It is the function of a job and runs once. The
// keys stay in etcd afterwards.
func (s *SyncStore) Run(ctx context.Context) error {
	defer s.syncer.metrics.Initial.Set(0)
	return s.syncer.run(ctx, s.syncer.client.config.KVStorePeriodicSync, func(ctx context.Context) {
		s.syncer.watchMarker(ctx, s.marker.key)
	})
}

// Upsert sets the desired value of a name. The value must not be changed afterwards.
// The triggers become part of the write's cause.
func (s *SyncStore) Upsert(name string, value []byte, triggers ...k8s.Trigger) {
	s.syncer.upsert(name, value, triggers...)
}

// Delete deletes a name. One that does not exist costs no request.
func (s *SyncStore) Delete(name string, triggers ...k8s.Trigger) { s.syncer.delete(name, triggers...) }

// Synced declares that the initial state was upserted. Only the first call counts.
func (s *SyncStore) Synced() { s.syncer.markComplete(&s.marker) }
