// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"github.com/skep-operator/skep/resources/stream/slim"
)

// EventKind says what an [Event] is about.
type EventKind uint8

const (
	// Upsert: Object is the newest state of Key.
	Upsert EventKind = iota + 1
	// Delete: Key is gone, Object is its last state.
	Delete
	// Sync: the state that was there when the subscription began has been
	// delivered. Key and Object are empty.
	Sync
)

// String returns the kind in lower case.
func (k EventKind) String() string {
	switch k {
	case Upsert:
		return "upsert"
	case Delete:
		return "delete"
	case Sync:
		return "sync"
	}
	return "unknown"
}

// Event is one thing to do for a subscriber. It is a value: copy it, pass it to
// a worker, call Done on any copy.
//
// A zero sub (an Event made by hand, as tests of pure logic do) makes Done a
// no-op.
type Event[T any] struct {
	Kind EventKind
	Key  slim.Key
	// Object is shared with the store and all subscribers: read it, never
	// change it. It stays valid as long as it is referenced.
	Object *T

	sub  *subscription[T]
	node *node[T]
	id   uint64
}

// Done ends the work on the event: until then no other event of its key is
// delivered to the subscription. With an error the key comes again, as the
// subscription's [RetryPolicy] says. Done must be called exactly once, from any
// goroutine; a second call has no effect.
func (e Event[T]) Done(err error) {
	if e.sub == nil {
		return
	}
	e.sub.finish(e, err)
}

// Batch is a list of events with at most one per key. The slice is reused when
// the loop over Batches goes on; its events are values that may be kept.
type Batch[T any] []Event[T]

// Done calls Done on all events of the batch, at the price of one.
func (b Batch[T]) Done(err error) {
	if len(b) == 0 || b[0].sub == nil {
		return
	}
	s := b[0].sub
	if err != nil {
		for _, e := range b {
			s.finish(e, err)
		}
		return
	}
	s.changes.mu.Lock()
	for _, e := range b {
		s.settle(e, GiveUp())
	}
	s.changes.unlockAndReport()
}
