// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/stream"
)

// Properties are the promises of stream.Resource, in the order in which they
// stand there.
func Properties() []Property {
	var (
		anywhere = Faculties{}
		server   = Faculties{Server: true}
		faults   = Faculties{Server: true, Faults: true}
	)
	property := func(name string, needs Faculties, run func(c *Check)) Property {
		return Property{name, needs, func(_ *testing.T, c *Check) { run(c) }}
	}
	return []Property{
		property("InitialStateThenSync", anywhere, initialStateThenSync),
		property("SyncOfEmptyState", anywhere, syncOfEmptyState),
		property("SyncWaitsForTheServer", Faculties{Faults: true}, syncWaitsForTheServer),
		property("SyncedOnce", anywhere, syncedOnce),
		property("LateSubscriberGetsEverything", anywhere, lateSubscriberGetsEverything),
		property("UpsertOnCreate", anywhere, upsertOnCreate),
		property("UpsertOnUpdate", anywhere, upsertOnUpdate),
		property("DeleteCarriesLastObject", anywhere, deleteCarriesLastObject),
		property("DeleteOnlyAfterUpsert", anywhere, deleteOnlyAfterUpsert),
		property("GapsAreReported", anywhere, gapsAreReported),
		property("RecreatedWhileBusyIsOneUpsert", anywhere, recreatedWhileBusyIsOneUpsert),
		property("CoalescesToNewest", anywhere, coalescesToNewest),
		property("ChangeWhileBusyComesNext", anywhere, changeWhileBusyComesNext),
		property("RevisionOrder", anywhere, revisionOrder),
		property("UnchangedIsSilent", server, unchangedIsSilent),
		property("NewestFirst", anywhere, newestFirst),
		property("BatchSizeLimits", anywhere, batchSizeLimits),
		property("SubscribersAreIndependent", anywhere, subscribersAreIndependent),

		property("ContextEndsTheSubscription", anywhere, contextEndsTheSubscription),
		property("LeavingTheLoopEndsTheSubscription", anywhere, leavingTheLoopEndsTheSubscription),
		property("CloseEndsEverything", anywhere, closeEndsEverything),

		property("StoreIsComplete", anywhere, storeIsComplete),
		property("StoreShowsNewest", anywhere, storeShowsNewest),
		property("StoreReadsAreConsistent", anywhere, storeReadsAreConsistent),
		property("WaitForReadsOwnWrites", anywhere, waitForReadsOwnWrites),
		property("ReachWaitsForTheRevision", anywhere, reachWaitsForTheRevision),
		property("IndexFollowsChanges", anywhere, indexFollowsChanges),
		property("IndexGoesWithItsLastUser", anywhere, indexGoesWithItsLastUser),

		property("StateTellsSubscribers", anywhere, stateTellsSubscribers),

		property("UnusedCostsNothing", server, unusedCostsNothing),
		property("RunsWhileUsed", server, runsWhileUsed),
		property("LingerSparesTheList", server, lingerSparesTheList),
		property("MissedDeletesAreDelivered", server, missedDeletesAreDelivered),
		property("GoesOnAfterACut", server, goesOnAfterACut),
		property("ExpiredRevisionRelists", server, expiredRevisionRelists),
		property("ServerAwayIsWaitedFor", faults, serverAwayIsWaitedFor),
		property("RefreshShowsWhatWasWritten", server, refreshShowsWhatWasWritten),
		property("WaitForFreshCostsNoList", faults, waitForFreshCostsNoList), // its requests have no order to be recorded in
		property("WaitForFreshSeesPastForeignWrites", faults, waitForFreshSeesPastForeignWrites),
		property("SelectorsRestrict", server, selectorsRestrict),
	}
}

func initialStateThenSync(c *Check) {
	c.start()
	c.Put("a", "1")
	c.Put("b", "1")
	c.Put("c", "1")
	s := c.subscribe()
	s.expectAnyOrder("upsert a=1", "upsert b=1", "upsert c=1")
	s.expect("sync")
	s.nothing()
}

