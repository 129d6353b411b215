// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// SEC-23: a Secret has no mark of the default one of Ingresses by what its owner writes. A copy keeps its mark while Ingresses are not served, and loses it when
// another one is known to be the default one.
func TestMarkOfTheDefaultSecret(t *testing.T) {
	source := full(t, `{type: T, metadata: {annotations: {note: "2", secretsync.cilium.io/owning-default: forged}}}`)
	names, of := secretref.NewNames(), secretNamed("certs", "default")
	has := &unstructured.Unstructured{Object: map[string]any{}}
	write := func(what string, want bool) {
		t.Helper()
		c := contentOf(of, source)
		c.markDefault(names.IsDefault(of))
		c.apply(has)
		if got := has.GetAnnotations(); (got[secretref.DefaultKey] == "true") != want || got["note"] != "2" || len(got) > 2 || !c.isIn(has) {
			t.Errorf("%s: the copy has %v", what, got)
		}
	}
	write("of no configuration", false)
	names.AddDefault(of)
	write("of an option", true)
	names = secretref.NewNames()
	write("Ingresses are not served", true)
	names.RecallDefault(of)
	if is, known := names.IsDefault(of); !is || known {
		t.Error("the mark of a copy does not count")
	}
	names = secretref.NewNames()
	names.AddDefault(secretNamed("certs", "other"))
	names.KnowDefaults()
	names.RecallDefault(of)
	write("another one is the default Secret", false)
	if _, shown := names.IsDefault(of); !shown || names.MayBeDefault("certs-default", of) || names.MayBeDefault("certs-default", secretref.Object{}) ||
		!names.MayBeDefault("certs-other", secretref.Object{}) || !names.MayBeDefault("any", secretNamed("certs", "other")) {
		t.Error("what is served is not the default Secret alone")
	}
}

// SEC-23: the default Secret of an earlier release has no mark, and no option names it once Ingresses are not served: it is what the configurations of most
// namespaces have that were left, two at least. What a tenant writes, or what comes later, makes it none.
func TestDefaultSecretOfAnEarlierRelease(t *testing.T) {
	for name, test := range map[string]struct {
		finds bool
		want  []string
	}{"an option has it": {false, nil}, "no option has it": {true, []string{"certs/default"}}} {
		t.Run(name, func(t *testing.T) {
			names := secretref.NewNames()
			means := &meanings{own: "kube-system", names: names}
			names.LimitPins(means.mayBe)
			for _, of := range []secretref.Object{secretNamed("certs", "default"), secretNamed("victim", "tls"), secretNamed("victim", "later"), secretNamed("aa", "own"), secretNamed("certs", "shared")} {
				names.Exists("copies", of.CopyName(), of)
			}
			names.MarkKnown()
			var all []*envoy.Object
			add := func(namespace string, copies ...string) {
				o := &envoy.Object{}
				o.Namespace, o.Name = slim.MakeString(namespace), fmt.Sprint("c", len(all))
				for i := range copies {
					copies[i] = "copies/" + copies[i]
				}
				o.Spec.Secrets = envoy.MakeSecretNames(copies...)
				all = append(all, o)
			}
			add("aa", "certs-default", "aa-own")
			add("bb", "certs-default")
			add("certs", "certs-default", "certs-shared")
			for range 5 {
				add("tenant", "victim-tls", "victim-none")
			}
			add("kube-system", "victim-later", "certs-shared", "victim-tls")
			s := &configurationSource{
				name: "left", namespace: "copies", counts: func(*envoy.Object) bool { return true }, own: "kube-system", isLeft: true, findsDefault: test.finds,
				names: names, meanings: means, refer: means, log: slog.New(slog.DiscardHandler),
				pinned: map[slim.Key]pinned{}, many: map[string]int{}, reported: map[string]bool{}, configurations: configurationsAt{initial: all, followed: all},
			}
			r := &recorded{to: map[string][]string{}}
			s.PinAll(t.Context())
			s.Follow(t.Context(), r)
			check := func() {
				t.Helper()
				if got := r.to["bb/c1"]; !slices.Equal(got, test.want) {
					t.Errorf("of what an Ingress of another namespace has %v stays", got)
				}
				if got := r.to["tenant/c3"]; len(got) > 0 {
					t.Errorf("a tenant keeps %v", got)
				}
				if got := len(r.to["kube-system/c8"]); got != 3 {
					t.Errorf("what Ingresses share keeps %d", got)
				}
			}
			check()
			if got := slices.Contains(r.woken, secretNamed("certs", "default")); got != test.finds {
				t.Errorf("the default Secret's copy is written with what shows it: %t", got)
			}
			for _, namespace := range []string{"cc", "dd", "ee"} {
				add(namespace, "victim-tls")
			}
			s.configurations = configurationsAt{followed: all}
			s.Follow(t.Context(), r)
			check()
			if is, _ := names.IsDefault(secretNamed("victim", "tls")); is {
				t.Error("what later configurations name is the default Secret")
			}
		})
	}
}
