// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcscrds "sigs.k8s.io/mcs-api/config/crd"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// MCS-3: without definitions the duty waits and says so; it begins when they come.
func TestDefinitionsThatCome(t *testing.T) {
	w := newWorld(t)
	definitions := operatortest.NewDefinitions(t, clustertest.Shared(t))
	definitions.Delete("serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io")
	o := w.start()
	for _, resource := range []string{"serviceexports", "serviceimports"} {
		operatortest.Eventually(t, "health names "+resource, func() bool { return strings.Contains(o.Degraded("mcsapi"), resource+".multicluster.x-k8s.io") })
	}
	operatortest.Define(t, clustertest.Shared(t).AdminConfig(t), "ServiceExport", "ServiceImport")
	w.service("web", nil)
	w.export("web")
	operatortest.Eventually(t, "the Service is exported", func() bool { return w.value("web") != "" })
	w.awaitDerived("web", "exists", exists)
	w.awaitHealthy(o)
}

// defineIn installs the definitions of the API with one version alone.
func (w *world) defineIn(version string) {
	w.T.Helper()
	definitions := operatortest.NewDefinitions(w.T, clustertest.Shared(w.T))
	definitions.Delete("serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io")
	for _, text := range [][]byte{mcscrds.ServiceExportCRD, mcscrds.ServiceImportCRD} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			w.T.Fatal(err)
		}
		crd.Labels = nil // so that no operator updates it
		crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name != version })
		crd.Spec.Versions[0].Storage = true
		content, err := yaml.Marshal(crd)
		if err != nil {
			w.T.Fatal(err)
		}
		definitions.Apply(content)
	}
}

// MCS-4 and K8S-16: definitions that serve one version alone will do, and owners are named in it.
func TestDefinitionsOfOneVersion(t *testing.T) {
	w := newWorld(t, "a")
	t.Cleanup(func() {
		operatortest.NewDefinitions(t, clustertest.Shared(t)).Delete("serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io")
	})
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		w.defineIn(version)
		o := w.start()
		w.publish("a", "theirs", "Headless", 2020, httpPort)
		w.service("web", nil)
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": mcsv1alpha1.GroupName + "/" + version, "kind": "ServiceExport", "metadata": map[string]any{"name": "web"},
		}}
		served := schema.GroupVersionResource{Group: mcsv1alpha1.GroupName, Version: version, Resource: "serviceexports"}
		if _, err := w.Dynamic.Resource(served).Namespace(w.Namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.awaitDerived("theirs", "exists", exists)
		d := w.awaitDerived("web", "exists", exists)
		if owner := d.OwnerReferences[0]; owner.APIVersion != mcsv1alpha1.GroupName+"/"+version || owner.Kind != "ServiceImport" {
			t.Errorf("%s: the owner is %+v", version, owner)
		}
		operatortest.Eventually(t, "the statuses are written in "+version, func() bool {
			e, err := w.Dynamic.Resource(served).Namespace(w.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			conditions, _, _ := unstructured.NestedSlice(e.Object, "status", "conditions")
			return len(conditions) == 3
		})
		w.awaitHealthy(o)
		o.Stop()
		w.deleteService("web")
		w.peers["a"].Delete(w.exportKey("a", "theirs"))
	}
}

// MCS-4; number B11 of the contract's bgp.md: a ServiceExport of v1beta1 is exported where v1alpha1 is served beside it, and keeps what it has.
func TestExportOfTheNewerVersion(t *testing.T) {
	w := newWorld(t)
	o := w.start()
	w.service("web", nil)
	newer := schema.GroupVersionResource{Group: mcsv1alpha1.GroupName, Version: "v1beta1", Resource: "serviceexports"}
	spec := map[string]any{"exportedLabels": map[string]any{"tier": "one"}, "exportedAnnotations": map[string]any{"note": "x"}}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": newer.GroupVersion().String(), "kind": "ServiceExport", "metadata": map[string]any{"name": "web"}, "spec": spec}}
	if _, err := w.Dynamic.Resource(newer).Namespace(w.Namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts")
	operatortest.Eventually(t, "the key is there", func() bool { return w.value("web") != "" })
	w.awaitMetadata("tier=one", "note=x")
	is, err := w.Dynamic.Resource(newer).Namespace(w.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || fmt.Sprint(is.Object["spec"]) != fmt.Sprint(spec) {
		t.Errorf("%v, %v", is.Object["spec"], err)
	}
	w.awaitHealthy(o)
}
