// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"iter"
	"strconv"
)

// Client is a module's way to etcd. It is safe for concurrent use.
//
// Reads and writes take what they need of the rate, wait for a connection, and
// fail when their context ends or after half a minute. Their errors name the
// operation, the key, the endpoints and the user. Writes fail with
// k8s.ErrFenced once the term is over, with k8s.ErrReadOnly where there is no
// term, and need a cause in their context (k8s.WithCause).
type Client interface {
	// Get reads a key. It returns nil for one that does not exist.
	Get(ctx context.Context, key string) (*Entry, error)
	// List reads all keys that begin with prefix, by name, as of one revision.
	// A prefix that stands for a folder ends with a slash.
	List(ctx context.Context, prefix string, opts ...ListOption) (Listing, error)
	// Watch yields the keys that begin with prefix and then their changes,
	// until ctx ends or the loop is left:
	//
	//   - Events of one key come in the order of their revisions. While the
	//     consumer is busy they wait; none is dropped.
	//   - After the first complete listing one Synced event comes.
	//   - Over a gap (compaction, data restored) keys are listed again: what
	//     changed comes as Upsert, what is gone as Delete.
	//
	// Trouble is logged once and waited out.
	Watch(ctx context.Context, prefix string) iter.Seq[Event]
	// Write makes the writes, all or none where there are several. A failed one
	// may have been done all the same: a caller that still wants it repeats it.
	Write(ctx context.Context, writes ...Write) error
	// WriteIf makes the writes if all guards hold at that moment, and reports
	// whether they did. It is not repeated where no answer comes within seconds: a
	// caller that still wants it after a failure reads first what became of it.
	WriteIf(ctx context.Context, guards []Guard, writes ...Write) (bool, error)
	// Ensure has a key hold a value on a lease of this process. It writes only
	// if that is not so, and reports whether it wrote.
	Ensure(ctx context.Context, key string, value []byte) (written bool, err error)
	// LeaseAlive reports whether a lease exists.
	LeaseAlive(ctx context.Context, id LeaseID) (bool, error)
	// AwaitConnected returns once etcd was reached and took a write for the first
	// time. The error is that of ctx, or says that the connection is closed.
	AwaitConnected(ctx context.Context) error
	// Status is the outcome of the last check.
	Status() Status
}

// LeaseID is the id of a lease; 0 is none.
type LeaseID int64

// String is the id as it stands in the names of locks: lower-case hex.
func (id LeaseID) String() string { return strconv.FormatInt(int64(id), 16) }

// Entry is a key as it was read.
type Entry struct {
	Key            string
	Value          []byte
	CreateRevision int64
	ModRevision    int64
	Lease          LeaseID
}

// Listing is the keys of a prefix as of one revision.
type Listing struct {
	Revision int64
	Entries  []Entry // by key
}

// ListOption changes what List reads.
type ListOption func(*listOptions)

type listOptions struct{ keysOnly bool }

// KeysOnly leaves the values out.
func KeysOnly() ListOption { return func(o *listOptions) { o.keysOnly = true } }

// EventKind says what an event tells.
type EventKind int

const (
	// Upsert: a key was created or changed; the entry is its new state.
	Upsert EventKind = iota
	// Delete: a key is gone; of the entry only the key is set, and as
	// ModRevision the revision at which it was found gone.
	Delete
	// Synced: the first listing is complete. It has no entry.
	Synced
)

func (k EventKind) String() string { return [...]string{"upsert", "delete", "synced"}[k] }

// Event is a change under a watched prefix.
type Event struct {
	Kind EventKind
	Entry
}
