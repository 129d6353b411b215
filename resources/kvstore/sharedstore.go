// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"strings"
	"sync"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
)

// SharedStore is a prefix that several writers share: each has local keys of
// its own, and all see all. Its methods are safe for concurrent use; names may
// be upserted before it runs. Names are what follows the prefix and a slash.
//
//   - Local keys are written at once on a lease of this process, again whenever
//     they are lost or changed by others, and compared every periodic sync.
//   - Nobody else's key is written or deleted.
//   - A value that cannot be decoded is skipped, counted, and logged once; what
//     was known of its name before stays.
type SharedStore[T any] struct {
	mirror  *mirror
	decode  func(name string, value []byte) (T, error)
	changed func(name string)
	synced  chan struct{}

	mu     sync.RWMutex
	values map[string]T
	bad    map[string]struct{}
}

// NewSharedStore returns a store of <prefix>/<name>. c is the client of the
// module that the scope belongs to. decode reads a value, see [JSON]. changed,
// which may be nil, is told the name of every value that came, changed or went,
// one at a time, and must not block for long.
func NewSharedStore[T any](c Client, s reconcile.Scope, prefix string, decode func(name string, value []byte) (T, error), changed func(name string)) (*SharedStore[T], error) {
	m, err := newMirror(c, s, Folder(prefix), "", nil)
	if err != nil {
		return nil, err
	}
	if changed == nil {
		changed = func(string) {}
	}
	store := &SharedStore[T]{
		mirror: m, decode: decode, changed: changed, synced: make(chan struct{}),
		values: map[string]T{}, bad: map[string]struct{}{},
	}
	m.observe = store.observe
	return store, nil
}

// JSON decodes a value as JSON. Fields that T does not have are ignored.
func JSON[T any](_ string, value []byte) (decoded T, err error) {
	return decoded, json.Unmarshal(value, &decoded)
}

// Run watches and writes until ctx ends; it is made for a job, and runs once.
func (s *SharedStore[T]) Run(ctx context.Context) error {
	done := s.mirror.client.metrics.InitialSync.WithLabelValues(scope(s.mirror.prefix), "", "read")
	defer done.Set(0)
	return s.mirror.run(ctx, s.mirror.client.config.KVStorePeriodicSync)
}

// UpdateLocal has a local key hold a value from now on. The value must not be
// changed afterwards. The triggers say why, for the cause of the write.
func (s *SharedStore[T]) UpdateLocal(name string, value []byte, triggers ...k8s.Trigger) {
	s.mirror.upsert(name, value, triggers...)
}

// DeleteLocal has a local key be gone from now on.
func (s *SharedStore[T]) DeleteLocal(name string, triggers ...k8s.Trigger) {
	s.mirror.delete(name, triggers...)
}

// Synced is closed when all that was there at first is known.
func (s *SharedStore[T]) Synced() <-chan struct{} { return s.synced }

// Get is the value of a name as it was last seen, local keys included.
func (s *SharedStore[T]) Get(name string) (T, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.values[name]
	return v, ok
}

// All are the values by name as they are now, in no order.
func (s *SharedStore[T]) All() iter.Seq2[string, T] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.All(maps.Clone(s.values))
}

// observe takes in what the mirror saw.
func (s *SharedStore[T]) observe(e Event) {
	name := strings.TrimPrefix(e.Key, s.mirror.prefix)
	switch e.Kind {
	case Synced:
		close(s.synced)
		s.mirror.client.metrics.InitialSync.WithLabelValues(scope(s.mirror.prefix), "", "read").Set(1)
		return
	case Delete:
		s.mu.Lock()
		_, known := s.values[name]
		delete(s.values, name)
		delete(s.bad, name)
		s.mu.Unlock()
		if !known {
			return
		}
	case Upsert:
		value, err := s.decode(name, e.Value)
		if err != nil {
			s.skip(name, e, err)
			return
		}
		s.mu.Lock()
		s.values[name] = value
		delete(s.bad, name)
		s.mu.Unlock()
	}
	s.changed(name)
}

func (s *SharedStore[T]) skip(name string, e Event, err error) {
	s.mirror.client.metrics.BadValues.WithLabelValues(scope(e.Key)).Inc()
	s.mu.Lock()
	_, told := s.bad[name]
	s.bad[name] = struct{}{}
	s.mu.Unlock()
	if !told {
		s.mirror.client.log.Warn("value in etcd skipped", "key", e.Key, "revision", e.ModRevision, "error", err)
	}
}
