// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package stream is typed watch streams: one list-and-watch per kind for all
// duties that want its objects, of which it keeps what they read and no more.
//
// A [Kind] says which objects and, by its type, which of their fields. [Provide]
// offers it to cells as a [Resource], whose promises its doc comment lists. A
// [Stream] is a Resource that watches an API server, a [Local] one that the
// program feeds. A [Store] is the kept state, with typed indexes.
//
// A loop over [Resource.Changes] is the way to watch: it gets batches of changes,
// coalesced per key. Behind it is one change list: a node per key in the order of
// the last change, in which a subscriber is a position. client-go's Reflector fills it,
// through a lister-watcher that decodes slim objects (package slim) as they
// arrive.
//
// What may not live here: writes (package k8s), logic of a duty, and any object
// that is kept whole.
package stream
