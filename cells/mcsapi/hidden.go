// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"context"

	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// hides reports whether an object cannot be decoded, or is too large: what follows from it stays.
func hides[T any](all *stream.Store[T], key slim.Key) bool {
	obj, exists := all.Get(key)
	return exists && slim.CutOf(obj).IsCut() || all.Hides(key)
}

// isLocal reports whether a Namespace is not global.
func (c *controller) isLocal(namespace string) bool {
	return globalnamespace.Of(c.spaces, namespace, c.Cluster) == globalnamespace.Local
}

// hidesAny reports whether an object that decides about a name cannot be decoded, or is too large. Of what is exported nothing is read in a Namespace
// that is not global: there a ServiceExport and its Service have any size.
func (c *controller) hidesAny(key, derived slim.Key) bool {
	switch {
	case hides(c.imports, key), hides(c.services, derived), c.spaces.Hides(slim.Key{Name: key.Namespace}):
		return true
	case c.isLocal(key.Namespace):
		return c.exports.Hides(key) || c.services.Hides(key)
	}
	return hides(c.exports, key) || hides(c.services, key)
}

// withdrawn is what is known of a name whose derived Service is deleted though an object of the name is hidden: in a Namespace that is not global
// there is none (MCS-29). It is nil for all others, and where the derived Service itself cannot be decoded.
func (c *controller) withdrawn(key, derived slim.Key) *state {
	s := &state{key: key, isLocal: c.isLocal(key.Namespace), isStale: !c.fresh.Is()}
	s.derived, _ = c.services.Get(derived)
	if !s.isLocal || s.isStale || s.derived == nil || c.services.Hides(derived) || !s.derived.DeletionTimestamp.IsZero() || !s.isOwned() {
		return nil
	}
	return s
}

// withdraw deletes a derived Service, nil for none.
func (c *controller) withdraw(ctx context.Context, s *state) error {
	if s == nil {
		return nil
	}
	return c.writeDerived(ctx, s, remove, nil)
}
