// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc

import (
	"iter"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
)

// annotation is the mark of an identity that nobody uses: since when. Agents take
// it off when they take the identity into use.
const annotation = "io.cilium.heartbeat"

// id is an identity in one state. Whoever writes it begins its disuse anew, as an
// agent does that takes the mark off.
type id struct {
	name     string
	uid      slim.UID
	revision slim.Revision
}

func idOf(i *ciliumio.Identity) id { return id{i.Name, i.UID, i.ResourceVersion} }

// verdict is what is to be done about an identity.
type verdict uint8

const (
	keep    verdict = iota // somebody uses it
	wait                   // nobody does, not for long enough
	mark                   // nobody has used it for an interval
	unmark                 // somebody uses it again
	garbage                // it has been marked for long, and nobody used it
)

// terms are what it takes to be garbage.
type terms struct {
	own      identity.Range // numbers of other clusters are theirs
	interval time.Duration  // of disuse that this process has seen
	timeout  time.Duration  // since the mark
}

// judge decides about an identity of this cluster. since is when this process saw
// first that nobody uses it as it is, zero if it has not. Both clocks count: the
// monotonic one for what was seen, the wall clock for the mark, which may be older
// than the process. So a clock that jumps shortens nothing below an interval.
func (t terms) judge(i *ciliumio.Identity, used bool, since, now time.Time) verdict {
	text, marked := i.Annotations.Lookup(annotation)
	switch {
	case used && marked:
		return unmark
	case used:
		return keep
	case since.IsZero() || now.Sub(since) < t.interval:
		return wait
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil || at.Sub(now) > t.interval: // no mark, or none that says when
		return mark
	case now.Sub(at) < t.timeout:
		return wait
	}
	return garbage
}

// survey is what a look at all identities finds.
type survey struct {
	sweep.Found[id, *ciliumio.Identity]
	all       int                  // whosever they are
	writes    []*ciliumio.Identity // to be marked, or not to be any more
	marked    int
	foreign   int      // have numbers of other clusters
	odd       []string // have names that are no numbers
	contested []string // nobody uses them, and yet their mark is taken off
}

// survey looks at all identities. used tells which are in use, since is as in
// judge, and marks is what earlier looks have seen of marks.
func (t terms) survey(all iter.Seq[*ciliumio.Identity], used func(identity.Number) bool, since func(id) time.Time, marks history, now time.Time) (survey, history) {
	var s survey
	next := history{}
	for i := range all {
		s.all++
		n, ok := identity.ParseNumber(i.Name)
		switch {
		case !ok:
			s.odd = append(s.odd, i.Name)
			continue
		case !t.own.Contains(n):
			s.foreign++
			continue
		}
		s.Total++
		if i.Annotations.Has(annotation) {
			s.marked++
		}
		v := t.judge(i, used(n), since(idOf(i)), now)
		if v == mark || v == unmark {
			s.writes = append(s.writes, i)
		}
		if v == keep || v == unmark {
			continue
		}
		if next.note(i, marks[i.UID]) >= contest {
			s.contested = append(s.contested, i.Name)
		}
		s.Candidates = append(s.Candidates, sweep.Candidate[id, *ciliumio.Identity]{
			Key: idOf(i), Object: i, Why: "no endpoint uses it, and nobody took its mark off", Wait: v != garbage,
		})
	}
	return s, next
}

// history is what was seen of the marks of identities that nobody uses.
type history map[slim.UID]markings

type markings struct {
	marked bool // when it was looked at last
	taken  int  // how often the mark was gone then
}

// contest is how often a mark is taken off an identity that nobody uses before it
// is told: an agent has leaked a reference.
const contest = 3

// note takes an identity that nobody uses into account, and returns how often its
// mark was taken off. Who uses it is not noted, and begins anew.
func (h history) note(i *ciliumio.Identity, before markings) (taken int) {
	now := markings{marked: i.Annotations.Has(annotation), taken: before.taken}
	if before.marked && !now.marked {
		now.taken++
	}
	if now != (markings{}) {
		h[i.UID] = now
	}
	return now.taken
}

// update takes in what happened since the last look: to whom a mark was put, and
// who was in use. A mark that is put and taken off between two looks counts.
func (h history) update(put, used []slim.UID) {
	for _, uid := range put {
		h[uid] = markings{marked: true, taken: h[uid].taken}
	}
	for _, uid := range used {
		delete(h, uid)
	}
}
