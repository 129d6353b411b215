// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"slices"
	"sync"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Urgent has the keys go first for which is is true: those of what users wait for, where the others are thousands of status
// writes. As long as there are urgent ones, each fourth key is one of the others. K is that of the queue.
func Urgent[K comparable](is func(K) bool) Option { return func(o *options) { o.urgent = is } }

// NamespaceOf names the namespace of each key, so that one cannot keep the others waiting. Keys of type slim.Key have their own; keys of
// other types have none by default. K is that of the queue.
func NamespaceOf[K comparable](of func(K) string) Option {
	return func(o *options) { o.namespace = of }
}

// namespaceOf is the namespace of a key, "" for none.
func namespaceOf[K comparable](key K) string {
	of, _ := any(key).(slim.Key)
	return of.Namespace
}

// fairQueue are the waiting keys of a work queue. They go by turns of their namespaces, and in each in the order in which they came; urgent
// ones go before others, but three in a row at most while another one may go. One namespace never has all workers: a key of a namespace that has all but one waits until one is done. Keys
// without a namespace, such as nodes, take turns as one namespace does, and may have all workers.
//
// It is a workqueue.Queue, whose methods are called under the lock of the work queue; done is not.
type fairQueue[K comparable] struct {
	namespace func(K) string
	isUrgent  func(K) bool
	limit     int // workers that one namespace may have

	mu      sync.Mutex
	lanes   [2]lane[K]     // urgent ones, others
	urgents int            // urgent ones that went in a row
	total   int            // keys that wait
	running map[string]int // keys that workers have
}

// lane are keys by namespace.
type lane[K comparable] struct {
	keys  map[string][]K
	turns []string // namespaces with keys, the next one first
}

func newFairQueue[K comparable](workers int, namespace func(K) string, isUrgent func(K) bool) *fairQueue[K] {
	q := &fairQueue[K]{namespace: namespace, isUrgent: isUrgent, limit: max(1, workers-1), running: map[string]int{}}
	for i := range q.lanes {
		q.lanes[i].keys = map[string][]K{}
	}
	return q
}

// Touch implements workqueue.Queue: a key that waits keeps its place.
func (q *fairQueue[K]) Touch(K) {}

// Push implements workqueue.Queue.
func (q *fairQueue[K]) Push(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := &q.lanes[1]
	if q.isUrgent(key) {
		l = &q.lanes[0]
	}
	namespace := q.namespace(key)
	if len(l.keys[namespace]) == 0 {
		l.turns = append(l.turns, namespace)
	}
	l.keys[namespace] = append(l.keys[namespace], key)
	q.total++
}

// Len implements workqueue.Queue: it is 0 while no key may go. The worker that then makes one free takes the next key itself.
func (q *fairQueue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.total
	for namespace := range q.running { // no more than there are workers
		if !q.mayGo(namespace) {
			n -= len(q.lanes[0].keys[namespace]) + len(q.lanes[1].keys[namespace])
		}
	}
	return n
}

func (q *fairQueue[K]) mayGo(namespace string) bool {
	return namespace == "" || q.running[namespace] < q.limit
}

// Pop implements workqueue.Queue. It is called when Len is not 0.
func (q *fairQueue[K]) Pop() (key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	order := [2]int{0, 1}
	if q.urgents >= urgentsInARow {
		order = [2]int{1, 0}
	}
	for _, i := range order {
		l := &q.lanes[i]
		for turn, namespace := range l.turns {
			if !q.mayGo(namespace) {
				continue
			}
			q.running[namespace]++
			q.total--
			if q.urgents++; i != 0 {
				q.urgents = 0
			}
			return l.pop(turn)
		}
	}
	return key
}

// urgentsInARow is how many urgent keys go before one of the others: a tenant can keep urgent ones coming, and statuses of all would wait for ever.
const urgentsInARow = 3

// pop takes the first key of a namespace, whose next turn comes after those of all others.
func (l *lane[K]) pop(turn int) K {
	namespace := l.turns[turn]
	if turn == 0 {
		l.turns = l.turns[1:]
	} else {
		l.turns = slices.Delete(l.turns, turn, turn+1)
	}
	keys := l.keys[namespace]
	if len(keys) == 1 {
		delete(l.keys, namespace)
	} else {
		l.keys[namespace] = keys[1:]
		l.turns = append(l.turns, namespace)
	}
	return keys[0]
}

// done is called when a key is reconciled.
func (q *fairQueue[K]) done(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	namespace := q.namespace(key)
	if q.running[namespace]--; q.running[namespace] == 0 {
		delete(q.running, namespace)
	}
}
