// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-tools/pkg/crd"
)

// A marker that cannot mean anything is an error of the generator, not a silent nothing.
func TestMarkersRefuseWhatTheyCannotMean(t *testing.T) {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	number := apiextensionsv1.JSONSchemaProps{Type: "integer"}
	object := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": text, "b": text}}
	texts := apiextensionsv1.JSONSchemaProps{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &text}}
	numbers := apiextensionsv1.JSONSchemaProps{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &number}}
	for name, c := range map[string]struct {
		marker  crd.SchemaMarker
		schema  apiextensionsv1.JSONSchemaProps
		refused bool
	}{
		"oneOf of properties":    {oneOf{"a", "b"}, object, false},
		"oneOf of no property":   {oneOf{"a", "c"}, object, true},
		"anyOf of properties":    {anyOf{"a", "b"}, object, false},
		"anyOf of no property":   {anyOf{"a", "c"}, object, true},
		"formats of texts":       {emptyOrFormat{"ipv4"}, text, false},
		"formats of numbers":     {emptyOrFormat{"ipv4"}, number, true},
		"length of texts":        {valuesMaxLength(63), texts, false},
		"length of numbers":      {valuesMaxLength(63), numbers, true},
		"length without values":  {valuesMaxLength(63), object, true},
		"pattern of texts":       {valuesPattern("x"), texts, false},
		"pattern of numbers":     {valuesPattern("x"), numbers, true},
		"pattern without values": {valuesPattern("x"), text, true},
	} {
		if err := c.marker.ApplyToSchema(nil, c.schema.DeepCopy()); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
