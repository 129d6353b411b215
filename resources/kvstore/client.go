// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"iter"
	"strconv"
)

// Client is a module's etcd client. It is safe for concurrent use.
//
// Reads and writes wait for the rate limit and the connection, and fail when their
// context ends or after 30 seconds; of a listing each page has them. Their errors name the operation, the key, the
// endpoints and the user. Writes fail with leading.ErrFenced once the term has ended and
// with k8s.ErrReadOnly outside a term, and need a cause in their context
// (k8s.WithCause).
type Client interface {
	// Get reads a key. It returns nil if the key does not exist.
	Get(ctx context.Context, key string) (*Entry, error)
	// List reads all keys with a prefix, ordered by name, at one revision. See
	// [Folder] for prefixes that end at a segment.
	List(ctx context.Context, prefix string, opts ...ListOption) (Listing, error)
	// Watch yields the keys with a prefix and then their changes, until ctx ends or
	// the loop is left:
	//
	//   - Events of one key are ordered by revision. None is dropped while the
	//     consumer is busy.
	//   - One Synced event follows the first complete listing.
	//   - After a gap (compaction, restore) keys are listed again: changed keys
	//     yield Upsert, missing ones Delete.
	//
	// Failures are logged once and retried.
	Watch(ctx context.Context, prefix string) iter.Seq[Event]
	// Write makes the writes, several of them in one transaction. A write that
	// failed may have been applied: the caller repeats it if it is still wanted.
	Write(ctx context.Context, writes ...Write) error
	// WriteIf makes the writes in a transaction if all guards hold, and reports
	// whether they did. It is not repeated when unanswered: after an error the
	// caller reads the keys before it tries again.
	WriteIf(ctx context.Context, guards []Guard, writes ...Write) (bool, error)
	// RemoveEach deletes each key whose own guards hold, and reports which did. It takes as few requests as etcd's limits
	// allow; the removals are independent of each other. As WriteIf, it is not repeated when unanswered. An error leaves
	// out the removals that are not known to be made; where none is left out, it names those that etcd takes in no request,
	// which are not made, and all others were tried.
	RemoveEach(ctx context.Context, all []Removal) (removed []bool, err error)
	// Ensure makes a key hold a value on a lease of this process. It writes only
	// if needed, and reports whether it wrote.
	Ensure(ctx context.Context, key string, value []byte) (written bool, err error)
	// LeaseAlive reports whether a lease exists.
	LeaseAlive(ctx context.Context, id LeaseID) (bool, error)
	// AwaitConnected waits until etcd has accepted a write for the first time. It
	// fails when ctx ends or the connection is closed.
	AwaitConnected(ctx context.Context) error
	// Status returns the result of the last health check.
	Status() Status
}

// LeaseID is the id of a lease; 0 is none.
type LeaseID int64

// String returns the id in lower-case hex, as in the names of locks.
func (id LeaseID) String() string { return strconv.FormatInt(int64(id), 16) }

// Entry is a key and its value as read.
type Entry struct {
	Key            string
	Value          []byte
	CreateRevision int64
	ModRevision    int64
	Lease          LeaseID
	// IsLarge says that the value is larger than was asked for, and is not kept, or that of the key the beginning is kept alone.
	IsLarge bool
}

// Listing is the keys of a prefix at one revision.
type Listing struct {
	Revision int64
	Entries  []Entry // by key
}

// ListOption changes what List reads.
type ListOption func(*listOptions)

type listOptions struct {
	keysOnly bool
	most     int // bytes of a key or a value, 0 for any number
	long     int // bytes of all entries that are kept and have more than longEntry
}

// KeysOnly omits the values.
func KeysOnly() ListOption { return func(o *listOptions) { o.keysOnly = true } }

// UpTo omits the values that have more bytes, and cuts the keys that have 1,024 more; and so it does once entries of more than 4 KiB have 16 MiB together.
// A listing of what others write has a bounded size then (KV-O11).
func UpTo(most int) ListOption { return func(o *listOptions) { o.most = most } }

// LongestLabels is how many bytes of the label string of an identity are read, and of the keys that it is in: one agent may write any number of
// keys of a megabyte.
const LongestLabels = 64 << 10

// EventKind is the kind of an event.
type EventKind int

const (
	// Upsert: a key was created or changed; the entry is its new state.
	Upsert EventKind = iota
	// Delete: a key was deleted. The entry has the key and, as ModRevision, the
	// revision at which it was found deleted.
	Delete
	// Synced: the first listing is complete. The entry is empty.
	Synced
)

func (k EventKind) String() string { return [...]string{"upsert", "delete", "synced"}[k] }

// Event is a change under a watched prefix.
type Event struct {
	Kind EventKind
	Entry
}
