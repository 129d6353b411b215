// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"fmt"
	"iter"
	"slices"
)

// An Index finds the objects of a [Store] by a key of any type; an object may
// have several keys. It is declared once, as a value, and used with any store of
// its type:
//
//	var byNode = stream.NewIndex("node", func(p *slim.Pod, add func(string)) {
//		add(p.Spec.NodeName.String())
//	})
//
//	for pod := range stream.ByIndex(pods, byNode, "worker-1") { … }
//
// The first use builds it, changes keep it up to date, and it is dropped with
// the last store handle that has used it.
type Index[T any, K comparable] struct {
	name string
	keys func(obj *T, add func(K))
}

// NewIndex declares an index. keys calls add for every key of obj; it must
// depend on nothing but obj, must not use any stream, and is called under the
// stream's lock.
func NewIndex[T any, K comparable](name string, keys func(obj *T, add func(K))) *Index[T, K] {
	return &Index[T, K]{name: name, keys: keys}
}

// ByIndex yields the objects of s that have this key, at one revision, in no
// order.
func ByIndex[T any, K comparable](s *Store[T], index *Index[T, K], key K) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		s.changes.mu.Lock()
		found := s.use(index).(*postings[T, K]).lookup(key)
		s.changes.unlockAndReport()
		for _, obj := range found {
			if !yield(obj) {
				return
			}
		}
	}
}

// CountByIndex returns the number of objects of s that have this key.
func CountByIndex[T any, K comparable](s *Store[T], index *Index[T, K], key K) int {
	s.changes.mu.Lock()
	defer s.changes.unlockAndReport()
	return s.use(index).(*postings[T, K]).byKey[key].len()
}

// IndexKeys returns the keys that objects of s have, in no order.
func IndexKeys[T any, K comparable](s *Store[T], index *Index[T, K]) []K {
	s.changes.mu.Lock()
	defer s.changes.unlockAndReport()
	byKey := s.use(index).(*postings[T, K]).byKey
	keys := make([]K, 0, len(byKey))
	for k := range byKey {
		keys = append(keys, k)
	}
	return keys
}

// buildable is an Index without its key type.
type buildable[T any] interface {
	build(c *changes[T]) indexed[T]
	String() string
}

// indexed is a built index without its key type.
type indexed[T any] interface {
	// move takes n from the keys of the old state to those of the new one;
	// nil is no state.
	move(n *node[T], old, obj *T)
}

// builtIndex is an index and the number of store handles that use it.
type builtIndex[T any] struct {
	indexed[T]
	users int
}

func (c *changes[T]) reindex(n *node[T], old, obj *T) {
	for _, index := range c.indexes {
		index.move(n, old, obj)
	}
}

// String returns the index's name.
func (ix *Index[T, K]) String() string { return ix.name }

func (ix *Index[T, K]) build(c *changes[T]) indexed[T] {
	p := &postings[T, K]{index: ix, health: c.health, byKey: map[K]posting[T]{}}
	p.addFrom = func(k K) { p.from = appendKey(p.from, k) }
	p.addTo = func(k K) { p.to = appendKey(p.to, k) }
	for n := c.head; n != nil; n = n.next {
		if !n.deleted {
			p.move(n, nil, n.obj)
		}
	}
	return p
}

// postings is a built index: the nodes of each key.
type postings[T any, K comparable] struct {
	index          *Index[T, K]
	health         *conditions
	byKey          map[K]posting[T]
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
			p.health.later("index "+p.index.name, fmt.Errorf("the key function panicked: %v", r))
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

// posting is a set of nodes: a slice while that is quick to search.
type posting[T any] struct {
	few  []*node[T]
	many map[*node[T]]struct{}
}

const fewNodes = 128

func (p posting[T]) len() int { return len(p.few) + len(p.many) }

func (p posting[T]) with(n *node[T]) posting[T] {
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

func (p posting[T]) without(n *node[T]) posting[T] {
	if p.many != nil {
		delete(p.many, n)
		return p
	}
	if i := slices.Index(p.few, n); i >= 0 {
		p.few = slices.Delete(p.few, i, i+1)
	}
	return p
}
