// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// fieldOwners fills in managedFields as the API server would. They are a third
// of a real pod. What they say depends on an item's shape only, so it is worked
// out once per shape, by the API server's own means.
type fieldOwners struct {
	builtin managedfields.TypeConverter
	custom  map[*kind]managedfields.TypeConverter
	shapes  map[string]shape
}

// shape is the managedFields of the first item of a shape.
type shape struct {
	fillers []string
	entries []metav1.ManagedFieldsEntry
}

func newFieldOwners() (*fieldOwners, error) {
	f := &fieldOwners{
		builtin: applyconfigurations.NewTypeConverter(clientscheme.Scheme),
		custom:  map[*kind]managedfields.TypeConverter{},
		shapes:  map[string]shape{},
	}
	for _, k := range customKinds {
		converter, err := customConverter(k)
		if err != nil {
			return nil, fmt.Errorf("read the schema of %s: %w", k.gvk.Kind, err)
		}
		f.custom[k] = converter
	}
	return f, nil
}

func customConverter(k *kind) (managedfields.TypeConverter, error) {
	crd, err := definitionOf(k)
	if err != nil {
		return nil, err
	}
	spec, err := builder.BuildOpenAPIV3(crd, k.gvk.Version, builder.Options{})
	if err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(spec.Components.Schemas, false)
}

// fill sets the managedFields of an item that is otherwise as it is stored.
func (f *fieldOwners) fill(it item) error {
	known, ok := f.shapes[it.shape]
	if !ok {
		entries, err := f.entries(it)
		if err != nil {
			return fmt.Errorf("work out who owns the fields of %s: %w", it.shape, err)
		}
		known = shape{it.fillers, entries}
		f.shapes[it.shape] = known
	}
	entries, err := known.filledWith(it)
	it.object.SetManagedFields(entries)
	return err
}

func (s shape) filledWith(it item) ([]metav1.ManagedFieldsEntry, error) {
	var pairs []string
	for i, filler := range it.fillers {
		pairs = append(pairs, s.fillers[i], filler)
	}
	replacer := strings.NewReplacer(pairs...)
	created := it.object.GetCreationTimestamp()
	entries := make([]metav1.ManagedFieldsEntry, 0, len(s.entries))
	for _, entry := range s.entries {
		entry.Time = &created
		fields := &metav1.FieldsV1{} // its JSON is the one accessor that all minors have
		if err := fields.UnmarshalJSON([]byte(replacer.Replace(entry.FieldsV1.String()))); err != nil {
			return nil, err
		}
		entry.FieldsV1 = fields
		entries = append(entries, entry)
	}
	return entries, nil
}

// entries replays the creation and the report of an object's status.
func (f *fieldOwners) entries(it item) ([]metav1.ManagedFieldsEntry, error) {
	sent := it.object.DeepCopyObject().(object)
	sent.SetUID("")
	sent.SetCreationTimestamp(metav1.Time{})
	sent.SetGeneration(0)
	if it.custom {
		return f.customEntries(it, sent)
	}
	sent.GetObjectKind().SetGroupVersionKind(it.gvk)
	empty, err := clientscheme.Scheme.New(it.gvk)
	if err != nil {
		return nil, err
	}
	empty.GetObjectKind().SetGroupVersionKind(it.gvk)
	created, err := update(f.builtin, it, "", empty, sent, it.creator)
	if err != nil || it.reporter == "" {
		return managedFieldsOf(created), err
	}
	reported := created.DeepCopyObject()
	setStatus(created, initialStatus(it))
	reported, err = update(f.builtin, it, "status", created, reported, it.reporter)
	return managedFieldsOf(reported), err
}

// customEntries are those of an object whose status, if any, was created with
// it.
func (f *fieldOwners) customEntries(it item, sent object) ([]metav1.ManagedFieldsEntry, error) {
	content, err := asUnstructured(it, sent)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content.Object, "metadata", "creationTimestamp")
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(it.gvk)
	created, err := update(f.custom[it.kind], it, "", empty, content, it.creator)
	return managedFieldsOf(created), err
}

func managedFieldsOf(obj runtime.Object) []metav1.ManagedFieldsEntry {
	if obj == nil {
		return nil
	}
	return obj.(metav1.Object).GetManagedFields()
}

// initialStatus is what the API server gives a new object.
func initialStatus(it item) any {
	if pod, ok := it.object.(*corev1.Pod); ok {
		return corev1.PodStatus{Phase: corev1.PodPending, QOSClass: pod.Status.QOSClass}
	}
	return reflect.Zero(statusOf(it.object).Type()).Interface()
}

func setStatus(obj runtime.Object, status any) { statusOf(obj).Set(reflect.ValueOf(status)) }

func statusOf(obj runtime.Object) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName("Status")
}

// update attributes the difference between two states of an object.
func update(types managedfields.TypeConverter, it item, subresource string, old, new runtime.Object, manager string) (runtime.Object, error) {
	create := managedfields.NewDefaultFieldManager
	if it.custom {
		create = managedfields.NewDefaultCRDFieldManager
	}
	ignored := map[fieldpath.APIVersion]*fieldpath.Set{}
	if subresource == "" && !it.custom {
		// The creation of an object does not set its status.
		ignored[fieldpath.APIVersion(it.gvk.GroupVersion().String())] = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	}
	m, err := create(types, oneVersion{}, nothingToDefault{}, clientscheme.Scheme, it.gvk, it.gvk.GroupVersion(),
		subresource, fieldpath.NewExcludeFilterSetMap(ignored))
	if err != nil {
		return nil, err
	}
	return m.Update(old, new, manager)
}

// asUnstructured is an item's object as JSON has it.
func asUnstructured(it item, obj object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", it.gvk.Kind, obj.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(it.gvk)
	return u, nil
}

// oneVersion converts between the versions of objects that have one.
type oneVersion struct{}

func (oneVersion) Convert(in, out, context any) error {
	return fmt.Errorf("convert %T to %T: there is one version", in, out)
}

func (oneVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (oneVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// nothingToDefault is for objects whose defaults are set.
type nothingToDefault struct{}

func (nothingToDefault) Default(runtime.Object) {}
