// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lockgc

import (
	"strings"

	"github.com/skep-operator/skep/resources/kvstore"
)

// holders are the keys of lock holders, by path: the oldest key of each path. The others wait for the lock.
type holders map[string]kvstore.Entry

// pathOf is the locked path of a key. The lease of the holder follows the last slash.
func pathOf(key string) string { return key[:strings.LastIndexByte(key, '/')] }

// holdersOf returns the holders among listed keys that are not removed.
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

// split returns, in the order of the listing, the locks whose holders the last run saw, too, and the new holders.
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

// same reports whether a lock was held without interruption: neither released, nor acquired again by the same session.
func same(a, b kvstore.Entry) bool {
	return a.Key == b.Key && a.ModRevision == b.ModRevision && a.Lease == b.Lease
}
