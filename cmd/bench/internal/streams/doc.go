// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package streams measures typed watch streams against client-go's informers and
// controller-runtime's cache: initial sync, updates end to end, and fan-out.
//
// What may not live here: the server and its pods, which are package
// resources/stream/streamtest.
package streams
