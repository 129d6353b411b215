// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// heldEvents bounds what a watch holds back in memory; behind it, the server
// feels that its client is slow.
const heldEvents = 1 << 14

var errCut = errors.New("the watch was cut")

// watchSet knows the open watches of a proxy.
type watchSet struct {
	mu      sync.Mutex
	watches map[*watch]struct{}
}

func newWatchSet() *watchSet { return &watchSet{watches: map[*watch]struct{}{}} }

// open puts a watch between the server's stream and the client.
func (s *watchSet) open(resp *http.Response, facts facts, rules *ruleSet) io.ReadCloser {
	w := newWatch(resp.Request.Context(), resp.Body, resp.Header.Get("Content-Type"), facts, rules)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = struct{}{}
	w.onClose = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, w)
	}
	return w
}

// cut ends the watches that match and says how many there were.
func (s *watchSet) cut(which control.CutWatches) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for w := range s.watches {
		if w.facts.matches(which.Match) {
			w.cutNow(which.How)
			n++
		}
	}
	return n
}

// watch is the body of a watch's answer: it reads events ahead and hands them
// out when the rules allow.
type watch struct {
	ctx     context.Context
	facts   facts
	rules   *ruleSet
	codec   eventCodec
	body    io.Closer
	started time.Time
	onClose func()

	events  chan event // closed at the server's end, after readErr is set
	readErr error
	cut     chan control.CutWatch
	done    chan struct{}

	// The rest belongs to the reader.
	known   map[*rule]*ruleState
	head    *event // read ahead and not yet due
	pending []byte // rest of the event being handed out
	end     error  // how to end behind pending
}

// event is one event as the server encoded it.
type event struct {
	data    []byte
	arrived time.Time
}

// ruleState is what a watch remembers of a rule: when it cuts; zero is never.
type ruleState struct{ cutAt time.Time }

func newWatch(ctx context.Context, body io.ReadCloser, contentType string, facts facts, rules *ruleSet) *watch {
	w := &watch{
		ctx: ctx, facts: facts, rules: rules, body: body, started: time.Now(),
		codec:   codecFor(contentType),
		events:  make(chan event, heldEvents),
		cut:     make(chan control.CutWatch, 1),
		done:    make(chan struct{}),
		known:   map[*rule]*ruleState{},
		onClose: func() {},
	}
	go w.readAhead(w.codec.reader(body))
	return w
}

func (w *watch) readAhead(next func() ([]byte, error)) {
	defer close(w.events)
	for {
		data, err := next()
		if err != nil {
			w.readErr = err
			return
		}
		select {
		case w.events <- event{data, time.Now()}:
		case <-w.done:
			return
		}
	}
}

// cutNow ends the watch at its next event boundary; a second cut changes
// nothing.
func (w *watch) cutNow(how control.CutWatch) {
	select {
	case w.cut <- how:
	default:
	}
}

// Read hands out events whole, one after the other.
func (w *watch) Read(p []byte) (int, error) {
	if len(w.pending) == 0 {
		if w.end != nil {
			return 0, w.end
		}
		data, err := w.next()
		if err != nil {
			return 0, err
		}
		w.pending = data
	}
	n := copy(p, w.pending)
	w.pending = w.pending[n:]
	return n, nil
}

// Close closes the server's stream.
func (w *watch) Close() error {
	w.onClose()
	close(w.done)
	return w.body.Close()
}

// next waits for an event that may be handed out, or for the end.
func (w *watch) next() ([]byte, error) {
	for {
		rules, changed := w.rules.forWatch(w.facts)
		cutter, cutAt := w.nextCut(rules)
		if cutter != nil && !time.Now().Before(cutAt) {
			w.known[cutter].cutAt = time.Time{}
			if w.rules.fire(cutter) {
				return w.finish(*cutter.CutWatch)
			}
			continue
		}
		dueAt, held := w.due(rules)
		if w.head != nil && !held && !time.Now().Before(dueAt) {
			data := w.head.data
			w.head = nil
			return data, nil
		}
		incoming := w.events
		if w.head != nil {
			incoming = nil
		}
		timer, stop := timerFor(earliest(cutAt, dueAt))
		select {
		case next, ok := <-incoming:
			if !ok {
				stop()
				return nil, w.readErr
			}
			w.head = &next
		case how := <-w.cut:
			stop()
			return w.finish(how)
		case <-timer:
		case <-changed:
		case <-w.ctx.Done():
			stop()
			return nil, w.ctx.Err()
		}
		stop()
	}
}

// nextCut finds the rule that is the next to cut this watch.
func (w *watch) nextCut(rules []*rule) (next *rule, at time.Time) {
	for _, r := range rules {
		if r.CutWatch == nil {
			continue
		}
		state := w.known[r]
		if state == nil {
			state = &ruleState{w.rules.cutAt(r, w.started)}
			w.known[r] = state
		}
		if !state.cutAt.IsZero() && (next == nil || state.cutAt.Before(at)) {
			next, at = r, state.cutAt
		}
	}
	return next, at
}

// due says when the event at the head may be handed out; held, that no time is
// known for it. Without an event it is never.
func (w *watch) due(rules []*rule) (at time.Time, held bool) {
	var hold time.Duration
	for _, r := range rules {
		if r.HoldWatch == nil {
			continue
		}
		if w.known[r] == nil {
			w.known[r] = &ruleState{}
			w.rules.fire(r)
		}
		hold = max(hold, r.HoldWatch.For)
		held = held || r.HoldWatch.For == 0
	}
	if w.head == nil || held {
		return time.Time{}, held
	}
	return w.head.arrived.Add(hold), false
}

// finish ends the watch as asked.
func (w *watch) finish(how control.CutWatch) ([]byte, error) {
	w.end = io.EOF
	if how.Abrupt {
		w.end = errCut
	}
	if how.Expire {
		return w.codec.expired, nil
	}
	return nil, w.end
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// timerFor is a channel that fires at a time; never at the zero time.
func timerFor(at time.Time) (<-chan time.Time, func()) {
	if at.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(at))
	return timer.C, func() { timer.Stop() }
}
