// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cell

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/job"
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
// module that its constructor takes: users of these start after it, and of several
// hooks that serve one value each starts after those declared before it. The name is
// part of the health path, and unique among the hooks of the module.
func Hook(name string, constructor any, options ...RootOption) Cell {
	return declared{newRoot(name, constructor, options)}
}

// Job declares background work. fn is the work itself, a function whose last parameter is a context.Context and whose
// only result is an error: its other parameters are resolved like those of a constructor, so that a method expression
// such as (*controller).run will do. It runs once, see [Retry] and [Every]. Or fn is a constructor that returns a
// job.Job. A job starts, and serves values, like a [Hook]. The name is part of the health path and of metric labels, and
// unique among the jobs of the module.
func Job(name string, fn any, options ...RootOption) Cell {
	r := newRoot(name, fn, options)
	r.Job = true
	switch run, ok := jobConstructor(r); {
	case ok:
		r.Fn = r.Fn.With(run)
	case r.Retry != nil || r.Every > 0:
		return declared{&decl.Broken{
			Problem: fmt.Sprintf("job %q has the option Retry or Every and is made by a constructor", name),
			Fix:     "give these options to the job.Job, or declare a func(..., context.Context) error",
			Where:   r.Fn.Where,
		}}
	}
	return declared{r}
}

// jobConstructor makes the constructor of a job from a function that is its work.
func jobConstructor(r *decl.Root) (constructor reflect.Value, ok bool) {
	work := r.Fn.Value
	if !work.IsValid() {
		return work, false
	}
	t := work.Type()
	last := t.NumIn() - 1
	if t.IsVariadic() || last < 0 || t.In(last) != reflect.TypeFor[context.Context]() || t.NumOut() != 1 || t.Out(0) != reflect.TypeFor[error]() {
		return work, false
	}
	in := make([]reflect.Type, last)
	for i := range in {
		in[i] = t.In(i)
	}
	var opts []job.Option
	if r.Retry != nil {
		opts = append(opts, job.Retry(r.Retry.First, r.Retry.Longest))
	}
	every := r.Every
	return reflect.MakeFunc(reflect.FuncOf(in, []reflect.Type{reflect.TypeFor[job.Job]()}, false), func(values []reflect.Value) []reflect.Value {
		run := func(ctx context.Context) error {
			err, _ := reflect.TypeAssert[error](work.Call(append(slices.Clone(values), reflect.ValueOf(ctx)))[0])
			return err
		}
		if every > 0 {
			return []reflect.Value{reflect.ValueOf(job.Timer(run, every, opts...))}
		}
		return []reflect.Value{reflect.ValueOf(job.OneShot(run, opts...))}
	}), true
}

// Retry repeats the work of a [Job] that fails, with a pause that doubles from first to longest.
func Retry(first, longest time.Duration) RootOption {
	return func(r *decl.Root) { r.Retry = &decl.Retry{First: first, Longest: longest} }
}

// Every repeats the work of a [Job] at an interval.
func Every(interval time.Duration) RootOption {
	return func(r *decl.Root) { r.Every = interval }
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

func newRoot(name string, fn any, options []RootOption) *decl.Root {
	r := &decl.Root{Name: name, Fn: decl.FuncOf(fn, decl.Caller(1))}
	for _, o := range options {
		o(r)
	}
	return r
}

// StartFirst starts its module before all others of the same term or process, but
// for those that it needs or comes after itself, and stops it after them. It is
// for order that data does not express: the others start also if it fails. The
// reason is shown with the start order.
func StartFirst(reason string) Cell {
	return declared{&decl.Order{First: true, Reason: reason, Where: decl.Caller(0)}}
}

// StartAfter starts its module after the one of the given id, where both are enabled
// and of the same term or process. It is for order that data does not express:
// the module starts also if the other one fails. The reason is shown with the
// start order. A module that an embedder removed is not waited for; what replaced
// one is.
func StartAfter(id, reason string) Cell {
	return declared{&decl.Order{After: id, Reason: reason, Where: decl.Caller(0)}}
}
