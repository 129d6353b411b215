// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cell

import (
	"time"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Invoke adds functions that run at the end of the build. What they take is
// built; they return nothing or an error. Prefer [Hook] and [Job] for
// what has a life.
func Invoke(functions ...any) Cell {
	group := &decl.Group{}
	for _, f := range functions {
		group.Cells = append(group.Cells, &decl.Invoke{Fn: decl.FuncOf(f, decl.Caller(0))})
	}
	return declared{group}
}

// Hook declares something that starts and stops: constructor returns a
// lifecycle.Hook. It starts after the hooks and jobs of all that it depends on
// and stops before them. It serves those values of its own module that its
// constructor takes: whoever uses them starts after it.
func Hook(name string, constructor any, options ...RootOption) Cell {
	return root(name, constructor, false, options)
}

// Job declares background work: constructor returns a job.Job. Its place in
// the order of starting is that of a [Hook].
func Job(name string, constructor any, options ...RootOption) Cell {
	return root(name, constructor, true, options)
}

// RootOption changes how a hook or a job starts and stops.
type RootOption func(*decl.Root)

// StartTimeout is how long Start may take. Without it the process-wide limit
// holds.
func StartTimeout(d time.Duration) RootOption {
	return func(r *decl.Root) { r.StartTimeout = d }
}

// StopTimeout is how long Stop may take. Without it the process-wide limit
// holds.
func StopTimeout(d time.Duration) RootOption {
	return func(r *decl.Root) { r.StopTimeout = d }
}

func root(name string, constructor any, job bool, options []RootOption) Cell {
	r := &decl.Root{Name: name, Fn: decl.FuncOf(constructor, decl.Caller(1)), Job: job}
	for _, o := range options {
		o(r)
	}
	return declared{r}
}

// First starts its module before all others of the same term or process, and
// stops it after them. It is for order that data does not express; the reason
// is shown with the start order.
func First(reason string) Cell {
	return declared{&decl.Order{First: true, Reason: reason, Where: decl.Caller(0)}}
}

// After starts its module after the one of the given id, where both are
// enabled. It is for order that data does not express; the reason is shown
// with the start order.
func After(id, reason string) Cell {
	return declared{&decl.Order{After: id, Reason: reason, Where: decl.Caller(0)}}
}
