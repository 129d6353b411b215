// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lifecycle

import "context"

// Hook starts and stops a service. Start returns once the service is ready, or
// fails; background work must not use Start's context. Stop ends the service and
// waits for the end. Both return promptly when their context ends. Stop is called
// once after each Start that succeeded, however late, and never otherwise; its
// context may have ended already.
type Hook interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// Funcs makes a hook of functions; nil ones do nothing.
type Funcs struct {
	OnStart, OnStop func(context.Context) error
}

// Start implements Hook.
func (f Funcs) Start(ctx context.Context) error { return call(f.OnStart, ctx) }

// Stop implements Hook.
func (f Funcs) Stop(ctx context.Context) error { return call(f.OnStop, ctx) }

func call(f func(context.Context) error, ctx context.Context) error {
	if f == nil {
		return nil
	}
	return f(ctx)
}

// Term is the handle of a term: cells that live only between Enter and Leave.
// The process cell that decides asks for it by the term's name. It may be used
// by any goroutine; a call waits for the one before, or until its context ends.
type Term interface {
	// Enter builds new instances of the term's cells and starts them. Modules
	// that fail are degraded and retried, and Enter returns nil. It fails when
	// ctx ends first; nothing is left running then.
	Enter(ctx context.Context) error
	// Leave stops what Enter started, in reverse, and returns when all of it
	// has stopped or ctx has ended. Without an entry it does nothing.
	Leave(ctx context.Context) error
}

// Shutdown requests an orderly stop of the process. A non-nil cause makes it exit
// with an error. It returns at once.
type Shutdown func(cause error)
