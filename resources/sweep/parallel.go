// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"iter"
	"runtime/debug"
	"sync"

	"github.com/skep-operator/skep/runtime/lifecycle"
)

// parallelize calls functions, so many at once, at least one, and returns when all
// have returned. After a panic of one no more are begun, and it panics itself.
func parallelize(workers int, all iter.Seq[func()]) {
	free := make(chan struct{}, max(1, workers))
	panics := make(chan error, 1)
	var busy sync.WaitGroup
	for f := range all {
		free <- struct{}{}
		if len(panics) > 0 {
			break
		}
		busy.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					select {
					case panics <- lifecycle.AsPanic(v, debug.Stack()):
					default:
					}
				}
				<-free
			}()
			f()
		})
	}
	busy.Wait()
	select {
	case v := <-panics:
		panic(v) // the job reports it
	default:
	}
}
