// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package changelog

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Index is the declaration of an index, as stream.Index.
type Index[P any, K comparable] struct {
	name string
	keys func(obj P, add func(K))
}

// NewIndex declares an index. keys is called under the lock of the list.
func NewIndex[P any, K comparable](name string, keys func(obj P, add func(K))) *Index[P, K] {
	return &Index[P, K]{name: name, keys: keys}
}

// Lookup returns the objects that have this key, in no order.
func Lookup[P any, K comparable](u *Indexes[P], index *Index[P, K], key K) []P {
	u.log.Lock()
	defer u.log.Unlock()
	return u.use(index).(*postings[P, K]).lookup(key)
}

// Count returns the number of objects that have this key.
func Count[P any, K comparable](u *Indexes[P], index *Index[P, K], key K) int {
	u.log.Lock()
	defer u.log.Unlock()
	return u.use(index).(*postings[P, K]).count(key)
}

// Keys returns the keys that objects have, in no order.
func Keys[P any, K comparable](u *Indexes[P], index *Index[P, K]) []K {
	u.log.Lock()
	defer u.log.Unlock()
	p := u.use(index).(*postings[P, K])
	return slices.AppendSeq(slices.Collect(maps.Keys(p.one)), maps.Keys(p.several))
}

// Indexes are the indexes of a list that one user has used. They are kept up to
// date until no user is left.
type Indexes[P any] struct {
	log  *Log[P]
	used map[buildable[P]]struct{} // nil once released; under the lock of the list
}

// Indexes returns the indexes of a new user, who releases them.
func (l *Log[P]) Indexes() *Indexes[P] {
	return &Indexes[P]{log: l, used: map[buildable[P]]struct{}{}}
}

// use returns the built index, building it if this is its first use. The caller
// has the lock.
func (u *Indexes[P]) use(index buildable[P]) indexed[P] {
	built := u.log.indexes[index]
	if u.used == nil {
		if built != nil {
			return built.indexed
		}
		return index.build(u.log)
	}
	if built == nil {
		built = &builtIndex[P]{indexed: index.build(u.log)}
		u.log.indexes[index] = built
	}
	if _, mine := u.used[index]; !mine {
		u.used[index] = struct{}{}
		built.users++
	}
	return built.indexed
}

