// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package doublewrite compares the identities in the kvstore with the CiliumIdentities, where agents write both. It writes
// nothing.
//
// docs/wire/doublewrite.md has the rules.
package doublewrite
