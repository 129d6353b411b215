// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package clusterpool gives every node its pod CIDRs, cut from the cluster's.
//
// docs/wire/ipam-cluster-pool.md has the rules. The CiliumNodes are the only
// memory: the allocator is rebuilt from them at the start of each term, and gives
// out nothing before it has seen them all, as new as the leader before left
// them. allocate.go decides and knows no clock, no network and no goroutines;
// loop.go watches and write.go writes.
package clusterpool
