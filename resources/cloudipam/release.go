// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"maps"
	"slices"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// states are the entries of status.ipam.release-ips.
type states = map[string]v2.IPReleaseStatus

// releases are the surplus addresses of a node. They are not persisted: a restart starts over.
type releases struct {
	byAddress map[string]release
	// detached are addresses that were unassigned. They are not published again before a read shows that they are gone,
	// or for tombstoneAge: a cloud can show them for a while.
	detached map[string]tombstone
}

// release is the state of one address: surplus since then, or marked for the agent, by an entry or because it is hidden since then.
type release struct {
	since  time.Time
	marked bool
}

type tombstone struct {
	read uint64 // the last read that had begun
	at   time.Time
}

// tombstoneAge is how long a cloud can show an address that was unassigned.
const tombstoneAge = 10 * time.Minute

// propose takes over the addresses that are surplus now. Others are not released any more.
func (r *releases) propose(addresses []string, now time.Time) {
	next := make(map[string]release, len(addresses))
	for _, a := range addresses {
		if was, ok := r.byAddress[a]; ok {
			next[a] = was
		} else {
			next[a] = release{since: now}
		}
	}
	r.byAddress = next
}

// advance compares with what the CiliumNode shows. It marks addresses that have been surplus for the delay, forgets those
// that the agent keeps, and returns those that the agent has released.
func (r *releases) advance(shown states, now time.Time, delay time.Duration) (ready []string) {
	for _, a := range slices.Sorted(maps.Keys(r.byAddress)) {
		rel := r.byAddress[a]
		answer, has := shown[a]
		switch {
		case rel.marked && answer == v2.IPDoNotRelease:
			delete(r.byAddress, a)
		case rel.marked && answer == v2.IPReadyForRelease:
			ready = append(ready, a)
		case !rel.marked && !has && now.Sub(rel.since) >= delay:
			rel.marked = true
			r.byAddress[a] = rel
		}
	}
	return ready
}

// next is how long it is until the next address has been surplus for the delay.
func (r *releases) next(now time.Time, delay time.Duration) (pause time.Duration, ok bool) {
	for _, rel := range r.byAddress {
		if rest := delay - now.Sub(rel.since); rest > 0 && (!ok || rest < pause) {
			pause, ok = rest, true
		}
	}
	return pause, ok
}

// detach records that addresses were unassigned, while a read was the last one to have begun.
func (r *releases) detach(addresses []string, read uint64, now time.Time) {
	if r.detached == nil {
		r.detached = map[string]tombstone{}
	}
	for _, a := range addresses {
		delete(r.byAddress, a)
		r.detached[a] = tombstone{read, now}
	}
}

// confirm forgets detached addresses that a later read does not show, and those that were detached long ago.
func (r *releases) confirm(read uint64, shows func(string) bool, now time.Time) {
	maps.DeleteFunc(r.detached, func(a string, t tombstone) bool {
		return read > t.read && !shows(a) || now.Sub(t.at) > tombstoneAge
	})
}

// entries are what release-ips has to be, of what it is in the object, which lists the addresses of pool. desired are the
// addresses that the pool will have.
//
// An address that the cloud has taken away is "released" until the pool does not list it: without the entry, the agent
// could use it in between. Entries of other addresses that are not released here are removed.
func (r *releases) entries(shown states, isInPool, isDesired func(string) bool) states {
	out := states{}
	for a, rel := range r.byAddress {
		if !rel.marked {
			continue
		}
		out[a] = v2.IPMarkedForRelease
		if answer := shown[a]; answer == v2.IPReadyForRelease || answer == v2.IPDoNotRelease {
			out[a] = answer
		}
	}
	for a, state := range shown {
		switch {
		case isInPool(a) && !isDesired(a):
			out[a] = v2.IPReleased
		case state == v2.IPReleased && !isInPool(a):
			out[a] = state // the agent removes it
		}
	}
	return out
}
