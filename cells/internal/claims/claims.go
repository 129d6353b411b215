// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package claims bounds how many identities the endpoints of one namespace keep that are of none of its pods: who may write endpoints could keep
// all of them. See docs/wire/identity.md, ID-48.
package claims

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	// Spare is how many numbers count that the endpoints of a namespace name and that are of none of its pods, beside one for each of these.
	Spare = 100
	// maxAge is how old the knowledge may be of which numbers do not count. An endpoint that is new meanwhile counts.
	maxAge = 10 * time.Second
)

// Claims are the numbers that endpoints of one kind name. They are safe for concurrent use.
type Claims struct {
	pods *stream.Store[slim.Pod]
	each func(yield func(endpoint slim.Key, n identity.Number))

	mu      sync.Mutex // guards the fields below
	at      time.Time  // of the last count
	ignored map[string]map[identity.Number]bool
}

// New makes Claims of the endpoints that each yields. The store of pods is synced.
func New(pods *stream.Store[slim.Pod], each func(yield func(endpoint slim.Key, n identity.Number))) *Claims {
	return &Claims{pods: pods, each: each}
}

// Counts reports whether an endpoint keeps a number that it names. That of a pod does, by its name. Of nil Claims all do.
func (c *Claims) Counts(endpoint slim.Key, n identity.Number) bool {
	if c == nil || c.isPod(endpoint) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refresh()
	return !c.ignored[endpoint.Namespace][n]
}

// Ignored is the namespace of whose endpoints most numbers do not count, and how many; "" if there is none.
func (c *Claims) Ignored() (namespace string, numbers int) {
	if c == nil {
		return "", 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ignored) > 0 {
		c.refresh()
	}
	for of, all := range c.ignored {
		if len(all) > numbers || len(all) == numbers && of < namespace {
			namespace, numbers = of, len(all)
		}
	}
	return namespace, numbers
}

// isPod reports whether a pod has this name, or may.
func (c *Claims) isPod(key slim.Key) bool {
	_, exists := c.pods.Get(key)
	return exists || c.pods.Hides(key)
}

// maxInterface is how long the name of an interface is at most.
const maxInterface = 15

// isNamedAfterPod reports whether an endpoint is one of several of a pod: its name is that of the pod and of an interface.
func (c *Claims) isNamedAfterPod(key slim.Key) bool {
	for i := len(key.Name) - 1; i > 0 && i >= len(key.Name)-1-maxInterface; i-- {
		if key.Name[i] == '-' && c.isPod(slim.Key{Namespace: key.Namespace, Name: key.Name[:i]}) {
			return true
		}
	}
	return false
}

// refresh counts again if the last count is old. The caller has the lock.
func (c *Claims) refresh() {
	if now := time.Now(); c.at.IsZero() || now.Sub(c.at) >= maxAge {
		c.at, c.ignored = now, c.count()
	}
}

// count returns by namespace the numbers that do not count.
func (c *Claims) count() map[string]map[identity.Number]bool {
	withoutPod := map[string]map[identity.Number]bool{} // whether one is of a pod with several interfaces
	c.each(func(endpoint slim.Key, n identity.Number) {
		if c.isPod(endpoint) {
			return
		}
		all := withoutPod[endpoint.Namespace]
		if all == nil {
			all = map[identity.Number]bool{}
			withoutPod[endpoint.Namespace] = all
		}
		all[n] = all[n] || c.isNamedAfterPod(endpoint)
	})
	maps.DeleteFunc(withoutPod, func(_ string, all map[identity.Number]bool) bool { return len(all) <= Spare })
	if len(withoutPod) == 0 {
		return nil
	}
	pods := map[string]int{}
	for p := range c.pods.All() {
		pods[p.Namespace.String()]++
	}
	ignored := map[string]map[identity.Number]bool{}
	for namespace, all := range withoutPod {
		if beyond := beyond(all, pods[namespace]+Spare); len(beyond) > 0 {
			ignored[namespace] = beyond
		}
	}
	return ignored
}

// beyond are the numbers beyond the first so many: those of pods with several interfaces come first, then lower ones.
func beyond(all map[identity.Number]bool, most int) map[identity.Number]bool {
	if len(all) <= most {
		return nil
	}
	rank := func(n identity.Number) int {
		if all[n] {
			return 0
		}
		return 1
	}
	order := slices.SortedFunc(maps.Keys(all), func(a, b identity.Number) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	rest := make(map[identity.Number]bool, len(all)-most)
	for _, n := range order[most:] {
		rest[n] = true
	}
	return rest
}
