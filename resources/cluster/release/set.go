// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package release

import (
	"iter"
	"math/bits"
	"strings"
)

// Set is a set of releases. The zero value is empty.
type Set struct{ bits uint16 }

// SetOf returns a set of releases.
func SetOf(all ...Release) Set {
	var s Set
	for _, r := range all {
		s.bits |= 1 << r.index()
	}
	return s
}

// Union returns the releases of both sets.
func (s Set) Union(other Set) Set { return Set{s.bits | other.bits} }

// Empty reports whether the set has no release.
func (s Set) Empty() bool { return s.bits == 0 }

// Single reports whether the set has one release.
func (s Set) Single() bool { return bits.OnesCount16(s.bits) == 1 }

// Has reports whether a release is in the set.
func (s Set) Has(r Release) bool { return s.bits&(1<<r.index()) != 0 }

// All yields the releases, the newest first.
func (s Set) All() iter.Seq[Release] {
	return func(yield func(Release) bool) {
		for i := len(names) - 1; i >= 0; i-- {
			if r := at(i); s.Has(r) && !yield(r) {
				return
			}
		}
	}
}

// String returns the releases as people write them, the newest first.
func (s Set) String() string {
	var texts []string
	for r := range s.All() {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ", ")
}
