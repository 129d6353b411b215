// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package outside is the door for side effects that are no writes to Kubernetes or
// etcd: the API of a cloud, of a certificate authority, of a vendor's inventory.
//
//   - A call that changes something is made by a module of the leader's term only,
//     while its fence is open, and ends when the fence shuts.
//   - In a plan it is recorded and not made. What the server would have answered
//     comes from the duty; without that the plan ends there, and says so.
//   - It has the cause of the decision that makes it, and is listed by the commands
//     writes and explain.
//   - All calls to a server share one rate. A server that asks for a pause with
//     Retry-After is left alone meanwhile, and the calls fail at once, so that a
//     work queue owns the pause and no worker waits.
//   - Calls are counted and timed, and a server that does not answer degrades the
//     module.
//
// An HTTP client takes [Door.Transport]; for a client library that has none to give,
// [Door.Do] and [Door.Read] wrap single calls.
//
// What may not live here: what decides about calls, and clients of single servers.
package outside
