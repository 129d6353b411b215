// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package sweep is the one mechanism by which duties remove what nobody needs
// any more: a scan says what looks like garbage, and what looks so long enough is
// deleted.
//
// A scan reads views that lag behind, each by its own time, so what it misses may
// exist all the same. Nothing is deleted because it was not seen yet:
//
//   - A scan over views that are not complete is an error, from which nothing
//     follows.
//   - A candidate is deleted at its second sighting at the earliest, and a grace
//     after its first; one that a scan does not find any more, or that somebody
//     vouches for, starts anew. A single sweep, which is for what is not wanted at
//     all, takes one.
//   - Before each delete the duty asks those who know (Spec.Check), or brings the
//     views up to date before the first of a sweep (Spec.Confirm).
//   - The delete holds for the object that was judged, and for no other of its
//     name: that is the duty's part.
//   - A sweep that would delete an implausible share of all objects deletes none.
//
// Asking costs a read per delete and nothing else. A sweep without candidates, as
// nearly all of them are, makes no request. Confirming streams instead would cost
// seconds before each sweep that has candidates, and would be old again by the
// time the last of many deletes is made; it is for duties that have nobody to ask.
//
// Deciding what is garbage is the duty's part. Nothing here knows what a key is.
package sweep
