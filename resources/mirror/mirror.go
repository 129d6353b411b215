// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mirror

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/cache"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// mirror sets the desired values of a store.
type mirror[C Mapper] struct {
	mapper    C
	keys      *kvstore.SyncStore
	resources []fresh // of all watches
	rule      *panics.Rule
	changes   *panics.Objects // objects that changed
	values    *panics.Objects // keys

	opening sync.Mutex
	opened  bool

	mu       sync.Mutex
	unsynced int                      // watches
	early    map[slim.Key]k8s.Trigger // changed before all were synced, with the last trigger
	unknown  map[slim.Key]struct{}
}

// fresh is a stream of whatever type.
type fresh interface {
	WaitForFresh(context.Context) error
}

// open calls the mapper's method, once.
func (m *mirror[C]) open(ctx context.Context) error {
	m.opening.Lock()
	defer m.opening.Unlock()
	if c, ok := any(m.mapper).(interface{ Open(context.Context) error }); ok && !m.opened {
		if err := c.Open(ctx); err != nil {
			return err
		}
	}
	m.opened = true
	return nil
}

// set sets the value of a key, after the initial state is complete. One for which the mapper panics cannot be decided, and stays as it
// is. The caller holds the lock.
func (m *mirror[C]) set(key slim.Key, triggers ...k8s.Trigger) {
	if m.unsynced > 0 {
		m.early[key] = triggers[len(triggers)-1]
		return
	}
	err := m.values.Handle(k8s.Trigger{Kind: "Key", Namespace: key.Namespace, Name: key.Name}, func() error {
		m.decide(key, triggers)
		return nil
	})
	if err != nil {
		m.unknown[key] = struct{}{}
	}
}

func (m *mirror[C]) decide(key slim.Key, triggers []k8s.Trigger) {
	value, known := m.mapper.Desired(key)
	switch {
	case !known:
		m.unknown[key] = struct{}{}
		return
	case value == nil:
		m.keys.Delete(key.String(), triggers...)
	default:
		m.keys.Upsert(key.String(), value, triggers...)
	}
	delete(m.unknown, key)
}

// sourceSynced is called once for each watch, with the lock held. The last call sets the initial state.
func (m *mirror[C]) sourceSynced() {
	if m.unsynced--; m.unsynced > 0 {
		return
	}
	for key, trigger := range m.early {
		m.set(key, trigger)
	}
	m.early = nil
	m.keys.Synced()
}

// isStale reports whether a name in etcd is one of no object that has a key.
func (m *mirror[C]) isStale(name string) bool {
	key, err := cache.ParseObjectName(name)
	if err != nil {
		return true // no object has such a name
	}
	var value []byte
	known := false
	err = m.rule.Run(key, func() error { value, known = m.mapper.Desired(key); return nil })
	panics.Rebuild(err)
	return err == nil && known && value == nil
}

// awaitFresh returns once all streams show what the API server has now.
func (m *mirror[C]) awaitFresh(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, r := range m.resources {
		all.Go(func() error { return r.WaitForFresh(ctx) })
	}
	return all.Wait()
}

// unknownRetry is how often a key that cannot be decided is decided again: there is no change when an object that cannot
// be decoded is deleted.
const unknownRetry = time.Minute

func (m *mirror[C]) setUnknown(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.unknown {
		m.set(key)
	}
	m.changes.RetryDue()
	return nil
}
