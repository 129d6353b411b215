// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

// Deletions is told of identities that were deleted, so that what other servers have of them, such as SPIRE, is deleted,
// too. It is provided for the term by the duty that registers identities there, and is safe for concurrent use.
type Deletions interface {
	// Deleted enqueues identities whose deletion succeeded. It does not block.
	Deleted(numbers ...Number)
}
