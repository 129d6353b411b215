// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package panics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Objects handles the changes of objects, for loops over them. One whose handling panicked is handled again after its pause, by Retry:
// as its last change. It is safe for concurrent use, but for the changes of one object. A nil Objects handles all, and recovers nothing.
type Objects struct {
	rule   *Rule
	health health.Reporter
	book   *explain.History // nil: decisions are not recorded

	mu      sync.Mutex
	waiting map[string]waiting
	wake    chan struct{}
}

type waiting struct {
	until time.Time
	again func()
	err   error
}

// NewObjects returns Objects that report to a part of health of their own, and to the explain command.
func NewObjects(r *Rule, h health.Reporter, book *explain.History) *Objects {
	return &Objects{rule: r, health: h, book: book, waiting: map[string]waiting{}, wake: make(chan struct{}, 1)}
}

// Handle handles the last change of an object, unless it has to wait. It panics if do did so while it changed shared state. The error is
// that of do, or why the object waits.
func (o *Objects) Handle(object k8s.Trigger, do func() error) error {
	if o == nil {
		return do()
	}
	name := nameOf(object)
	if e, rest := o.rule.Waits(name); e != nil {
		o.hold(object, do, rest, e)
		return e
	}
	err := o.rule.Run(name, do)
	if e := new(Error); errors.As(err, &e) {
		o.hold(object, do, e.Pause, e)
		Rebuild(e)
		return e
	}
	o.drop(object)
	return err
}

// Run is for what is not the handling of one object, or what is done in its place for one that waits: a panic of do is the caller's. An
// object that do was handling then, under SharingOf, waits.
func (o *Objects) Run(do func() error) error {
	if o == nil {
		return do()
	}
	err := lifecycle.Recover(do)
	if p := new(lifecycle.PanicError); errors.As(err, &p) {
		o.rule.handOn(p)
	}
	return err
}

// nameOf is the name of an object in whatever version.
func nameOf(object k8s.Trigger) string {
	object.ResourceVersion = ""
	return object.String()
}

// hold keeps what to do for an object until its pause is over.
func (o *Objects) hold(object k8s.Trigger, do func() error, pause time.Duration, err error) {
	o.record(object, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting[nameOf(object)] = waiting{time.Now().Add(pause), func() { _ = o.Handle(object, do) }, err}
	o.report(err)
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *Objects) drop(object k8s.Trigger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, waits := o.waiting[nameOf(object)]; !waits {
		return
	}
	delete(o.waiting, nameOf(object))
	o.record(object, nil)
	for _, w := range o.waiting {
		o.report(w.err)
		return
	}
	o.health.Remove()
}

func (o *Objects) report(err error) {
	o.health.Degraded(fmt.Sprintf("%d objects wait because their handling panicked", len(o.waiting)), err)
}

func (o *Objects) record(object k8s.Trigger, err error) {
	key := strings.TrimPrefix(nameOf(object), object.Kind+" ") // as that of a work queue
	o.book.RecordDecision(&explain.Cause{Rule: o.rule.Name, Triggers: []k8s.Trigger{object}}, key, err)
}

// RetryDue handles objects whose pause is over.
func (o *Objects) RetryDue() {
	if o == nil {
		return
	}
	for _, again := range o.due() {
		again()
	}
}

func (o *Objects) due() (due []func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.waiting {
		if time.Until(w.until) <= 0 {
			due = append(due, w.again)
		}
	}
	return due
}

// next is the time until the pause of an object is over; waits is false if none waits.
func (o *Objects) next() (rest time.Duration, waits bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.waiting {
		if of := time.Until(w.until); !waits || of < rest {
			rest, waits = of, true
		}
	}
	return rest, waits
}

// Retry handles objects again when their pause is over, under a lock that the caller holds when it handles changes, until ctx ends.
func (o *Objects) Retry(ctx context.Context, lock sync.Locker) {
	for ctx.Err() == nil {
		rest, waits := o.next()
		if waits && rest <= 0 {
			o.retryUnder(lock)
			continue
		}
		var timer <-chan time.Time
		if waits {
			timer = time.After(rest)
		}
		select {
		case <-timer:
		case <-o.wake:
		case <-ctx.Done():
		}
	}
}

func (o *Objects) retryUnder(lock sync.Locker) {
	lock.Lock()
	defer lock.Unlock()
	o.RetryDue()
}
