// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/skep-operator/skep/resources/dryrun"
)

// lagging is a stream that is fresh after some attempts have failed, and when its channel is closed.
type lagging struct {
	fails int
	fresh chan struct{}
}

func (l *lagging) WaitForFresh(ctx context.Context) error {
	if l.fails--; l.fails >= 0 {
		return errors.New("no answer")
	}
	select {
	case <-l.fresh:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Fresh
		first, second := &lagging{fails: 2, fresh: make(chan struct{})}, &lagging{fresh: make(chan struct{})}
		done := make(chan bool, 1)
		go func() { done <- f.Await(t.Context(), Deps{}, first, second) }()
		close(first.fresh)
		synctest.Wait()
		if f.Is() {
			t.Error("fresh before the second stream is")
		}
		close(second.fresh)
		if !<-done || !f.Is() {
			t.Error("both streams are fresh")
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var ended, planned Fresh
		if ended.Await(ctx, Deps{}, &lagging{}) || ended.Is() {
			t.Error("fresh when the term has ended")
		}
		if !planned.Await(t.Context(), Deps{Plan: &dryrun.Plan{}}, &lagging{}) || !planned.Is() {
			t.Error("a dry run waits")
		}
	})
}
