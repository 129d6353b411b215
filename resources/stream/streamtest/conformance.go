// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/waittest"
)

// Run holds a rig to the promises of stream.Resource: one subtest per property,
// under the name that the promise has on the interface.
func Run(t *testing.T, rig Rig) {
	for _, p := range Properties() {
		t.Run(p.Name, func(t *testing.T) {
			rig.run(t, p)
		})
	}
}

// Rig is an implementation under test, and where its objects come from.
type Rig struct {
	// Open makes an empty collection and a stream of it. Everything it starts
	// ends with the test.
	Open func(t *testing.T, property string, opts ...stream.Option) *World
	// Around runs a property, in a bubble of testing/synctest if the rig can.
	// nil runs it as it is.
	Around func(t *testing.T, run func(t *testing.T))
	// Quiet is how long nothing has to happen for nothing to happen; 0 is for
	// bubbles, where time does not pass while anything can.
	Quiet time.Duration
	// Has are the faculties of the rig's worlds.
	Has Faculties
}

// Faculties are what not every rig can do. Properties that need more than a rig
// has are skipped.
type Faculties struct {
	Server bool // the stream makes requests, which are counted and can be cut
	Faults bool // the server can be held up and taken away
	Clock  bool // Around fakes the time
}

// World is a collection of Things and a stream of it.
type World struct {
	Resource  stream.Resource[Thing]
	Close     func() // closes the stream
	Health    *Health
	Namespace string

	// Put creates or replaces the Thing of this name, Delete deletes it.
	Put    func(name, value string) slim.Revision
	Delete func(name string)

	// With Server:
	Requests func() Count                               // of the stream's requests
	Cut      func()                                     // ends the watch
	Expire   func()                                     // ends the watch, and its revision is forgotten
	Restrict func(labels string) stream.Resource[Thing] // a stream of the Things that a selector matches
	Missed   func(change func())                        // makes a change while the watch is down
	Busy     func()                                     // has objects of another kind written each second, until the test ends

	// With Faults:
	Hold func() (release func()) // keeps the server from answering
	Away func() (back func())    // takes the server away
}

// Count is a number of requests.
type Count struct {
	Initial int // watches with initial events
	Lists   int
	Watches int // watches that go on from a revision
	Named   int // lists of a single object
}

// All is the number of requests of any kind.
func (c Count) All() int { return c.Initial + c.Lists + c.Watches + c.Named }

// States is the number of requests for the whole state.
func (c Count) States() int { return c.Initial + c.Lists }

// Property is a promise of stream.Resource.
type Property struct {
	Name  string
	Needs Faculties
	Run   func(t *testing.T, w *Check)
}

// Check is a property at work on a world.
type Check struct {
	*World
	t     *testing.T
	quiet time.Duration
	open  func(opts ...stream.Option) *World
}

func (r Rig) run(t *testing.T, p Property) {
	if p.Needs.Server && !r.Has.Server || p.Needs.Faults && !r.Has.Faults || p.Needs.Clock && !r.Has.Clock {
		t.Skipf("the rig does not have what the property needs: %+v", p.Needs)
	}
	around := r.Around
	if around == nil {
		around = func(t *testing.T, run func(*testing.T)) { run(t) }
	}
	around(t, func(t *testing.T) {
		c := &Check{t: t, quiet: r.Quiet}
		c.open = func(opts ...stream.Option) *World {
			health := &Health{}
			w := r.Open(t, p.Name, append([]stream.Option{stream.WithHealth(health)}, opts...)...)
			w.Health = health
			return w
		}
		p.Run(t, c)
	})
}

// start opens the world of a property.
func (c *Check) start(opts ...stream.Option) { c.World = c.open(opts...) }

// until waits for a condition. In a bubble the limit is of fake time.
func (c *Check) until(what string, condition func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(waittest.Limit); !condition(); time.Sleep(2 * time.Millisecond) { // between two looks
		if time.Now().After(deadline) {
			c.t.Fatalf("not within %v: %s\nstate: %+v\nhealth: %q", waittest.Limit, what, c.Resource.State(), c.Health.Log())
		}
	}
}

// rest gives what should not happen the time to happen.
func (c *Check) rest() { time.Sleep(c.quiet + time.Millisecond) } // in a bubble, or as long as the clock of the server needs

func (c *Check) key(name string) slim.Key { return slim.Key{Namespace: c.Namespace, Name: name} }