func syncOfEmptyState(c *Check) {
	c.start()
	s := c.subscribe()
	s.expect("sync")
	s.nothing()
}

func syncWaitsForTheServer(c *Check) {
	c.start()
	release := c.Hold()
	s := c.subscribe()
	s.nothing()
	if c.Resource.State().Synced {
		c.t.Error("synced before the server has answered")
	}
	release()
	s.expect("sync")
}

func syncedOnce(c *Check) {
	c.start()
	w := c.watch()
	w.take("sync")
	c.Put("a", "1")
	w.take("upsert a=1")
	late := c.watch(stream.BatchSize(1))
	late.take("upsert a=1", "sync")
	c.Put("b", "1")
	late.take("upsert b=1")
	w.take("upsert b=1")
}

func lateSubscriberGetsEverything(c *Check) {
	c.start()
	c.Put("a", "1")
	early := c.subscribe()
	early.expect("upsert a=1", "sync")
	c.Put("b", "1")
	early.expect("upsert b=1")
	c.Put("a", "2")
	early.expect("upsert a=2")
	late := c.subscribe()
	late.expect("upsert b=1", "upsert a=2", "sync")
	late.nothing()
	early.nothing()
}

func upsertOnCreate(c *Check) {
	c.start()
	s := c.subscribe()
	s.expect("sync")
	c.Put("a", "1")
	e := s.expect("upsert a=1")[0]
	if e.Key != c.key("a") || e.Object.Key() != e.Key || e.Object.UID.IsZero() || e.Object.ResourceVersion == 0 {
		c.t.Errorf("incomplete object: %+v under %v", e.Object, e.Key)
	}
	s.nothing()
}

func upsertOnUpdate(c *Check) {
	c.start()
	c.Put("a", "1")
	s := c.subscribe()
	first := s.expect("upsert a=1", "sync")
	c.Put("a", "2")
	e := s.expect("upsert a=2")[0]
	if was := first[0].Object; was.Value() != "1" {
		c.t.Errorf("the object of the change before has changed to %q", was.Value())
	} else if e.Object.UID != was.UID || e.Object.ResourceVersion <= was.ResourceVersion {
		c.t.Errorf("%+v is no later state of %+v", e.Object.Meta, was.Meta)
	}
	s.nothing()
}

func deleteCarriesLastObject(c *Check) {
	c.start()
	c.Put("a", "1")
	s := c.subscribe()
	s.expect("upsert a=1", "sync")
	c.Put("a", "2")
	s.expect("upsert a=2")
	c.Delete("a")
	s.expect("delete a=2")
	s.nothing()
}

func deleteOnlyAfterUpsert(c *Check) {
	c.start()
	store := c.store()
	w := c.watch()
	w.take("sync")
	c.Put("a", "1")
	c.shows(store, "a", "1")
	c.Delete("a")
	c.shows(store, "a", "")
	c.Put("z", "1")
	c.shows(store, "z", "1")
	w.take("upsert z=1")
}

func gapsAreReported(c *Check) {
	c.start()
	store := c.store()
	c.Put("z", "1")
	c.shows(store, "z", "1")
	w := c.watch(stream.ReportGaps())
	w.take("upsert z=1", "sync")
	created := c.Put("a", "1")
	c.shows(store, "a", "1")
	c.Delete("a")
	c.shows(store, "a", "")
	w.takeGap(created)
	c.Put("z", "2")
	w.take("upsert z=2")
	if c.Missed == nil {
		return
	}
	c.Missed(func() {
		c.Put("b", "1")
		c.Delete("b")
	})
	c.Put("y", "1")
	c.shows(store, "y", "1")
	w.take("upsert y=1", "gap")
}

