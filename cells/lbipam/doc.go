// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package lbipam allocates addresses of CiliumLoadBalancerIPPools to Services of type LoadBalancer.
//
// docs/wire/lbipam.md has the rules. The status of the Services holds all state: the allocator is rebuilt from it at the
// start of each term, and allocates only after the cache is synced and contains all writes of the previous leader.
//
// plan.go, allocate.go, waiting.go, lease.go, pool.go, request.go, sharing.go, desired.go and patch.go are pure,
// single-threaded, no I/O. controller.go watches, write.go writes, objects.go has what is kept of the objects and unknown.go
// what could not be decoded.
package lbipam
