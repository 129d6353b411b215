// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/operatortest"
)

// always are the definitions that every cluster gets.
var always = []string{
	"ciliumcidrgroups.cilium.io", "ciliumclusterwidenetworkpolicies.cilium.io", "ciliumendpoints.cilium.io", "ciliumexternalworkloads.cilium.io",
	"ciliumidentities.cilium.io", "ciliuml2announcementpolicies.cilium.io", "ciliumloadbalancerippools.cilium.io",
	"ciliumnetworkpolicies.cilium.io", "ciliumnodeconfigs.cilium.io", "ciliumnodes.cilium.io", "ciliumpodippools.cilium.io",
}

// later is how many kinds only agents from 1.18 on have.
const later = 2

// CRD-1, CRD-3, CRD-8, CRD-11 and CRD-12; CRD-E1 and CRD-E11.
func TestRegistration(t *testing.T) {
	w := newWorld(t)
	first := build(t, w.proxy.Kubeconfig())
	var early []string // definitions that do not serve when other duties start
	first.onDuty = func() {
		serving := map[string]bool{}
		for _, crd := range w.list() {
			serving[crd.Name] = isEstablished(&crd)
		}
		for _, name := range always {
			if !serving[name] {
				early = append(early, name)
			}
		}
	}
	first.Run()
	for _, name := range early { // a machine so slow that the wait is over
		if first.count("starting without some CRDs") == 0 {
			t.Errorf("%s does not serve when other duties start", name)
		}
	}
	first.registered(len(always))
	operatortest.Eventually(t, "all serve, and are seen to", func() bool {
		sent := w.sent()
		return !slices.ContainsFunc(w.list(), func(crd apiextensionsv1.CustomResourceDefinition) bool {
			return !isEstablished(&crd) || sent["get "+crd.Name] < 2
		})
	})
	results := first.results() // gauges end with the term
	first.Stop()

	if got := names(w.list()); !slices.Equal(got, always) {
		t.Errorf("registered are\n%v\nwant\n%v", got, always)
	}
	for _, crd := range w.list() {
		if len(crd.Labels) != 1 || crd.Labels[api.SchemaVersionLabel] != ourVersion || len(crd.Annotations) != 0 {
			t.Errorf("%s has the labels %v and annotations %v", crd.Name, crd.Labels, crd.Annotations)
		}
	}
	for _, name := range always {
		if results[name] != ourVersion+" created" {
			t.Errorf("the metric says %q of %s", results[name], name)
		}
	}
	if n := first.count("created CRD"); n != len(always) {
		t.Errorf("%d definitions are logged, want each of %d once:\n%s", n, len(always), first.logged())
	}
	if len(w.writes()) != len(always) || first.degraded() != "" {
		t.Errorf("writes: %v, degraded: %s", w.writes(), first.degraded())
	}

	t.Run("restart on a converged cluster", func(t *testing.T) {
		before := w.sent()
		again := start(t, w.proxy.Kubeconfig()).registered(len(always))
		for request, n := range w.sent() {
			want := before[request]
			if strings.HasPrefix(request, "get ") {
				want++ // one look is enough
			}
			if n != want {
				t.Errorf("%s: %d times before, now %d", request, before[request], n)
			}
		}
		for _, name := range always {
			if again.results()[name] != ourVersion+" equal" {
				t.Errorf("the metric says %q of %s", again.results()[name], name)
			}
		}
		if again.count("CRD") != again.count("starting without some CRDs") { // which a slow machine may do
			t.Errorf("there is nothing to tell:\n%s", again.logged())
		}
		again.Stop()
	})

	t.Run("features add kinds", func(t *testing.T) {
		dir := t.TempDir()
		for key, value := range map[string]string{"enable-bgp-control-plane": "true", "enable-envoy-config": "true", "enable-cilium-endpoint-slice": "true"} {
			if err := os.WriteFile(filepath.Join(dir, key), []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		start(t, w.proxy.Kubeconfig(), "--config-dir="+dir, "--enable-ipv4-egress-gateway", "--enable-local-redirect-policy").registered(len(api.Kinds()) - later).Stop()
		if got := w.list(); len(got) != len(api.Kinds())-later {
			t.Errorf("registered are %v, want all %d", names(got), len(api.Kinds())-later)
		}
	})

	t.Run("features that are off again leave their kinds", func(t *testing.T) {
		before := len(w.writes())
		start(t, w.proxy.Kubeconfig()).registered(len(always)).Stop()
		if got := w.list(); len(got) != len(api.Kinds())-later || len(w.writes()) != before {
			t.Errorf("there are %d definitions, and the writes %v", len(got), w.writes()[before:])
		}
	})
}

func isConflict(write string) bool { return strings.HasSuffix(write, ": 409") }

// CRD-5, CRD-7 and CRD-9; CRD-E2 to CRD-E6 and CRD-E12.
func TestUpgrade(t *testing.T) {
	w := newWorld(t)
	start(t, w.proxy.Kubeconfig()).registered(len(always)).Stop()
	const name = "ciliumnodes.cilium.io"
	whole := w.get(name).Spec.Versions[0].Schema

	foreign := func(crd *apiextensionsv1.CustomResourceDefinition) {
		label("1.30.0")(crd)
		crd.Labels["team"] = "a"
		crd.Annotations = map[string]string{"note": "kept"}
		crd.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}
		crd.Spec.Names.ShortNames = []string{"old"}
	}
	updated := []string{"updated CRD", "name:" + name}
	const newer = "info: keeping newer CRD"
	for _, test := range []struct {
		name   string
		change func(*apiextensionsv1.CustomResourceDefinition)
		writes int
		result string   // installed version and result
		label  string   // afterwards
		logs   []string // words of one line
	}{
		{"older, with foreign labels", foreign, 1, ourVersion + " updated", ourVersion, updated},
		{"short", label("v1.30"), 1, ourVersion + " updated", ourVersion, updated},
		{"no version", label("latest"), 1, ourVersion + " updated", ourVersion, updated},
		{"release candidate", label("1.30.1-rc1"), 1, ourVersion + " updated", ourVersion, updated},
		{"no label", func(crd *apiextensionsv1.CustomResourceDefinition) { delete(crd.Labels, api.SchemaVersionLabel) }, 1, ourVersion + " updated", ourVersion, updated},
		{"dropped suffix", label("1.31.0-dev"), 0, "1.31.0-dev newer", "1.31.0-dev", []string{newer, "installed:1.31.0-dev", "name:" + name}},
		{"newer", label("1.33.0"), 0, "1.33.0 newer", "1.33.0", []string{newer, "installed:1.33.0", "name:" + name}},
		{"edited by hand", func(crd *apiextensionsv1.CustomResourceDefinition) {
			label(ourVersion)(crd)
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["mine"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}, 0, ourVersion + " drifted", ourVersion, []string{"warning: keeping CRD that has our version and another schema"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.update(name, test.change)
			w.accepted(name)
			before := len(w.writes())
			o := start(t, w.proxy.Kubeconfig()).registered(len(always))
			defer o.Stop()
			writes := slices.DeleteFunc(w.writes()[before:], isConflict) // the server writes statuses meanwhile
			if len(writes) != test.writes {
				t.Errorf("writes: %v, want %d", writes, test.writes)
			}
			crd := w.get(name)
			if crd.Labels[api.SchemaVersionLabel] != test.label {
				t.Errorf("the label is %q, want %q", crd.Labels[api.SchemaVersionLabel], test.label)
			}
			if got := o.results()[name]; got != test.result {
				t.Errorf("the metric says %q, want %q", got, test.result)
			}
			if o.count(test.logs...) != 1 {
				t.Errorf("want one line %q, have\n%s", test.logs, o.logged())
			}
			if crd.Labels["team"] != "a" || crd.Annotations["note"] != "kept" {
				t.Errorf("what others wrote is lost: labels %v, annotations %v", crd.Labels, crd.Annotations)
			}
			if test.writes > 0 && (!slices.Equal(crd.Spec.Names.ShortNames, []string{"cn", "ciliumn"}) || !equality.Semantic.DeepEqual(crd.Spec.Versions[0].Schema, whole)) {
				t.Errorf("the spec is not ours: names %v", crd.Spec.Names)
			}
		})
	}
}

// CRD-3; CRD-E7.
func TestTwoAtOnce(t *testing.T) {
	w := newWorld(t)
	both := []*operator{build(t, w.proxy.Kubeconfig()), build(t, w.proxy.Kubeconfig())}
	var starting sync.WaitGroup
	for _, o := range both {
		starting.Go(o.Run)
	}
	starting.Wait()
	for _, o := range both {
		o.registered(len(always))
	}
	made := 0
	for _, write := range w.writes() {
		switch {
		case strings.HasSuffix(write, ": 201"):
			made++
		case !strings.HasSuffix(write, ": 409"):
			t.Errorf("unexpected write %s", write)
		}
	}
	if made != len(always) {
		t.Errorf("%d definitions were made, want %d: %v", made, len(always), w.writes())
	}
}

// CRD-E10.
func TestSkip(t *testing.T) {
	w := newWorld(t)
	o := start(t, w.proxy.Kubeconfig(), "--skip-crd-creation")
	if n := o.count("info: Skipping creation of CRDs"); n != 1 {
		t.Errorf("told %d times:\n%s", n, o.logged())
	}
	if sent := w.sent(); len(sent) != 0 || len(w.list()) != 0 {
		t.Errorf("requests: %v", sent)
	}
	if g := o.Graph(); g.Module("crds.registration").Enabled || len(o.results()) != 0 {
		t.Error("registration costs something although it is off")
	}
}
