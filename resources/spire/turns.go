// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"cmp"
	"slices"

	"github.com/skep-operator/skep/resources/internal/fair"
)

// class is what changes have in common that are made by one call.
type class struct {
	late   bool // a call has not answered them
	delete bool
}

const (
	// deletionEvery is how many calls there are to one that deletes, while there is more to be created. A namespace can have entries to be created all the time.
	deletionEvery = 4
	// lateEvery is how many calls there are to one that makes again what was not answered, while there are other changes.
	lateEvery = 16
)

// turns decide in which order changes are made. They go by turns of lanes: however many there are of one lane, the k-th of another one comes before its (k+1)-th.
// In a lane they go as they became due, and then by their keys. What turns remember outlives an attempt: it may be as short as one call.
type turns[K cmp.Ordered] struct {
	laneOf func(K) string
	calls  int              // that were begun
	last   map[class]string // the lane of the last change of the last call
}

func newTurns[K cmp.Ordered](laneOf func(K) string) *turns[K] {
	if laneOf == nil {
		laneOf = func(K) string { return "" }
	}
	return &turns[K]{laneOf: laneOf, last: map[class]string{}}
}

// work are the changes that are left of an attempt, in the order in which they are made.
type work[K cmp.Ordered] struct {
	turns *turns[K]
	usual changes[K]
	late  changes[K]
}

// arrange returns changes in their order. since is when a key became due, and isLate whether a call has not answered its change.
func (t *turns[K]) arrange(c changes[K], since func(K) uint64, isLate func(K) bool) *work[K] {
	w := &work[K]{turns: t}
	oldest := func(a, b K) int { return cmp.Compare(since(a), since(b)) }
	create := slices.SortedStableFunc(slices.Values(c.create), oldest)
	remove := slices.SortedStableFunc(slices.Values(c.remove), func(a, b removal[K]) int { return oldest(a.key, b.key) })
	w.late.create, w.usual.create = divide(create, isLate)
	w.late.remove, w.usual.remove = divide(remove, func(r removal[K]) bool { return isLate(r.key) })
	for _, late := range []bool{false, true} {
		of := w.of(late)
		of.create = fair.Turns(of.create, t.laneOf, t.last[class{late: late}])
		of.remove = fair.Turns(of.remove, func(r removal[K]) string { return t.laneOf(r.key) }, t.last[class{late: late, delete: true}])
	}
	return w
}

// divide returns the items that are something, and the others.
func divide[T any](all []T, is func(T) bool) (those, others []T) {
	for _, t := range all {
		if is(t) {
			those = append(those, t)
		} else {
			others = append(others, t)
		}
	}
	return those, others
}

func (w *work[K]) of(late bool) *changes[K] {
	if late {
		return &w.late
	}
	return &w.usual
}

func (w *work[K]) none() bool { return w.usual.none() && w.late.none() }

// keys are what the changes are for.
func (w *work[K]) keys() []K { return slices.Concat(w.usual.keys(), w.late.keys()) }

// next removes up to some changes, and returns them for one call: creations before deletions, and last what was not answered, but each of these has a share
// of the calls.
func (w *work[K]) next(some int, most func(K) int) (next changes[K]) {
	t, round := w.turns, w.turns.calls
	t.calls++
	late := !w.late.none() && (w.usual.none() || round%lateEvery == lateEvery-1)
	from := w.of(late)
	if late && !w.usual.none() {
		round /= lateEvery
	}
	next, *from = from.batch(some, most, round%deletionEvery == deletionEvery-1)
	if keys := next.keys(); len(keys) > 0 {
		t.last[class{late: late, delete: len(next.remove) > 0}] = t.laneOf(keys[len(keys)-1])
	}
	return next
}
