// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/skep-operator/skep/runtime/health"
)

// refreshes are the calls of Refresh that a run has not served yet. A call is
// served by the first complete state that was asked for after it, of the server
// as it is now, not of some cache on the way.
type refreshes struct {
	mu        sync.Mutex
	pending   []*refresh
	interrupt context.CancelFunc // ends the attempt that is running
}

type refresh struct {
	asked bool // a request that serves it is on its way
	done  chan struct{}
}

// attempt is the context of the next attempt to list and watch. It ends with the
// next call of Refresh.
func (r *refreshes) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	attempt, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupt = cancel
	return attempt, cancel
}

// add begins a refresh: what is running makes way for a new list.
func (r *refreshes) add() *refresh {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &refresh{done: make(chan struct{})}
	r.pending = append(r.pending, f)
	for _, other := range r.pending {
		other.asked = false // the request is being ended
	}
	if r.interrupt != nil {
		r.interrupt()
	}
	return f
}

// asOf is the resourceVersion to ask for a complete state with.
func (r *refreshes) asOf(resourceVersion string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.pending {
		f.asked = true
		resourceVersion = "" // as of now
	}
	return resourceVersion
}

// replaced ends those refreshes that the complete state serves which has come.
func (r *refreshes) replaced() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = slices.DeleteFunc(r.pending, func(f *refresh) bool {
		if f.asked {
			close(f.done)
		}
		return f.asked
	})
}

// Refresh implements Resource.
func (s *Stream[T]) Refresh(ctx context.Context) error {
	c, release := s.use()
	defer release()
	defer health.Waiting(ctx, s.name, "a list as of now has not come yet")()
	s.mu.Lock()
	r := s.run
	s.mu.Unlock()
	err := ErrClosed
	if r != nil {
		select {
		case <-r.refreshes.add().done:
			return nil
		case <-c.ended:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return fmt.Errorf("refreshing %s%s: %w", s.name, c.health.why(), err)
}
