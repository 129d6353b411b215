// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package kvstore deletes identities in the kvstore that no node uses.
//
// docs/wire/identitygc.kvstore.md has the rules. The package decides which identities are unused, by one listing of the
// identities and one of their users; resources/sweep remembers them between scans, and deletes them in batches.
package kvstore
