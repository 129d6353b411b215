// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/skep-operator/skep/resources/api"
)

// TestMulticlusterDefinitions holds the kinds of the multi-cluster services API against the definitions of its module.
func TestMulticlusterDefinitions(t *testing.T) {
	for _, kind := range api.MulticlusterKinds() {
		crd, err := kind.CRD(api.Edition{})
		if err != nil {
			t.Fatal(err)
		}
		if crd.Name != kind.CRDName() || crd.Spec.Names.Kind != kind.Name || crd.Labels[kind.VersionLabel()] != kind.Version(api.Edition{}) || !kind.IsMulticluster() {
			t.Errorf("%v has the definition %s of %s with the labels %v", kind, crd.Name, crd.Spec.Names.Kind, crd.Labels)
		}
		if !slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == kind.Resource.Version && v.Served && v.Subresources != nil && v.Subresources.Status != nil
		}) {
			t.Errorf("%s does not serve %s with a status", crd.Name, kind.Resource.Version)
		}
		if found, known := api.KindNamed(kind.Name); !known || found != kind {
			t.Errorf("KindNamed(%q) is %v, %v", kind.Name, found, known)
		}
	}
	for _, kind := range api.Kinds() {
		if kind.IsMulticluster() || kind.Version(api.Edition{}) != (api.Edition{}).SchemaVersion() || kind.VersionLabel() != api.SchemaVersionLabel || !strings.HasSuffix(kind.CRDName(), ".cilium.io") {
			t.Errorf("%v is taken for a kind of the multi-cluster services API", kind)
		}
	}
}
