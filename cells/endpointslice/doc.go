// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package endpointslice gathers endpoints in CiliumEndpointSlices, which agents
// watch in the place of single endpoints.
//
// docs/wire/endpoint-slices.md has the rules. plan.go knows which slice each
// endpoint belongs in, from begin.go at the start of a term; placement.go finds one
// with room, order.go decides what is to be written, and batch.go when. None of
// them knows a network, and but for the last no clock. loop.go watches and write.go
// writes. Where endpoints come from is in endpoints.go and pods.go. The slices are
// the only memory: the plan is rebuilt from them at the start of each term.
package endpointslice