func recreatedWhileBusyIsOneUpsert(c *Check) {
	c.start()
	store := c.store()
	c.Put("a", "1")
	c.shows(store, "a", "1")
	w := c.watch()
	before := w.take("upsert a=1", "sync")
	c.Delete("a")
	c.shows(store, "a", "")
	c.Put("a", "2")
	c.shows(store, "a", "2")
	after := w.take("upsert a=2")
	if before[0].Object.UID == after[0].Object.UID {
		c.t.Error("the new object has the uid of the old one")
	}
}

func coalescesToNewest(c *Check) {
	c.start()
	store := c.store()
	w := c.watch()
	w.take("sync")
	for i := range 5 {
		c.Put("a", fmt.Sprint(i))
	}
	c.Put("b", "1")
	c.shows(store, "a", "4")
	c.shows(store, "b", "1")
	w.take("upsert a=4", "upsert b=1")
}

func changeWhileBusyComesNext(c *Check) {
	c.start()
	store := c.store()
	c.Put("a", "1")
	c.Put("b", "1")
	c.shows(store, "b", "1")
	w := c.watch()
	first := w.take("upsert a=1", "upsert b=1", "sync")
	c.Put("a", "2")
	c.shows(store, "a", "2")
	c.Delete("b")
	c.shows(store, "b", "")
	c.Put("c", "1")
	c.shows(store, "c", "1")
	if got := first[0].Object.Value(); got != "1" {
		c.t.Errorf("the object of the batch before has changed to %q", got)
	}
	w.take("upsert a=2", "delete b=1", "upsert c=1")
	c.Put("a", "3")
	c.shows(store, "a", "3")
	w.take("upsert a=3")
}

func revisionOrder(c *Check) {
	c.start()
	for _, name := range []string{"d", "b", "a", "c"} {
		c.Put(name, "1")
	}
	c.Put("b", "2")
	store := c.store()
	w := c.watch()
	w.take("upsert d=1", "upsert a=1", "upsert c=1", "upsert b=2", "sync")
	c.Put("c", "2")
	c.Put("a", "2")
	c.Put("d", "2")
	c.Put("c", "3")
	c.shows(store, "c", "3")
	w.take("upsert a=2", "upsert d=2", "upsert c=3")
}

func unchangedIsSilent(c *Check) {
	c.start()
	c.Put("a", "1")
	c.Put("b", "1")
	s := c.subscribe()
	s.expectAnyOrder("upsert a=1", "upsert b=1")
	s.expect("sync")
	before := c.Requests().States()
	c.Expire()
	c.until("the stream has listed again", func() bool { return c.Requests().States() > before })
	c.Put("b", "2")
	s.expect("upsert b=2")
	s.nothing()
}

func newestFirst(c *Check) {
	c.start()
	for i := range 4 {
		c.Put(fmt.Sprintf("old-%d", i), "1")
	}
	store := c.store()
	w := c.watch(stream.NewestFirst(), stream.BatchSize(1))
	w.take("upsert old-0=1")
	c.Put("new", "1")
	c.shows(store, "new", "1")
	c.Put("old-2", "2")
	c.shows(store, "old-2", "2")
	w.take("upsert new=1")
	w.take("upsert old-2=2")
	w.take("upsert old-1=1")
	w.take("upsert old-3=1", "sync")
	c.Put("new", "2")
	w.take("upsert new=2")
}

func batchSizeLimits(c *Check) {
	c.start()
	for i := range 5 {
		c.Put(fmt.Sprint("n-", i), "1")
	}
	store := c.store()
	c.shows(store, "n-4", "1")
	w := c.watch(stream.BatchSize(2))
	w.take("upsert n-0=1", "upsert n-1=1")
	w.take("upsert n-2=1", "upsert n-3=1")
	w.take("upsert n-4=1", "sync")
}

func subscribersAreIndependent(c *Check) {
	c.start()
	slow := c.watch(stream.WithSubscriberName("slow"))
	slow.take("sync")
	s := c.subscribe()
	s.expect("sync")
	for i := range 10 {
		c.Put("a", fmt.Sprint(i))
		s.expect(fmt.Sprintf("upsert a=%d", i))
	}
	slow.take("upsert a=9")
}

