// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"time"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/domain/identity"
)

// quarantinePeriod is how long a number is not allocated after its identity was deleted: agents may still use it.
const quarantinePeriod = 10 * time.Minute

// numbers are the numbers of the cluster's range, each free or held once or more. They are not safe for concurrent use.
type numbers struct {
	bounds      identity.Range
	held        *alloc.Numbers[identity.Number, *holds]
	pool        *alloc.NumberPool[identity.Number, *holds] // of the range
	quarantined []quarantinedNumber                        // the next to end first
}

// holds is how often a number is held: by objects, by a set, in quarantine.
type holds struct{ count int }

type quarantinedNumber struct {
	number identity.Number
	until  time.Time
}

func newNumbers(bounds identity.Range) *numbers {
	held := alloc.NewNumbers[identity.Number, *holds]()
	n := &numbers{bounds: bounds, held: held, pool: held.NewPool()}
	_ = n.pool.Set(alloc.NumberRange[identity.Number]{First: bounds.Min, Last: bounds.Max}) // the range of a cluster is valid
	return n
}

// used is how many numbers are held.
func (n *numbers) used() int { return n.held.Len() }

// free is how many numbers can be allocated.
func (n *numbers) free() int { return n.bounds.Size() - n.used() }

func (n *numbers) hold(number identity.Number) {
	h, held := n.held.OwnerOf(number)
	if !held {
		h = &holds{}
		_ = n.held.Reserve(number, h) // it is free
	}
	h.count++
}

func (n *numbers) release(number identity.Number) {
	h, held := n.held.OwnerOf(number)
	if !held {
		return
	}
	if h.count--; h.count == 0 {
		n.held.Release(number, h)
	}
}

// quarantine holds a number for the quarantinePeriod.
func (n *numbers) quarantine(number identity.Number, now time.Time) {
	n.hold(number)
	n.quarantined = append(n.quarantined, quarantinedNumber{number, now.Add(quarantinePeriod)})
}

// expire releases the numbers whose quarantine is over. It reports whether there were any.
func (n *numbers) expire(now time.Time) (expired bool) {
	for len(n.quarantined) > 0 && !now.Before(n.quarantined[0].until) {
		n.release(n.quarantined[0].number)
		n.quarantined, expired = n.quarantined[1:], true
	}
	return expired
}

// pick returns one of the free numbers: choose returns which of so many. It does not hold the number.
func (n *numbers) pick(choose func(of int) int) (number identity.Number, ok bool) {
	number, err := n.pool.Pick(func(of uint64) uint64 { return uint64(choose(int(of))) })
	return number, err == nil
}
