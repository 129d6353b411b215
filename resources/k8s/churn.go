// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What makes this operator write the same object again and again need not be another writer: an annotation, or the export of another cluster,
// that flips has the object changed, or deleted and created, each time for another reason. So deletes of one name are counted, whatever the
// reason, and the writes of objects that have one source. Those of objects with many sources, such as slices and shared configurations, are
// many inputs rather than one that flips, and must not wait because of one of them.
const (
	mostDeletes = 10 // of one name within churnWindow
	mostWrites  = 30 // of one object within churnWindow
	churnWindow = time.Minute
)

type sources int

const (
	byDefault   sources = iota // deletes are counted
	oneSource                  // deletes and writes are
	manySources                // nothing is
)

type sourcesKey struct{}

// WithOneSource returns a context for writes of an object that follows one object of a user, or one of its name in each cluster: if it is to be
// written more often than thirty times within a minute, the writes get the pauses of K8S-25.
func WithOneSource(ctx context.Context) context.Context {
	return context.WithValue(ctx, sourcesKey{}, oneSource)
}

// WithManySources returns a context for deletes of an object that many users share, who must not wait because one of them has it deleted and
// created again and again (K8S-25).
func WithManySources(ctx context.Context) context.Context {
	return context.WithValue(ctx, sourcesKey{}, manySources)
}

func sourcesOf(ctx context.Context) sources {
	s, _ := ctx.Value(sourcesKey{}).(sources)
	return s
}

// churnKey is a kind of write of an object.
type churnKey struct {
	ref     Ref
	deletes bool
}

func (k churnKey) most() int {
	if k.deletes {
		return mostDeletes
	}
	return mostWrites
}

func (k churnKey) isCounted(s sources) bool { return s == oneSource || s == byDefault && k.deletes }

// braked is what is written more often than in ordinary life.
type braked struct {
	Undone
	total int // of writes since it was noticed, and the first ones
}

// churn counts writes. It belongs to the process.
type churn struct {
	mu    sync.Mutex
	swept time.Time          // when places were forgotten last
	of    map[place]*changes // what is done in one does not end the pauses in another
}

// place is a namespace, or a kind of objects in none.
type place struct {
	namespace string
	resource  schema.GroupResource // of objects in no namespace
}

func (k churnKey) place() place {
	if k.ref.Namespace == "" {
		return place{resource: k.ref.Resource.GroupResource()}
	}
	return place{namespace: k.ref.Namespace}
}

// changes are the writes of objects of a place.
type changes struct {
	since  time.Time
	counts map[churnKey]int // since then
	braked map[churnKey]*braked
}

// mostChanges is of how many objects of a place the writes are counted, and how many are braked: one takes some 100 bytes. Copies of the Secrets of all namespaces are in one.
const mostChanges = 4096

func newChurn() *churn { return &churn{of: map[place]*changes{}} }

// reset forgets all.
func (c *churn) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.of)
}

// until is when a write may be made, and how many there were; the zero time if it may be made now.
func (c *churn) until(key churnKey, now time.Time) (time.Time, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of[key.place()]
	if of == nil {
		return time.Time{}, 0
	}
	if b := of.braked[key]; b != nil {
		if pause := b.Wait(now); pause > 0 {
			return now.Add(pause), b.total
		}
	}
	return time.Time{}, 0
}

// add counts a write, and returns a copy of what is known of those that are too many, nil if they are not.
func (c *churn) add(key churnKey, now time.Time) *braked {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.in(key.place(), now).add(key, now)
	if b == nil {
		return nil
	}
	is := *b
	return &is
}

// in are the changes of a place. The caller holds the lock.
func (c *churn) in(at place, now time.Time) *changes {
	of := c.of[at]
	if of == nil {
		of = &changes{since: now, counts: map[churnKey]int{}, braked: map[churnKey]*braked{}}
		c.of[at] = of
	}
	if now.Sub(c.swept) > churnWindow {
		c.swept = now
		maps.DeleteFunc(c.of, func(other place, is *changes) bool {
			return other != at && now.Sub(is.since) > churnWindow && is.forgetOver(now) == 0
		})
	}
	return of
}

func (c *changes) add(key churnKey, now time.Time) *braked {
	b := c.braked[key]
	if b != nil && b.IsOver(now) {
		delete(c.braked, key)
		b = nil
	}
	if b == nil {
		if now.Sub(c.since) > churnWindow || len(c.counts) >= mostChanges {
			c.since, c.counts = now, map[churnKey]int{}
		}
		if c.counts[key]++; c.counts[key] <= key.most() {
			return nil
		}
		if b = c.brake(key, now); b == nil {
			return nil
		}
	}
	b.total++
	b.Exceed(now)
	return b
}

// brake begins to follow what is written too often, unless too much is.
func (c *changes) brake(key churnKey, now time.Time) *braked {
	if len(c.braked) >= mostChanges && c.forgetOver(now) >= mostChanges {
		return nil
	}
	b := &braked{total: c.counts[key] - 1}
	delete(c.counts, key)
	c.braked[key] = b
	return b
}

// forgetOver forgets what is not written too often any more, and returns how many are left.
func (c *changes) forgetOver(now time.Time) int {
	maps.DeleteFunc(c.braked, func(_ churnKey, b *braked) bool { return b.IsOver(now) })
	return len(c.braked)
}

// mayChange returns a ContentionError while a write has to wait, since there were too many of its kind.
func (r *contentionReport) mayChange(ctx context.Context, key churnKey) error {
	if r == nil || !key.isCounted(sourcesOf(ctx)) {
		return nil
	}
	until, total := r.contention.churn.until(key, time.Now())
	if until.IsZero() {
		return nil
	}
	return &ContentionError{Ref: key.ref, Times: total, Until: until, Churns: true}
}

// hasChanged counts a write.
func (r *contentionReport) hasChanged(ctx context.Context, key churnKey) {
	if r == nil || !key.isCounted(sourcesOf(ctx)) {
		return
	}
	now := time.Now()
	b := r.contention.churn.add(key, now)
	if b == nil {
		return
	}
	err := &ContentionError{Ref: key.ref, Times: b.total, Until: now.Add(b.Wait(now)), Churns: true}
	r.show([]digest{digestOf("churn", key.ref, key.deletes)}, b.Rest(now), err)
}
