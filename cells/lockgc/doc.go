// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package lockgc takes locks of identities away from holders that are stuck, so
// that others can go on.
//
// docs/wire/heartbeat-and-locks.md has the rules (L). A holder that loses its lock
// notices by itself: its transactions are guarded by the lock. Taking locks is no
// business of this package.
package lockgc
