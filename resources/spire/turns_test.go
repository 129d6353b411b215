// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/spire/spiretest"
)

// laneOfNumber is the lane of a number: its hundreds.
func laneOfNumber(n int) string { return fmt.Sprint(n / 100) }

// someChanges are changes of random lanes, some of which are late.
func someChanges(r *rand.Rand) (c changes[int], since map[int]uint64, late map[int]bool) {
	since, late = map[int]uint64{}, map[int]bool{}
	for n := range 1000 {
		if r.IntN(1+n/100) > 1 || r.IntN(2) > 0 {
			continue
		}
		since[n] = uint64(r.IntN(3))
		if r.IntN(10) == 0 {
			late[n] = true
		}
		if r.IntN(3) > 0 {
			c.create = append(c.create, n)
		} else {
			c.remove = append(c.remove, removal[int]{n, fmt.Sprint(n)})
		}
	}
	return c, since, late
}

// inTurns checks that each lane's k-th key comes before any lane's (k+1)-th, and that the keys of a lane are in the order in which they became due.
func inTurns(t *testing.T, keys []int, since map[int]uint64) {
	t.Helper()
	had, last, turn := map[string]int{}, map[string]int{}, 1
	for _, k := range keys {
		lane := laneOfNumber(k)
		if before, is := last[lane]; is && (since[before] > since[k] || since[before] == since[k] && before >= k) {
			t.Fatalf("%d comes before %d", before, k)
		}
		last[lane] = k
		if had[lane]++; had[lane] < turn {
			t.Fatalf("turn %d of lane %s comes after turn %d of another one: %v", had[lane], lane, turn, keys)
		}
		turn = had[lane]
	}
}

// SPIRE-8, ZT-10: K7 of the contract's tenants.md. Whatever is to be done, changes go by turns of lanes, each is made once, and creations, deletions and
// what was not answered hold up each other for a few calls only.
func TestTurns(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, since, late := someChanges(r)
		turns := newTurns(laneOfNumber)
		turns.calls, turns.last = r.IntN(100), map[class]string{{}: "3", {delete: true}: "5"}
		w := turns.arrange(c, func(n int) uint64 { return since[n] }, func(n int) bool { return late[n] })
		made := map[class][]int{}
		withoutDeletion, withoutLate := 0, 0
		for !w.none() {
			deletable, repeatable := len(w.usual.remove) > 0, len(w.late.keys()) > 0
			next := w.next(1+r.IntN(9), func(n int) int { return map[bool]int{true: 2}[late[n]] })
			keys := next.keys()
			if len(keys) == 0 || len(next.create) > 0 && len(next.remove) > 0 {
				t.Fatalf("seed %d: a call of %v", seed, next)
			}
			is := class{late: late[keys[0]], delete: len(next.remove) > 0}
			if slices.ContainsFunc(keys, func(k int) bool { return late[k] != is.late }) {
				t.Fatalf("seed %d: a call of %v, some of which were not answered", seed, keys)
			}
			made[is] = append(made[is], keys...)
			if withoutDeletion++; !deletable || is.delete && !is.late {
				withoutDeletion = 0
			}
			if withoutLate++; !repeatable || is.late {
				withoutLate = 0
			}
			if withoutDeletion > 2*deletionEvery || withoutLate > lateEvery {
				t.Fatalf("seed %d: %d calls without a deletion, %d without what was not answered", seed, withoutDeletion, withoutLate)
			}
		}
		var all []int
		for _, keys := range made {
			inTurns(t, keys, since)
			all = append(all, keys...)
		}
		slices.Sort(all)
		want := slices.Sorted(slices.Values(c.keys()))
		if !slices.Equal(all, want) {
			t.Fatalf("seed %d: changed are %v, want %v", seed, all, want)
		}
	}
}

