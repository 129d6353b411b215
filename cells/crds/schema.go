// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"encoding/json"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// sameSchemas compares the installed schemas with ours as the API server stores them, without texts for people.
func sameSchemas(installed, ours *apiextensionsv1.CustomResourceDefinition) bool {
	if len(installed.Spec.Versions) != len(ours.Spec.Versions) {
		return false
	}
	for i := range ours.Spec.Versions {
		if !sameJSON(withoutTexts(installed.Spec.Versions[i].Schema), withoutTexts(ours.Spec.Versions[i].Schema)) {
			return false
		}
	}
	return true
}

func sameJSON(a, b any) bool {
	var values [2]any
	for i, v := range []any{a, b} {
		text, err := json.Marshal(v)
		if err != nil || json.Unmarshal(text, &values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// withoutTexts returns a copy of a schema without descriptions, titles, examples
// and references to documentation, at any depth.
func withoutTexts(schema *apiextensionsv1.CustomResourceValidation) *apiextensionsv1.CustomResourceValidation {
	schema = schema.DeepCopy()
	if schema != nil {
		dropTexts(schema.OpenAPIV3Schema)
	}
	return schema
}

func dropTexts(s *apiextensionsv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.Description, s.Title, s.Example, s.ExternalDocs = "", "", nil, nil
	dropTexts(s.Not)
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		dropTextsOfAll(list)
	}
	if s.Items != nil {
		dropTexts(s.Items.Schema)
		dropTextsOfAll(s.Items.JSONSchemas)
	}
	if s.AdditionalProperties != nil {
		dropTexts(s.AdditionalProperties.Schema)
	}
	for name, property := range s.Properties {
		dropTexts(&property)
		s.Properties[name] = property
	}
}

func dropTextsOfAll(list []apiextensionsv1.JSONSchemaProps) {
	for i := range list {
		dropTexts(&list[i])
	}
}
