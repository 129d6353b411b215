// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// faces are the two faces and the store of anything that has a change list.
type faces[T any] struct {
	// use returns the change list and keeps it alive until release is called.
	use func() (c *changes[T], release func())
	of  string // name of the resource
}

// ErrClosed is the error of a stream that was closed.
var ErrClosed = errors.New("stream is closed")

// Events implements Resource.
func (f faces[T]) Events(ctx context.Context, opts ...SubscribeOption) <-chan Event[T] {
	out := make(chan Event[T])
	s, leave := f.subscribe(ctx, opts)
	go func() {
		defer close(out)
		defer leave()
		defer context.AfterFunc(ctx, s.end)()
		s.pump(ctx, out)
	}()
	return out
}

// subscribe adds a subscription and a use; leave ends both.
func (f faces[T]) subscribe(ctx context.Context, opts []SubscribeOption) (s *subscription[T], leave func()) {
	c, release := f.use()
	options, complete := makeSubscribeOptions(opts), f.waiting(ctx)
	c.mu.Lock()
	s = c.subscribe(options, complete)
	c.mu.Unlock()
	return s, func() {
		s.leave()
		release()
	}
}

// pump hands events to a channel without buffer. An event that nobody has
// received yet is taken back when its object changes, so a receiver gets what
// is newest when it receives. It hears through end that ctx has ended:
// subscribers often share a context, and would contend for its channel at every
// event.
func (s *subscription[T]) pump(ctx context.Context, out chan<- Event[T]) {
	for {
		e, ok := s.offer()
		if !ok {
			if !s.sleep(ctx) {
				return
			}
			continue
		}
		for sent := false; !sent; {
			select {
			case out <- e:
				sent = true
			case <-s.wake:
				sent = s.takeBack(e)
			}
		}
	}
}

// end makes the subscription over, from any goroutine.
func (s *subscription[T]) end() {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	s.stopped = true
	s.signal()
}

// Batches implements Resource.
func (f faces[T]) Batches(ctx context.Context, max int, wait time.Duration, opts ...SubscribeOption) iter.Seq[Batch[T]] {
	return func(yield func(Batch[T]) bool) {
		s, leave := f.subscribe(ctx, opts)
		defer leave()
		room := make(Batch[T], 0, max)
		for s.sleep(ctx) {
			if !s.gather(ctx, max, wait) {
				continue
			}
			batch := s.takeAll(room, max)
			if len(batch) > 0 && !yield(batch) {
				return
			}
			clear(batch)
		}
	}
}

// waiting tells health that the caller waits for the initial state.
func (f faces[T]) waiting(ctx context.Context) (complete func()) {
	return health.Waiting(ctx, f.of, "the initial state is not complete")
}

// Store implements Resource.
func (f faces[T]) Store(ctx context.Context) (*Store[T], error) {
	c, release := f.use()
	defer f.waiting(ctx)()
	select {
	case <-c.synced:
	case <-c.ended:
	case <-ctx.Done():
	}
	switch {
	case c.hasEnded():
		release()
		return nil, fmt.Errorf("store of %s: %w", f.of, ErrClosed)
	case !c.isSynced():
		release()
		return nil, fmt.Errorf("store of %s: not synced%s: %w", f.of, c.health.why(), context.Cause(ctx))
	}
	s := &Store[T]{changes: c, indexes: map[buildable[T]]struct{}{}}
	context.AfterFunc(ctx, func() {
		s.release()
		release()
	})
	return s, nil
}

// Reach implements Resource.
func (f faces[T]) Reach(ctx context.Context, revision slim.Revision) error {
	c, release := f.use()
	defer release()
	defer health.Waiting(ctx, f.of, fmt.Sprintf("resourceVersion %s is not shown yet", revision))()
	return c.await(ctx, nobody, revision)
}
