// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/markers"
)

// registerMarkers makes known what controller-gen cannot say.
func registerMarkers(into *markers.Registry) error {
	for _, marker := range []struct {
		name   string
		target markers.TargetType
		value  any
	}{
		{"skep:validation:oneOf", markers.DescribesType, oneOf(nil)},
		{"skep:validation:anyOf", markers.DescribesType, anyOf(nil)},
		{"skep:validation:emptyOrFormat", markers.DescribesType, emptyOrFormat(nil)},
		{"skep:validation:values:MaxLength", markers.DescribesField, valuesMaxLength(0)},
		{"skep:validation:values:Pattern", markers.DescribesField, valuesPattern("")},
	} {
		if err := into.Define(marker.name, marker.target, marker.value); err != nil {
			return fmt.Errorf("define the marker %s: %w", marker.name, err)
		}
	}
	return nil
}

// oneOf demands exactly one of the named properties, by the schema keyword of that name.
// The ExactlyOneOf of controller-gen comes out as a validation rule,
// which other tools do not read and which costs an API server more.
type oneOf []string

func (names oneOf) ApplyToSchema(_ *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	choices, err := oneEach(names, schema)
	schema.OneOf = append(schema.OneOf, choices...)
	return err
}

// anyOf demands at least one of the named properties.
type anyOf []string

func (names anyOf) ApplyToSchema(_ *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	choices, err := oneEach(names, schema)
	schema.AnyOf = append(schema.AnyOf, choices...)
	return err
}

// oneEach returns a schema for each of the names, which demands the property of that name.
func oneEach(names []string, schema *apiextensionsv1.JSONSchemaProps) ([]apiextensionsv1.JSONSchemaProps, error) {
	var choices []apiextensionsv1.JSONSchemaProps
	for _, name := range names {
		if _, known := schema.Properties[name]; !known {
			return nil, fmt.Errorf("a choice names %q, which is not a property", name)
		}
		choices = append(choices, apiextensionsv1.JSONSchemaProps{
			Properties: map[string]apiextensionsv1.JSONSchemaProps{name: {}},
			Required:   []string{name},
		})
	}
	return choices, nil
}

// emptyOrFormat demands one of several formats of a string that is not empty.
type emptyOrFormat []string

func (formats emptyOrFormat) ApplyToSchema(_ *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	if schema.Type != "string" {
		return fmt.Errorf("formats of strings stand on a type %q", schema.Type)
	}
	schema.AnyOf = append(schema.AnyOf, apiextensionsv1.JSONSchemaProps{MaxLength: new(int64)})
	for _, format := range formats {
		schema.AnyOf = append(schema.AnyOf, apiextensionsv1.JSONSchemaProps{Format: format})
	}
	return nil
}

// valuesMaxLength bounds the values of a map of strings.
type valuesMaxLength int

func (m valuesMaxLength) ApplyToSchema(ctx *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	values, err := valuesOf(schema)
	if err != nil {
		return err
	}
	return crdmarkers.MaxLength(m).ApplyToSchema(ctx, values)
}

// valuesPattern is a regular expression for the values of a map of strings.
type valuesPattern string

func (m valuesPattern) ApplyToSchema(ctx *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	values, err := valuesOf(schema)
	if err != nil {
		return err
	}
	return crdmarkers.Pattern(m).ApplyToSchema(ctx, values)
}

func valuesOf(schema *apiextensionsv1.JSONSchemaProps) (*apiextensionsv1.JSONSchemaProps, error) {
	if schema.AdditionalProperties == nil || schema.AdditionalProperties.Schema == nil {
		return nil, fmt.Errorf("a marker for the values of a map stands on a field of type %q", schema.Type)
	}
	return schema.AdditionalProperties.Schema, nil
}
