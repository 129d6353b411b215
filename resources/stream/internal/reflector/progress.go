// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// An API server sends a bookmark about once a minute, and two seconds before a watch
// ends. So a short watch gets one soon.
const (
	progressWatch = 3 // seconds
	// freshLimit is for servers that send no bookmarks.
	freshLimit = 15 * time.Second
)

// progress are the calls of WaitForFresh that a reflector has not served yet.
type progress struct {
	mu      sync.Mutex
	calls   int
	current *body // of the watch that is being read
	asked   *body // the one that was ended for a bookmark, or was short anyway
}

// add makes watches short until end is called.
func (c *progress) add() (end func()) {
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

func (c *progress) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls > 0
}

// opened records the watch that is being read. A long one that was opened while a
// call came is ended, too.
func (c *progress) opened(b *body, short bool) {
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

// ended reports whether the end of a watch was requested.
func (c *progress) ended(b *body) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == b {
		c.current = nil
	}
	return c.asked == b
}

// WaitForFresh returns once the watch has shown all that the server has now. It is
// an error if the server does not report that in time.
func (r *Reflector[P]) WaitForFresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freshLimit)
	defer cancel()
	seen := r.changes.Revision()
	now, err := r.serverRevision(ctx)
	if err != nil {
		return err
	}
	if now < seen {
		return fmt.Errorf("confirming %s: the server is at resourceVersion %s, behind the observed %s", r.Name, now, seen)
	}
	defer r.progress.add()()
	return r.awaitShown(ctx, now)
}

// awaitShown waits for a revision of the server. No bookmark may come where a selector
// restricts the watch, and leaves out the last write of the kind: the server takes a watch
// that it has replayed that write to for as far as its cache. Asking for the server's
// revision again, once per short watch, moves the cache beyond it as soon as anything else
// was written.
func (r *Reflector[P]) awaitShown(ctx context.Context, revision slim.Revision) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, progressWatch*time.Second)
		err := r.changes.AwaitRevision(attempt, revision)
		over := attempt.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !over {
			return err
		}
		if _, err := r.serverRevision(ctx); err != nil {
			return err
		}
	}
}

// serverRevision is the revision of the server. It lists an object that does not
// exist: the answer is empty, and up to date.
func (lw *listerWatcher[P]) serverRevision(ctx context.Context) (slim.Revision, error) {
	for {
		body, err := lw.requestFields(ctx, metav1.ListOptions{}, "metadata.name=none")
		if err == nil {
			var meta metav1.ListMeta
			body.limitIdle(lw.timing.silence)
			meta, err = lw.newDecoder().list(body, func(runtime.Object) {})
			body.Close()
			if err == nil && hasNoRevision(meta.ResourceVersion) {
				err = errNoRevision
			}
			if err == nil {
				lw.markConnected()
				return slim.ParseRevision(meta.ResourceVersion)
			}
			_ = lw.recordFailure("list", err)
		}
		if isPermanent(err) || ctx.Err() != nil {
			return 0, err
		}
	}
}
