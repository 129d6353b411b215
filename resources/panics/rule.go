// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package panics

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Rule handles the objects of one rule of a module. It is safe for concurrent use.
type Rule struct {
	Name   string // as in causes: the module's id and one or two words
	Memory *Memory
	Log    *slog.Logger
	Events *k8s.Events // nil: none are made
	Count  func()      // called for each panic; nil: it is not counted
	Next   string      // when an object is handled again; "": after its pause
}

// Error is the error of an object whose handling panicked.
type Error struct {
	Key    string
	Times  int           // in a row
	Place  string        // the line that panicked last
	Pause  time.Duration // before the object is handled again
	Panic  *lifecycle.PanicError
	Shared bool // state that objects share was being changed: the module has to be rebuilt

	next   string
	isNews bool
	until  time.Time
}

func (e *Error) Error() string {
	times, next := "", cmp.Or(e.next, "in "+e.Pause.String())
	if e.Times > 1 {
		times = fmt.Sprintf(" %d times in a row", e.Times)
	}
	return fmt.Sprintf("handling %s panicked%s at %s; next try %s: %v", e.Key, times, e.Place, next, e.Panic.Value)
}

// Unwrap returns the panic.
func (e *Error) Unwrap() error { return e.Panic }

// Run runs do for an object. If it panics the error is an *Error, which is logged with its stack when it is new. What it says of
// the next try is the caller's to keep.
func (r *Rule) Run(key any, do func() error) error {
	err := lifecycle.Recover(do)
	known := new(Error)
	switch p := new(lifecycle.PanicError); {
	case errors.As(err, &known): // of a rule within this one
		return known
	case errors.As(err, &p):
		return r.record(key, p)
	case r.Memory.count.Load() > 0:
		r.Memory.forget(r.id(key))
	}
	return err
}

// Waits returns what is remembered of an object that is not to be handled yet, and for how long; nil if it can be handled.
func (r *Rule) Waits(key any) (e *Error, rest time.Duration) {
	if r.Memory.count.Load() == 0 {
		return nil, 0
	}
	if e = r.Memory.last(r.id(key)); e == nil {
		return nil, 0
	}
	if rest = time.Until(e.until); rest <= 0 {
		return nil, 0
	}
	return e, rest
}

func (r *Rule) id(key any) id { return id{r.Name, fmt.Sprint(key)} }

func (r *Rule) record(key any, p *lifecycle.PanicError) *Error {
	of, place := r.id(key), p.Place()
	shared, is := p.Value.(*sharing)
	if is {
		p = &lifecycle.PanicError{Value: shared.value, Stack: p.Stack}
	}
	if is && shared.object.Name != "" {
		of.key = nameOf(shared.object)
	}
	e := r.Memory.record(of, Error{Key: of.key, Place: place, Panic: p, Shared: is, isNews: true, next: r.Next}, time.Now())
	if r.Count != nil {
		r.Count()
	}
	if e.isNews {
		r.Log.Error("handling an object panicked, others go on", "rule", r.Name, "key", e.Key, "panic", fmt.Sprint(p.Value), "place", e.Place, "stack", string(p.Stack))
		r.Events.WarnOnLease("HandlingPanicked", r.Name+": "+e.Error())
	}
	return e
}

// handOn panics with a panic of no object in particular, unless it says itself which one was being handled.
func (r *Rule) handOn(p *lifecycle.PanicError) {
	if shared, is := p.Value.(*sharing); is && shared.object.Name != "" {
		Rebuild(r.record("", p))
	} else if is {
		p = &lifecycle.PanicError{Value: shared.value, Stack: p.Stack}
	}
	panic(p) // the job reports it
}

// Sharing is deferred by a function, by itself, that changes state that objects share, such as the model of an allocator. After a panic
// that state may be half changed: the module is rebuilt, and the object whose handling led to it waits.
//
//	defer panics.Sharing()
func Sharing() {
	if v := recover(); v != nil {
		panic(sharingOf(v, debug.Stack(), k8s.Trigger{}))
	}
}

// SharingOf is Sharing where one object's change leads to the handling of others: object is the one that is being handled.
func SharingOf(object *k8s.Trigger) {
	if v := recover(); v != nil {
		panic(sharingOf(v, debug.Stack(), *object))
	}
}

func sharingOf(value any, stack []byte, object k8s.Trigger) *lifecycle.PanicError {
	p := lifecycle.AsPanic(value, stack)
	if _, is := p.Value.(*sharing); is || errors.As(p, new(*Error)) {
		return p
	}
	return &lifecycle.PanicError{Value: &sharing{p.Value, object}, Stack: p.Stack}
}

// sharing is the value of a panic that may have left shared state half changed.
type sharing struct {
	value  any
	object k8s.Trigger // that was being handled; none: the one whose change it was
}

func (s *sharing) String() string { return fmt.Sprint(s.value) }

// Rebuild panics if shared state was being changed by what failed with err, so that the module is rebuilt.
func Rebuild(err error) {
	e := new(Error)
	if errors.As(err, &e) && e.Shared {
		panic(&lifecycle.PanicError{Value: e, Stack: e.Panic.Stack, SetAside: true}) // the job reports it
	}
}
