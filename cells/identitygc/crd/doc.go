// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package crd deletes unused identities. CiliumIdentities are marked first, and deleted if the mark is not removed.
//
// docs/wire/identitygc.md has the rules. The package decides which identities are garbage, and marks them;
// resources/sweep deletes them.
package crd
