// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"cmp"
	"context"
	"iter"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/spire/internal/entryapi"
)

// Selector is a property of the workloads that an entry is for.
type Selector = entryapi.Selector

// Kind is what the entries of a duty look like. K is what an entry is for, such as an identity. Entries have a SPIFFE ID, a
// parent and selectors, and nothing else.
type Kind[K cmp.Ordered] struct {
	// Parent is the path of the parent's SPIFFE ID. Each kind has another one.
	Parent string
	// Path is the path of the SPIFFE ID of an entry, and Parse what the entry with a path is for, if it is of this kind.
	Path  func(K) string
	Parse func(path string) (K, bool)
	// Selectors are those of an entry.
	Selectors func(K) []Selector
	// Common are the selectors of all entries, by which they are listed; nil if each has others.
	Common []Selector
	// Lane is what an entry belongs to that others are not to wait for, such as a namespace: changes go by turns of lanes. If it is nil all entries have the same one.
	Lane func(K) string
	// Trigger is the object that an entry is for.
	Trigger func(K) k8s.Trigger
}

// State is what is known of what an entry is for.
type State int

const (
	// Unknown has the entry stay as it is: whether there should be one is not known.
	Unknown State = iota
	// Wanted has an entry that does not exist be created.
	Wanted
	// Unwanted has an entry that exists be deleted.
	Unwanted
)

// Desired decides which entries should exist. Its methods are called one at a time, while Run of the [Registrar] runs.
type Desired[K cmp.Ordered] interface {
	// State is what is known now.
	State(K) State
	// All yields everything that should have an entry. Len is how much that is, if it is known.
	All() iter.Seq[K]
	Len() (n int, known bool)
	// Confirm is asked before entries are deleted that a comparison of all entries found: their objects may be gone, or not be
	// shown yet. It returns those that are unwanted by caches as new as the call.
	Confirm(ctx context.Context, stale []K) ([]K, error)
	// Converged is called when nothing is left to be done. has reports whether an entry exists.
	Converged(has func(K) bool)
}

// filter selects the entries of the kind in a trust domain, and perhaps others.
func (k Kind[K]) filter(domain string) entryapi.Filter {
	return entryapi.Filter{ParentID: entryapi.ID{TrustDomain: domain, Path: k.Parent}, Selectors: k.Common}
}

// entry is the entry of a key.
func (k Kind[K]) entry(domain string, key K) entryapi.Entry {
	return entryapi.Entry{
		SPIFFEID: entryapi.ID{TrustDomain: domain, Path: k.Path(key)}, ParentID: entryapi.ID{TrustDomain: domain, Path: k.Parent},
		Selectors: k.Selectors(key),
	}
}

// keyOf is the key of an entry of this kind, with our parent and selectors: a server may not know the filter.
func (k Kind[K]) keyOf(domain string, e entryapi.Entry) (key K, ok bool) {
	key, ok = k.Parse(e.SPIFFEID.Path)
	if !ok || e.ID == "" {
		return key, false
	}
	own := k.entry(domain, key)
	return key, e.SPIFFEID == own.SPIFFEID && e.ParentID == own.ParentID && sameSelectors(e.Selectors, own.Selectors)
}