func contextEndsTheSubscription(c *Check) {
	c.start()
	c.Put("a", "1")
	s := c.subscribe()
	s.expect("upsert a=1", "sync")
	s.leave()
	s.closed()
	if subs := c.Resource.State().Subscribers; len(subs) > 0 {
		c.t.Errorf("subscribers after the context: %+v", subs)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	for range c.Resource.Changes(ctx) {
		c.Put("b", "1")
		cancel() // however much there is to come
	}
}

func leavingTheLoopEndsTheSubscription(c *Check) {
	c.start()
	c.Put("a", "1")
	for range c.Resource.Changes(c.t.Context()) {
		break
	}
	if subs := c.Resource.State().Subscribers; len(subs) > 0 {
		c.t.Errorf("subscribers after the loop: %+v", subs)
	}
}

func closeEndsEverything(c *Check) {
	c.start()
	c.Put("a", "1")
	s := c.subscribe()
	s.expect("upsert a=1", "sync")
	c.Close()
	s.closed()
	c.subscribe().closed()
	if _, err := c.Resource.Store(c.t.Context()); !errors.Is(err, stream.ErrClosed) {
		c.t.Errorf("the store of a closed stream: %v, want ErrClosed", err)
	}
	c.Close()
}

func storeIsComplete(c *Check) {
	c.start()
	for i := range 20 {
		c.Put(fmt.Sprint("n-", i), "1")
	}
	store := c.store()
	if !store.Synced() || store.Len() != 20 || store.Revision() == 0 || len(store.Unreadable()) > 0 {
		c.t.Errorf("synced %v with %d objects at revision %v, unreadable %v",
			store.Synced(), store.Len(), store.Revision(), store.Unreadable())
	}
	for i := range 20 {
		if obj, ok := store.Get(c.key(fmt.Sprint("n-", i))); !ok || obj.Name != fmt.Sprint("n-", i) {
			c.t.Errorf("n-%d: %+v, %v", i, obj, ok)
		}
	}
	if _, ok := store.Get(c.key("other")); ok {
		c.t.Error("an object that is not there")
	}
}

func storeShowsNewest(c *Check) {
	c.start()
	s := c.subscribe()
	s.expect("sync")
	store := c.store()
	for i := range 5 {
		rv := c.Put("a", fmt.Sprint(i))
		e := s.expect(fmt.Sprintf("upsert a=%d", i))[0]
		if obj, ok := store.Get(e.Key); !ok || obj != e.Object || obj.ResourceVersion != rv {
			c.t.Errorf("the store has %+v, the change %+v, the server %v", obj, e.Object, rv)
		}
	}
	c.Delete("a")
	s.expect("delete a=4")
	if _, ok := store.Get(c.key("a")); ok || store.Len() != 0 {
		c.t.Errorf("the store has %d objects after the delete", store.Len())
	}
}

func storeReadsAreConsistent(c *Check) {
	c.start()
	const n = 10
	for i := range n {
		c.Put(fmt.Sprint("n-", i), "1")
	}
	store := c.store()
	seen := 0
	for obj := range store.All() {
		if seen++; seen == 1 { // in the middle of the loop everything changes
			c.Put("other", "1")
			for i := range n {
				c.Put(fmt.Sprint("n-", i), "2")
			}
			c.Delete("n-9")
			c.shows(store, "n-8", "2")
			c.shows(store, "n-9", "")
		}
		if obj.Value() != "1" {
			c.t.Errorf("%s=%s is from after the loop began", obj.Name, obj.Value())
		}
	}
	if seen != n {
		c.t.Errorf("%d objects, want %d", seen, n)
	}
}

func waitForReadsOwnWrites(c *Check) {
	c.start()
	store := c.store()
	for i := range 5 {
		rv := c.Put("a", fmt.Sprint(i))
		if err := store.WaitFor(c.t.Context(), c.key("a"), rv); err != nil {
			c.t.Fatal(err)
		}
		if obj, ok := store.Get(c.key("a")); !ok || obj.Value() != fmt.Sprint(i) {
			c.t.Fatalf("after write %d the store shows %+v", i, obj)
		}
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), c.quiet+time.Millisecond)
	defer cancel()
	if err := store.WaitFor(ctx, c.key("a"), store.Revision()+1_000_000_000); !errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("waiting for the far future: %v", err)
	}
}

