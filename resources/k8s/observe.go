// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

type writeObserverKey struct{}

// ObserveWrites calls observe after each write made by a Client with the context, with
// the revision of the object as stored. If the object does not exist any more after it,
// the revision is 0, and the Ref has the uid that the object had, "" if it is not known
// whether it exists. A mechanism learns from it which state its streams have to show
// before a key is reconciled again.
func ObserveWrites(ctx context.Context, observe func(ref Ref, revision uint64)) context.Context {
	return context.WithValue(ctx, writeObserverKey{}, observe)
}

// observeWrite reports a write.
func observeWrite(ctx context.Context, ref Ref, stored *unstructured.Unstructured) {
	observe, _ := ctx.Value(writeObserverKey{}).(func(Ref, uint64))
	if observe == nil {
		return
	}
	ref.Name = stored.GetName() // it may have been generated
	if stored.GetDeletionTimestamp() != nil && !isHeld(stored) {
		// The last finalizer was removed. The response has the revision from before the deletion.
		ref.UID = stored.GetUID()
		observe(ref, 0)
		return
	}
	revision, _ := parseRevision(stored.GetResourceVersion())
	observe(ref, revision)
}

// observeDeletion reports a deletion. left is the object that the response shows, nil if it shows none.
func observeDeletion(ctx context.Context, ref Ref, uid types.UID, left *unstructured.Unstructured) {
	observe, _ := ctx.Value(writeObserverKey{}).(func(Ref, uint64))
	switch {
	case observe == nil:
	case left != nil && isHeld(left):
		observeWrite(ctx, ref, left)
	default:
		ref.UID = uid
		observe(ref, 0)
	}
}

// isHeld reports whether an object that is deleted exists for some time: it has a finalizer, or a grace period.
func isHeld(u *unstructured.Unstructured) bool {
	grace := u.GetDeletionGracePeriodSeconds()
	return len(u.GetFinalizers()) > 0 || grace != nil && *grace > 0
}
