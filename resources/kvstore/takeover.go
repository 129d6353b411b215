// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
)

// adoptLeases keeps the leases alive that the listed keys are on, so that they are not
// written again.
func (s *syncer) adoptLeases(ctx context.Context) {
	s.mu.Lock()
	found := map[LeaseID]struct{}{}
	for _, key := range s.state.observed {
		found[key.lease] = struct{}{}
	}
	s.mu.Unlock()
	delete(found, 0)
	for id := range found {
		s.adoptLease(ctx, id)
	}
}

func (s *syncer) adoptLease(ctx context.Context, id LeaseID) {
	if err := s.client.adoptLease(ctx, id); err != nil {
		s.client.log.Debug("lease of an earlier process could not be adopted, its keys are written again", "lease", id.String(), "error", err)
	}
}

// confirmIfReady lets keys of others be deleted. If there are any, that is confirmed
// before. The caller holds the lock.
func (s *syncer) confirmIfReady() {
	switch {
	case !s.state.complete || !s.state.listed || s.state.confirmed:
	case s.confirm != nil && len(s.state.undesired()) > 0:
		s.queue.Add(syncItem{confirmation: true})
	default:
		s.state.confirmed = true
		s.enqueueStale()
	}
}

// confirmStale is the confirmation.
func (s *syncer) confirmStale(ctx context.Context) error {
	if err := s.confirm(ctx); err != nil {
		return fmt.Errorf("keys below %s that are not desired are kept: %w", s.prefix, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.confirmed = true
	s.enqueueStale()
	return nil
}
