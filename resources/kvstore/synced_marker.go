// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
)

// syncedMarker is the key that marks the initial state as written.
type syncedMarker struct {
	key        string
	unwanted   bool // it is deleted
	waitingFor map[string]struct{}
	onWritten  func()
	queued     bool
}

func (s *syncer) enqueueMarkerIfReady() {
	if s.marker != nil && len(s.marker.waitingFor) == 0 && s.state.listed && !s.marker.queued {
		s.marker.queued = true
		s.queue.Add(syncItem{marker: true})
	}
}

// writeMarker writes the synced marker, unless it is there on a lease that is kept alive. One that is not wanted is deleted.
func (s *syncer) writeMarker(ctx context.Context) error {
	if s.client.leases.hasUnleasedKeys() {
		return reconcile.RequeueAfter(initialPause) // keys of a lost lease come first
	}
	is, err := s.client.Get(ctx, s.marker.key)
	if err != nil {
		return err
	}
	if s.marker.unwanted {
		return s.removeMarker(ctx, is)
	}
	if is != nil && is.Lease != 0 {
		s.adoptLease(ctx, is.Lease)
	}
	if is != nil && s.client.leases.adopt(is.Key, is.Value, is.Lease, is.ModRevision) {
		s.marker.onWritten()
		return nil
	}
	now := time.Now().UTC().Format(time.RFC3339)
	if err := s.client.Write(ctx, PutLeased(s.marker.key, []byte(now))); err != nil {
		return err
	}
	s.marker.onWritten()
	return nil
}

// removeMarker deletes the marker as it is, or nil for none. If it changes meanwhile, watchMarker sees that.
func (s *syncer) removeMarker(ctx context.Context, is *Entry) error {
	if is == nil {
		return nil
	}
	_, err := s.client.WriteIf(ctx, []Guard{Unchanged(*is)}, Remove(is.Key))
	return err
}

// watchMarker writes the synced marker again when it is deleted or put on another lease,
// such as by a late write of a predecessor.
func (s *syncer) watchMarker(ctx context.Context, key string) {
	for e := range s.client.Watch(ctx, key) {
		s.mu.Lock()
		ours := s.marker != nil && s.marker.queued && e.Key == key
		s.mu.Unlock()
		if !ours || e.Kind == Upsert && !s.marker.unwanted && s.client.leases.has(e.Lease) {
			continue
		}
		if err := s.client.health.leaseCheck(ctx); err != nil { // other keys of the lease come first
			s.client.log.Debug("etcd leases could not be checked", "error", err)
		}
		s.queue.Add(syncItem{marker: true}, k8s.Trigger{Kind: "EtcdKey", Name: e.Key, ResourceVersion: fmt.Sprint(e.ModRevision)})
	}
}
