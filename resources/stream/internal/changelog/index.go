// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package changelog

import (
	"fmt"
	"maps"
	"slices"

	"github.com/skep-operator/skep/resources/stream/internal/conditions"
)

// Index is the declaration of an index, as stream.Index.
type Index[T any, K comparable] struct {
	name string
	keys func(obj *T, add func(K))
}

// NewIndex declares an index. keys is called under the lock of the list.
func NewIndex[T any, K comparable](name string, keys func(obj *T, add func(K))) *Index[T, K] {
	return &Index[T, K]{name: name, keys: keys}
}

// Lookup returns the objects that have this key, in no order.
func Lookup[T any, K comparable](u *Indexes[T], index *Index[T, K], key K) []*T {
	u.log.Lock()
	defer u.log.Unlock()
	return u.use(index).(*postings[T, K]).lookup(key)
}

// Count returns the number of objects that have this key.
func Count[T any, K comparable](u *Indexes[T], index *Index[T, K], key K) int {
	u.log.Lock()
	defer u.log.Unlock()
	return u.use(index).(*postings[T, K]).byKey[key].len()
}

// Keys returns the keys that objects have, in no order.
func Keys[T any, K comparable](u *Indexes[T], index *Index[T, K]) []K {
	u.log.Lock()
	defer u.log.Unlock()
	return slices.Collect(maps.Keys(u.use(index).(*postings[T, K]).byKey))
}

// Indexes are the indexes of a list that one user has used. They are kept up to
// date until no user is left.
type Indexes[T any] struct {
	log  *Log[T]
	used map[buildable[T]]struct{} // nil once released; under the lock of the list
}

// Indexes returns the indexes of a new user, who releases them.
func (l *Log[T]) Indexes() *Indexes[T] {
	return &Indexes[T]{log: l, used: map[buildable[T]]struct{}{}}
}

// use returns the built index, building it if this is its first use. The caller
// has the lock.
func (u *Indexes[T]) use(index buildable[T]) indexed[T] {
	built := u.log.indexes[index]
	if u.used == nil {
		if built != nil {
			return built.indexed
		}
		return index.build(u.log)
	}
	if built == nil {
		built = &builtIndex[T]{indexed: index.build(u.log)}
		u.log.indexes[index] = built
	}
	if _, mine := u.used[index]; !mine {
		u.used[index] = struct{}{}
		built.users++
	}
	return built.indexed
}

// Release drops the indexes that have no other user.
func (u *Indexes[T]) Release() {
	u.log.mu.Lock()
	defer u.log.mu.Unlock()
	for index := range u.used {
		built := u.log.indexes[index]
		if built.users--; built.users == 0 {
			delete(u.log.indexes, index)
		}
	}
	u.used = nil
}

// buildable is an Index without its key type.
type buildable[T any] interface {
	build(l *Log[T]) indexed[T]
	String() string
}

// indexed is a built index without its key type.
type indexed[T any] interface {
	// move takes n from the keys of the old state to those of the new one;
	// nil is no state.
	move(n *node[T], old, obj *T)
}

// builtIndex is an index and the number of its users.
type builtIndex[T any] struct {
	indexed[T]
	users int
}

func (l *Log[T]) reindex(n *node[T], old, obj *T) {
	for _, index := range l.indexes {
		index.move(n, old, obj)
	}
}

// String returns the index's name.
func (ix *Index[T, K]) String() string { return ix.name }

func (ix *Index[T, K]) build(l *Log[T]) indexed[T] {
	p := &postings[T, K]{index: ix, health: l.health, byKey: map[K]nodeSet[T]{}}
	p.addFrom = func(k K) { p.from = appendKey(p.from, k) }
	p.addTo = func(k K) { p.to = appendKey(p.to, k) }
	for n := l.head; n != nil; n = n.next {
		if !n.deleted {
			p.move(n, nil, n.obj)
		}
	}
	return p
}

// postings is a built index: the nodes of each key.
type postings[T any, K comparable] struct {
	index          *Index[T, K]
	health         *conditions.Set
	byKey          map[K]nodeSet[T]
	from, to       []K // of move, reused
	addFrom, addTo func(K)
}

func (p *postings[T, K]) move(n *node[T], old, obj *T) {
	p.from, p.to = p.from[:0], p.to[:0]
	p.collect(old, p.addFrom)
	p.collect(obj, p.addTo)
	for _, k := range p.from {
		if !slices.Contains(p.to, k) {
			if left := p.byKey[k].without(n); left.len() > 0 {
				p.byKey[k] = left
			} else {
				delete(p.byKey, k)
			}
		}
	}
	for _, k := range p.to {
		if !slices.Contains(p.from, k) {
			p.byKey[k] = p.byKey[k].with(n)
		}
	}
}

// collect runs the key function. One that panics costs its object the place in
// this index, not the process its life.
func (p *postings[T, K]) collect(obj *T, add func(K)) {
	if obj == nil {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			p.health.Set("index "+p.index.name, fmt.Errorf("the key function panicked: %v", r))
		}
	}()
	p.index.keys(obj, add)
}

func (p *postings[T, K]) lookup(key K) []*T {
	found := p.byKey[key]
	objs := make([]*T, 0, found.len())
	for _, n := range found.few {
		objs = append(objs, n.obj)
	}
	for n := range found.many {
		objs = append(objs, n.obj)
	}
	return objs
}

func appendKey[K comparable](keys []K, k K) []K {
	if slices.Contains(keys, k) {
		return keys
	}
	return append(keys, k)
}

// nodeSet is a set of nodes: a slice while that is quick to search.
type nodeSet[T any] struct {
	few  []*node[T]
	many map[*node[T]]struct{}
}

const fewNodes = 128

func (p nodeSet[T]) len() int { return len(p.few) + len(p.many) }

func (p nodeSet[T]) with(n *node[T]) nodeSet[T] {
	switch {
	case p.many != nil:
		p.many[n] = struct{}{}
	case len(p.few) < fewNodes:
		p.few = append(p.few, n)
	default:
		p.many = make(map[*node[T]]struct{}, len(p.few)+1)
		for _, other := range p.few {
			p.many[other] = struct{}{}
		}
		p.many[n] = struct{}{}
		p.few = nil
	}
	return p
}

func (p nodeSet[T]) without(n *node[T]) nodeSet[T] {
	if p.many != nil {
		delete(p.many, n)
		return p
	}
	if i := slices.Index(p.few, n); i >= 0 {
		p.few = slices.Delete(p.few, i, i+1)
	}
	return p
}
