// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package multipool allocates CIDR blocks of CiliumPodIPPools to nodes, as many as their agents request.
//
// docs/wire/ipam.multipool.md has the rules. The CiliumNodes hold all state: the allocator is rebuilt from them at the
// start of each term, and allocates only after its caches are synced and contain all writes of the previous leader.
// plan.go (changes), adopt.go (what nodes list), serve.go (what they request), pools.go, claims.go, desired.go and
// texts.go are pure, single-threaded, no I/O. controller.go watches, write.go writes, create.go creates the pools of the
// flag, and report.go reports pools and nodes that affect others.
package multipool
