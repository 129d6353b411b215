// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type writeObserverKey struct{}

// ObserveWrites calls observe after each write made by a Client with the context, with
// the revision of the object as stored, 0 for a deletion. A mechanism learns from it
// which state its streams have to show before a key is reconciled again.
func ObserveWrites(ctx context.Context, observe func(ref Ref, revision uint64)) context.Context {
	return context.WithValue(ctx, writeObserverKey{}, observe)
}

// observeWrite reports a write, without an object for a deletion.
func observeWrite(ctx context.Context, ref Ref, stored *unstructured.Unstructured) {
	observe, _ := ctx.Value(writeObserverKey{}).(func(Ref, uint64))
	if observe == nil {
		return
	}
	var revision uint64
	if stored != nil {
		ref.Name = stored.GetName() // it may have been generated
		revision, _ = parseRevision(stored.GetResourceVersion())
	}
	observe(ref, revision)
}
