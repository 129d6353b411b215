// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// unknown are the objects of a kind of which nothing was decoded so far. One is known when its change was handled, which
// comes later than the store has it.
type unknown[T any] struct {
	store *stream.Store[T] // nil before it is complete
	keys  map[slim.Key]bool
}

func newUnknown[T any]() unknown[T] { return unknown[T]{keys: map[slim.Key]bool{}} }

// refresh adds objects that cannot be decoded, and removes those that are gone.
func (u *unknown[T]) refresh() {
	if u.store == nil {
		return
	}
	unreadable := u.store.Unreadable()
	for _, key := range unreadable {
		if _, known := u.store.Get(key); !known {
			u.keys[key] = true
		}
	}
	for key := range u.keys {
		if _, known := u.store.Get(key); !known && !slices.Contains(unreadable, key) {
			delete(u.keys, key)
		}
	}
}

// sorted are the keys in order.
func (u *unknown[T]) sorted() []slim.Key {
	return slices.SortedFunc(maps.Keys(u.keys), compareKeys)
}

func compareKeys(a, b slim.Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// setUnknown tells the allocator what is unknown. The caller has the lock.
func (c *controller) setUnknown() { c.alloc.setUnknown(c.unknownPools.sorted(), c.unknown.sorted()) }

// reportUnknown tells health of objects that cannot be decoded. The caller has the lock.
func (c *controller) reportUnknown() {
	text := c.alloc.describeUnknown()
	if text == c.reported {
		return
	}
	part := c.Health.Child("objects")
	if c.reported = text; text == "" {
		part.OK("")
		return
	}
	part.Degraded(text, nil)
	c.Log.Warn("objects cannot be decoded", "effect", text)
}

// describeUnknown is one line about objects that cannot be decoded, "" if there are none.
func (a *allocator) describeUnknown() string {
	if n := len(a.unknownServices); n > 0 {
		return fmt.Sprintf("no address is allocated: Service %s cannot be decoded, %d in all", a.unknownServices[0], n)
	}
	if n := len(a.unknownPools); n > 0 {
		return fmt.Sprintf("CiliumLoadBalancerIPPool %s cannot be decoded, %d in all", a.unknownPools[0].Name, n)
	}
	for _, p := range a.order {
		if err := p.object.DecodeError(); err != nil {
			return fmt.Sprintf("CiliumLoadBalancerIPPool %s: %v", p.name, err)
		}
	}
	return ""
}
