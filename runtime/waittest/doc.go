// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package waittest is how tests wait: for a state, and for goroutines to end. Both
// have one limit, in this package. It is far above what they take on a busy machine: it
// bounds how long a failure takes and judges nothing. A test that judges how long a program
// takes does so itself, by a Meter. What waits in production code is not here.
package waittest
