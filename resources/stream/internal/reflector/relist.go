// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/skep-operator/skep/resources/stream/internal/changelog"
)

// relists are the calls of Relist that a reflector has not served yet. A call is
// served by the first complete state that was requested after it, of the server as
// it is now, not of a cache.
type relists struct {
	mu        sync.Mutex
	pending   []*relistCall
	interrupt context.CancelFunc // ends the attempt that is running
}

type relistCall struct {
	asked bool // a request that serves it is on its way
	done  chan struct{}
}

// attempt is the context of the next attempt to list and watch. It ends with the
// next call of Relist.
func (r *relists) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	attempt, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupt = cancel
	return attempt, cancel
}

// add requests a new list: the attempt that is running ends.
func (r *relists) add() *relistCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &relistCall{done: make(chan struct{})}
	r.pending = append(r.pending, f)
	for _, other := range r.pending {
		other.asked = false // the request is being ended
	}
	if r.interrupt != nil {
		r.interrupt()
	}
	return f
}

// resourceVersionFor is the resourceVersion of a request for a complete state.
func (r *relists) resourceVersionFor(resourceVersion string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.pending {
		f.asked = true
		resourceVersion = "" // as of now
	}
	return resourceVersion
}

// complete ends the relists that a complete state serves.
func (r *relists) complete() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = slices.DeleteFunc(r.pending, func(f *relistCall) bool {
		if f.asked {
			close(f.done)
		}
		return f.asked
	})
}

// Relist returns once the change list has a complete state of the server as of now.
func (r *Reflector[P]) Relist(ctx context.Context) error {
	err := changelog.ErrClosed
	select {
	case <-r.relists.add().done:
		return nil
	case <-r.changes.Ended():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return fmt.Errorf("refreshing %s%s: %w", r.Name, r.Conditions.Why(), err)
}
