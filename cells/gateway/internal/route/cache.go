// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"slices"
	"sync"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Cache keeps what routes were compiled to, so that configurations and statuses compile a route once for all of them. What is kept is used
// as long as the route has the same uid and generation, and what the compilation has asked has the same answers. Each use asks all of it
// and nothing else: a Lookup is asked what it would be without a Cache, and Lookup.Record records what the result depends on.
//
// It is safe for concurrent use. A nil Cache keeps nothing.
type Cache struct {
	exists func(id slim.Key) bool

	mu   sync.Mutex             // not held while anything is asked
	kept map[slim.Key]keptRoute // by id
}

// keptRoute is what is kept of a generation of a route. What it points to is not changed.
type keptRoute struct {
	uid        slim.UID
	cut        slim.Cut
	generation int64
	compiled   *compilation // nil if there is none
	dropped    *droppedRules
}

// compilation is a route that was compiled, with what was asked for it.
type compilation struct {
	*Compiled
	asked    sequence // about all but policies
	policies sequence // about policies: what they are does not change what else is asked
}

// droppedRules is what is said of a route that was compiled without policies.
type droppedRules struct {
	DroppedRules
	asked sequence
}

// sequence is what a compilation has asked, in its order, each once: up to the first answer that is another one now, it would ask the same.
type sequence []answered

type answered struct {
	query  Query
	answer Answer
}

func (all sequence) isFresh(lookup Lookup) bool {
	return !slices.ContainsFunc(all, func(one answered) bool { return !lookup(one.query).equal(one.answer) })
}

// NewCache makes an empty Cache. exists reports whether there is a route of an id. It is called after something was kept: Forget may have
// been called meanwhile, and is not again for a route that is gone. It has to be safe for concurrent use.
func NewCache(exists func(id slim.Key) bool) *Cache {
	return &Cache{exists: exists, kept: map[slim.Key]keptRoute{}}
}

// Compile returns what [Compile] does.
func (c *Cache) Compile(r *Route, lookup Lookup) *Compiled {
	if was := c.get(r).compiled; was != nil && was.asked.isFresh(lookup) && was.policies.isFresh(lookup) {
		return was.Compiled
	}
	now := compileAsking(r, lookup)
	c.keep(r, func(k *keptRoute) {
		if k.compiled = now; !now.losesBackends() {
			k.dropped = now.droppedRules()
		}
	})
	return now.Compiled
}

// Dropped returns the rules that [Compile] leaves out for a Lookup without policies: it asks nothing about them.
func (c *Cache) Dropped(r *Route, lookup Lookup) DroppedRules {
	lookup = lookup.WithoutPolicies()
	was := c.get(r)
	if was.dropped != nil && was.dropped.asked.isFresh(lookup) {
		return was.dropped.DroppedRules
	}
	now := compileAsking(r, lookup)
	// It is what Compile returns where there is no policy. One with policies stays as long as it can be used.
	isStale := was.compiled == nil || !was.compiled.asked.isFresh(lookup)
	c.keep(r, func(k *keptRoute) {
		if k.dropped = now.droppedRules(); isStale && k.compiled == was.compiled {
			k.compiled = now
		}
	})
	return now.DroppedRules
}

// IsUnknown reports whether it is not known which requests or connections a route is for.
func (c *Cache) IsUnknown(r *Route, lookup Lookup) bool {
	return r.IsCut() || r.DecodeError() != nil && c.Dropped(r, lookup).Unknown
}

// Forget removes what is kept of a route. It is to be called when the route is gone.
func (c *Cache) Forget(id slim.Key) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, id)
}

// get is what is kept of a route as it is.
func (c *Cache) get(r *Route) keptRoute {
	if c == nil {
		return keptRoute{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.kept[r.ID()]; was.isOf(r) {
		return was
	}
	return keptRoute{}
}

// keep changes what is kept of a route as it is.
func (c *Cache) keep(r *Route, edit func(*keptRoute)) {
	if c == nil {
		return
	}
	id := r.ID()
	c.mu.Lock()
	now := c.kept[id]
	if !now.isOf(r) {
		now = keptRoute{uid: r.UID, cut: r.Cut, generation: r.Generation}
	}
	edit(&now)
	c.kept[id] = now
	c.mu.Unlock()
	if !c.exists(id) {
		c.Forget(id)
	}
}

func (k keptRoute) isOf(r *Route) bool {
	return k.uid == r.UID && k.cut == r.Cut && k.generation == r.Generation
}

// compileAsking compiles a route, and keeps what is asked for it.
func compileAsking(r *Route, lookup Lookup) *compilation {
	to, known := &compilation{}, Answers{}
	to.Compiled = Compile(r, func(q Query) Answer {
		a, again := known[q]
		if again {
			return a
		}
		a = lookup(q)
		known[q] = a
		if q.About == AboutTLS {
			to.policies = append(to.policies, answered{q, a})
		} else {
			to.asked = append(to.asked, answered{q, a})
		}
		return a
	})
	to.asked, to.policies = slices.Clip(to.asked), slices.Clip(to.policies)
	return to
}

func (c *compilation) droppedRules() *droppedRules { return &droppedRules{c.DroppedRules, c.asked} }

// losesBackends reports whether backends are lost to policies that are not valid. Of a rule without them less is checked, so that it may be
// served where it would be left out without policies.
func (c *compilation) losesBackends() bool {
	return slices.ContainsFunc(c.policies, func(one answered) bool { return one.answer.losesBackend() })
}
