// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"fmt"
	"iter"

	"github.com/skep-operator/skep/resources/stream/internal/changelog"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// Resource is a typed stream of the objects of one kind, shared by all who
// subscribe to it. [Stream] is the one that watches an API server, [Local] one
// that the program feeds. These are its promises, each under the name of the
// test that holds every implementation to it (package streamtest).
//
// What a loop over Changes gets:
//
//   - InitialStateThenSync: one Upsert per object that is there when the loop
//     begins, then the sync mark.
//   - SyncOfEmptyState: the sync mark alone, if there is no object.
//   - SyncWaitsForTheServer: no sync mark before the initial state has come from
//     the server.
//   - SyncedOnce: one batch has the sync mark, the one that completes the initial
//     state.
//   - LateSubscriberGetsEverything: a subscriber that comes late gets the same as
//     one that comes early.
//   - UpsertOnCreate, UpsertOnUpdate: an Upsert with the new state follows a
//     change.
//   - DeleteCarriesLastObject: a Delete carries the last state that was kept.
//   - DeleteOnlyAfterUpsert: an object that comes and goes while the subscriber is
//     busy leaves no trace.
//   - GapsAreReported: with the option ReportGaps an empty batch tells that, and of a
//     new list.
//   - RecreatedWhileBusyIsOneUpsert: an object that goes and comes again while the
//     subscriber is busy is one Upsert of the new object.
//   - CoalescesToNewest: many changes of a key while the subscriber is busy are one
//     change with the newest state.
//   - ChangeWhileBusyComesNext: a change of a key of the batch that the subscriber
//     works on is in the next batch.
//   - RevisionOrder: keys come in the order of their last change.
//   - UnchangedIsSilent: a state that is known already, as after a new list, is no
//     change.
//   - NewestFirst: with the option of this name changes come before what is left
//     of the initial state.
//   - BatchSizeLimits: a batch has at most as many changes as BatchSize says.
//   - SubscribersAreIndependent: a subscriber that is slow, or stopped, does not
//     hold up others and costs no memory.
//
// How a loop ends:
//
//   - ContextEndsTheSubscription: with its context.
//   - LeavingTheLoopEndsTheSubscription: by leaving it.
//   - CloseEndsEverything: with the stream. A closed stream refuses new
//     subscriptions.
//
// What the store shows:
//
//   - StoreIsComplete: a store is handed out when the initial state is complete,
//     and not before.
//   - StoreShowsNewest: it shows what subscribers get, no later than they get it.
//   - StoreReadsAreConsistent: an iteration shows one revision, whatever is written
//     meanwhile.
//   - WaitForReadsOwnWrites: WaitFor returns when the store shows a write.
//   - ReachWaitsForTheRevision: so does WaitForRevision, whichever object was written.
//   - IndexFollowsChanges: an index finds what its key function says of the state
//     now, however late it was first used.
//   - IndexGoesWithItsLastUser: an index is dropped with the last store handle
//     that used it.
//
// What it says of itself:
//
//   - StateTellsSubscribers: State names the subscribers and what each has pending
//     and works on.
//
// And of streams from a server:
//
//   - UnusedCostsNothing: a stream that has no user makes no request.
//   - RunsWhileUsed: it starts with its first user and ends after its last.
//   - LingerSparesTheList: a user that comes back soon costs no request.
//   - MissedDeletesAreDelivered: objects that were deleted while the watch was down
//     come as Deletes.
//   - GoesOnAfterACut: a watch that is cut goes on without a new list.
//   - ExpiredRevisionRelists: a revision that the server has forgotten costs a new
//     list, and no events for objects that did not change.
//   - ServerAwayIsWaitedFor: a server that is away is waited for, and health says
//     so.
//   - RefreshShowsWhatWasWritten: Relist returns when all is shown that was
//     written before, however far the watch has fallen behind.
//   - WaitForFreshCostsNoList: WaitForFresh does so too, without a request for the initial
//     state.
//   - WaitForFreshSeesPastForeignWrites: nor does it where the last write of the kind is
//     of an object that a selector does not match, as long as something is written.
//   - SelectorsRestrict: an object that a selector does not match does not exist.
type Resource[T any] interface {
	// Changes subscribes when the loop begins. Each turn gets what has changed
	// since the turn before, the newest state of each key, up to BatchSize keys.
	// What is left for later turns is coalesced per key and costs no memory. The
	// subscription ends with the loop, with ctx and with the stream. The sequence
	// is for one goroutine at a time.
	Changes(ctx context.Context, opts ...ChangesOption) iter.Seq[Batch[T]]

	// Store returns a handle to the kept state once that is complete. The handle
	// counts as a use of the stream until ctx ends. The error is that of ctx, with
	// what keeps the stream from being complete, or ErrClosed.
	Store(ctx context.Context) (*Store[T], error)

	// WaitForRevision returns once the stream shows all changes up to a revision, which is
	// that of an object of this stream. The error is that of ctx, or ErrClosed.
	WaitForRevision(ctx context.Context, revision slim.Revision) error

	// Relist returns once the stream shows all writes before the call, by any writer.
	// It costs a new list, from which subscribers get what they have not received.
	// With a known revision, WaitForRevision costs nothing.
	Relist(ctx context.Context) error

	// WaitForFresh is Relist without a list: it asks the server how far it is, and
	// waits for the watch to say that it is as far. It takes a few seconds.
	WaitForFresh(ctx context.Context) error

	// State says what the stream is doing. It costs no requests.
	State() State
}