func reachWaitsForTheRevision(c *Check) {
	c.start()
	store := c.store()
	for i := range 5 {
		rv := c.Put("a", fmt.Sprint(i))
		if err := c.Resource.WaitForRevision(c.t.Context(), rv); err != nil {
			c.t.Fatal(err)
		}
		if obj, ok := store.Get(c.key("a")); !ok || obj.Value() != fmt.Sprint(i) {
			c.t.Fatalf("after write %d the store shows %+v", i, obj)
		}
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), c.quiet+time.Millisecond)
	defer cancel()
	if err := c.Resource.WaitForRevision(ctx, store.Revision()+1_000_000_000); !errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("waiting for the far future: %v", err)
	}
}

var byLetter = stream.NewIndex("letter", func(t *Thing, add func(rune)) {
	for _, letter := range t.Value() {
		add(letter)
	}
})

func (c *Check) found(store *stream.Store[Thing], letter rune) string {
	names := ""
	for _, name := range []string{"a", "b", "c"} {
		for obj := range stream.ByIndex(store, byLetter, letter) {
			if obj.Name == name {
				names += name
			}
		}
	}
	if n := stream.CountByIndex(store, byLetter, letter); n != len(names) {
		c.t.Errorf("%d objects under %c, found %q", n, letter, names)
	}
	return names
}

func indexFollowsChanges(c *Check) {
	c.start()
	c.Put("a", "xy")
	c.Put("b", "yzy")
	store := c.store()
	want := func(letter rune, names string) {
		c.t.Helper()
		if got := c.found(store, letter); got != names {
			c.t.Errorf("under %c: %q, want %q", letter, got, names)
		}
	}
	want('x', "a")
	want('y', "ab")
	want('z', "b")
	c.Put("c", "x")
	c.shows(store, "c", "x")
	want('x', "ac")
	c.Put("a", "z")
	c.shows(store, "a", "z")
	want('x', "c")
	want('y', "b")
	want('z', "ab")
	c.Delete("b")
	c.shows(store, "b", "")
	want('y', "")
	want('z', "a")
	c.Put("b", "x")
	c.shows(store, "b", "x")
	want('x', "bc")
	if keys := stream.IndexKeys(store, byLetter); len(keys) != 2 {
		c.t.Errorf("keys %q, want x and z", keys)
	}
}

