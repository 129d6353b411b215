// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed crds/*.yaml
var manifests embed.FS

// CRDs returns the CustomResourceDefinitions of all kinds, in the order of Kinds.
// They are parsed at each call and are the caller's.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(kinds))
	for _, kind := range kinds {
		crd, err := kind.CRD()
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
func (k Kind) CRD() (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := k.manifest()
	if err != nil {
		return nil, fmt.Errorf("no definition of the kind %s is built in: %w", k.Name, err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		return nil, fmt.Errorf("parse the built-in definition of the kind %s: %w", k.Name, err)
	}
	if !k.IsMulticluster() { // those bring their labels
		crd.Labels = map[string]string{SchemaVersionLabel: SchemaVersion}
	}
	return crd, nil
}