// store returns a store that is open until the test ends.
func (c *Check) store() *stream.Store[Thing] {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	late := time.AfterFunc(waittest.Limit, cancel)
	defer late.Stop()
	s, err := c.Resource.Store(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// shows waits until the store shows the value, "" for no object.
func (c *Check) shows(s *stream.Store[Thing], name, value string) {
	c.t.Helper()
	c.until(fmt.Sprintf("the store shows %s=%q", name, value), func() bool {
		obj, ok := s.Get(c.key(name))
		return ok == (value != "") && (!ok || obj.Value() == value)
	})
}

// subscriber receives what a loop over Changes gets, one by one.
type subscriber struct {
	*Check
	events <-chan Event[Thing]
	leave  context.CancelFunc
}

func (c *Check) subscribe(opts ...stream.ChangesOption) *subscriber {
	ctx, cancel := context.WithCancel(c.t.Context())
	opts = append([]stream.ChangesOption{stream.WithSubscriberName("subscriber")}, opts...)
	return &subscriber{Check: c, leave: cancel, events: Each(ctx, c.Resource, opts...)}
}

// next receives an event.
func (s *subscriber) next() Event[Thing] {
	s.t.Helper()
	timer := time.NewTimer(waittest.Limit)
	defer timer.Stop()
	select {
	case e, ok := <-s.events:
		if !ok {
			s.t.Fatalf("the channel is closed; state: %+v", s.Resource.State())
		}
		return e
	case <-timer.C:
		s.t.Fatalf("no event within %v; state: %+v, health: %q", waittest.Limit, s.Resource.State(), s.Health.Log())
	}
	panic("unreachable")
}

// expect receives events and wants them to be these; "upsert a=1", "delete a=1",
// "sync".
func (s *subscriber) expect(want ...string) (events []Event[Thing]) {
	s.t.Helper()
	for _, text := range want {
		e := s.next()
		if got := describe(e); got != text {
			s.t.Fatalf("got %q, want %q of %q", got, text, want)
		}
		events = append(events, e)
	}
	return events
}

// expectAnyOrder is expect for events whose order is not promised.
func (s *subscriber) expectAnyOrder(want ...string) {
	s.t.Helper()
	left := map[string]bool{}
	for _, text := range want {
		left[text] = true
	}
	for len(left) > 0 {
		e := s.next()
		if text := describe(e); !left[text] {
			s.t.Fatalf("got %q, want one of %v", text, left)
		} else {
			delete(left, text)
		}
	}
}

// nothing wants no event for a while.
func (s *subscriber) nothing() {
	s.t.Helper()
	timer := time.NewTimer(s.quiet + time.Millisecond)
	defer timer.Stop()
	select {
	case e, ok := <-s.events:
		if !ok {
			s.t.Fatal("the channel is closed")
		}
		s.t.Fatalf("got %q, want nothing", describe(e))
	case <-timer.C:
	}
}

// closed wants the channel to be closed.
func (s *subscriber) closed() {
	s.t.Helper()
	timer := time.NewTimer(waittest.Limit)
	defer timer.Stop()
	for {
		select {
		case _, ok := <-s.events:
			if !ok {
				return
			}
		case <-timer.C:
			s.t.Fatal("the channel is not closed")
		}
	}
}

// watcher is a loop over Changes that takes a batch when the test wants one, and
// is busy between two.
type watcher struct {
	*Check
	next  func() (stream.Batch[Thing], bool)
	leave func()
}

// watch subscribes with the first call of take.
func (c *Check) watch(opts ...stream.ChangesOption) *watcher {
	opts = append([]stream.ChangesOption{stream.WithSubscriberName("subscriber")}, opts...)
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*waittest.Limit)
	c.t.Cleanup(cancel)
	w := &watcher{Check: c}
	w.next, w.leave = iter.Pull(c.Resource.Changes(ctx, opts...))
	c.t.Cleanup(w.leave)
	return w
}

// take takes a batch and wants it to be this; the sync mark comes last.
func (w *watcher) take(want ...string) []stream.Change[Thing] {
	w.t.Helper()
	batch, ok := w.next()
	if !ok {
		w.t.Fatalf("the loop has ended; state: %+v", w.Resource.State())
	}
	var got []string
	for _, ch := range batch.Changes {
		got = append(got, fmt.Sprintf("%v %s=%s", ch.Kind, ch.Key.Name, ch.Object.Value()))
	}
	if batch.Synced {
		got = append(got, "sync")
	}
	if batch.GapUntil > 0 {
		got = append(got, "gap")
	}
	if !slices.Equal(got, want) {
		w.t.Fatalf("got the batch %q, want %q", got, want)
	}
	return slices.Clone(batch.Changes)
}

// takeGap takes an empty batch that tells of a gap, which the revision is in.
func (w *watcher) takeGap(in slim.Revision) {
	w.t.Helper()
	batch, ok := w.next()
	if !ok || len(batch.Changes) > 0 || batch.Synced || batch.GapUntil < in {
		w.t.Fatalf("got the batch %+v, %t, want a gap that has %v in it; state: %+v", batch, ok, in, w.Resource.State())
	}
}

// me is the state of the check's only subscriber.
func (c *Check) me() stream.SubscriberState {
	c.t.Helper()
	subs := c.Resource.State().Subscribers
	if len(subs) != 1 {
		c.t.Fatalf("%d subscribers, want 1", len(subs))
	}
	return subs[0]
}
