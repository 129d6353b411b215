// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// PatchedValue is a value that a patch sets. It is what a part of an object says, such as
// whether a list has an element: other writers may change the rest of the object.
type PatchedValue struct {
	Field string // its path, for messages
	// From is the value in the cache, and To the one that the patch sets. Values are
	// compared as JSON.
	From, To any
	// In returns the value in an object as stored.
	In func(*unstructured.Unstructured) any
}

func (v PatchedValue) shownBy(stored *unstructured.Unstructured) bool {
	return digestOf(v.In(stored)) == digestOf(v.To)
}

func (c *client) Patch(ctx context.Context, ref Ref, patch []byte, sets ...PatchedValue) (*unstructured.Unstructured, error) {
	if ref.UID != "" {
		return nil, fmt.Errorf("patching %s: begin the patch with a test of /metadata/uid instead of setting Ref.UID", ref)
	}
	ctx, release := WithTurn(ctx)
	defer release()
	if err := awaitTurn(ctx, patch); err != nil {
		return nil, err
	}
	again := c.contention.patch(ref, sets)
	if err := again.await(); err != nil {
		return nil, err
	}
	change := churnKey{ref: ref}
	if err := c.contention.mayChange(ctx, change); err != nil {
		return nil, err
	}
	is := expected{method: http.MethodPatch, ref: ref}
	is.ref.Subresource = ""
	r := request{method: http.MethodPatch, ref: ref, contentType: patchType(patch), body: patch}
	stored, err := c.write(withRemainder(ctx, ref), r, is, writing{again: again, sets: sets})
	if err == nil {
		c.contention.hasChanged(ctx, change)
	}
	return stored, err
}

// patchType tells a JSON patch, which is a list, from a strategic merge patch.
func patchType(patch []byte) string {
	if bytes.HasPrefix(bytes.TrimSpace(patch), []byte("[")) {
		return string(types.JSONPatchType)
	}
	return string(types.StrategicMergePatchType)
}

// patch follows a patch. One whose values are not in the cache as they were stored was undone.
func (r *contentionReport) patch(ref Ref, sets []PatchedValue) *recurrence {
	fields, from := make([]followed, len(sets)), map[digest]digest{}
	for i, v := range sets {
		fields[i] = followed{
			key: digestOf("patch", ref, v.Field), name: v.Field,
			value: func(stored *unstructured.Unstructured) digest { return digestOf(v.In(stored)) },
		}
		from[fields[i].key] = digestOf(v.From)
	}
	return r.follow(ref, nil, fields, func(f followed) bool { return f.was.values != from[f.key] })
}
