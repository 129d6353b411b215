// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// manifests are those of the folder crds as JSON, which takes a fraction of the time that YAML takes to parse.
//
//go:embed crds/json/*.json
var manifests embed.FS

// CRDs returns the CustomResourceDefinitions of all kinds, in the order of Kinds.
// They are parsed at each call and are the caller's.
func CRDs(e Edition) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(kinds))
	for _, kind := range kinds {
		crd, err := kind.CRD(e)
		if err != nil {
			return nil, err
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// CRD returns the CustomResourceDefinition of the kind as it is created in a cluster: its name,
// the label of the schema version (VersionLabel), and the spec without what the API server fills in. Its status is empty.
// It is parsed at each call and is the caller's.
func (k Kind) CRD(e Edition) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition, err := k.UnstructuredCRD(e)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(definition.Object)
	if err != nil {
		return nil, fmt.Errorf("encode the built-in definition of the kind %s: %w", k.Name, err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := k.decode(text, crd); err != nil {
		return nil, err
	}
	return crd, nil
}

// UnstructuredCRD is CRD for writers, and for comparisons with what an API server returns: schemas that are as long as
// these take much longer to convert to and from structs than to parse.
// It is parsed at each call and is the caller's.
func (k Kind) UnstructuredCRD(e Edition) (*unstructured.Unstructured, error) {
	text, err := k.manifest()
	if err != nil {
		return nil, fmt.Errorf("no definition of the kind %s is built in: %w", k.Name, err)
	}
	crd := &unstructured.Unstructured{}
	if err := k.decode(text, &crd.Object); err != nil {
		return nil, err
	}
	if k.IsMulticluster() { // those bring their labels
		return crd, nil
	}
	if err := k.tighten(crd.Object, e.Admission); err != nil {
		return nil, err
	}
	crd.SetLabels(map[string]string{SchemaVersionLabel: e.SchemaVersion()})
	return crd, nil
}

func (k Kind) decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("parse the built-in definition of the kind %s: %w", k.Name, err)
	}
	return nil
}
