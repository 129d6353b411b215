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
	for _, name := range names {
		if _, known := schema.Properties[name]; !known {
			return fmt.Errorf("oneOf names %q, which is not a property", name)
		}
		schema.OneOf = append(schema.OneOf, apiextensionsv1.JSONSchemaProps{
			Properties: map[string]apiextensionsv1.JSONSchemaProps{name: {}},
			Required:   []string{name},
		})
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
