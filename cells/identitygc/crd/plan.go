// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"iter"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
)

// annotation is the mark of an unused identity, with the time. Agents remove it when they use the identity.
const annotation = "io.cilium.heartbeat"

// id is an identity at one revision. A write resets the time since which it is unused, as when an agent removes the mark.
type id struct {
	name     string
	uid      slim.UID
	revision slim.Revision
}

func idOf(i *ciliumio.Identity) id { return id{i.Name, i.UID, i.ResourceVersion} }

// decision is what to do about an identity.
type decision uint8

const (
	keep    decision = iota // it is in use, or undecidable
	wait                    // it is unused, not for long enough
	mark                    // it was unused for an interval
	unmark                  // it is in use again
	garbage                 // it was marked and unused for the timeout
	deleted                 // it waits for its finalizers
)

// gcPolicy is the conditions for garbage.
type gcPolicy struct {
	own        identity.Range // other numbers belong to other clusters
	interval   time.Duration  // minimum time unused, as seen by this process
	timeout    time.Duration  // minimum time since the mark
	scarceFrom int            // share of the range, in percent, from which on numbers are scarce
}

const (
	// scarceFrom is the share of which the duty that makes identities warns.
	scarceFrom = 80
	// scarcePause is the interval and the timeout while numbers are scarce, and the time from the end of a run to the start of the next.
	scarcePause = time.Minute
)

// isScarce reports whether so many identities of this cluster leave few numbers.
func (t gcPolicy) isScarce(identities int) bool { return identities*100 >= t.own.Size()*t.scarceFrom }

// whileScarce are the conditions while numbers are scarce.
func (t gcPolicy) whileScarce() gcPolicy {
	t.interval, t.timeout = min(t.interval, scarcePause), min(t.timeout, scarcePause)
	return t
}

// decide decides about an identity of this cluster. since is the first time this process saw it unused at this revision,
// zero if it did not. Two clocks count: the monotonic one for since, and the wall clock for the mark, which may be older
// than the process. A wall clock that jumps does not shorten the time below an interval.
func (t gcPolicy) decide(i *ciliumio.Identity, used bool, since, now time.Time) decision {
	text, marked := i.Annotations.Lookup(annotation)
	switch {
	case !i.DeletionTimestamp.IsZero():
		return deleted
	case i.CannotDecode("metadata.annotations"):
		return keep // it may be marked
	case used && marked:
		return unmark
	case used:
		return keep
	case since.IsZero() || now.Sub(since) < t.interval:
		return wait
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil || at.Sub(now) > t.interval: // no mark with a valid time
		return mark
	case now.Sub(at) < t.timeout:
		return wait
	}
	return garbage
}

// scanResult is the result of a scan of all identities.
type scanResult struct {
	sweep.Found[id, *ciliumio.Identity]
	count     int                  // of all clusters
	scarce    bool                 // whether numbers are
	writes    []*ciliumio.Identity // whose mark is to be written or removed
	marked    int
	foreign   int      // have numbers of other clusters
	misnamed  []string // have names that are no numbers
	contested []string // whose mark is removed although they are unused
}

// scan decides about all identities. used reports whether one is referenced, since is as in decide, and marks is the
// history of earlier scans.
func (t gcPolicy) scan(all iter.Seq[*ciliumio.Identity], used func(identity.Number) bool, since func(id) time.Time, marks history, now time.Time) (scanResult, history) {
	var s scanResult
	next := history{}
	for i := range all {
		s.count++
		n, ok := identity.ParseNumber(i.Name)
		switch {
		case !ok:
			s.misnamed = append(s.misnamed, i.Name)
			continue
		case !t.own.Contains(n):
			s.foreign++
			continue
		}
		s.Total++
		if i.Annotations.Has(annotation) {
			s.marked++
		}
		v := t.decide(i, used(n), since(idOf(i)), now)
		if v == mark || v == unmark {
			s.writes = append(s.writes, i)
		}
		if v == keep || v == unmark {
			continue
		}
		if v != deleted && next.record(i, marks[i.UID]) >= flapThreshold {
			s.contested = append(s.contested, i.Name)
		}
		s.Candidates = append(s.Candidates, sweep.Candidate[id, *ciliumio.Identity]{
			Key: idOf(i), Object: i, Why: "no endpoint uses it, and its mark was not removed",
			Wait: v != garbage, Terminating: v == deleted,
		})
	}
	return s, next
}

// history is the marks and their removals, of unused identities.
type history map[slim.UID]flaps

type flaps struct {
	marked  bool // by the last scan
	unmarks int  // removals
}

// flapThreshold is the number of times that the mark of an unused identity is removed before it is reported: an agent
// leaks a reference.
const flapThreshold = 3

// record adds an unused identity, and returns how often its mark was removed. An identity in use is dropped.
func (h history) record(i *ciliumio.Identity, before flaps) (unmarks int) {
	now := flaps{marked: i.Annotations.Has(annotation), unmarks: before.unmarks}
	if before.marked && !now.marked {
		now.unmarks++
	}
	if now != (flaps{}) {
		h[i.UID] = now
	}
	return now.unmarks
}

// update adds the identities that were marked and in use since the last scan. A mark that was written and removed between
// two scans counts.
func (h history) update(put, used []slim.UID) {
	for _, uid := range put {
		h[uid] = flaps{marked: true, unmarks: h[uid].unmarks}
	}
	for _, uid := range used {
		delete(h, uid)
	}
}
