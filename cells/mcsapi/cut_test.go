// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// MCS-51, K8S-24: a copy of an EndpointSlice that is cut stays as it is, and is deleted with what it is a copy of.
func TestCutCopies(t *testing.T) {
	s := exported(t, release.Newest(), nil)
	d := s.desired(&s.imported.Spec)
	s.local.sources = []*endpointSlice{slice("web-a", kubernetesManager, "10.0.1.1"), slice("web-b", kubernetesManager, "10.0.1.2")}
	for _, w := range s.planCopies(d).missing {
		s.local.copies = append(s.local.copies, copied(w))
	}
	cut := s.local.copies[0]
	labels := cut.Labels.Map()
	for i := range 1000 {
		labels[fmt.Sprintf("example.com/%050d", i)] = fmt.Sprintf("%060d", i)
		cut.Owners = append(cut.Owners, slim.OwnerReference{Name: fmt.Sprint("s", i)})
		cut.Endpoints = append(cut.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.1.3"}})
	}
	cut.Labels = slim.MakeLabels(labels)
	if !slim.CutDown(cut, slim.SizeOf(cut)) || slim.SizeOf(cut) > 2<<10 || cut.of() != web {
		t.Fatalf("%d bytes stay, of %s", slim.SizeOf(cut), cut.of())
	}
	if got := s.planCopies(d).String(); got != "+[] ~[] -[]" {
		t.Error(got)
	}
	s.local.sources = s.local.sources[1:]
	if got := s.planCopies(d).String(); got != "+[] ~[] -[a]" {
		t.Errorf("when it is gone what it is a copy of: %s", got)
	}
	s.published = nil
	if got := s.planCopies(d).String(); got != "+[] ~[] -[a b]" {
		t.Errorf("without an export: %s", got)
	}
	source := slice("web-a", kubernetesManager, "10.0.1.1")
	labels[discoveryv1.LabelServiceName], labels[discoveryv1.LabelManagedBy] = "web", kubernetesManager
	source.Labels, source.Owners = slim.MakeLabels(labels), make([]slim.OwnerReference, 1000)
	if !slim.CutDown(source, slim.SizeOf(source)) || slim.SizeOf(source) > 2<<10 || source.service() != web || source.manager() != kubernetesManager {
		t.Errorf("%d bytes stay, of %s by %s", slim.SizeOf(source), source.service(), source.manager())
	}
}

// MCS-51, K8S-24: of a derived Service that is cut neither its owners nor its labels are kept, of which the API server accepts any number.
func TestCutDerivedService(t *testing.T) {
	codec, err := slim.Protobuf[service, corev1.Service]()
	if err != nil {
		t.Fatal(err)
	}
	for owners, least := range map[int]int{55_000: 4 << 20, 2000: 128 << 10} {
		full := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: derivedName, Namespace: "shop", Labels: map[string]string{}, Annotations: map[string]string{"example.com/long": strings.Repeat("x", 50_000)}}}
		for i := range owners {
			full.OwnerReferences = append(full.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "a", Name: "a", UID: "a"})
			if i%20 == 0 {
				full.Labels[fmt.Sprintf("example.com/%050d", i)] = fmt.Sprintf("%060d", i)
			}
		}
		message, err := full.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		s := &service{}
		if err := codec.DecodeProtobuf(slim.NewInterner(), message, s); err != nil {
			t.Fatal(err)
		}
		whole := slim.SizeOf(s)
		if !slim.CutDown(s, whole) || whole < least || slim.SizeOf(s) > 1<<10 || s.Name != derivedName {
			t.Errorf("of %d bytes %d are kept", whole, slim.SizeOf(s))
		}
	}
}
