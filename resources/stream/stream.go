// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"sync"
	"time"
)

// Stream is a Resource that lists and watches an API server. It costs nothing
// until its first user comes: one goroutine, one connection and the objects
// begin with it and end a linger time after the last one. All methods are safe
// for concurrent use.
type Stream[T any] struct {
	faces[T]
	kind   Kind[T]
	source *Source
	options
	codec codec[T]

	conditions *conditions

	mu     sync.Mutex
	run    *run[T]       // nil: stopped
	last   chan struct{} // closed when the run before has ended
	users  int
	stop   *time.Timer // running while the stream lingers
	closed bool
}

var _ Resource[struct{}] = (*Stream[struct{}])(nil)

// New makes a stream of a kind. The error is that of Kind.Check.
func New[T any](source *Source, kind Kind[T], opts ...Option) (*Stream[T], error) {
	codec, err := kind.compile()
	if err != nil {
		return nil, err
	}
	s := &Stream[T]{kind: kind, source: source, codec: codec, options: makeOptions(kind.String(), opts)}
	s.conditions = newConditions(s.log, s.health)
	s.faces = faces[T]{use: s.use, of: s.name}
	return s, nil
}

// use starts the stream with its first user.
func (s *Stream[T]) use() (*changes[T], func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c := newChanges[T](newConditions(s.log, nil))
		c.close()
		return c, func() {}
	}
	if s.stop != nil {
		s.stop.Stop()
		s.stop = nil
	}
	if s.run == nil {
		s.run = s.start()
	}
	s.users++
	return s.run.changes, sync.OnceFunc(s.release)
}

// release stops the stream some time after its last user.
func (s *Stream[T]) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.users > 0 || s.closed {
		return
	}
	if s.linger <= 0 {
		s.end()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(s.linger, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stop == timer {
			s.end()
		}
	})
	s.stop = timer
}

// end stops the run, if there is one, and forgets what it kept. The caller has
// the lock.
func (s *Stream[T]) end() {
	if s.stop != nil {
		s.stop.Stop()
		s.stop = nil
	}
	if s.run != nil {
		s.run.cancel(ErrClosed)
		s.run.changes.close()
		s.last = s.run.done
		s.run = nil
	}
}

// Close ends all subscriptions and the stream and returns when its goroutines
// have ended. A closed stream stays closed.
func (s *Stream[T]) Close() {
	s.mu.Lock()
	s.closed = true
	s.end()
	last := s.last
	s.mu.Unlock()
	if last != nil {
		<-last
	}
}

// State implements Resource.
func (s *Stream[T]) State() State {
	s.mu.Lock()
	state := State{Name: s.name, Users: s.users}
	r := s.run
	s.mu.Unlock()
	if r == nil {
		return state
	}
	state.Running = true
	state.ConnectedSince = r.connectedSince()
	r.changes.state(&state)
	return state
}
