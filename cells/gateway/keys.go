// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"slices"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// keySet collects the keys that a change maps to, each once, in the order in which they come: many routes have the same parents, and many policies the
// same Services.
type keySet struct {
	all         []slim.Key
	seen        map[slim.Key]bool // all of them, once they are more than a few
	hasPolicies bool              // all BackendTLSPolicies are among them
}

// fewKeys is how many keys are compared one by one.
const fewKeys = 16

func (s *keySet) add(keys ...slim.Key) {
	for _, key := range keys {
		if s.has(key) {
			continue
		}
		switch s.all = append(s.all, key); {
		case s.seen != nil:
			s.seen[key] = true
		case len(s.all) > fewKeys:
			s.seen = make(map[slim.Key]bool, 2*len(s.all))
			for _, has := range s.all {
				s.seen[has] = true
			}
		}
	}
}

func (s *keySet) has(key slim.Key) bool {
	if s.seen != nil {
		return s.seen[key]
	}
	return slices.Contains(s.all, key)
}
