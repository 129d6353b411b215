// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// The annotation of a Namespace whose slices are written before those of others.
const (
	priorityAnnotation = "cilium.io/ces-namespace"
	priority           = "priority"
)

// The queues, as the metric names them.
const (
	fast     = "fast"
	standard = "standard"
)

// turns gives the tokens of the rate limit to those that wait, to fast ones first, and by turns of their namespaces. It is safe for
// concurrent use.
type turns struct {
	limiter *rate.Limiter

	mu      sync.Mutex
	waiting map[bool]*lane // by whether they are fast
	some    chan struct{}  // has an element if there may be one that waits
}

func newTurns(l *rate.Limiter) *turns {
	return &turns{limiter: l, waiting: map[bool]*lane{true: newLane(), false: newLane()}, some: make(chan struct{}, 1)}
}

// lane are those that wait, by namespace, so that one with hundreds of slices does not keep the others waiting.
type lane struct {
	turns map[string][]chan struct{} // the first one first
	order []string                   // the namespaces in turns, the next one first
}

func newLane() *lane { return &lane{turns: map[string][]chan struct{}{}} }

func (l *lane) add(namespace string, turn chan struct{}) {
	if len(l.turns[namespace]) == 0 {
		l.order = append(l.order, namespace)
	}
	l.turns[namespace] = append(l.turns[namespace], turn)
}

// remove removes one that gives up, if it is still there.
func (l *lane) remove(namespace string, turn chan struct{}) {
	i := slices.Index(l.turns[namespace], turn)
	if i < 0 {
		return
	}
	if l.turns[namespace] = slices.Delete(l.turns[namespace], i, i+1); len(l.turns[namespace]) == 0 {
		delete(l.turns, namespace)
		l.order = slices.DeleteFunc(l.order, func(other string) bool { return other == namespace })
	}
}

// pop removes the next one, whose namespace is then the last one; nil if there is none.
func (l *lane) pop() chan struct{} {
	if len(l.order) == 0 {
		return nil
	}
	namespace := l.order[0]
	all := l.turns[namespace]
	l.order = l.order[1:]
	if len(all) == 1 {
		delete(l.turns, namespace)
	} else {
		l.turns[namespace] = all[1:]
		l.order = append(l.order, namespace)
	}
	return all[0]
}

// wait returns when it is the turn of a slice of a namespace.
func (t *turns) wait(ctx context.Context, isFast bool, namespace string) error {
	turn := make(chan struct{})
	t.mu.Lock()
	t.waiting[isFast].add(namespace, turn)
	t.mu.Unlock()
	select {
	case t.some <- struct{}{}:
	default:
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waiting[isFast].remove(namespace, turn)
		return ctx.Err()
	}
}

// run gives turns until ctx ends. Who is next is decided when there is a token.
func (t *turns) run(ctx context.Context) error {
	for {
		for t.waits() {
			if err := t.limiter.Wait(ctx); err != nil {
				return err
			}
			t.next()
		}
		select {
		case <-t.some:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *turns) waits() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting[true].order)+len(t.waiting[false].order) > 0
}

func (t *turns) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, isFast := range []bool{true, false} {
		if turn := t.waiting[isFast].pop(); turn != nil {
			close(turn)
			return
		}
	}
}

// busy are the slices that a worker has: one can be in both queues. It is safe for concurrent use.
type busy struct {
	mu    sync.Mutex
	names map[string]chan struct{}
}

// acquire waits until no other worker has a slice. The result gives it back.
func (b *busy) acquire(ctx context.Context, name string) (done func(), err error) {
	for {
		b.mu.Lock()
		other := b.names[name]
		if other == nil {
			mine := make(chan struct{})
			b.names[name] = mine
			b.mu.Unlock()
			return func() { b.release(name, mine) }, nil
		}
		b.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *busy) release(name string, mine chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.names, name)
	close(mine)
}

// watchNamespaces knows the Namespaces with priority, in releases that have them.
func (c *controller) watchNamespaces(ctx context.Context) error {
	if !release.PriorityNamespaces.In(c.Cluster.Release) {
		return nil
	}
	for batch := range c.Namespaces.Changes(ctx) {
		c.mu.Lock()
		for _, ch := range batch.Changes {
			if ch.Kind == stream.Upsert && isPriority(ch.Object) {
				c.priority[ch.Key.Name] = true
			} else {
				delete(c.priority, ch.Key.Name)
			}
		}
		c.mu.Unlock()
	}
	return ctx.Err()
}

func isPriority(n *slim.Namespace) bool { return n.Annotations.Get(priorityAnnotation) == priority }

// keyOf is the key of a slice, and whether it goes before others. The caller has the lock.
func (c *controller) keyOf(name string) (key sliceKey, isFast bool) {
	s := c.planner.slices[name]
	if s == nil {
		return sliceKey{name: name}, false
	}
	return sliceKey{s.group.namespace, name}, c.priority[s.group.namespace]
}
