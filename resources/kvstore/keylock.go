// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"slices"
	"sync"
)

// keyLocks let one writer of this process at a key at a time, so that what is
// remembered of the key is what was written last.
type keyLocks struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

type keyLock struct {
	held  chan struct{} // of capacity 1
	users int
}

// lock returns when all keys are this caller's, or ctx ends.
func (l *keyLocks) lock(ctx context.Context, keys ...string) (unlock func(), err error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys))) // in one order, or two callers wait for each other
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
		k = &keyLock{held: make(chan struct{}, 1)}
		l.locks[key] = k
	}
	k.users++
	l.mu.Unlock()
	select {
	case k.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leave(key, k)
		return context.Cause(ctx)
	}
}

func (l *keyLocks) unlock(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		k := l.locks[key]
		<-k.held
		l.leave(key, k)
	}
}

func (l *keyLocks) leave(key string, k *keyLock) {
	if k.users--; k.users == 0 {
		delete(l.locks, key)
	}
}
