// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package reconcile is the one mechanism by which duties bring objects to the
// state they should have: keys come from watch streams, each is looked at by one
// worker at a time, a pure plan says what should be, and only what differs is
// written.
//
// The mechanism sets the cause of every write, tries again with growing pauses,
// and reports what does not succeed. Deciding is the duty's part; sweeping and
// mirroring have mechanisms of their own.
package reconcile
