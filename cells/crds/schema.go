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

// lostField returns the first field that objects have by an installed CRD, in any of its versions, and by ours do not, "" if ours
// has all: the API server would drop it from objects at their next write.
func lostField(installed, ours *unstructured.Unstructured) string {
	all := schemasByVersion(ours)
	for version, schema := range schemasByVersion(installed) {
		own, has := all[version]
		if !has {
			continue // of a version that is not served any more there is a word when objects are stored in it
		}
		if path := lost(schema, own); path != "" {
			return version + " " + path
		}
	}
	return ""
}

// schemasByVersion returns the schemas of a CRD by the names of its versions.
func schemasByVersion(crd *unstructured.Unstructured) map[string]map[string]any {
	schemas := map[string]map[string]any{}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for i, schema := range schemasOf(crd) {
		version, _ := versions[i].(map[string]any)
		name, _ := version["name"].(string)
		if schema, isObject := schema.(map[string]any); isObject {
			schemas[name] = schema
		}
	}
	return schemas
}

// lost returns the path of a field that a schema has and ours does not, "" if there is none.
func lost(schema, ours map[string]any) string {
	if ours["x-kubernetes-preserve-unknown-fields"] == true {
		return ""
	}
	properties, _ := schema["properties"].(map[string]any)
	own, _ := ours["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		field, has := own[name].(map[string]any)
		if !has {
			return "." + name
		}
		if below, isSchema := properties[name].(map[string]any); isSchema {
			if path := lost(below, field); path != "" {
				return "." + name + path
			}
		}
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		below, isSchema := schema[keyword].(map[string]any)
		if field, has := ours[keyword].(map[string]any); isSchema && has {
			if path := lost(below, field); path != "" {
				return "[]" + path
			}
		}
	}
	return ""
}
