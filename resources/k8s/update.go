// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/skep-operator/skep/resources/builtin"
)

// Update reads an object as a T, applies edit to it, and writes the difference back.
// T is any struct with JSON tags; it need not have all fields of the kind. The status
// is written with Ref{Subresource: "status"}.
//
//   - Fields that T does not have, and fields that edit does not change, stay as they
//     are. Nothing is written, and written is false, if edit changes nothing.
//   - If Ref.UID is set, another object of that name is not changed: the error is
//     NotFound, see IsNotFound.
//   - After a conflict the object is read and edited again, as by Client.Modify.
//   - An edit of the status sees of a large object no other fields: they stay.
//   - Elements of a list that edit replaces by a new list are compared with those that
//     are there. A field that a new element leaves out keeps its value, as it may be a
//     default of the API server. Where edit changes the elements of the list that it
//     was given, a field that it clears is removed.
func Update[T any](ctx context.Context, c Client, ref Ref, edit func(*T) error) (written bool, err error) {
	var changes []fieldChange
	stored, written, err := c.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		content, err := editTyped(u.Object, edit)
		if err != nil {
			return fmt.Errorf("editing %s: %w", ref, err)
		}
		changes = changesOf(u.Object, content)
		u.Object = content
		return outOfScope(ref, changes)
	})
	if err != nil || !written {
		return false, err
	}
	return true, statusIgnored(ref, stored, changes)
}

// outOfScope returns an error for an edit of fields that a write of the subresource
// does not store.
func outOfScope(ref Ref, changes []fieldChange) error {
	for _, c := range changes {
		if ref.Subresource != "" && c.path[0] != ref.Subresource {
			return fmt.Errorf("editing %s: %s is not a field of the subresource %s: write it without Subresource", ref, c.path, ref.Subresource)
		}
	}
	return nil
}

// statusIgnored returns an error if the status was edited and not stored: most kinds
// store it as a subresource only.
func statusIgnored(ref Ref, stored *unstructured.Unstructured, changes []fieldChange) error {
	if ref.Subresource != "" {
		return nil
	}
	for _, c := range changes {
		got := c.path.at(stored.Object)
		if c.path[0] == "status" && (c.removed && keeps(got, c.from) || !c.removed && !holds(got, c.to, false)) {
			return fmt.Errorf(`updating %s: %s was not stored: write it with Ref{Subresource: "status"}`, ref, c.path)
		}
	}
	return nil
}

// editTyped applies edit to an object as a T, and returns the object with what that
// changed.
func editTyped[T any](raw map[string]any, edit func(*T) error) (map[string]any, error) {
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	obj := new(T)
	if err := utiljson.Unmarshal(text, obj); err != nil {
		return nil, fmt.Errorf("decoding it as %T: %w", obj, err)
	}
	before, err := contentOf(obj)
	if err != nil {
		return nil, err
	}
	m := merger{arrays: map[uintptr]bool{}}
	m.collectArrays(reflect.ValueOf(obj))
	if err := edit(obj); err != nil {
		return nil, err
	}
	after, err := contentOf(obj)
	if err != nil {
		return nil, err
	}
	return m.mergeMap(reflect.ValueOf(obj), raw, before, after, false), nil
}

// contentOf returns an object as it is on the wire, without what pruneUnset removes.
func contentOf(obj any) (map[string]any, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", obj, err)
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(text, &content); err != nil {
		return nil, fmt.Errorf("encoding %T: %w", obj, err)
	}
	pruneUnset(reflect.ValueOf(obj), content)
	return content, nil
}

// Create creates an object from any struct with JSON tags, and returns it as stored.
// For types of client-go, apiVersion and kind may be left out.
func Create[T any](ctx context.Context, c Client, resource schema.GroupVersionResource, obj *T) (*T, error) {
	content, err := contentOf(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	if u.GetKind() == "" && slices.Contains(builtin.ResourcesOf(obj), resource) {
		u.SetGroupVersionKind(resource.GroupVersion().WithKind(reflect.TypeFor[T]().Name()))
	}
	stored, err := c.Create(ctx, resource, u)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(stored.Object)
	if err != nil {
		return nil, err
	}
	created := new(T)
	if err := utiljson.Unmarshal(text, created); err != nil {
		return nil, fmt.Errorf("%s %s was created, decoding it as %T: %w", resource.GroupResource(), joinName(stored.GetNamespace(), stored.GetName()), created, err)
	}
	return created, nil
}

// Delete deletes the object that Ref.UID names. An object that is gone, or another
// object of that name, is not an error.
func Delete(ctx context.Context, c Client, ref Ref) error {
	err := c.Delete(ctx, ref, Preconditions{UID: ref.UID})
	if IsNotFound(err, ref) || IsConflict(err, ref) {
		return nil
	}
	return err
}

// replaced is the error for an object whose name another object has by now.
func replaced(ref Ref, uid types.UID) error {
	err := apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	err.ErrStatus.Message = fmt.Sprintf("%s with uid %s not found: the object of that name has uid %s", ref, ref.UID, uid)
	return err
}
