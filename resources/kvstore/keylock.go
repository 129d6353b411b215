// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"
)

// keyLocks serialise the writers of a key in this process, so that the recorded state
// of a key is that of its last write.
type keyLocks struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

type keyLock struct {
	held  *semaphore.Weighted
	users int
}

// lock locks all keys, or returns the cause when ctx ends.
func (l *keyLocks) lock(ctx context.Context, keys ...string) (unlock func(), err error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys))) // a fixed order prevents deadlocks
	for i, key := range keys {
		if err := l.lockOne(ctx, key); err != nil {
			l.unlock(keys[:i])
			return nil, err
		}
	}
	return func() { l.unlock(keys) }, nil
}

func (l *keyLocks) lockOne(ctx context.Context, key string) error {
	l.mu.Lock()
	k := l.locks[key]
	if k == nil {
		k = &keyLock{held: semaphore.NewWeighted(1)}
		l.locks[key] = k
	}
	k.users++
	l.mu.Unlock()
	if k.held.Acquire(ctx, 1) == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unref(key, k)
	return context.Cause(ctx)
}

func (l *keyLocks) unlock(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		k := l.locks[key]
		k.held.Release(1)
		l.unref(key, k)
	}
}

func (l *keyLocks) unref(key string, k *keyLock) {
	if k.users--; k.users == 0 {
		delete(l.locks, key)
	}
}
