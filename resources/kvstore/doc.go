// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package kvstore is the etcd client of the leader's duties.
//
// Each module has its own [Client]; all clients share one connection. [SyncStore] is
// built on the client: it keeps the keys of this cluster equal to a desired state and
// writes the synced key once the initial state is complete.
//
//   - A write is sent only while the term's [Fence] is open, on connections that
//     are reset when it closes, and carries its cause, as a write to the
//     Kubernetes API does.
//   - A leased key exists as long as this process wants it: after a lost lease or
//     a restore of etcd's data the key is written again. Leases are never
//     revoked: at a handover the successor takes the keys over.
//   - A watch does not end by itself. Changes lost to a compaction or a reconnect
//     are recovered by a new listing.
//   - Modules share the client's rate fairly.
//
// While etcd is unreachable the client retries without limit and reports
// Degraded. It never fails the start of a cell, and stopping never waits for etcd.
//
// docs/wire/kvstore.md specifies keys, values, timing and options; tests cite its
// rule numbers. The keys that a duty writes are specified with the duty (cells).
package kvstore
