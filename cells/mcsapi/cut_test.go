// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// MCS-51, K8S-24: what other clusters see of a Service that is cut stays as it is, and health says so, until it is whole again.
func TestCutService(t *testing.T) {
	n := &slim.Namespace{}
	n.Name = "shop"
	ports := []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	cut := newService("10.96.0.10", ports...)
	if !slim.CutDown(cut, 100<<10) || cut.Spec.Ports != nil {
		t.Fatal("it cannot be cut")
	}
	services := streamOf(t, cut)
	x := newExporter(exporterParams{
		Cluster: cluster.Config{ClusterName: "c1", ClusterMeshDefaultGlobalNamespace: true, Release: release.Newest()},
		Exports: streamOf(t, newExport()), Services: services, Namespaces: streamOf(t, n), Health: health.NewTree().Reporter("mcsapi"),
	})
	if err := x.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if value, known := x.Desired(web); known || value != nil || !x.tooLarge.Has("shop/web") {
		t.Errorf("its key is to be %s, %t", value, known)
	}
	store, err := services.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !hides(store, web) || hides(store, slim.Key{Namespace: "shop", Name: "other"}) {
		t.Error("what follows from it is written")
	}
	services.Replace(newService("10.96.0.10", ports...))
	if value, known := x.Desired(web); !known || len(value) == 0 || x.tooLarge.Has("shop/web") || hides(store, web) {
		t.Errorf("whole its key is to be %s, %t", value, known)
	}
	slice := &endpointSlice{}
	if !slim.CutDown(slice, 100<<10) || slice.Endpoints != nil {
		t.Error("an EndpointSlice cannot be cut")
	}
}

// MCS-51, K8S-24: what follows from a ServiceExport or a ServiceImport that is cut stays as it is.
func TestCutExportAndImport(t *testing.T) {
	export, imported := newExport(), &serviceImport{}
	imported.Namespace, imported.Name = slim.MakeString(web.Namespace), web.Name
	imported.Spec.Ports = []mcsv1alpha1.ServicePort{{Port: 80}}
	imported.Annotations = slim.MakeLabels(map[string]string{madeHere: "x"})
	if !slim.CutDown(export, 100<<10) || !slim.CutDown(imported, 100<<10) || imported.Spec.Ports != nil || !imported.Annotations.Has(madeHere) {
		t.Fatal("they cannot be cut")
	}
	n := &slim.Namespace{}
	n.Name = "shop"
	x := newExporter(exporterParams{
		Cluster: cluster.Config{ClusterName: "c1", ClusterMeshDefaultGlobalNamespace: true, Release: release.Newest()},
		Exports: streamOf(t, export), Services: streamOf(t, newService("10.96.0.10")), Namespaces: streamOf(t, n), Health: health.NewTree().Reporter("mcsapi"),
	})
	if err := x.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if value, known := x.Desired(web); known || value != nil || !x.tooLarge.Has("shop/web") {
		t.Errorf("the key is to be %s, %t", value, known)
	}
	imports, err := streamOf(t, imported).Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !hides(imports, web) || hides(imports, slim.Key{Namespace: "shop", Name: "other"}) {
		t.Error("what follows from the ServiceImport is written")
	}
}
