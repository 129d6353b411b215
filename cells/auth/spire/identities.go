// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"iter"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// identities are the CiliumIdentities.
type identities struct {
	stream stream.Resource[ciliumio.Identity]
	store  *stream.Store[ciliumio.Identity] // nil until open
}

func newIdentities(s stream.Resource[ciliumio.Identity]) *identities { return &identities{stream: s} }

func (i *identities) open(ctx context.Context) (err error) {
	i.store, err = i.stream.Store(ctx)
	return err
}

// state is whether a CiliumIdentity exists. One that cannot be decoded does.
func (i *identities) state(n identity.Number) spire.State {
	key := slim.Key{Name: n.String()}
	if _, found := i.store.Get(key); found || i.store.Hides(key) {
		return spire.Wanted
	}
	return spire.Unwanted
}

// all yields the numbers of all CiliumIdentities that are registered.
func (i *identities) all() iter.Seq[identity.Number] {
	return func(yield func(identity.Number) bool) {
		for object := range i.store.All() {
			if n, ok := registered(object.Name); ok && !yield(n) {
				return
			}
		}
		for _, key := range i.store.Unreadable() {
			if n, ok := registered(key.Name); ok && !yield(n) {
				return
			}
		}
	}
}

// namespaceOf is the namespace of the pods of a CiliumIdentity, "" if it does not exist, or has none.
func (i *identities) namespaceOf(n identity.Number) string {
	object, found := i.store.Get(slim.Key{Name: n.String()})
	if !found {
		return ""
	}
	return labeledNamespace(object)
}

// labeledNamespace is the namespace of the pods of a CiliumIdentity by its labels, "" for none.
func labeledNamespace(object *ciliumio.Identity) string {
	return object.SecurityLabels.Get(identity.NamespaceLabel)
}
