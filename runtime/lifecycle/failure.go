// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lifecycle

import (
	"errors"
	"fmt"

	"github.com/skep-operator/skep/runtime/internal/stacks"
)

// Failure is a step that did not start or stop. Its Err is ErrBlocked where a
// step before it failed.
type Failure struct {
	Step int
	Err  error
}

// ErrBlocked marks steps that were not started because a step that they come
// after failed. It is not the error of the step that failed, and not of steps that were
// stopped again.
var ErrBlocked = errors.New("not started: what it comes after failed")

// HangError is the error of a hook that did not return although its context had
// ended. The hook's goroutine is left behind; a start that succeeds later is
// stopped again.
type HangError struct {
	Step  string
	Phase Phase
	Stack string // of the hook's goroutine, innermost call first
}

func (e *HangError) Error() string {
	return fmt.Sprintf("%s of %s hangs; it stands at:\n%s", e.Phase, e.Step, e.Stack)
}

// PanicError is the error of a hook or a job that panicked.
type PanicError struct {
	Value any
	Stack []byte // as printed by debug.Stack
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v (%s)", e.Value, stacks.Panicked(e.Stack))
}
