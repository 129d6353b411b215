// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package sweep is garbage collection for duties: a scan finds what looks like
// garbage, and what still does after a grace is deleted.
//
// A scan reads stores that lag behind, each by its own time, so what they do not
// show may exist all the same. Therefore:
//
//   - A scan over stores that are not complete is an error, from which nothing
//     follows.
//   - A candidate is deleted at its second sighting at the earliest, and a grace
//     after its first. One that a scan does not find any more, or that is reset,
//     starts anew. A single sweep, which deletes what is switched off, needs one
//     sighting.
//   - Before each delete the duty asks the API server (Spec.Check), or before the
//     first delete of a sweep it brings its stores up to date (Spec.Confirm).
//   - The delete has preconditions: the object that was judged, and no other of
//     its name. They are the duty's part.
//   - An object with a deletion timestamp is not deleted again. It is counted
//     once, and logged as waiting for its finalizers.
//   - A sweep that would delete an implausible share of all objects deletes none:
//     the safety limit.
//
// A check costs a read per delete and nothing else. A sweep without candidates, as
// nearly all of them are, makes no request. Confirming streams instead would cost
// seconds before each sweep that has candidates, and would be stale again at the
// last of many deletes; it is for duties whose garbage no single read can confirm.
//
// What is garbage is the duty's decision. Nothing here knows what a key is.
package sweep
