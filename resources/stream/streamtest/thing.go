// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Thing is what the conformance suite streams: a ConfigMap, or a custom resource
// of the same shape.
type Thing struct {
	ThingMeta `json:"metadata"`
	Data      slim.Labels `json:"data"`
}

// ThingMeta is the metadata of a Thing.
type ThingMeta struct {
	slim.Meta
	Labels slim.Labels `json:"labels"`
}

// Value is what tells one state of a Thing from another.
func (t *Thing) Value() string { return t.Data.Get("value") }

// The resources that Things are kept as.
var (
	ConfigMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	Widgets    = schema.GroupVersionResource{Group: "streamtest.example.com", Version: "v1", Resource: "widgets"}
)

// CoreThings declares Things that are ConfigMaps.
func CoreThings() stream.Kind[Thing] { return stream.Core[Thing, corev1.ConfigMap](ConfigMaps) }

// CustomThings declares Things that are custom resources.
func CustomThings() stream.Kind[Thing] { return stream.Custom[Thing](Widgets) }

// labelKey is the label by which half of the Things are selected.
const labelKey = "streamtest.example.com/value"

// NewConfigMap returns the full object of a Thing that is a ConfigMap. It has
// more than a stream of Things keeps.
func NewConfigMap(namespace, name, value string) *unstructured.Unstructured {
	return newThing("v1", "ConfigMap", namespace, name, value)
}

// NewWidget returns the full object of a Thing that is a custom resource.
func NewWidget(namespace, name, value string) *unstructured.Unstructured {
	return newThing(Widgets.GroupVersion().String(), "Widget", namespace, name, value)
}

func newThing(apiVersion, kind, namespace, name, value string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"data": map[string]any{"value": value, "other": "kept too"},
	}}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetLabels(map[string]string{labelKey: value})
	u.SetAnnotations(map[string]string{"streamtest.example.com/not-kept": "an object has more than a stream keeps"})
	return u
}

// configMap returns the Go type of NewConfigMap.
func configMap(namespace, name, value string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(NewConfigMap(namespace, name, value).Object, cm); err != nil {
		panic(err)
	}
	return cm
}

// WidgetDefinition returns the CustomResourceDefinition of widgets.
func WidgetDefinition() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"group": Widgets.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": Widgets.Resource, "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": Widgets.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
	u.SetAPIVersion("apiextensions.k8s.io/v1")
	u.SetKind("CustomResourceDefinition")
	u.SetName(Widgets.GroupResource().String())
	return u
}
