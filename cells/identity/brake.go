// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// brakedFrom is the share of the range, in percent, from which on namespaces are braked.
	brakedFrom = 50
	// brakeBurst is how many identities the pods of a namespace may give up at once, and brakeRate how many a second, before it gets
	// new ones no faster than that.
	brakeBurst = 100
	brakeRate  = 1
	// brakeDebt is how many more count: a namespace that gives up no more is free again after so many seconds.
	brakeDebt = 60

	// setUnit is for how many bytes a label set counts as one: identities need memory until they are collected. An ordinary one is smaller than two.
	setUnit = 512
	// largeSet is from how many bytes on the namespace of a label set is braked however many numbers there are.
	largeSet = 8 << 10
	// mostIdle is how many bytes those label sets that no pod has may have together, ordinary ones aside, before the namespaces of others that are not
	// ordinary are braked.
	mostIdle = 16 << 20
	// largePause is how soon a large set that waits is looked at again.
	largePause = 2 * time.Second
)

// largeHeld is a namespace with a large set that had to wait while there were many numbers.
type largeHeld struct {
	namespace string
	at        time.Time
}

// brakes hold back namespaces whose pods take and give up identities so fast that all numbers would be in use before the collection
// finds them (ID-44). They are not safe for concurrent use.
type brakes map[string]*brake

// brake is a bucket of tokens.
type brake struct {
	left float64
	at   time.Time
}

// fill adds the tokens since the last time.
func (b *brake) fill(now time.Time) {
	b.left = min(brakeBurst, b.left+now.Sub(b.at).Seconds()*brakeRate)
	b.at = now
}

// giveUp records that the last pod of a namespace with an identity has another one, or is gone. The identity counts for so many.
func (all brakes) giveUp(namespace string, weight int, now time.Time) {
	b := all[namespace]
	if b == nil {
		b = &brake{brakeBurst, now}
		all[namespace] = b
	}
	b.fill(now)
	b.left = max(-brakeDebt, b.left-float64(weight))
}

// pause is how long a namespace has to wait for another identity.
func (all brakes) pause(namespace string, now time.Time) time.Duration {
	b := all[namespace]
	if b == nil {
		return 0
	}
	if b.fill(now); b.left >= 0 {
		return 0
	}
	return time.Duration(-b.left / brakeRate * float64(time.Second))
}

// forget removes the namespaces that are as if they had never given up one.
func (all brakes) forget(now time.Time) {
	maps.DeleteFunc(all, func(_ string, b *brake) bool { b.fill(now); return b.left >= brakeBurst })
}

// hardest is the namespace that waits longest, "" if none waits.
func (all brakes) hardest(now time.Time) string {
	found := ""
	for _, namespace := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(a, b) }) {
		if all.pause(namespace, now) > 0 && (found == "" || all[namespace].left < all[found].left) {
			found = namespace
		}
	}
	return found
}

// isScarce reports whether numbers are so scarce that namespaces are braked.
func (t *table) isScarce() bool {
	return t.numbers.used()*100 >= t.numbers.bounds.Size()*brakedFrom
}

// brakedFor is how long a set has to wait for a number, since its namespace gives up many.
func (t *table) brakedFor(s *set) time.Duration {
	if t.unbraked || !t.isScarce() && s.labels.Size() < largeSet && (s.isOrdinary() || t.idle <= mostIdle) {
		return 0
	}
	return t.brakes.pause(podNamespace(s.labels), t.now)
}

// weight is for how many sets a set counts.
func (s *set) weight() int { return max(1, s.labels.Size()/setUnit) }

// isOrdinary reports whether a set is so small that the numbers are used up before its likes fill the memory.
func (s *set) isOrdinary() bool { return s.weight() == 1 }

// idleSize is how many bytes of a set count while no pod has it.
func (s *set) idleSize() int {
	if s.isOrdinary() {
		return 0
	}
	return s.labels.Size()
}

// brakedNamespace is the namespace that waits longest, and whether that is for its large labels: there are many numbers. It is "" if none waits.
func (t *table) brakedNamespace() (namespace string, isForLarge bool) {
	t.brakes.forget(t.now)
	switch held := t.brakes.hardest(t.now); {
	case held == "" || t.unbraked:
	case t.isScarce():
		return held, false
	case t.now.Sub(t.largeHeld.at) <= 2*largePause:
		return t.largeHeld.namespace, true
	}
	return "", false
}
