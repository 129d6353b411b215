// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package identitygc deletes identities that no endpoint uses any more. Those that
// are objects are marked first, and deleted when nobody has taken the mark off.
//
// docs/wire/identity-gc.md has the rules. When and how deletes are made is the
// business of resources/sweep; what is garbage, and the marks, are decided here.
package identitygc
