// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package labels computes the labels of a pod's security identity exactly as agents do:
// identities are looked up by their labels, so any difference leaves pods without one.
// It does no I/O. The rules are in docs/wire/identity.md.
package labels
