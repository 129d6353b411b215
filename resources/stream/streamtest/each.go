// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"context"
	"fmt"

	"github.com/skep-operator/skep/resources/stream"
)

// Event is a change of a resource, or its sync mark.
type Event[T any] struct {
	stream.Change[T]
	Synced bool // the mark; Change is empty
}

// Each subscribes and sends what a loop over Changes gets, one by one, the sync
// mark after the changes of its batch. The channel is closed when the loop has
// ended, which ends with ctx.
func Each[T any](ctx context.Context, r stream.Resource[T], opts ...stream.ChangesOption) <-chan Event[T] {
	events := make(chan Event[T])
	send := func(e Event[T]) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		defer close(events)
		for batch := range r.Changes(ctx, append(opts, stream.BatchSize(1))...) {
			for _, change := range batch.Changes {
				if !send(Event[T]{Change: change}) {
					return
				}
			}
			if batch.Synced && !send(Event[T]{Synced: true}) {
				return
			}
		}
	}()
	return events
}

func describe(e Event[Thing]) string {
	if e.Synced {
		return "sync"
	}
	return fmt.Sprintf("%v %s=%s", e.Kind, e.Key.Name, e.Object.Value())
}
