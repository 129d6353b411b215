// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lockgc

import (
	"strings"

	"github.com/skep-operator/skep/resources/kvstore"
)

// holders are the owners of locks, by path: of all that queue for a path the one
// whose key is the oldest. Those who wait are no concern of anybody.
type holders map[string]kvstore.Entry

// pathOf is what a key locks: the holder's lease follows after the last slash.
func pathOf(key string) string { return key[:strings.LastIndexByte(key, '/')] }

// holdersOf finds who holds what of a listing, some keys aside.
func holdersOf(listed []kvstore.Entry, removed map[string]bool) holders {
	found := holders{}
	for _, e := range listed {
		path := pathOf(e.Key)
		if first, ok := found[path]; !removed[e.Key] && (!ok || e.ModRevision < first.ModRevision) {
			found[path] = e
		}
	}
	return found
}

// split finds, in the order of the listing, the locks that are stuck, because the
// run before saw their holders, too, and the holders that are new.
func split(seen holders, listed []kvstore.Entry) (stuck, fresh []kvstore.Entry) {
	now := holdersOf(listed, nil)
	for _, e := range listed {
		path := pathOf(e.Key)
		switch {
		case same(seen[path], e):
			stuck = append(stuck, e)
		case now[path].Key == e.Key:
			fresh = append(fresh, e)
		}
	}
	return stuck, fresh
}

// same reports whether a lock was held all the time: not released, nor taken
// again by the same session.
func same(a, b kvstore.Entry) bool {
	return a.Key == b.Key && a.ModRevision == b.ModRevision && a.Lease == b.Lease
}
