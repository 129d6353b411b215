// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// begin ends collecting: all that was there has been seen. Before, nothing is
// chosen, since what exists comes before what is made.
func (t *table) begin() {
	t.begun = true
	for _, s := range t.sets {
		t.settle(s)
		if s.pods > 0 {
			t.touch(s)
		}
	}
}

// settle chooses one of the objects of a set that needs one, and lets go what
// nobody needs. What a set has chosen it keeps as long as it exists.
func (t *table) settle(s *set) {
	if t.begun && !s.sending && !s.exists {
		carried := s.number != 0 && t.carried(s.number)
		switch {
		case carried && !s.drawn: // endpoints go on with it: it is made again
		case s.pods > 0 && len(s.objects) > 0:
			t.unchoose(s)
			t.choose(s, s.objects[0].number)
		case s.pods == 0 || carried: // nobody needs it, or it is somebody else's
			t.unchoose(s)
		}
	}
	if s.pods == 0 && len(s.templates) == 0 && len(s.objects) == 0 && s.number == 0 && !s.sending {
		delete(t.starved, s)
		delete(t.sets, s.labels)
	}
}

func (t *table) choose(s *set, number identity.Number) {
	t.numbers.hold(number)
	t.owners[number] = s
	o := t.objects[number]
	s.number, s.exists = number, o != nil && o.of == s
	delete(t.starved, s)
	t.tell(s)
}

func (t *table) unchoose(s *set) {
	if s.number == 0 {
		return
	}
	delete(t.owners, s.number)
	t.numbers.release(s.number)
	if s.tried { // a request that is late may still make it
		t.numbers.retire(s.number, t.now)
	}
	s.number, s.exists, s.tried, s.drawn = 0, false, false, false
	t.tell(s)
}

// arrived is called when there is one more object of a set.
func (t *table) arrived(s *set, o *object) {
	if s.number == o.number {
		s.exists, s.tried, s.drawn = true, false, false
		t.tell(s)
	}
	t.settle(s)
}

// left is called when there is one object less of a set.
func (t *table) left(s *set, o *object) {
	if s.number == o.number {
		s.exists = false
		t.tell(s)
	}
	if t.begun && s.number == 0 && len(s.objects) == 0 && t.owners[o.number] == nil && t.carried(o.number) {
		t.choose(s, o.number) // no pod has these labels, and endpoints go on with it
	}
	t.settle(s)
	if t.lacks(s) {
		t.touch(s)
	}
}

// lacks reports whether an object of the set is to be made.
func (t *table) lacks(s *set) bool { return !s.exists && (s.pods > 0 || s.number != 0) }

// step is what to do for a set of labels.
type step struct {
	number identity.Number // of the object to be made; 0 is none
	why    string          // not
	waited time.Duration   // since it was known that there is something to do
}

// next is what to do for a set of labels. If it is to make an object, the request
// is under way from then on, until made or failed is called.
func (t *table) next(of slim.Labels) (todo step) {
	s := t.sets[of]
	if s == nil {
		return step{why: noPod}
	}
	if !s.queued.IsZero() {
		todo.waited, s.queued = t.now.Sub(s.queued), time.Time{}
	}
	t.settle(s)
	switch {
	case s.exists:
		todo.why = fmt.Sprintf("identity %d is there", s.number)
	case !t.lacks(s):
		todo.why = noPod
	case s.number == 0 && !t.draw(s):
		todo.why = noneFree
	default:
		s.sending = true
		todo.number = s.number
	}
	return todo
}

// putOff takes back what next has told to do: no request has been made.
func (t *table) putOff(of slim.Labels, todo step) {
	s := t.sets[of] // next keeps it there
	s.sending, s.queued = false, t.now.Add(-todo.waited)
}

// Why nothing is made for a set of labels.
const (
	noPod    = "none: no pod has these labels any more"
	noneFree = "waits: no number of the cluster's range is free"
)

// draw gives a set a number that nobody uses.
func (t *table) draw(s *set) bool {
	for {
		number, ok := t.numbers.draw(t.random)
		switch {
		case !ok:
			t.starved[s] = true
			return false
		case t.carried(number): // its object is gone, and endpoints go on with it
			t.numbers.retire(number, t.now)
		default:
			t.choose(s, number)
			s.drawn = true
			return true
		}
	}
}

// made takes note of the object with the number that next told, as the server has
// it: stored by the request, or by somebody else, with whatever labels.
func (t *table) made(of slim.Labels, number identity.Number, has slim.Labels, created slim.Time, revision slim.Revision) {
	s := t.sets[of] // next keeps it there
	s.sending = false
	if o := t.objects[number]; o == nil || o.revision < revision {
		t.putObject(number, has, created, revision)
		t.unseen[number] = revision
	}
	t.settle(s)
	if t.lacks(s) {
		t.touch(s)
	}
}

// failed takes note that a request made nothing, or nobody knows what. The next one
// has the same number: should it exist by then, the answer tells with which labels.
func (t *table) failed(of slim.Labels) {
	s := t.sets[of]
	s.sending, s.tried = false, s.number != 0
	t.settle(s)
}

// wake has sets looked at that wait for a number, if there are any now.
func (t *table) wake() {
	t.numbers.wake(t.now)
	if t.numbers.free() > 0 {
		for s := range t.starved {
			t.touch(s)
		}
	}
}

// spread is how many values a label has among identities.
type spread struct {
	label  string
	values int
}

// widest are the labels with the most values.
func (t *table) widest(most int) []spread {
	values := map[string]map[string]bool{}
	for _, o := range t.objects {
		if o.of == nil {
			continue
		}
		for label, value := range o.of.labels.All() {
			if values[label] == nil {
				values[label] = map[string]bool{}
			}
			values[label][value] = true
		}
	}
	all := make([]spread, 0, len(values))
	for _, label := range slices.Sorted(maps.Keys(values)) {
		all = append(all, spread{label, len(values[label])})
	}
	slices.SortStableFunc(all, func(a, b spread) int { return cmp.Compare(b.values, a.values) })
	return all[:min(most, len(all))]
}
