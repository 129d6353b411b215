// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/reconcile"
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

// space is the Namespace of the tests, with the annotation that says whether it is global, unless that is empty.
func space(annotation string) *slim.Namespace {
	n := &slim.Namespace{}
	if n.Name = web.Namespace; annotation != "" {
		n.Annotations.Labels = slim.MakeLabels(map[string]string{globalnamespace.Annotation: annotation})
	}
	return n
}

// cutDown is an object that is too large to be kept.
func cutDown[T any](t *testing.T, obj *T) *T {
	t.Helper()
	if !slim.CutDown(obj, 100<<10) {
		t.Fatal("it cannot be cut")
	}
	return obj
}

// MCS-28, MCS-30, MCS-51: in a Namespace that is not global a ServiceExport has no key, also where it or its Service is cut.
func TestCutInLocalNamespace(t *testing.T) {
	for name, test := range map[string]struct {
		export  *serviceExport
		service *service
	}{
		"the ServiceExport": {cutDown(t, newExport()), newService("10.96.0.10", localPort())},
		"the Service":       {newExport(), cutDown(t, newService("10.96.0.10", localPort()))},
	} {
		spaces := streamOf[slim.Namespace](t)
		x := newExporter(exporterParams{
			Cluster: cluster.Config{ClusterName: "c1", ClusterMeshDefaultGlobalNamespace: true, Release: release.Newest()},
			Exports: streamOf(t, test.export), Services: streamOf(t, test.service), Namespaces: spaces, Health: health.NewTree().Reporter("mcsapi"),
		})
		if err := x.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if value, known := x.Desired(web); known || value != nil {
			t.Errorf("%s, and a Namespace that is not known: %s, %t", name, value, known)
		}
		for _, step := range []struct {
			annotation string
			isKnown    bool
		}{{"", false}, {"false", true}, {"true", false}, {"nonsense", true}} {
			spaces.Upsert(space(step.annotation))
			if value, known := x.Desired(web); known != step.isKnown || value != nil || x.tooLarge.Has("shop/web") == step.isKnown {
				t.Errorf("%s, %q: %s, %t", name, step.annotation, value, known)
			}
		}
	}
}

// MCS-28, MCS-29, MCS-51: in a Namespace that is not global it does not matter how large what is exported is, and the derived Service is deleted also where it or the
// ServiceImport is cut.
func TestHiddenInLocalNamespace(t *testing.T) {
	derived := exported(t, release.Newest(), nil).derived
	derived.Namespace = text(web.Namespace)
	foreign := *derived
	foreign.Owners = nil
	whole := newService("10.96.0.10", localPort())
	for name, test := range map[string]struct {
		export            *serviceExport
		imported          *serviceImport
		service, derived  *service
		hidden, withdrawn bool // in a Namespace that is not global
	}{
		"the ServiceExport":                     {cutDown(t, newExport()), newImport("c1"), whole, derived, false, true},
		"the Service":                           {newExport(), newImport("c1"), cutDown(t, newService("10.96.0.10", localPort())), derived, false, true},
		"the ServiceImport":                     {newExport(), cutDown(t, newImport("c1")), whole, derived, true, true},
		"the ServiceImport, and another's name": {newExport(), cutDown(t, newImport("c1")), whole, &foreign, true, false},
		"the derived Service":                   {newExport(), newImport("c1"), whole, cutDown(t, new(*derived)), true, true},
		"another Service of its name":           {newExport(), newImport("c1"), whole, cutDown(t, new(foreign)), true, false},
	} {
		spaces, exports, imports, services := streamOf(t, space("")), streamOf(t, test.export), streamOf(t, test.imported), streamOf(t, test.service, test.derived)
		c := &controller{params: params{Cluster: cluster.Config{ClusterName: "c1", ClusterMeshDefaultGlobalNamespace: true, Release: release.Newest()}}}
		for _, open := range []func() error{
			func() (err error) { c.spaces, err = spaces.Store(t.Context()); return err },
			func() (err error) { c.exports, err = exports.Store(t.Context()); return err },
			func() (err error) { c.imports, err = imports.Store(t.Context()); return err },
			func() (err error) { c.services, err = services.Store(t.Context()); return err },
		} {
			if err := open(); err != nil {
				t.Fatal(err)
			}
		}
		of := derivedKey(web)
		if c.withdrawn(web, of) != nil {
			t.Errorf("%s: the derived Service goes before all is fresh", name)
		}
		if !c.fresh.Await(t.Context(), reconcile.Deps{}) {
			t.Fatal("nothing is fresh")
		}
		if !c.hidesAny(web, of) || c.withdrawn(web, of) != nil {
			t.Errorf("%s, in a global Namespace: hidden %t, withdrawn %t", name, c.hidesAny(web, of), c.withdrawn(web, of) != nil)
		}
		spaces.Upsert(space("false"))
		if c.hidesAny(web, of) != test.hidden || c.withdrawn(web, of) != nil != test.withdrawn {
			t.Errorf("%s: hidden %t, withdrawn %t", name, c.hidesAny(web, of), c.withdrawn(web, of) != nil)
		}
	}
}