func indexGoesWithItsLastUser(c *Check) {
	c.start()
	c.Put("a", "x")
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	first, err := c.Resource.Store(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	second := c.store()
	indexes := func() int { return len(c.Resource.State().Indexes) }
	if n := indexes(); n != 0 {
		c.t.Errorf("%d indexes before the first use", n)
	}
	c.found(first, 'x')
	c.found(second, 'x')
	if n := indexes(); n != 1 {
		c.t.Errorf("%d indexes for two users, want 1", n)
	}
	cancel()
	c.rest()
	if n := indexes(); n != 1 {
		c.t.Errorf("%d indexes after the first of two users, want 1", n)
	}

	ctx, cancel = context.WithCancel(c.t.Context())
	defer cancel()
	third, err := c.Resource.Store(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	other := stream.NewIndex("other", func(t *Thing, add func(string)) { add(t.Name) })
	if n := stream.CountByIndex(third, other, "a"); n != 1 || indexes() != 2 {
		c.t.Errorf("%d objects by name in %d indexes", n, indexes())
	}
	cancel()
	c.until("the other index is gone", func() bool { return indexes() == 1 })
}

func stateTellsSubscribers(c *Check) {
	c.start()
	c.Put("a", "1")
	c.Put("b", "1")
	store := c.store()
	c.shows(store, "b", "1")
	w := c.watch(stream.BatchSize(2), stream.WithSubscriberName("reader"))
	w.take("upsert a=1", "upsert b=1", "sync")
	c.Put("x", "1")
	c.shows(store, "x", "1")
	state := c.Resource.State()
	if !state.Running || !state.Synced || state.Objects != 3 || state.Revision != store.Revision() || state.Users != 2 {
		c.t.Errorf("state %+v", state)
	}
	if got := c.me(); got.Name != "reader" || got.Pending != 1 || got.Processing != 2 {
		c.t.Errorf("subscriber %+v", got)
	}
	w.take("upsert x=1")
	if got := c.me(); got.Pending != 0 || got.Processing != 1 {
		c.t.Errorf("in the next batch: subscriber %+v", got)
	}
}

func unusedCostsNothing(c *Check) {
	c.start()
	c.Put("a", "1")
	c.rest()
	if n := c.Requests().All(); n != 0 {
		c.t.Errorf("%d requests of a stream that has no user", n)
	}
	if state := c.Resource.State(); state.Running || state.Objects != 0 {
		c.t.Errorf("state %+v", state)
	}
}

func runsWhileUsed(c *Check) {
	c.start(stream.WithLinger(0))
	c.Put("a", "1")
	var first int
	for round := range 3 {
		before := c.Requests().All()
		s := c.subscribe()
		other := c.subscribe()
		s.expect("upsert a=1", "sync")
		other.expect("upsert a=1", "sync")
		c.until("the watch is there", func() bool { return !c.Resource.State().ConnectedSince.IsZero() })
		if round == 0 {
			first = c.Requests().All() - before
		}
		if n := c.Requests().All() - before; n != first {
			c.t.Errorf("start %d costs %d requests, the first one %d", round, n, first)
		}
		s.leave()
		s.closed()
		if !c.Resource.State().Running {
			c.t.Error("ended while it is used")
		}
		other.leave()
		other.closed()
		c.until("the stream has ended", func() bool { return !c.Resource.State().Running })
	}
}

func lingerSparesTheList(c *Check) {
	c.start(stream.WithLinger(time.Hour))
	c.Put("a", "1")
	s := c.subscribe()
	s.expect("upsert a=1", "sync")
	before := c.Requests().All()
	s.leave()
	s.closed()
	c.Put("a", "2")
	s = c.subscribe()
	for describe(s.next()) != "upsert a=2" {
	}
	if n := c.Requests().All(); n > before+1 { // the watch itself may just have begun
		c.t.Errorf("%d requests, %d before", n, before)
	}
}

func missedDeletesAreDelivered(c *Check) {
	c.start()
	c.Put("a", "1")
	c.Put("b", "1")
	s := c.subscribe()
	s.expectAnyOrder("upsert a=1", "upsert b=1")
	s.expect("sync")
	c.Missed(func() {
		c.Delete("a")
		c.Put("b", "2")
		c.Put("c", "1")
	})
	s.expectAnyOrder("delete a=1", "upsert b=2", "upsert c=1")
	s.nothing()
}

func goesOnAfterACut(c *Check) {
	c.start()
	c.Put("a", "1")
	s := c.subscribe()
	s.expect("upsert a=1", "sync")
	c.Put("a", "2")
	s.expect("upsert a=2")
	states, all := c.Requests().States(), c.Requests().All()
	c.Cut()
	c.until("the stream watches again", func() bool { return c.Requests().All() > all })
	c.Put("a", "3")
	s.expect("upsert a=3")
	if n := c.Requests().States(); n != states {
		c.t.Errorf("%d requests for the whole state, %d before the cut", n, states)
	}
}

func expiredRevisionRelists(c *Check) {
	c.start()
	c.Put("a", "1")
	s := c.subscribe()
	s.expect("upsert a=1", "sync")
	states := c.Requests().States()
	c.Expire()
	c.until("the stream has listed again", func() bool { return c.Requests().States() > states })
	c.Put("b", "1")
	s.expect("upsert b=1")
	s.nothing()
}

func serverAwayIsWaitedFor(c *Check) {
	c.start()
	back := c.Away()
	c.Put("a", "1")
	s := c.subscribe()
	c.until("health says so", func() bool { return c.Health.Err() != nil })
	s.nothing()
	back()
	s.expect("upsert a=1", "sync")
	c.until("health is well again", func() bool { return c.Health.Err() == nil })

	back = c.Away()
	c.until("health says so again", func() bool { return c.Health.Err() != nil })
	c.Put("a", "2")
	s.nothing()
	back()
	s.expect("upsert a=2")
	c.until("health is well again", func() bool { return c.Health.Err() == nil })
}

func refreshShowsWhatWasWritten(c *Check) {
	c.start()
	c.Put("a", "1")
	s := c.subscribe()
	s.expect("upsert a=1", "sync")
	store := c.store()
	for i := range 3 {
		value := fmt.Sprint(i + 2)
		c.Put("a", value)
		if err := c.Resource.Relist(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
		if obj, ok := store.Get(c.key("a")); !ok || obj.Value() != value {
			c.t.Fatalf("after a relistCall the store shows %+v, not %s", obj, value)
		}
		s.expect("upsert a=" + value)
	}
	c.Put("a", "9")
	s.expect("upsert a=9") // the watch goes on
	s.nothing()
}

// waitForFresh asks again if the server does not tell in time how far it is, as all callers do.
func (c *Check) waitForFresh() {
	c.t.Helper()
	c.until("it is fresh", func() bool {
		err := c.Resource.WaitForFresh(c.t.Context())
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			c.t.Fatal(err)
		}
		return err == nil
	})
}

func waitForFreshCostsNoList(c *Check) {
	c.start()
	c.Put("a", "1")
	s := c.subscribe()
	s.expect("upsert a=1", "sync")
	store := c.store()
	before := c.Requests().States()
	for _, value := range []string{"2", "3"} {
		c.Put("a", value)
		c.waitForFresh()
		if obj, ok := store.Get(c.key("a")); !ok || obj.Value() != value {
			c.t.Fatalf("after WaitForFresh the store shows %+v, not %s", obj, value)
		}
		s.expect("upsert a=" + value)
	}
	if n := c.Requests().States() - before; n != 0 {
		c.t.Errorf("%d requests for the initial state", n)
	}
	c.Put("a", "99")
	s.expect("upsert a=99") // the watch goes on
	s.nothing()
}

// A server replays the foreign write to the watch that is asked for a bookmark, and has
// none beyond it until something else is written.
func waitForFreshSeesPastForeignWrites(c *Check) {
	c.start()
	c.Put("a", "yes")
	c.Resource = c.Restrict(labelKey + "=yes")
	s := c.subscribe()
	s.expect("upsert a=yes", "sync")
	c.Busy()
	before := c.Requests().States()
	for i := range 2 {
		c.Put("b", fmt.Sprint("no-", i))
		c.waitForFresh()
	}
	if n := c.Requests().States() - before; n != 0 {
		c.t.Errorf("%d requests for the initial state", n)
	}
	c.Put("c", "yes")
	s.expect("upsert c=yes") // the watch goes on
	s.nothing()
}

func selectorsRestrict(c *Check) {
	c.start()
	c.Put("a", "yes")
	c.Put("b", "no")
	c.Resource = c.Restrict(labelKey + "=yes")
	s := c.subscribe()
	s.expect("upsert a=yes", "sync")
	c.Put("c", "yes")
	s.expect("upsert c=yes")
	c.Put("d", "no")
	s.nothing()
}
