// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import "context"

// ctxMutex is a mutex whose Lock can be given up. It is held for as long as
// hooks take, and waiting for it counts as idle in the bubbles of
// testing/synctest.
type ctxMutex chan struct{}

func newCtxMutex() ctxMutex { return make(ctxMutex, 1) }

func (m ctxMutex) Lock()   { m <- struct{}{} }
func (m ctxMutex) Unlock() { <-m }

// LockContext locks unless ctx ends first. A free mutex is locked even then.
func (m ctxMutex) LockContext(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	default:
	}
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
