// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package endpointgc deletes CiliumEndpoints that nobody looks after any more:
// those whose pod is gone or finished, and all of them, once, where agents make
// none.
//
// docs/wire/endpoint-gc.md has the rules. When and how deletes are made is the
// business of resources/sweep; what is garbage is decided here.
package endpointgc
