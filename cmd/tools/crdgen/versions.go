// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// undefaulted are fields without their default in one version. The versions of a kind share the Go types of their fields,
// and so their defaults; but a default that the releases which serve v2 do not have in it would show up in objects of theirs.
var undefaulted = []struct {
	kind, version string
	path          []string
}{
	{"CiliumBGPClusterConfig", "v2", peerConfigRef("group")},
	{"CiliumBGPClusterConfig", "v2", peerConfigRef("kind")},
	{"CiliumBGPNodeConfig", "v2", peerConfigRef("group")},
	{"CiliumBGPNodeConfig", "v2", peerConfigRef("kind")},
}

func peerConfigRef(field string) []string {
	return []string{"spec", "bgpInstances", "peers", "peerConfigRef", field}
}

// dropDefaults takes away the defaults of a definition that are in undefaulted.
func dropDefaults(definition *apiextensionsv1.CustomResourceDefinition) error {
	for _, field := range undefaulted {
		if field.kind != definition.Spec.Names.Kind {
			continue
		}
		for _, version := range definition.Spec.Versions {
			if version.Name == field.version && !dropDefault(version.Schema.OpenAPIV3Schema, field.path) {
				return fmt.Errorf("there is no default at %v of %s %s", field.path, field.kind, field.version)
			}
		}
	}
	return nil
}

// dropDefault follows names of properties, through lists, and tells whether a default was there.
func dropDefault(schema *apiextensionsv1.JSONSchemaProps, path []string) bool {
	if schema.Items != nil {
		return dropDefault(schema.Items.Schema, path)
	}
	if len(path) == 0 {
		had := schema.Default != nil
		schema.Default = nil
		return had
	}
	property, known := schema.Properties[path[0]]
	had := known && dropDefault(&property, path[1:])
	if had {
		schema.Properties[path[0]] = property
	}
	return had
}
