// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package kvstore is the way to etcd, for the duties of the leader.
//
// Every module has a [Client] of its own; all of them share one connection. On
// top of it are the two stores that duties are built on: [SyncStore], which
// keeps keys of this cluster as they are desired and says when they are
// complete, and [SharedStore], which also tells what others write beside them.
//
//   - A write is let through only while the term's [Fence] is open, on
//     connections that are reset when it shuts, and carries its cause, as a
//     write to the Kubernetes API does.
//   - A leased key is there as long as this process wants it: when its lease is
//     lost, or the data of etcd is, the key is written again. Leases are never
//     revoked: at a hand-over the successor takes the keys over.
//   - A watch never ends by itself and never misses a change of a key for good:
//     what compaction or a reconnect swallowed is found by listing again.
//   - Modules share the client's rate fairly.
//
// An etcd that is away is waited for, degraded, for ever. Nothing here fails
// the start of a cell, and stopping never waits for etcd.
//
// docs/wire/kvstore.md has keys, values, timing and options, with numbers that
// tests cite. What does not live here: what duties write (cells).
package kvstore
