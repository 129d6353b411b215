// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/operatortest"
)

// CRD-18: what happens to a definition while the term lasts is repaired then.
func TestRepairedWhileRunning(t *testing.T) {
	w := newWorld(t)
	o := start(t, w.proxy.Kubeconfig()).registered(len(always))
	serves := func(not types.UID) bool {
		crd, err := w.admin.Get(t.Context(), nodes, metav1.GetOptions{})
		return err == nil && crd.UID != not && crd.Labels[api.SchemaVersionLabel] == ourVersion && isEstablished(crd)
	}
	t.Run("deleted", func(t *testing.T) {
		old := w.get(nodes).UID
		if err := w.admin.Delete(t.Context(), nodes, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		operatortest.Eventually(t, "it is there again", func() bool { return serves(old) })
		o.registered(len(always))
		if n := o.count("warning: recreating CRD that was deleted with its objects", "name:"+nodes); n != 1 {
			t.Errorf("logged %d times:\n%s", n, o.logged())
		}
		if got := o.results()[nodes]; got != ourVersion+" created" {
			t.Errorf("the metric says %q", got)
		}
	})
	t.Run("label removed", func(t *testing.T) {
		w.update(nodes, func(crd *apiextensionsv1.CustomResourceDefinition) {
			delete(crd.Labels, api.SchemaVersionLabel)
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["mine"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		})
		operatortest.Eventually(t, "it is ours again", func() bool {
			_, mine := w.get(nodes).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["mine"]
			return serves("") && !mine
		})
	})
	t.Run("edited, and back", func(t *testing.T) {
		const drifted = "warning: keeping CRD that has our version and another schema"
		mine := func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["mine"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}
		writes := len(w.writes())
		w.update(nodes, mine)
		operatortest.Eventually(t, "it is logged", func() bool { return o.count(drifted) == 1 && strings.HasSuffix(o.results()[nodes], " drifted") })
		w.update(nodes, func(crd *apiextensionsv1.CustomResourceDefinition) {
			delete(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties, "mine")
		})
		operatortest.Eventually(t, "it is equal again", func() bool { return strings.HasSuffix(o.results()[nodes], " equal") })
		if n := len(w.writes()); n != writes {
			t.Errorf("writes: %v", w.writes()[writes:])
		}
	})
	t.Run("others are left alone", func(t *testing.T) {
		sent := w.sent()
		foreign := ours(t, "CiliumNode")
		foreign.Name, foreign.Spec.Group = "others.example.com", "example.com"
		foreign.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: "Other", Plural: "others", Singular: "other"}
		w.create(foreign)
		if err := w.admin.Delete(t.Context(), foreign.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		operatortest.Eventually(t, "it is gone", func() bool {
			_, err := w.admin.Get(t.Context(), foreign.Name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		for request, n := range w.sent() {
			if strings.HasSuffix(request, foreign.Name) || n != sent[request] && request != "watch " {
				t.Errorf("%s: %d times", request, n-sent[request])
			}
		}
	})
}
