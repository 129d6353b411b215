// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lifecycle

import "context"

// Hook is something that starts and stops. Start returns once it serves, or
// fails; what goes on afterwards must not hang on Start's context. Stop ends it
// and waits for the end. Both return promptly when their context ends. Stop is
// called once after each Start that succeeded, however late, and never
// otherwise; its context may have ended already.
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
	// Enter builds the term's cells afresh and starts them. Trouble of single
	// modules is theirs: they are degraded and tried again, and Enter returns
	// nil. It fails when ctx ends first; nothing is left running then.
	Enter(ctx context.Context) error
	// Leave stops what Enter started, in reverse, and returns when all of it
	// has ended or ctx has. Leaving a term that is not entered does nothing.
	Leave(ctx context.Context) error
}

// Shutdown asks the process to stop in order. A non-nil cause makes it exit
// with an error. It returns at once.
type Shutdown func(cause error)
