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

// turns gives the tokens of the rate limit to those that wait, to fast ones first. It is safe for concurrent use.
type turns struct {
	limiter *rate.Limiter

	mu      sync.Mutex
	waiting map[bool][]chan struct{} // by whether they are fast, the first one first
	some    chan struct{}            // has an element if there may be one that waits
}

func newTurns(l *rate.Limiter) *turns {
	return &turns{limiter: l, waiting: map[bool][]chan struct{}{}, some: make(chan struct{}, 1)}
}

// wait returns when it is the caller's turn.
func (t *turns) wait(ctx context.Context, isFast bool) error {
	turn := make(chan struct{})
	t.mu.Lock()
	t.waiting[isFast] = append(t.waiting[isFast], turn)
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
		t.waiting[isFast] = slices.DeleteFunc(t.waiting[isFast], func(one chan struct{}) bool { return one == turn })
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
	return len(t.waiting[true])+len(t.waiting[false]) > 0
}

func (t *turns) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, isFast := range []bool{true, false} {
		if all := t.waiting[isFast]; len(all) > 0 {
			close(all[0])
			t.waiting[isFast] = all[1:]
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

// isFast reports whether a slice goes before others. The caller has the lock.
func (c *controller) isFast(name string) bool {
	s := c.planner.slices[name]
	return s != nil && c.priority[s.group.namespace]
}
