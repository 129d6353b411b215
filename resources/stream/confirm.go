// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// An API server tells a watch how far it has come about once a minute, and once
// more two seconds before the watch ends. So a watch that ends soon is told soon.
const (
	confirmWatch = int64(3) // seconds
	// confirmLimit is for servers that do not tell.
	confirmLimit = 15 * time.Second
)

// confirms are the calls of Confirm that a run has not served yet.
type confirms struct {
	mu      sync.Mutex
	calls   int
	current *body // of the watch that is being read
	asked   *body // the one that was ended to be told sooner, or was short anyway
}

// begin makes watches short until end is called.
func (c *confirms) begin() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.calls == 1 && c.current != nil {
		c.asked = c.current
		c.current.cancel(nil)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls--
	}
}

func (c *confirms) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls > 0
}

// opened notes the watch that is being read. One that was opened as a long one
// while a call came is ended, too.
func (c *confirms) opened(b *body, short bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = b
	if short || c.calls > 0 {
		c.asked = b
	}
	if !short && c.calls > 0 {
		b.cancel(nil)
	}
}

// ended reports whether the end of a watch was wanted.
func (c *confirms) ended(b *body) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == b {
		c.current = nil
	}
	return c.asked == b
}

// Confirm implements Resource.
func (s *Stream[T]) Confirm(ctx context.Context) error {
	c, release := s.use()
	defer release()
	defer health.Waiting(ctx, s.name, "it is not known yet how far the server is")()
	if err := c.await(ctx, nobody, 0); err != nil {
		return err
	}
	s.mu.Lock()
	r := s.run
	s.mu.Unlock()
	if r == nil {
		return fmt.Errorf("confirming %s: %w", s.name, ErrClosed)
	}
	limited, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	err := r.confirm(limited)
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) {
		return err
	}
	return s.Refresh(ctx)
}

func (r *run[T]) confirm(ctx context.Context) error {
	seen := r.changes.seen()
	now, err := r.serverRevision(ctx)
	if err != nil {
		return err
	}
	if now < seen {
		return fmt.Errorf("confirming %s: the server is at resourceVersion %s, and has told of %s", r.name, now, seen)
	}
	defer r.confirms.begin()()
	return r.changes.await(ctx, nobody, now)
}

// serverRevision is the revision of the server. It asks for an object that is
// not there: the answer is empty, and up to date.
func (lw *listerWatcher[T]) serverRevision(ctx context.Context) (slim.Revision, error) {
	for {
		body, err := lw.requestOf(ctx, metav1.ListOptions{}, "metadata.name=none")
		if err == nil {
			var meta metav1.ListMeta
			body.limit(lw.timing.silence)
			meta, err = lw.newDecoder().list(body, func(runtime.Object) {})
			body.Close()
			if err == nil {
				return slim.ParseRevision(meta.ResourceVersion)
			}
			lw.pace.fail(err)
		}
		if final(err) || ctx.Err() != nil {
			return 0, err
		}
	}
}