// base implements the methods of a Resource that need no more than its change list.
type base[T any] struct {
	// use returns the change list and keeps it alive until release is called.
	use  func() (changes *changelog.Log[*T], release func())
	name string
}

// ErrClosed is the error of a stream that was closed, with its process. It is not
// returned when the caller's context ends, whose error is returned then.
var ErrClosed = changelog.ErrClosed

// Changes implements Resource.
func (b base[T]) Changes(ctx context.Context, opts ...ChangesOption) iter.Seq[Batch[T]] {
	return func(yield func(Batch[T]) bool) {
		changes, release := b.use()
		defer release()
		sub := changes.Subscribe(makeChangesOptions(ctx, opts), b.reportBlocked(ctx))
		defer sub.Leave()
		var batch Batch[T]
		add := func(obj *T, deleted bool) {
			kind := Upsert
			if deleted {
				kind = Delete
			}
			batch.Changes = append(batch.Changes, Change[T]{Kind: kind, Key: slim.MetaOf(obj).Key(), Object: obj})
		}
		for sub.Wait(ctx) {
			_, batch.Synced, batch.GapUntil = sub.Drain(add)
			if (len(batch.Changes) > 0 || batch.Synced || batch.GapUntil > 0) && !yield(batch) {
				return
			}
			clear(batch.Changes)
			batch.Changes = batch.Changes[:0]
		}
	}
}

// reportBlocked has health report that the caller waits for the initial state.
func (b base[T]) reportBlocked(ctx context.Context) (complete func()) {
	return health.ReportBlocked(ctx, b.name, "the initial state is not complete")
}

// Store implements Resource.
func (b base[T]) Store(ctx context.Context) (*Store[T], error) {
	changes, release := b.use()
	defer b.reportBlocked(ctx)()
	if err := changes.AwaitSync(ctx); err != nil {
		release()
		return nil, fmt.Errorf("store of %s: %w", b.name, err)
	}
	s := &Store[T]{changes: changes, indexes: changes.Indexes()}
	context.AfterFunc(ctx, func() {
		s.indexes.Release()
		release()
	})
	return s, nil
}

// WaitForRevision implements Resource.
func (b base[T]) WaitForRevision(ctx context.Context, revision slim.Revision) error {
	changes, release := b.use()
	defer release()
	defer health.ReportBlocked(ctx, b.name, fmt.Sprintf("resourceVersion %s is not shown yet", revision))()
	return changes.AwaitRevision(ctx, revision)
}
