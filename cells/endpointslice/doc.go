// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package endpointslice groups endpoints into CiliumEndpointSlices, which agents watch instead of single endpoints.
//
// docs/wire/endpointslice.md has the rules. plan.go holds the slice that each endpoint belongs in, bootstrap.go assigns
// them at the start of a term, bins.go finds a slice with room and write_ops.go computes writes: pure, single-threaded, no
// I/O. batch.go delays writes, controller.go watches and write.go writes. endpoints.go and pods.go are the two sources of
// endpoints. The slices hold all state: the planner is rebuilt from them at the start of each term.
//
// States of a slice, and what moves it:
//
//	stored in the cache     -> initial      until both caches are synced
//	initial                 -> idle         bootstrap, if its content is as desired
//	idle                    -> queued       an endpoint is added, changed or removed (enqueue); another writer changed it
//	new                     -> queued       no slice of the group has room (addSlice)
//	queued                  -> writing      the batch is due and the limiter lets it pass (recordStart)
//	queued                  -> idle         nothing differs any more
//	writing                 -> idle         success (recordWrite), queued again if it changed meanwhile
//	writing                 -> queued       failure (recordFailure); the write stays unacknowledged unless it was refused
//	idle, without endpoints -> gone         deleted, and dropIfUnused
//	any                     -> undecodable  its endpoints are assigned to other slices; back with a readable state
package endpointslice
