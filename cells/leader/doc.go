// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package leader holds the lease, and enters and leaves the term of the cells
// that live only while leading.
//
// docs/wire/operator-shell.md, section Leader election, has the object and the
// timing. Where it says that a process exits when it loses the lease, this one
// leaves the term and stands by: writes are stopped by the fence, not by exiting.
package leader
