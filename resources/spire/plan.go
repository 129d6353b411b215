// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// sameSelectors reports whether selectors are the same, in any order.
func sameSelectors(a, b []Selector) bool {
	order := func(x, y Selector) int { return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Value, y.Value)) }
	return len(a) == len(b) && slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}

// entries are the ids of the entries at the server, by what they are for.
type entries[K cmp.Ordered] map[K][]string

// removal is an entry that is to be deleted.
type removal[K cmp.Ordered] struct {
	key   K
	entry string
}

func keysOf[K cmp.Ordered](removals []removal[K]) []K {
	keys := make([]K, len(removals))
	for i, r := range removals {
		keys[i] = r.key
	}
	return keys
}

// changes are what is to be done at the server.
type changes[K cmp.Ordered] struct {
	create []K
	remove []removal[K]
}

func (c changes[K]) none() bool { return len(c.create) == 0 && len(c.remove) == 0 }

func (c changes[K]) len() int { return len(c.create) + len(c.remove) }

// keys are what the changes are for, creations first.
func (c changes[K]) keys() []K { return slices.Concat(c.create, keysOf(c.remove)) }

// batch returns up to some changes for one call, all of which are creations or deletions, and the others: creations, unless there are none, or deletions
// are to be first. most is how many a call may have with a key, 0 for any number.
func (c changes[K]) batch(some int, most func(K) int, deletionsFirst bool) (first, rest changes[K]) {
	if len(c.create) > 0 && !(deletionsFirst && len(c.remove) > 0) {
		n := fitting(c.create, some, most)
		return changes[K]{create: c.create[:n]}, changes[K]{create: c.create[n:], remove: c.remove}
	}
	n := fitting(keysOf(c.remove[:min(some, len(c.remove))]), some, most)
	return changes[K]{remove: c.remove[:n]}, changes[K]{create: c.create, remove: c.remove[n:]}
}

// fitting is how many of the first keys a call may have.
func fitting[K cmp.Ordered](keys []K, some int, most func(K) int) int {
	for n, k := range keys {
		limit := min(some, cmp.Or(most(k), some))
		if n >= limit { // what is before it may be more than it allows
			return min(n, some)
		}
		some = limit
	}
	return len(keys)
}

// compare returns the changes that bring the entries of some keys to what they should be, in the order of the keys.
func compare[K cmp.Ordered](some iter.Seq[K], state func(K) State, at entries[K]) changes[K] {
	var c changes[K]
	for _, key := range slices.Compact(slices.Sorted(some)) {
		switch ids := at[key]; state(key) {
		case Wanted:
			if len(ids) == 0 {
				c.create = append(c.create, key)
			}
		case Unwanted:
			for _, id := range ids {
				c.remove = append(c.remove, removal[K]{key, id})
			}
		}
	}
	return c
}

// except returns the keys that are not among others.
func except[K cmp.Ordered](keys, others []K) []K {
	among := make(map[K]bool, len(others))
	for _, k := range others {
		among[k] = true
	}
	return slices.DeleteFunc(keys, func(k K) bool { return among[k] })
}

// refusal is an entry that the server refuses to create or delete.
type refusal struct {
	times int
	until time.Time // of the next attempt
	err   error
	alone bool // it has no answer, and no other is to wait for it
}

// The pauses after a refusal.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// again is the refusal after another attempt.
func (r refusal) again(err error, now time.Time) refusal {
	wait := min(firstRetry<<min(r.times, 10), longestRetry)
	return refusal{times: r.times + 1, until: now.Add(wait), err: err}
}
