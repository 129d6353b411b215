// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ChangeKind says what a [Change] is.
type ChangeKind uint8

const (
	// Upsert: Object is the newest state of Key.
	Upsert ChangeKind = iota + 1
	// Delete: Key is gone, Object is its last state.
	Delete
)

// String returns the kind in lower case.
func (k ChangeKind) String() string {
	switch k {
	case Upsert:
		return "upsert"
	case Delete:
		return "delete"
	}
	return "unknown"
}

// Change is the newest state of a key that has changed since the subscriber got
// it last. It is a value and may be kept.
type Change[T any] struct {
	Kind ChangeKind
	Key  slim.Key
	// Object is shared with the store and all subscribers: read it, never
	// change it. It stays valid as long as it is referenced.
	Object *T
}

// Batch is what one turn of a loop over Changes gets.
type Batch[T any] struct {
	// Changes has at most one element per key, in the order of the changes. The
	// next turn of the loop reuses the slice; its elements may be kept.
	Changes []Change[T]
	// Synced is set once per loop: with this batch the initial state is complete.
	// Changes may be empty then.
	Synced bool
	// GapUntil is 0 but with the option [ReportGaps]. With that it is not 0 where
	// objects may have come and gone without a change: all that is left of what was
	// written up to this revision has been given. Changes may be empty then.
	GapUntil slim.Revision
}
