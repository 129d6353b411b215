// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"slices"

	mcscrds "sigs.k8s.io/mcs-api/config/crd"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"
)

// MulticlusterVersion is the release of the multi-cluster services API whose definitions are built in.
const MulticlusterVersion = "v0.5.2"

// The newest version of the multi-cluster services API, which its definitions store. Older definitions have v1alpha1 alone, with the same fields.
var (
	ServiceExportResource = mcsv1beta1.SchemeGroupVersion.WithResource(mcsv1beta1.ServiceExportPluralName)
	ServiceImportResource = mcsv1beta1.SchemeGroupVersion.WithResource(mcsv1beta1.ServiceImportPluralName)
)

var multiclusterKinds = []Kind{
	{mcsv1beta1.ServiceExportKindName, ServiceExportResource, mcsv1alpha1.SchemeGroupVersion.Version},
	{mcsv1beta1.ServiceImportKindName, ServiceImportResource, mcsv1alpha1.SchemeGroupVersion.Version},
}

// MulticlusterKinds returns the kinds of the multi-cluster services API, which is a project of Kubernetes: its
// definitions may be installed by others. They are not among Kinds. The slice is the caller's.
func MulticlusterKinds() []Kind { return slices.Clone(multiclusterKinds) }

// manifest returns the built-in definition as JSON.
func (k Kind) manifest() ([]byte, error) {
	switch k.Resource {
	case ServiceExportResource:
		return yaml.YAMLToJSONStrict(mcscrds.ServiceExportCRD)
	case ServiceImportResource:
		return yaml.YAMLToJSONStrict(mcscrds.ServiceImportCRD)
	}
	return manifests.ReadFile("crds/json/" + k.CRDName() + ".json")
}

// IsMulticluster reports whether the kind is one of MulticlusterKinds.
func (k Kind) IsMulticluster() bool { return k.Resource.Group == mcsv1beta1.GroupName }

// VersionLabel is the label of the kind's CustomResourceDefinition that holds the version of its schema.
func (k Kind) VersionLabel() string {
	if k.IsMulticluster() {
		return mcscrds.ReleaseVersionLabel
	}
	return SchemaVersionLabel
}

// Version is the version of the schema in an edition.
func (k Kind) Version(e Edition) string {
	if k.IsMulticluster() {
		return MulticlusterVersion
	}
	return e.SchemaVersion()
}
