// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudtest

import "sync"

// Breaker says which calls of a cloud fail. The zero value has none fail. It is safe for concurrent use.
type Breaker struct {
	mu    sync.Mutex
	calls int
	from  int // the first call that fails, 0 for none
	until int // the last one
}

// Fails reports whether a call fails. The cloud asks it once for every call.
func (b *Breaker) Fails() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	return b.from > 0 && b.from <= b.calls && b.calls <= b.until
}

// count is the number of calls so far.
func (b *Breaker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

// breakAt has count calls fail, of which the n-th from now on is the first. Other calls do not fail any more.
func (b *Breaker) breakAt(n, count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from, b.until = b.calls+n, b.calls+n+count-1
}

func (b *Breaker) breakAll() { b.breakAt(1, 1<<30) }

func (b *Breaker) repair() { b.breakAt(0, 0) }
