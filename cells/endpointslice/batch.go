// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"container/heap"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
)

// A slice is written when it has not changed for the quiet period, so that changes at the same time make one write, and at
// the latest maxDelay after the first change, so that agents get it within a second.
const (
	quietPeriod = 500 * time.Millisecond
	maxDelay    = 900 * time.Millisecond
)

// maxTriggers bounds the triggers that are kept for a slice: the last ones.
const maxTriggers = 8

// pendingSlice is a slice to be written.
type pendingSlice struct {
	name        string
	first, last time.Time // unwritten changes
	triggers    []k8s.Trigger
	index       int // in the heap
}

func (p *pendingSlice) due() time.Time {
	due := p.last.Add(quietPeriod)
	if end := p.first.Add(maxDelay); end.Before(due) {
		return end
	}
	return due
}

// batch is a heap of pending slices, the next one first. It is not safe for concurrent use.
type batch struct {
	byName map[string]*pendingSlice
	queue  pendingHeap
}

func newBatch() *batch { return &batch{byName: map[string]*pendingSlice{}} }

// add records a change of a slice. An immediate one is due now.
func (b *batch) add(name string, now time.Time, immediate bool, triggers ...k8s.Trigger) {
	p := b.byName[name]
	if p == nil {
		p = &pendingSlice{name: name, first: now}
		b.byName[name] = p
		heap.Push(&b.queue, p)
	}
	p.last = now
	if immediate {
		p.last = now.Add(-maxDelay)
	}
	p.triggers = append(p.triggers, triggers...)
	p.triggers = p.triggers[max(0, len(p.triggers)-maxTriggers):]
	heap.Fix(&b.queue, p.index)
}

// remove removes a slice: its changes are being written.
func (b *batch) remove(name string) {
	if p := b.byName[name]; p != nil {
		heap.Remove(&b.queue, p.index)
		delete(b.byName, name)
	}
}

// popDue removes and returns the slices that are due, and the time until the next one, 0 for none.
func (b *batch) popDue(now time.Time) (due []*pendingSlice, next time.Duration) {
	for len(b.queue) > 0 {
		if p := b.queue[0]; p.due().After(now) {
			return due, p.due().Sub(now)
		}
		p := heap.Pop(&b.queue).(*pendingSlice)
		delete(b.byName, p.name)
		due = append(due, p)
	}
	return due, 0
}

// pendingHeap implements heap.Interface.
type pendingHeap []*pendingSlice

func (q pendingHeap) Len() int           { return len(q) }
func (q pendingHeap) Less(i, j int) bool { return q[i].due().Before(q[j].due()) }
func (q pendingHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *pendingHeap) Push(x any) {
	p := x.(*pendingSlice)
	p.index = len(*q)
	*q = append(*q, p)
}

func (q *pendingHeap) Pop() any {
	old := *q
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return p
}