// ZT-10; ZT-E7: K7 of the contract's tenants.md. One lane has thousands of changes all the time, by attempts that are as short as one call. Each change of others is made within
// a few calls, and none of its own waits for ever.
func TestALaneThatNeverEnds(t *testing.T) {
	turns := newTurns(func(n int) string { return fmt.Sprint(n / 100_000) })
	const own, others = 3000, 40 // changes, and lanes, each with one creation and one deletion
	due := map[int]uint64{}
	isDeletion := map[int]bool{}
	for n := range own {
		due[n], isDeletion[n] = 0, n%2 == 0
	}
	for lane := 1; lane <= others; lane++ {
		due[lane*100_000], due[lane*100_000+1] = 0, 0
		isDeletion[lane*100_000+1] = true
	}
	changed := map[int]int{}
	left := 2 * others
	for attempt := uint64(1); left > 0 || len(changed) < own+2*others; attempt++ {
		var c changes[int]
		for n := range due {
			if isDeletion[n] {
				c.remove = append(c.remove, removal[int]{key: n})
			} else {
				c.create = append(c.create, n)
			}
		}
		w := turns.arrange(c, func(n int) uint64 { return due[n] }, func(int) bool { return false })
		for _, k := range w.next(50, func(int) int { return 0 }).keys() {
			if changed[k]++; k >= 100_000 {
				delete(due, k)
				left--
			} else {
				due[k], isDeletion[k] = attempt, !isDeletion[k] // it is the other one that is wanted now
			}
		}
		if attempt == 2*deletionEvery && left > 0 {
			t.Fatalf("after %d calls there are %d changes of others", attempt, left)
		}
		if attempt > 1000 {
			t.Fatalf("%d of the lane's own were made in %d calls", len(changed)-2*others, attempt)
		}
	}
}

// laned is a rig whose entries have lanes: /a/<lane>/<name>.
func laned(t *testing.T, s *spiretest.Server, wanted ...string) *rig {
	r := newRig(t, s, wanted...)
	laneOf := func(path string) string { return strings.Split(path, "/")[2] }
	r.turns = newTurns(laneOf)
	return r
}

func inLane(lane string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("/a/%s/%05d", lane, i)
	}
	return all
}

// ZT-10: K7 of the contract's tenants.md. While there are thousands of entries to be created of one namespace, the first of all, those of another one are created with
// the first calls, and one that is to go goes.
func TestOneNamespaceHoldsUpNoOther(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	r := laned(t, s, "/a/zz/old")
	r.start()
	r.want("/a/zz/old")
	s.CostEach(50 * time.Millisecond)
	flood, others := inLane("aa", 3000), inLane("zz", 5)
	for _, path := range slices.Concat(flood, others) {
		r.paths.set(path, true)
	}
	r.paths.set("/a/zz/old", false)
	r.Enqueue(k8s.Trigger{}, slices.Concat(flood, others, []string{"/a/zz/old"})...)
	r.eventually("others have theirs, and one is deleted", func() bool { return r.has(others...) && !r.has("/a/zz/old") })
	if n := len(s.Entries()); n > 1500 {
		t.Errorf("there are %d entries before", n)
	}
	r.eventually("all have entries", func() bool { return s.Len() == len(flood)+len(others) })
}

// SPIRE-8: K7 of the contract's tenants.md. What a comparison found that belongs to nothing is deleted while there is more to be created, and counts as a share of all that
// there is to be.
func TestStaleEntriesWaitForAFewAttempts(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	for i := range 30 {
		s.Put(entryOf(fmt.Sprint("/a/stale/", i)))
	}
	s.CostEach(20 * time.Millisecond)
	flood := inLane("aa", 3000)
	r := laned(t, s, flood...)
	r.deps.MaxShare = 0.1
	r.connection.pacer.patience.attempt = time.Millisecond
	r.start()
	r.eventually("the stale ones are deleted", func() bool { return !r.has("/a/stale/0") && !r.has("/a/stale/29") })
	if n := s.Len(); n > 2000 {
		t.Errorf("there are %d entries before", n)
	}
	if r.log.Count("so many registration entries should not exist") > 0 {
		t.Errorf("they are held: %s", r.degraded())
	}
	r.eventually("all have entries", func() bool { return s.Len() == len(flood) })
}
