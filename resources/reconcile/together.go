// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"runtime/debug"
	"sync"

	"github.com/skep-operator/skep/runtime/lifecycle"
)

// RunTogether runs functions at once, and returns when all have returned. A panic of one cancels the context of all, since
// the others must not use its incomplete state, and is the caller's.
func RunTogether(ctx context.Context, functions []func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	panics := make(chan error, len(functions))
	for _, f := range functions {
		running.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					panics <- &lifecycle.PanicError{Value: v, Stack: debug.Stack()}
					cancel()
				}
			}()
			f(ctx)
		})
	}
	running.Wait()
	select {
	case v := <-panics:
		panic(v) // the job reports it
	default:
	}
}
