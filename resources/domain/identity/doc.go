// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package identity has the types of security identities that duties share: numeric IDs,
// the range of a cluster, and the assignment of pods. It does no I/O. See
// docs/wire/identity.md.
package identity
