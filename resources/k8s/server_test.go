// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// define registers a kind without a status subresource.
func (d *desk) define(t *testing.T) schema.GroupVersionResource {
	t.Helper()
	group := d.namespace + ".example.com"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + group},
		"spec": map[string]any{
			"group": group, "scope": "Cluster",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{
						"spec": map[string]any{"type": "object", "properties": map[string]any{
							"size":  map[string]any{"type": "integer"},
							"color": map[string]any{"type": "string", "default": "red"},
							"parts": map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": map[string]any{
								"name": map[string]any{"type": "string"}, "kind": map[string]any{"type": "string", "default": "x"},
							}}},
						}},
						"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
					},
				}},
			}},
		},
	}}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := d.Create(why(t), definitions, crd); err != nil {
		t.Fatal(err)
	}
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
}

// K8S-8 and K8S-10 with the answers of a real API server: what it says is believed, with the
// defaults that it adds.
func TestAServerIsBelieved(t *testing.T) {
	d := newDesk(t)
	resource := d.define(t)
	ref := Ref{Resource: resource, Name: "w"}
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"name": "w", "finalizers": []any{"example.com/keep"}},
		"spec": map[string]any{"size": int64(1), "parts": []any{map[string]any{"name": "a"}}},
	}}
	until(t, "the kind is served", func() bool {
		_, err := d.Get(t.Context(), ref)
		if err != nil && !IsNotFound(err, ref) && !strings.Contains(err.Error(), "404 page not found") && !strings.Contains(err.Error(), "code 404") {
			t.Fatal(err)
		}
		return IsNotFound(err, ref)
	})
	stored, err := d.Create(why(t), resource, widget)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(why(t), resource, widget); !IsAlreadyExists(err, ref) || IsAlreadyExists(err, Ref{Resource: resource, Name: "v"}) {
		t.Errorf("created twice: %v", err)
	}
	set := func(value any, path ...string) error {
		_, _, err := d.Modify(why(t), ref, func(u *unstructured.Unstructured) error { return unstructured.SetNestedField(u.Object, value, path...) })
		return err
	}
	if err := set(int64(2), "spec", "size"); err != nil {
		t.Error(err)
	}
	if _, err := d.Update(why(t), resource, stored); !IsConflict(err, ref) {
		t.Errorf("an old state: %v", err)
	}
	d.published(t, resource.GroupVersion().WithKind("Widget"), aWidget, "spec.parts[].unknown", "spec.unknown")
	if err := set("x", "spec", "unknown"); err != nil { // K8S-17
		t.Errorf("a field that the definition does not have: %v", err)
	}

	status := ref
	status.Subresource = "status"
	_, _, err = d.Modify(why(t), status, func(u *unstructured.Unstructured) error {
		return unstructured.SetNestedField(u.Object, "x", "status", "phase")
	})
	if err == nil || IsNotFound(err, status) || !strings.Contains(err.Error(), "has no subresource status") {
		t.Errorf("a subresource that the definition does not have: %v", err)
	}
	status.Name = "none"
	_, _, err = d.Modify(why(t), status, label)
	if !IsNotFound(err, status) {
		t.Errorf("an object that is not there: %v", err)
	}

	if err := d.Delete(why(t), ref, Preconditions{UID: "other"}); !IsConflict(err, ref) {
		t.Errorf("another uid: %v", err)
	}
	only := Preconditions{UID: stored.GetUID()}
	if err := d.Delete(why(t), ref, only); err != nil {
		t.Errorf("held by a finalizer: %v", err)
	}
	_, _, err = d.Modify(why(t), ref, func(u *unstructured.Unstructured) error { u.SetFinalizers(nil); return nil })
	if err != nil {
		t.Error(err)
	}
	if err := d.Delete(why(t), ref, only); !IsNotFound(err, ref) {
		t.Errorf("gone: %v", err)
	}
	_, err = d.Create(why(t), configMaps, newConfigMap("no-such-namespace", "x", nil))
	if err == nil || IsNotFound(err, Ref{Resource: configMaps, Namespace: "no-such-namespace", Name: "x"}) {
		t.Errorf("no namespace: %v", err)
	}
}
