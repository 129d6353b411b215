// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package streamtest is for the tests of streams and of what uses them.
//
//   - [Server] is an API server in memory that lists and watches in all the ways
//     that API servers do, and fails on demand.
//   - [Run] holds an implementation of stream.Resource to the promises on that
//     interface.
//   - [Template] makes the pods of the benchmarks.
//
// What may not live here: anything that a product binary imports.
package streamtest
