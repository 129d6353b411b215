// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package clusterpool allocates pod CIDRs to nodes from the cluster CIDRs.
//
// docs/wire/ipam.clusterpool.md has the rules. The CiliumNodes hold all state: the allocator is rebuilt from them at the
// start of each term, and allocates only after its cache is synced and contains all writes of the previous leader.
// plan.go, allocate.go, claims.go and pool.go are pure, single-threaded, no I/O. controller.go watches, write.go writes
// and problems.go reports nodes that affect others.
package clusterpool
