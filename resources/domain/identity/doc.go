// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package identity is what duties know about security identities: their numbers,
// the range of a cluster, and who bears which. It reads and writes nothing. See
// docs/wire/identities.md.
package identity
