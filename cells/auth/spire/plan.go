// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/cells/auth/spire/internal/entryapi"
	"github.com/skep-operator/skep/resources/domain/identity"
)

// ids are the SPIFFE IDs and the entries of a trust domain.
type ids struct{ domain string }

// pathPrefix is the path of the SPIFFE IDs of identities, before the number.
const pathPrefix = "/identity/"

func pathOf(n identity.Number) string { return pathPrefix + n.String() }

// filter selects the entries that this operator, or the original, has created.
func (i ids) filter() entryapi.Filter {
	e := i.entry(0)
	return entryapi.Filter{ParentID: e.ParentID, Selectors: e.Selectors}
}

// entry is the entry of an identity as agents expect it.
func (i ids) entry(n identity.Number) entryapi.Entry {
	return entryapi.Entry{
		SPIFFEID: entryapi.ID{TrustDomain: i.domain, Path: pathOf(n)}, ParentID: entryapi.ID{TrustDomain: i.domain, Path: operatorPath},
		Selectors: []entryapi.Selector{{Type: "cilium", Value: "mutual-auth"}},
	}
}

// owns reports whether an entry is that of an identity, with our parent and selectors: a server may not know the filter.
func (i ids) owns(e entryapi.Entry) bool {
	n, ok := numberOf(e.SPIFFEID.Path)
	own := i.entry(n)
	return ok && e.ID != "" && e.SPIFFEID == own.SPIFFEID && e.ParentID == own.ParentID && slices.Equal(e.Selectors, own.Selectors)
}

// numberOf is the number of the identity in the path of a SPIFFE ID.
func numberOf(path string) (identity.Number, bool) {
	name, ok := strings.CutPrefix(path, pathPrefix)
	if !ok {
		return 0, false
	}
	return identity.ParseNumber(name)
}

// firstNumber is the first number that is not reserved.
const firstNumber = 256

// registered is the number of the CiliumIdentity with a name, which is registered unless it is reserved.
func registered(name string) (identity.Number, bool) {
	n, ok := identity.ParseNumber(name)
	return n, ok && n >= firstNumber
}

// entries are the ids of the entries at the server, by identity.
type entries map[identity.Number][]string

func entriesOf(listed []entryapi.Entry) entries {
	all := entries{}
	for _, e := range listed {
		n, _ := numberOf(e.SPIFFEID.Path)
		all[n] = append(all[n], e.ID)
	}
	return all
}

// existence is what is known of an identity.
type existence int

const (
	unknown existence = iota // nothing: its entry stays as it is
	exists
	deleted
)

// removal is an entry that is to be deleted.
type removal struct {
	number identity.Number
	entry  string
}

func numbersOf(removals []removal) []identity.Number {
	numbers := make([]identity.Number, len(removals))
	for i, r := range removals {
		numbers[i] = r.number
	}
	return numbers
}

// changes are what is to be done at the server.
type changes struct {
	create []identity.Number
	remove []removal
}

func (c changes) none() bool { return len(c.create) == 0 && len(c.remove) == 0 }

// split returns up to some of the changes, creations first, and the identities of the others.
func (c changes) split(some int) (first changes, rest []identity.Number) {
	created := min(some, len(c.create))
	removed := min(some-created, len(c.remove))
	first = changes{create: c.create[:created], remove: c.remove[:removed]}
	return first, slices.Concat(c.create[created:], numbersOf(c.remove[removed:]))
}

// compare returns the changes that bring the entries of some identities to what they should be, by number.
func compare(some iter.Seq[identity.Number], state func(identity.Number) existence, at entries) changes {
	var c changes
	numbers := slices.Sorted(some)
	for _, n := range slices.Compact(numbers) {
		switch ids := at[n]; state(n) {
		case exists:
			if len(ids) == 0 {
				c.create = append(c.create, n)
			}
		case deleted:
			for _, id := range ids {
				c.remove = append(c.remove, removal{n, id})
			}
		}
	}
	return c
}

// refusal is an entry that the server refuses to create or delete.
type refusal struct {
	times int
	until time.Time // of the next attempt
	err   error
}

// The pauses after a refusal.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// again is the refusal after another attempt.
func (r refusal) again(err error, now time.Time) refusal {
	wait := min(firstRetry<<min(r.times, 10), longestRetry)
	return refusal{times: r.times + 1, until: now.Add(wait), err: err}
}
