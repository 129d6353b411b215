// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lifecycle

import (
	"errors"
	"fmt"

	"github.com/skep-operator/skep/runtime/internal/stacks"
)

// Failure is a step that did not start or stop as it should. Its Err is
// ErrBlocked where the fault is that of a step before it.
type Failure struct {
	Step int
	Err  error
}

// ErrBlocked marks steps that were not started because a step that they come
// after failed.
var ErrBlocked = errors.New("not started: what it comes after failed")

// HangError says that a hook did not return although its context had ended.
// The hook's goroutine is left behind; a start that succeeds after all is
// stopped again.
type HangError struct {
	Step  string
	Phase Phase
	Stack string // where the hook's goroutine stands, innermost call first
}

func (e *HangError) Error() string {
	return fmt.Sprintf("%s of %s hangs; it stands at:\n%s", e.Phase, e.Step, e.Stack)
}

// PanicError says that a hook or a job panicked.
type PanicError struct {
	Value any
	Stack []byte // as printed by debug.Stack
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v (%s)", e.Value, stacks.Panicked(e.Stack))
}
