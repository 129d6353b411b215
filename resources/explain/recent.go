// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import "iter"

// recent is a map with a bound: where it is full, the entry that was set longest ago makes way. It is not safe for concurrent use.
type recent[K comparable, V any] struct {
	most  int
	byKey map[K]*entry[K, V]
	ends  entry[K, V] // of the ring of entries: the oldest one is next to it
}

// entry has its neighbours: thousands of them need less memory than elements of a list do.
type entry[K comparable, V any] struct {
	key         K
	value       V
	older, next *entry[K, V]
}

func newRecent[K comparable, V any](most int) *recent[K, V] {
	r := &recent[K, V]{most: most, byKey: map[K]*entry[K, V]{}}
	r.ends.older, r.ends.next = &r.ends, &r.ends
	return r
}

func (r *recent[K, V]) len() int { return len(r.byKey) }

func (r *recent[K, V]) get(key K) (value V, has bool) {
	if e := r.byKey[key]; e != nil {
		return e.value, true
	}
	return value, false
}

func (r *recent[K, V]) set(key K, value V) {
	e := r.byKey[key]
	if e != nil {
		e.leave()
		e.value = value
	} else {
		if len(r.byKey) == r.most {
			oldest := r.ends.next
			oldest.leave()
			delete(r.byKey, oldest.key)
		}
		e = &entry[K, V]{key: key, value: value}
		r.byKey[key] = e
	}
	e.older, e.next = r.ends.older, &r.ends
	e.older.next, r.ends.older = e, e
}

func (e *entry[K, V]) leave() { e.older.next, e.next.older = e.next, e.older }

// all yields the entries, the one that was set longest ago first.
func (r *recent[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for e := r.ends.next; e != &r.ends; e = e.next {
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}
