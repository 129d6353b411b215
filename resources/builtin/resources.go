// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package builtin

import (
	_ "embed"
	"iter"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// typesText has the types of k8s.io/api and their resources, a line each. A test compares it with
// the scheme of client-go; -update writes it.
//
//go:embed types.txt
var typesText string

// types are the types, as in core/v1.Pod, and their resources. The text is read each time: it is asked
// for a few hundred times at the start, and not kept in another form after that.
func types() iter.Seq2[string, schema.GroupVersionResource] {
	return func(yield func(string, schema.GroupVersionResource) bool) {
		for line := range strings.Lines(typesText) {
			name, resource, _ := strings.Cut(strings.TrimSpace(line), " ")
			if gvr, _ := schema.ParseResourceArg(resource); gvr != nil && !yield(name, *gvr) {
				return
			}
		}
	}
}

// ResourcesOf are the resources that have a type of k8s.io/api, of which obj is a pointer, none for
// other types.
func ResourcesOf(obj any) (resources []schema.GroupVersionResource) {
	name := typeName(reflect.TypeOf(obj))
	for is, resource := range types() {
		if is == name {
			resources = append(resources, resource)
		}
	}
	return resources
}

func typeName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path, _ := strings.CutPrefix(t.PkgPath(), "k8s.io/api/")
	return path + "." + t.Name()
}

// Has reports whether a resource is built in, not defined by a CustomResourceDefinition.
func Has(resource schema.GroupVersionResource) bool {
	for _, is := range types() {
		if is == resource {
			return true
		}
	}
	return false
}

// ResourcesOfGroup are the names of the resources of an API group in all of its versions, none for groups
// that are not built in.
func ResourcesOfGroup(group string) (names []string) {
	for _, is := range types() {
		if is.Group == group {
			names = append(names, is.Resource)
		}
	}
	return names
}
