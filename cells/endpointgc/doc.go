// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package endpointgc deletes orphaned CiliumEndpoints: those whose pod is gone or finished, and all of them, once, where
// agents create none.
//
// docs/wire/endpointgc.md has the rules. The package decides which endpoints are garbage; resources/sweep deletes them.
package endpointgc
