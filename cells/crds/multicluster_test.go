// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds_test

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/operatortest"
)

// CRD-19; CRD-E13: the definitions of the multi-cluster services API are created, updated and left alone by their own version.
func TestMulticluster(t *testing.T) {
	w := newWorld(t)
	mcs := []string{"serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io"}
	start(t, w.proxy.Kubeconfig(), "--clustermesh-enable-mcs-api", "--clustermesh-mcs-api-install-crds=false").registered(len(always)).Stop()
	if n := len(w.list()); n != len(always) {
		t.Errorf("%d definitions without the option to install those", n)
	}
	o := start(t, w.proxy.Kubeconfig(), "--clustermesh-enable-mcs-api").registered(len(always) + len(mcs))
	for _, name := range mcs {
		if got := o.results()[name]; got != api.MulticlusterVersion+" created" {
			t.Errorf("%s: %q", name, got)
		}
		if crd := w.get(name); crd.Labels[api.SchemaVersionLabel] != "" {
			t.Errorf("%s has the labels %v", name, crd.Labels)
		}
		operatortest.Eventually(t, name+" is established", func() bool { return isEstablished(w.get(name)) })
	}
	o.Stop()
	before := len(w.writes())
	label := func(version string) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Labels = map[string]string{"multicluster.x-k8s.io/release-version": version, "team": "a"}
		}
	}
	for _, step := range []struct {
		version string
		result  string
		writes  int
	}{
		{api.MulticlusterVersion, api.MulticlusterVersion + " equal", 0}, {"v0.4.1", api.MulticlusterVersion + " updated", 1},
		{"v9.0.0", "v9.0.0 newer", 0}, {"", " foreign", 0},
	} {
		w.update(mcs[0], label(step.version))
		o := start(t, w.proxy.Kubeconfig(), "--clustermesh-enable-mcs-api").registered(len(always) + len(mcs))
		if got := o.results()[mcs[0]]; got != step.result {
			t.Errorf("version %q: the result is %q, want %q", step.version, got, step.result)
		}
		o.Stop()
		if n := len(w.writes()) - before; n != step.writes {
			t.Errorf("version %q: %d writes", step.version, n)
		}
		if w.get(mcs[0]).Labels["team"] != "a" {
			t.Errorf("version %q: the label of another is gone", step.version)
		}
		before = len(w.writes())
	}
}
