// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"container/heap"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
)

// A slice is written when nothing has happened to it for a while, so that what
// happens together is written together. Where something happens all the time, it
// is written so long after the first change that agents have that within a second.
const (
	quiet   = 500 * time.Millisecond
	longest = 900 * time.Millisecond
)

// maxTriggers bounds what is remembered of why a slice is written: the last ones.
const maxTriggers = 8

// wait is a slice that waits to be written.
type wait struct {
	name        string
	first, last time.Time // changes that are not written
	triggers    []k8s.Trigger
	at          int // in the heap
}

func (w *wait) due() time.Time {
	due := w.last.Add(quiet)
	if end := w.first.Add(longest); end.Before(due) {
		return end
	}
	return due
}

// batch is the slices that wait, the next one first. It is not safe for
// concurrent use.
type batch struct {
	byName map[string]*wait
	queue  waits
}

func newBatch() *batch { return &batch{byName: map[string]*wait{}} }

// add takes note of a change of a slice. One that is not to wait is due now.
func (b *batch) add(name string, now time.Time, hurry bool, triggers ...k8s.Trigger) {
	w := b.byName[name]
	if w == nil {
		w = &wait{name: name, first: now}
		b.byName[name] = w
		heap.Push(&b.queue, w)
	}
	w.last = now
	if hurry {
		w.last = now.Add(-longest)
	}
	w.triggers = append(w.triggers, triggers...)
	w.triggers = w.triggers[max(0, len(w.triggers)-maxTriggers):]
	heap.Fix(&b.queue, w.at)
}

// drop takes a slice out: its changes are seen to.
func (b *batch) drop(name string) {
	if w := b.byName[name]; w != nil {
		heap.Remove(&b.queue, w.at)
		delete(b.byName, name)
	}
}

// take returns the slices that are due, and how long until the next one is, 0 for
// none.
func (b *batch) take(now time.Time) (due []*wait, next time.Duration) {
	for len(b.queue) > 0 {
		if w := b.queue[0]; w.due().After(now) {
			return due, w.due().Sub(now)
		}
		w := heap.Pop(&b.queue).(*wait)
		delete(b.byName, w.name)
		due = append(due, w)
	}
	return due, 0
}

// waits implements heap.Interface.
type waits []*wait

func (q waits) Len() int           { return len(q) }
func (q waits) Less(i, j int) bool { return q[i].due().Before(q[j].due()) }
func (q waits) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *waits) Push(x any) {
	w := x.(*wait)
	w.at = len(*q)
	*q = append(*q, w)
}

func (q *waits) Pop() any {
	old := *q
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return w
}
