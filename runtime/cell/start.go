// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cell

import (
	"time"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Invoke adds functions that run at the end of the build, before anything
// starts. What they take is built; they return nothing or an error, which fails
// the build of the process, or of their module in a term. Prefer [Hook] and
// [Job] for what has a life.
func Invoke(functions ...any) Cell {
	group := &decl.Group{}
	for _, f := range functions {
		group.Cells = append(group.Cells, &decl.Invoke{Fn: decl.FuncOf(f, decl.Caller(0))})
	}
	return declared{group}
}

// Hook declares something that starts and stops: constructor returns a
// lifecycle.Hook, or nil for nothing. It starts after the hooks and jobs of all
// that it depends on and stops before them. It serves those values of its own
// module that its constructor takes: whoever uses them starts after it, and of
// several that serve one value each starts after those declared before it. The
// name is part of the health path, and unique among the hooks of the module.
func Hook(name string, constructor any, options ...RootOption) Cell {
	return root(name, constructor, false, options)
}

// Job declares background work: constructor returns a job.Job. It starts, and
// serves values, like a [Hook]. The name is part of the health path and of metric
// labels, and unique among the jobs of the module.
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

// First starts its module before all others of the same term or process, but
// for those that it needs or comes after itself, and stops it after them. It is
// for order that data does not express: the others start also if it fails. The
// reason is shown with the start order.
func First(reason string) Cell {
	return declared{&decl.Order{First: true, Reason: reason, Where: decl.Caller(0)}}
}

// After starts its module after the one of the given id, where both are enabled
// and of the same term or process. It is for order that data does not express:
// the module starts also if the other one fails. The reason is shown with the
// start order. A module that an embedder removed is not waited for; what replaced
// one is.
func After(id, reason string) Cell {
	return declared{&decl.Order{After: id, Reason: reason, Where: decl.Caller(0)}}
}