// Release drops the indexes that have no other user.
func (u *Indexes[P]) Release() {
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
type buildable[P any] interface {
	build(l *Log[P]) indexed[P]
	String() string
}

// indexed is a built index without its key type.
type indexed[P any] interface {
	// add gives n the keys of its state, remove takes them away.
	add(n *node[P])
	remove(n *node[P])
	// move takes n from the keys of its old state to those of its state.
	move(n *node[P], old P)
}

// builtIndex is an index and the number of its users.
type builtIndex[P any] struct {
	indexed[P]
	users int
}

func (l *Log[P]) index(n *node[P]) {
	for _, index := range l.indexes {
		index.add(n)
	}
}

func (l *Log[P]) reindex(n *node[P], old P) {
	for _, index := range l.indexes {
		index.move(n, old)
	}
}

func (l *Log[P]) unindex(n *node[P]) {
	for _, index := range l.indexes {
		index.remove(n)
	}
}

// String returns the index's name.
func (ix *Index[P, K]) String() string { return ix.name }

func (ix *Index[P, K]) build(l *Log[P]) indexed[P] {
	p := &postings[P, K]{index: ix, health: l.health, panicked: map[slim.Key]error{},
		one: map[K]*node[P]{}, several: map[K]nodeSet[P]{}}
	p.addFrom = func(k K) { p.from = appendKey(p.from, k) }
	p.addTo = func(k K) { p.to = appendKey(p.to, k) }
	for n := l.head; n != nil; n = n.next {
		if !n.deleted {
			p.add(n)
		}
	}
	return p
}

// postings is a built index: the nodes of each key. A key is in one of the maps: most indexes have
// many keys of a single node, which need a third of the memory there.
type postings[P any, K comparable] struct {
	index          *Index[P, K]
	health         *conditions.Set
	one            map[K]*node[P]
	several        map[K]nodeSet[P]
	panicked       map[slim.Key]error // objects for which the key function panics
	from, to       []K                // of apply, reused
	addFrom, addTo func(K)
}

func (p *postings[P, K]) add(n *node[P]) {
	p.collect(n.obj, p.addTo)
	p.apply(n)
}

func (p *postings[P, K]) remove(n *node[P]) {
	p.collect(n.obj, p.addFrom)
	p.apply(n)
	p.forget(slim.MetaOf(n.obj).Key())
}

func (p *postings[P, K]) move(n *node[P], old P) {
	p.collect(old, p.addFrom)
	p.collect(n.obj, p.addTo)
	p.apply(n)
}

// apply takes n from the keys that were collected as those of its old state to those of its new one.
func (p *postings[P, K]) apply(n *node[P]) {
	switch {
	case slices.Equal(p.from, p.to): // of most changes
	case len(p.from) < manyKeys && len(p.to) < manyKeys:
		for _, k := range p.from {
			if !slices.Contains(p.to, k) {
				p.drop(n, k)
			}
		}
		for _, k := range p.to {
			if !slices.Contains(p.from, k) {
				p.put(n, k)
			}
		}
	default:
		p.applyMany(n)
	}
	p.from, p.to = reused(p.from), reused(p.to)
}

// applyMany is apply for many keys, in time that grows with their number and no faster.
func (p *postings[P, K]) applyMany(n *node[P]) {
	from, to := setOf(p.from), setOf(p.to)
	for k := range from {
		if _, stays := to[k]; stays {
			delete(to, k)
		} else {
			p.drop(n, k)
		}
	}
	for k := range to {
		p.put(n, k)
	}
}

// put adds n to a key.
func (p *postings[P, K]) put(n *node[P], k K) {
	if set, are := p.several[k]; are {
		p.several[k] = set.with(n)
	} else if other, is := p.one[k]; is && other != n {
		delete(p.one, k)
		p.several[k] = nodeSet[P]{}.with(other).with(n)
	} else {
		p.one[k] = n
	}
}

// drop removes n from a key.
func (p *postings[P, K]) drop(n *node[P], k K) {
	set, are := p.several[k]
	if !are {
		if p.one[k] == n {
			delete(p.one, k)
		}
		return
	}
	set = set.without(n)
	if set.len() > 1 {
		p.several[k] = set
		return
	}
	delete(p.several, k)
	for last := range set.all() {
		p.one[k] = last
	}
}

func (p *postings[P, K]) count(k K) int {
	if _, is := p.one[k]; is {
		return 1
	}
	return p.several[k].len()
}

// collect runs the key function. One that panics costs its object the place in
// this index, not the process its life.
func (p *postings[P, K]) collect(obj P, add func(K)) {
	err := lifecycle.Recover(func() error { p.index.keys(obj, add); return nil })
	if err == nil && len(p.panicked) == 0 {
		return
	}
	key := slim.MetaOf(obj).Key()
	if delete(p.panicked, key); err != nil {
		p.panicked[key] = fmt.Errorf("%s is not found by it, its key function panicked: %w", key, err)
	}
	p.report()
}

// forget is called for an object that is gone.
func (p *postings[P, K]) forget(key slim.Key) {
	if _, panicked := p.panicked[key]; panicked {
		delete(p.panicked, key)
		p.report()
	}
}

func (p *postings[P, K]) report() {
	for _, err := range p.panicked {
		p.health.Set("index "+p.index.name, err)
		return
	}
	p.health.Set("index "+p.index.name, nil)
}

func (p *postings[P, K]) lookup(key K) []P {
	if n, is := p.one[key]; is {
		return []P{n.obj}
	}
	found := p.several[key]
	objs := make([]P, 0, found.len())
	for n := range found.all() {
		objs = append(objs, n.obj)
	}
	return objs
}

// manyKeys is from how many keys of an object on a map is quicker than a search in a slice. Objects of users can have tens of thousands.
const manyKeys = 64

// appendKey appends a key that is not there yet; of many, it may be there.
func appendKey[K comparable](keys []K, k K) []K {
	if len(keys) < manyKeys && slices.Contains(keys, k) {
		return keys
	}
	return append(keys, k)
}

// reused is the slice for the keys of the next object. That of an object with many is given back.
func reused[K comparable](keys []K) []K {
	if len(keys) > manyKeys {
		return nil
	}
	return keys[:0]
}

func setOf[K comparable](keys []K) map[K]struct{} {
	set := make(map[K]struct{}, len(keys))
	for _, k := range keys {
		set[k] = struct{}{}
	}
	return set
}

// nodeSet is a set of nodes: a slice while that is quick to search.
type nodeSet[P any] struct {
	few  []*node[P]
	many map[*node[P]]struct{}
}

const fewNodes = 128

func (p nodeSet[P]) len() int { return len(p.few) + len(p.many) }

// all yields the nodes in no order.
func (p nodeSet[P]) all() iter.Seq[*node[P]] {
	return func(yield func(*node[P]) bool) {
		for _, n := range p.few {
			if !yield(n) {
				return
			}
		}
		for n := range p.many {
			if !yield(n) {
				return
			}
		}
	}
}

func (p nodeSet[P]) with(n *node[P]) nodeSet[P] {
	switch {
	case p.many != nil:
		p.many[n] = struct{}{}
	case len(p.few) < fewNodes:
		p.few = append(p.few, n)
	default:
		p.many = make(map[*node[P]]struct{}, len(p.few)+1)
		for _, other := range p.few {
			p.many[other] = struct{}{}
		}
		p.many[n] = struct{}{}
		p.few = nil
	}
	return p
}

func (p nodeSet[P]) without(n *node[P]) nodeSet[P] {
	if p.many != nil {
		delete(p.many, n)
		return p
	}
	if i := slices.Index(p.few, n); i >= 0 {
		p.few = slices.Delete(p.few, i, i+1)
	}
	return p
}
