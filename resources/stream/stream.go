// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/stream/internal/changelog"
	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/internal/reflector"
	"github.com/skep-operator/skep/runtime/health"
)

// Stream is a Resource that lists and watches an API server. It costs nothing
// until its first user comes: one goroutine, one connection and the objects
// begin with it and end a linger time after the last one. All methods are safe
// for concurrent use.
type Stream[T any] struct {
	base[T]
	config   reflector.Config[*T]
	linger   time.Duration
	onDemand bool

	mu      sync.Mutex
	running *reflector.Reflector[*T] // nil: stopped
	last    <-chan struct{}          // closed when the reflector before has ended
	users   int
	stop    *time.Timer // running while the stream lingers
	closed  bool
}

var _ Resource[struct{}] = (*Stream[struct{}])(nil)

// New makes a stream of a kind. The error is that of Kind.Check.
func New[T any](source *Source, kind Kind[T], opts ...Option) (*Stream[T], error) {
	codec, err := kind.compile()
	if err != nil {
		return nil, err
	}
	o := makeOptions(kind.String(), opts)
	s := &Stream[T]{linger: o.linger, onDemand: o.onDemand}
	s.config = reflector.Config[*T]{
		Name: o.name, Resource: kind.gvr, Custom: kind.custom, Kind: kind.name,
		Namespace: kind.namespace, Labels: kind.labels, Fields: kind.fields, Codec: reflector.NewCodec(codec),
		Connect: source.connect, Definitions: definitions{source}, Plan: source.plan, Memory: source.memory,
		Logger: o.log, Conditions: conditions.New(o.log, o.health),
	}
	s.base = base[T]{use: s.use, name: o.name}
	return s, nil
}

// use starts the stream with its first user.
func (s *Stream[T]) use() (*changelog.Log[*T], func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		closed := changelog.New[*T](conditions.New(s.config.Logger, nil))
		closed.Close()
		return closed, func() {}
	}
	if s.stop != nil {
		s.stop.Stop()
		s.stop = nil
	}
	if s.running == nil {
		s.running = reflector.Start(s.config, s.last)
	}
	s.users++
	return s.running.Changes(), sync.OnceFunc(s.release)
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

// end stops the reflector, if it runs, and drops its objects. The caller has the
// lock.
func (s *Stream[T]) end() {
	if s.stop != nil {
		s.stop.Stop()
		s.stop = nil
	}
	if s.running != nil {
		s.running.Stop()
		s.last = s.running.Done()
		s.running = nil
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

// reflector is the one that runs, nil if none does.
func (s *Stream[T]) reflector() *reflector.Reflector[*T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Relist implements Resource.
func (s *Stream[T]) Relist(ctx context.Context) error {
	_, release := s.use()
	defer release()
	defer health.ReportBlocked(ctx, s.name, "a list as of now has not come yet")()
	if r := s.reflector(); r != nil {
		return r.Relist(ctx)
	}
	return fmt.Errorf("refreshing %s: %w", s.name, ErrClosed)
}

// WaitForFresh implements Resource.
func (s *Stream[T]) WaitForFresh(ctx context.Context) error {
	changes, release := s.use()
	defer release()
	defer health.ReportBlocked(ctx, s.name, "it is not known yet how far the server is")()
	if err := changes.AwaitRevision(ctx, 0); err != nil {
		return err
	}
	r := s.reflector()
	if r == nil {
		return fmt.Errorf("confirming %s: %w", s.name, ErrClosed)
	}
	err := r.WaitForFresh(ctx)
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) {
		return err
	}
	return s.Relist(ctx)
}

// State implements Resource.
func (s *Stream[T]) State() State {
	s.mu.Lock()
	state := State{Name: s.name, Users: s.users}
	r := s.running
	s.mu.Unlock()
	if r == nil {
		return state
	}
	state.Running = true
	state.ConnectedSince = r.ConnectedSince()
	state.add(r.Changes().State())
	return state
}
