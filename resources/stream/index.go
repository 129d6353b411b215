// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"iter"

	"github.com/skep-operator/skep/resources/stream/internal/changelog"
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
type Index[T any, K comparable] struct{ index *changelog.Index[*T, K] }

// NewIndex declares an index. keys calls add for every key of obj; it must
// depend on nothing but obj, must not use any stream, and is called under the
// stream's lock.
func NewIndex[T any, K comparable](name string, keys func(obj *T, add func(K))) *Index[T, K] {
	return &Index[T, K]{changelog.NewIndex(name, keys)}
}

// String returns the index's name.
func (ix *Index[T, K]) String() string { return ix.index.String() }

// ByIndex yields the objects of s that have this key, at one revision, in no
// order.
func ByIndex[T any, K comparable](s *Store[T], index *Index[T, K], key K) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, obj := range changelog.Lookup(s.indexes, index.index, key) {
			if !yield(obj) {
				return
			}
		}
	}
}

// CountByIndex returns the number of objects of s that have this key.
func CountByIndex[T any, K comparable](s *Store[T], index *Index[T, K], key K) int {
	return changelog.Count(s.indexes, index.index, key)
}

// IndexKeys returns the keys that objects of s have, in no order.
func IndexKeys[T any, K comparable](s *Store[T], index *Index[T, K]) []K {
	return changelog.Keys(s.indexes, index.index)
}
