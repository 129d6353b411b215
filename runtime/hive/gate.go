// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import "context"

// gate lets one pass at a time, like a sync.Mutex. It is held for as long as
// hooks take, so waiting for it can be given up, and counts as idle in the
// bubbles of testing/synctest.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) Lock()   { g <- struct{}{} }
func (g gate) Unlock() { <-g }

// enter locks unless ctx ends first. A gate that is free is entered even then.
func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	default:
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
