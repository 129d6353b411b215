// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import "k8s.io/client-go/util/workqueue"

// Urgent has the keys go first for which is is true: those of what users wait for, where the others are thousands of status
// writes. The others wait as long as there are urgent ones, so these are to be few, or seldom. K is that of the queue.
func Urgent[K comparable](is func(K) bool) Option { return func(o *options) { o.urgent = is } }

// lanes are the waiting keys of a work queue: urgent ones go first, each in the order in which they came.
type lanes[K comparable] struct {
	isUrgent       func(K) bool
	urgent, others workqueue.Queue[K]
}

func newLanes[K comparable](isUrgent func(K) bool) *lanes[K] {
	return &lanes[K]{isUrgent, workqueue.DefaultQueue[K](), workqueue.DefaultQueue[K]()}
}

func (l *lanes[K]) of(key K) workqueue.Queue[K] {
	if l.isUrgent(key) {
		return l.urgent
	}
	return l.others
}

// Touch implements workqueue.Queue.
func (l *lanes[K]) Touch(key K) { l.of(key).Touch(key) }

// Push implements workqueue.Queue.
func (l *lanes[K]) Push(key K) { l.of(key).Push(key) }

// Len implements workqueue.Queue.
func (l *lanes[K]) Len() int { return l.urgent.Len() + l.others.Len() }

// Pop implements workqueue.Queue.
func (l *lanes[K]) Pop() K {
	if l.urgent.Len() > 0 {
		return l.urgent.Pop()
	}
	return l.others.Pop()
}
