// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package heartbeat writes the key by which agents, and operators themselves,
// tell that the key-value store takes writes.
//
// docs/wire/heartbeat-and-locks.md has the rules (H). Who reads the key, and what
// follows from a missing one, is no business of this package.
package heartbeat
