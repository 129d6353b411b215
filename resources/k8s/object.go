// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddFinalizer adds a finalizer to an object, and reports whether the object did not
// have it. It is for edits, see Update.
func AddFinalizer(obj metav1.Object, name string) (added bool) {
	if slices.Contains(obj.GetFinalizers(), name) {
		return false
	}
	obj.SetFinalizers(append(obj.GetFinalizers(), name))
	return true
}

// RemoveFinalizer removes a finalizer from an object, and reports whether the object
// had it.
func RemoveFinalizer(obj metav1.Object, name string) (removed bool) {
	if !slices.Contains(obj.GetFinalizers(), name) {
		return false
	}
	obj.SetFinalizers(slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == name }))
	return true
}

// SetCondition sets the condition of its type, and reports whether that made a
// difference. The time of the last transition changes only with the status. Of a
// generation or time that is left out, that of the present condition stays.
func SetCondition(conditions *[]metav1.Condition, c metav1.Condition) (changed bool) {
	if current := meta.FindStatusCondition(*conditions, c.Type); current != nil && c.ObservedGeneration == 0 {
		c.ObservedGeneration = current.ObservedGeneration
	}
	return meta.SetStatusCondition(conditions, c)
}
