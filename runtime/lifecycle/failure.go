// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lifecycle

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

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

// PanicError is the error of a hook, a job or the handling of an object that panicked.
type PanicError struct {
	Value any    // an error that has a PanicError is one that was handed on
	Stack []byte // as printed by debug.Stack
	// SetAside says that the object whose handling panicked waits with a pause of its own: a module that is rebuilt for it does
	// not meet it again at once.
	SetAside bool
}

func (e *PanicError) Error() string {
	if e.inner() != nil {
		return fmt.Sprint(e.Value) // it has the place, and is not to be called a panic twice
	}
	return fmt.Sprintf("panic: %v (%s)", e.Value, e.Place())
}

// Unwrap returns the error that was handed on, nil for none.
func (e *PanicError) Unwrap() error {
	if e.inner() == nil {
		return nil
	}
	return e.Value.(error)
}

// Place is the line that panicked, as in cells/duty/plan.go:118.
func (e *PanicError) Place() string { return stacks.Panicked(e.Stack) }

func (e *PanicError) inner() *PanicError {
	err, _ := e.Value.(error)
	inner := new(PanicError)
	if !errors.As(err, &inner) {
		return nil
	}
	return inner
}

// AsPanic is the error for what recover has returned, with the stack of that moment. A panic that was recovered and handed on
// keeps the stack of where it was first.
func AsPanic(value any, stack []byte) *PanicError {
	if handedOn, is := value.(*PanicError); is {
		return handedOn
	}
	e := &PanicError{Value: value, Stack: stack}
	if inner := e.inner(); inner != nil {
		e.Stack = inner.Stack
	}
	return e
}

// Recover returns the error of do. That of a panic is a PanicError.
func Recover(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = AsPanic(v, debug.Stack())
		}
	}()
	return do()
}

// HangOf is the error of a goroutine with the given pprof label that does not return although it is to stop. Its stack is that below the
// last call of Recover, or else below that of the function base.
func HangOf(step, base, label, value string) *HangError {
	stack, found := stacks.Find(recoverName, label, value)
	if !found {
		stack = stacks.Hanging(base, label, value)
	}
	return &HangError{Step: step, Phase: Stopping, Stack: stack}
}

var recoverName = reflect.TypeFor[Runner]().PkgPath() + ".Recover"
