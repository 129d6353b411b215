// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"sync"
	"time"
)

// patience is how long calls may last, and from when on they are quick or slow.
type patience struct {
	call    time.Duration // until its answer is not waited for any more
	slow    time.Duration // from then on fewer entries are changed at once
	quick   time.Duration // up to then more are
	attempt time.Duration // until an attempt begins no further call, so that what has changed meanwhile has its turn
}

// usualPatience lets a call be six times as long as a slow one before it is given up: a server that gets slow is noticed before.
var usualPatience = patience{call: 30 * time.Second, slow: 5 * time.Second, quick: time.Second, attempt: 2 * time.Second}

// pace is how many calls that change entries are under way at once, and how many entries each may have.
//
// What is best differs from server to server. A database in one file makes one change at a time, and the more entries it has the longer each lasts:
// more calls at once gain nothing, and last longer each, until they time out. Others make several at once. So the answers decide: after quick ones it is a bit more, unless
// more was of no use, and after a slow one half as much.
type pace struct {
	calls   int
	entries int // of a call

	answers int           // to calls as the pace allows them, since it changed
	lasted  time.Duration // all of them together
	before  time.Duration // an answer with one call less, 0 if that is no matter any more
	rest    int           // answers that are to come before it is found anew how many calls gain something
}

// slowStart is the first pace, of which nothing is known.
var slowStart = pace{calls: 1, entries: batchSize}

const (
	// moreEntries is how many a call may have more after quick answers.
	moreEntries = 5
	// trialAfter is how many answers come before the number of calls is found anew: what a server has grows, and it may have become another one.
	trialAfter = 200
)

// after is the pace after an answer. full says that the call had as many entries, and was one of as many calls, as the pace allows: others do not
// show that more would be answered as soon.
func (p pace) after(lasted time.Duration, full bool, limits patience) pace {
	switch {
	case lasted >= limits.call:
		return pace{calls: 1, entries: max(1, p.entries/2)}
	case lasted >= limits.slow && p.calls > 1:
		return pace{calls: p.calls / 2, entries: p.entries, rest: trialAfter}
	case lasted >= limits.slow:
		return pace{calls: 1, entries: max(1, p.entries/2)}
	case !full:
		return p
	}
	p.answers, p.lasted, p.rest = p.answers+1, p.lasted+lasted, max(0, p.rest-1)
	if p.answers < p.calls { // each of them shows the same
		return p
	}
	return p.next(p.lasted/time.Duration(p.answers), limits)
}

// next is the pace after answers that lasted some time each.
func (p pace) next(each time.Duration, limits patience) pace {
	same := pace{calls: p.calls, entries: p.entries, rest: p.rest}
	switch {
	case p.before > 0 && !p.gains(each):
		return pace{calls: p.calls - 1, entries: p.entries, rest: trialAfter}
	case p.before > 0:
		same.rest = trialAfter
	case p.rest == 0 && p.calls > 1:
		return pace{calls: 1, entries: p.entries}
	}
	switch {
	case each > limits.quick:
		return same
	case p.entries < batchSize:
		same.entries = min(p.entries+moreEntries, batchSize)
		return same
	case p.calls == parallel || p.rest > 0:
		return same
	}
	return pace{calls: p.calls + 1, entries: p.entries, before: each}
}

// gains reports whether as many calls at once change more in the same time than one less, by a tenth at least.
func (p pace) gains(each time.Duration) bool {
	return 11*int64(p.calls-1)*int64(each) < 10*int64(p.calls)*int64(p.before)
}

// pacer keeps the pace of a server, for the duties that share its connection. It is safe for concurrent use.
type pacer struct {
	patience patience

	mu      sync.Mutex
	pace    pace
	changes int           // of the pace
	running int           // calls
	freed   chan struct{} // closed and replaced when another call may begin
}

func newPacer(p patience) *pacer {
	return &pacer{patience: p, pace: slowStart, freed: make(chan struct{})}
}

// turn is the permission for a call, from begin to end.
type turn struct {
	entries int // that it may have
	changes int // of the pace, before it began
	last    bool
	began   time.Time
}

// begin returns when another call may be made.
func (p *pacer) begin(ctx context.Context) (turn, error) {
	for {
		t, freed, ok := p.next()
		if ok {
			return t, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return turn{}, context.Cause(ctx)
		}
	}
}

func (p *pacer) next() (t turn, freed <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running >= p.pace.calls {
		return turn{}, p.freed, false
	}
	p.running++
	return turn{entries: p.pace.entries, changes: p.changes, last: p.running == p.pace.calls, began: time.Now()}, nil, true
}

// end ends a turn whose call had some entries. Calls that began before the pace changed have no say in the next change: they show the same again.
func (p *pacer) end(t turn, entries int, err error) {
	lasted := time.Since(t.began)
	if timedOut(err) {
		lasted = max(lasted, p.patience.call) // the server's own limit may be a shorter one
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if t.changes == p.changes && (err == nil || timedOut(err)) {
		next := p.pace.after(lasted, t.last && entries >= t.entries, p.patience)
		if next.calls != p.pace.calls || next.entries != p.pace.entries {
			p.changes++
		}
		p.pace = next
	}
	close(p.freed)
	p.freed = make(chan struct{})
}
