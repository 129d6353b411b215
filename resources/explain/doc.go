// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package explain remembers why the operator wrote something, or did not: the
// last writes with what set them off, and the last decision about each object.
// What it remembers is bounded, and forgotten with the process.
//
// A write's [Cause] travels in its context. The mechanisms that decide on writes
// set it (resources/reconcile is one), the doors that writes pass record them
// (resources/k8s, resources/kvstore). Duties do neither; they may add a [Note]
// where a decision is not to write.
//
// What decides does not live here, nor what writes.
package explain
