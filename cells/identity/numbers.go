// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"math/bits"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
)

// rest is how long a number is not given out after its identity is gone: agents
// may still act upon it.
const rest = 10 * time.Minute

// numbers are those of the cluster's range, each free or held for one or several
// reasons. It is not safe for concurrent use.
type numbers struct {
	in    identity.Range
	holds map[identity.Number]int
	held  []uint64 // a bit for each number, from in.Min
	taken int
	rests []resting // the next to end first
}

type resting struct {
	number identity.Number
	until  time.Time
}

func newNumbers(in identity.Range) *numbers {
	n := &numbers{in: in, holds: map[identity.Number]int{}, held: make([]uint64, (in.Size()+63)/64)}
	if over := in.Size() % 64; over != 0 {
		n.held[len(n.held)-1] = ^uint64(0) << over // beyond the range
	}
	return n
}

// free is how many numbers can be given out.
func (n *numbers) free() int { return n.in.Size() - n.taken }

func (n *numbers) hold(number identity.Number) {
	if n.holds[number]++; n.holds[number] == 1 {
		n.taken++
		n.held[(number-n.in.Min)/64] |= 1 << ((number - n.in.Min) % 64)
	}
}

func (n *numbers) release(number identity.Number) {
	if n.holds[number]--; n.holds[number] == 0 {
		delete(n.holds, number)
		n.taken--
		n.held[(number-n.in.Min)/64] &^= 1 << ((number - n.in.Min) % 64)
	}
}

// retire holds a number for as long as it has to rest.
func (n *numbers) retire(number identity.Number, now time.Time) {
	n.hold(number)
	n.rests = append(n.rests, resting{number, now.Add(rest)})
}

// wake ends the rests that are over. It reports whether there were any.
func (n *numbers) wake(now time.Time) (woken bool) {
	for len(n.rests) > 0 && !now.Before(n.rests[0].until) {
		n.release(n.rests[0].number)
		n.rests, woken = n.rests[1:], true
	}
	return woken
}

// draw returns one of the free numbers: choose returns which of so many. The
// number is not held yet.
func (n *numbers) draw(choose func(of int) int) (number identity.Number, ok bool) {
	if n.free() == 0 {
		return 0, false
	}
	skip := choose(n.free())
	for i, word := range n.held {
		here := bits.OnesCount64(^word)
		if skip >= here {
			skip -= here
			continue
		}
		for open := ^word; ; open &= open - 1 {
			if skip == 0 {
				return n.in.Min + identity.Number(i*64+bits.TrailingZeros64(open)), true
			}
			skip--
		}
	}
	return 0, false
}
