// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sameSchemas compares the installed schemas with ours as the API server stores them, without texts for people.
func sameSchemas(installed, ours *unstructured.Unstructured) bool {
	return slices.EqualFunc(schemasOf(installed), schemasOf(ours), sameSchema)
}

// schemasOf returns the schemas of the versions of a CRD, nil for a version without one.
func schemasOf(crd *unstructured.Unstructured) []any {
	found, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "versions")
	versions, _ := found.([]any)
	schemas := make([]any, len(versions))
	for i, version := range versions {
		if version, isObject := version.(map[string]any); isObject {
			if schema, isObject := version["schema"].(map[string]any); isObject {
				schemas[i] = schema["openAPIV3Schema"]
			}
		}
	}
	return schemas
}

// sameSchema compares two schemas, two lists of schemas, or what is in the place of a schema, such as false in
// additionalProperties.
func sameSchema(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, isSchema := b.(map[string]any)
		return isSchema && sameFields(a, b)
	case []any:
		b, isList := b.([]any)
		return isList && slices.EqualFunc(a, b, sameSchema)
	default:
		return reflect.DeepEqual(a, b)
	}
}

// sameFields compares the fields of two schemas that are not for people.
func sameFields(a, b map[string]any) bool {
	others := 0
	for name := range b {
		if !isText(name) {
			others++
		}
	}
	for name, value := range a {
		if isText(name) {
			continue
		}
		other, has := b[name]
		if !has || !sameField(name, value, other) {
			return false
		}
		others--
	}
	return others == 0
}

// isText reports whether a field of a schema is for people alone.
func isText(name string) bool {
	switch name {
	case "description", "title", "example", "externalDocs":
		return true
	}
	return false
}

func sameField(name string, a, b any) bool {
	switch name {
	case "not", "items", "additionalProperties", "allOf", "anyOf", "oneOf":
		return sameSchema(a, b)
	case "properties":
		return sameProperties(a, b)
	}
	return reflect.DeepEqual(a, b)
}

// sameProperties compares schemas by the names of properties, which may be those of texts.
func sameProperties(a, b any) bool {
	left, isObject := a.(map[string]any)
	right, isOtherObject := b.(map[string]any)
	return isObject && isOtherObject && maps.EqualFunc(left, right, sameSchema)
}