// MCS-41, MCS-51, K8S-24: an EndpointSlice that Kubernetes has made for the derived Service, and that is cut, is not empty: the Service has its selector, or that
// which selects no pods, as long as it may have endpoints, and copies stay.
func TestCutSlicesOfKubernetes(t *testing.T) {
	source := slice("web-a", kubernetesManager, "10.0.1.1")
	withSlice := func(of, manager string, has map[string]string) *state {
		r, _, _ := release.Parse(of)
		s := exported(t, r, has)
		s.local.sources = []*endpointSlice{source}
		s.local.copies = []*sliceCopy{copied(s.newCopy(source, s.desired(&s.imported.Spec)))}
		made := slice("x", manager, "10.0.1.1")
		made.Labels = slim.MakeLabels(map[string]string{discoveryv1.LabelManagedBy: manager, discoveryv1.LabelServiceName: derivedName})
		s.local.kubernetes = []*endpointSlice{cutDown(t, made)}
		return s
	}
	c := &controller{emptied: map[slim.Key]time.Time{web: time.Now().Add(-2 * emptyPause)}}
	s := withSlice("1.20", kubernetesManager, noPods)
	if pause := c.awaitEmpty(s); pause != 0 || s.isEmptied || len(c.emptied) > 0 || !maps.Equal(s.desired(&s.imported.Spec).Spec.Selector, noPods) {
		t.Errorf("Kubernetes has no endpoints: %t, %v, %v", s.isEmptied, pause, s.desired(&s.imported.Spec).Spec.Selector)
	}
	s.local.kubernetes = []*endpointSlice{slice("x", kubernetesManager)}
	c.emptied[web] = time.Now().Add(-2 * emptyPause)
	if pause := c.awaitEmpty(s); pause != 0 || !s.isEmptied || s.desired(&s.imported.Spec).Spec.Selector != nil {
		t.Errorf("whole and empty: %t, %v, %v", s.isEmptied, pause, s.desired(&s.imported.Spec).Spec.Selector)
	}
	s = withSlice("1.20", mirroringManager, nil)
	if got := s.desired(&s.imported.Spec).Spec.Selector; !s.isMirrored() || !maps.Equal(got, noPods) {
		t.Errorf("mirrored: the selector is to be %v", got)
	}
	app := map[string]string{"app": "web"}
	s = withSlice("1.20", kubernetesManager, app) // what it has made does not matter before the copies are there
	if got := s.desired(&s.imported.Spec).Spec.Selector; !maps.Equal(got, noPods) {
		t.Errorf("with copies the selector is to be %v", got)
	}
	s = withSlice("1.17", kubernetesManager, app)
	if p := s.planCopies(s.desired(&s.imported.Spec)); s.isServed() || p.String() != "+[] ~[] -[]" {
		t.Errorf("back: %s", p)
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
