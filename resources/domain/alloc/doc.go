// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package alloc allocates CIDR blocks, IP addresses and numbers.
//
// There are three kinds, of one shape:
//
//	Blocks     BlockPool     CIDR blocks of any size, IPv4 and IPv6; a pool is cut into blocks of one size
//	Addresses  AddressPool   IP addresses, IPv4 and IPv6; a pool has ranges of both
//	Numbers    NumberPool    unsigned integers
//
// Blocks, Addresses and Numbers know what is held, and its owner. Nothing is held twice, whatever pools there are: pools are
// only the ranges to allocate from, in order of preference. There is one Blocks (or Addresses, or Numbers) for everything
// that must be disjoint, and any number of pools made by its NewPool:
//
//	blocks := alloc.NewBlocks[string]() // owners are names of nodes
//	pool, err := blocks.NewPool(alloc.IPv4, 24)
//	err = pool.Set(netip.MustParsePrefix("10.0.0.0/16"))
//	err = blocks.Reserve(listed, "node-1")       // restore first: what owners have already
//	block, err := pool.AllocateNext("node-2")    // then allocate
//	released := blocks.Release(block, "node-2")
//
// # Restore before allocate
//
// Reserve records what an owner has already, from objects in the cluster. It does not ask pools: what lies in no pool, or
// in a range that is dropped, reserved or withheld, is held all the same, and nothing is allocated that overlaps it. Whether
// it lies in a pool is what the pool's Contains says. Reserve everything before the first allocation. The same owner may
// reserve the same thing again; another one gets a *TakenError, which names both.
//
// Allocate of a pool is for what an owner asks for and does not have yet: it must be in a range of the pool, not be
// reserved or withheld, and be free.
//
// # What is chosen
//
//	Allocate          this one
//	AllocateFirst     the lowest free one of the first range that is not full
//	AllocateNext      the first free one after a cursor in each range, wrapping around: what was released is not reused soon
//	AllocateTightest  addresses: the shortest run of free ones in the range, its lowest: holes are filled first
//	AllocateNear      the free one with the smallest distance to another
//	Pick              numbers: any, by its index among the free ones; it is not allocated by that
//
// Cursors are of a pool and a range, start at its lowest number, and are not moved by Reserve and Release.
//
// # Changing pools
//
// Set replaces the ranges of a pool, all or none. Ranges that stay keep their place and cursor, new ones are appended. From
// a range that is dropped nothing is allocated any more; what is held of it stays held, is released as usual, and can be
// iterated by Overlapping or Within. A pool that is not used any more needs no call at all.
//
// Pools of the same Blocks may overlap, and nothing is allocated twice; Overlap says which ranges of two pools do, for those
// who refuse it.
//
// # Counts
//
// Total, Used and Free are exact to 2^128, therefore *big.Int, which prints as decimal. Used counts what cannot be
// allocated: what is held in the ranges, reserved edges, and blocks that are withheld. They are computed when called, at the
// cost of a search for each range and each withheld block, those of blocks only after a change.
//
// # Errors
//
// errors.Is tells refusals apart: ErrFull, ErrNoRange, ErrOutOfRange, ErrWithheld, ErrTaken, ErrOverlap, ErrInvalid.
// errors.As with a *TakenError[netip.Prefix, O] (or netip.Addr, or Number) or an *OverlapError has the rest. An operation
// that returns an error has changed nothing.
//
// # Cost
//
// Time is bounded by the length of numbers in bits and usually logarithmic in how many are held, times the number of ranges
// of the pool. Memory is taken by what is held, not by what is free: ff::/48 and ::/0 are pools like others.
//
// Nothing here is safe for concurrent use, does I/O, or knows Kubernetes.
package alloc
