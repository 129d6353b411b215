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
	if pause := s.fought.Wait(s.marker.key, time.Now()); pause > 0 {
		return reconcile.RequeueAfter(pause)
	}
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
		return s.fought.Done(s.marker.key)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	if err := s.client.Write(ctx, PutLeased(s.marker.key, []byte(now))); err != nil {
		return err
	}
	s.marker.onWritten()
	return s.fought.Done(s.marker.key)
}

// removeMarker deletes the marker as it is, or nil for none. If it changes meanwhile, watchMarker sees that.
func (s *syncer) removeMarker(ctx context.Context, is *Entry) error {
	if is != nil {
		if _, err := s.client.WriteIf(ctx, []Guard{Unchanged(*is)}, Remove(is.Key)); err != nil {
			return err
		}
	}
	return s.fought.Done(s.marker.key)
}

// watchMarker writes the synced marker again when it is deleted or put on another lease,
// such as by a late write of a predecessor.
func (s *syncer) watchMarker(ctx context.Context, key string) {
	for e := range s.client.Watch(ctx, key) {
		s.mu.Lock()
		ours := s.marker != nil && s.marker.queued && e.Key == key
		s.mu.Unlock()
		if !ours || s.isMarked(e) {
			continue
		}
		now := time.Now()
		s.fought.Undone(key, now)
		if s.fought.Wait(key, now) > 0 {
			s.addMarker(e)
			continue // the leases are checked with the next write
		}
		if err := s.client.health.leaseCheck(ctx); err != nil { // other keys of the lease come first
			s.client.log.Debug("etcd leases could not be checked", "error", err)
		}
		s.addMarker(e)
	}
}

// isMarked reports whether an event of the marker shows it as desired.
func (s *syncer) isMarked(e Event) bool {
	if s.marker.unwanted {
		return e.Kind == Delete
	}
	return e.Kind == Upsert && s.client.leases.has(e.Lease)
}

// addMarker queues the marker because of an event of its key.
func (s *syncer) addMarker(e Event) {
	s.queue.Add(syncItem{marker: true}, k8s.Trigger{Kind: "EtcdKey", Name: e.Key, ResourceVersion: fmt.Sprint(e.ModRevision)})
}
