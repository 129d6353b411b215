// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"iter"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Resource is a typed stream of the objects of one kind, shared by all who
// subscribe to it. [Stream] is the one that watches an API server, [Local] one
// that the program feeds. These are its promises, each under the name of the
// test that holds every implementation to it (package streamtest).
//
// What a subscriber is given:
//
//   - InitialStateThenSync: one Upsert per object that is there when the
//     subscription begins, then one Sync.
//   - SyncOfEmptyState: Sync alone, if there is no object.
//   - SyncWaitsForTheServer: no Sync before the initial state has come from the
//     server.
//   - LateSubscriberGetsEverything: a subscriber that comes late gets the same as
//     one that comes early.
//   - UpsertOnCreate, UpsertOnUpdate: an Upsert with the new state follows a
//     change.
//   - DeleteCarriesLastObject: a Delete carries the last state that was kept.
//   - DeleteOnlyAfterUpsert: an object that comes and goes while the subscriber is
//     busy leaves no trace.
//   - RecreatedWhileBusyIsOneUpsert: an object that goes and comes again while the
//     subscriber is busy is one Upsert of the new object.
//   - CoalescesToNewest: many changes of a key while the subscriber is busy are one
//     event with the newest state.
//   - RevisionOrder: keys come in the order of their last change, except those that
//     were in flight or are retried.
//   - UnchangedIsSilent: a state that is known already, as after a new list, is no
//     event.
//   - ChangesFirst: with the option of this name changes come before what is left
//     of the initial state.
//
// How it is given:
//
//   - OneInFlightPerKey: a key that was delivered does not come again before Done.
//   - ChangeWhileInFlightComesAfterDone: a change of a key in flight is delivered
//     after its Done.
//   - OtherKeysFlow: a key in flight does not hold up other keys.
//   - WorkersShareASubscription: any number of goroutines may receive from one
//     channel; each event goes to one of them.
//   - SubscribersAreIndependent: a subscriber that is slow, or stopped, does not
//     hold up others and costs no memory.
//   - BatchesCarryTheSame: Batches delivers the same as Events, several keys at a
//     time, none twice in a batch.
//   - BatchesHoldAtMostMax: a batch has at most max events.
//   - BatchesWait: with a wait, a batch that could be fuller is held back so long.
//
// What failures do:
//
//   - RetryUntilDone: a key that is Done with an error comes again, after delays
//     that grow, until it is Done without.
//   - RetryCarriesNewest: a retry carries the newest state.
//   - ChangeOverridesBackoff: a change of a key that waits for its retry comes at
//     once.
//   - DeleteOverridesRetry: an object that is deleted while its Upsert waits for
//     its retry comes as a Delete.
//   - FailedDeleteIsRetried: a Delete that is Done with an error comes again, and
//     as an Upsert if the object was created anew.
//   - FailedSyncIsRetried: so does a Sync.
//   - GiveUpWaitsForAChange: a key that is given up comes again when it changes.
//   - StopEndsTheSubscription: a policy that says Stop closes the channel.
//   - SecondDoneIsIgnored: only the first Done of an event counts.
//   - OverdueKeyDegradesHealth: a key that is in flight too long degrades the
//     stream's health under the subscriber's name, until it is Done.
//
// How it ends:
//
//   - ContextEndsTheSubscription: the channel is closed when the context ends.
//   - LeavingTheLoopEndsTheSubscription: so is a loop over batches that is left.
//   - CloseEndsEverything: a closed stream ends its subscriptions and refuses new
//     ones.
//
// What the store shows:
//
//   - StoreIsComplete: a store is handed out when the initial state is complete,
//     and not before.
//   - StoreShowsNewest: it shows what subscribers are told, no later than they are
//     told.
//   - StoreReadsAreConsistent: an iteration shows one revision, whatever is written
//     meanwhile.
//   - WaitForReadsOwnWrites: WaitFor returns when the store shows a write.
//   - ReachWaitsForTheRevision: so does Reach, whichever object was written.
//   - IndexFollowsChanges: an index finds what its key function says of the state
//     now, however late it was first used.
//   - IndexGoesWithItsLastUser: an index is dropped with the last store handle
//     that used it.
//
// What it says of itself:
//
//   - StateTellsSubscribers: State names the subscribers and what each has pending
//     and in flight.
//
// And of streams from a server:
//
//   - UnusedCostsNothing: a stream that nobody uses makes no request.
//   - RunsWhileUsed: it starts with its first user and ends after its last.
//   - LingerSparesTheList: a user that comes back soon costs no request.
//   - MissedDeletesAreDelivered: objects that were deleted while the watch was down
//     come as Deletes.
//   - GoesOnAfterACut: a watch that is cut goes on without a new list.
//   - ExpiredRevisionRelists: a revision that the server has forgotten costs a new
//     list, and no events for objects that did not change.
//   - ServerAwayIsWaitedFor: a server that is away is waited for, and health says
//     so.
//   - RefreshShowsWhatWasWritten: Refresh returns when all is shown that was
//     written before, however far the watch has fallen behind.
//   - ConfirmCostsNoList: Confirm does so too, without a request for the initial
//     state.
//   - SelectorsRestrict: an object that a selector does not match does not exist.
type Resource[T any] interface {
	// Events subscribes. The channel has no buffer and is closed when ctx ends,
	// the stream is closed or the retry policy says Stop; events that are in
	// flight then are void. Every event wants a Done.
	Events(ctx context.Context, opts ...SubscribeOption) <-chan Event[T]

	// Batches subscribes when the loop begins, and delivers up to max events at a
	// time; with a positive wait it lets a batch that is not full fill up so
	// long. Every event wants a Done, or the batch one for all. The subscription
	// ends with the loop: by leaving it, or as Events does.
	Batches(ctx context.Context, max int, wait time.Duration, opts ...SubscribeOption) iter.Seq[Batch[T]]

	// Store returns a handle to the kept state once that is complete. The handle
	// counts as a use of the stream until ctx ends. The error is that of ctx, with
	// what keeps the stream from being complete, or ErrClosed.
	Store(ctx context.Context) (*Store[T], error)

	// Reach returns once the stream shows all changes up to a revision, which is
	// that of an object of this stream. The error is that of ctx, or ErrClosed.
	Reach(ctx context.Context, revision slim.Revision) error

	// Refresh returns once the stream shows all that was written before the call,
	// by whomever. It costs a new list, from which subscribers get what they have
	// not seen yet. Where the revision is known, Reach costs nothing.
	Refresh(ctx context.Context) error

	// Confirm is Refresh without a list: it asks the server how far it is, and
	// waits for the watch to say that it is as far. It takes a few seconds.
	Confirm(ctx context.Context) error

	// State says what the stream is doing. It costs no requests.
	State() State
}
