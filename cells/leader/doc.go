// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package leader is the leader election: it holds the lease, and enters and leaves the leader's term.
//
// docs/wire/leader.md has the object and the timing. Where the original exits when it loses the lease, this process leaves
// the term and stands by: the fence stops its writes.
package leader
