// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package labels computes which labels make the security identity of a pod, to
// the letter as agents do: an identity is found by its labels, and one letter of
// difference leaves pods without. It reads and writes nothing. The rules are in
// docs/wire/identities.md.
package labels
