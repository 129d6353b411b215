// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package labels_test

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/domain/labels"
)

type pairs = map[string]string

func identity(t testing.TB, pod pairs, entries ...string) labels.Set {
	t.Helper()
	return labels.Pod{
		Cluster: "default", Namespace: "shop", ServiceAccount: "default",
		Labels: maps.All(pod), NamespaceLabels: maps.All(pairs{"kubernetes.io/metadata.name": "shop"}),
	}.Identity(filter(t, entries...).Keeps)
}

// ID-E1, ID-E3, ID-E10 and ID-E11; ID-1 to ID-3.
func TestIdentity(t *testing.T) {
	with := func(more pairs) labels.Set {
		all := labels.Set{
			"k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name": "shop",
			"k8s:io.cilium.k8s.policy.cluster":                               "default",
			"k8s:io.cilium.k8s.policy.serviceaccount":                        "default",
			"k8s:io.kubernetes.pod.namespace":                                "shop",
		}
		maps.Copy(all, more)
		return all
	}
	for name, test := range map[string]struct {
		pod  pairs
		want labels.Set
	}{
		"as usual":           {pairs{"app": "web", "pod-template-hash": "abc"}, with(pairs{"k8s:app": "web"})},
		"none":               {nil, with(nil)},
		"forged":             {pairs{"io.cilium.k8s.policy.cluster": "evil", "io.cilium.k8sx": "y", "io.cilium.k8s.namespace.labels.team": "a"}, with(nil)},
		"forged namespace":   {pairs{"io.kubernetes.pod.namespace": "evil"}, with(nil)},
		"reserved":           {pairs{"reserved.foo": "a"}, with(pairs{"k8s:foo": "a"})},
		"reserved and plain": {pairs{"reserved.foo": "a", "foo": "b"}, with(pairs{"k8s:foo": "b"})},
		"reserved, forged":   {pairs{"reserved.io.cilium.k8s.policy.cluster": "evil"}, with(nil)},
		"reserved, team":     {pairs{"reserved.io.cilium.k8s.namespace.labels.team": "evil"}, with(nil)},
		"reserved, dropped":  {pairs{"reserved.pod-template-hash": "x"}, with(nil)},
		"empty value":        {pairs{"app": ""}, with(pairs{"k8s:app": ""})},
	} {
		if diff := cmp.Diff(test.want, identity(t, test.pod)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	got := identity(t, pairs{"app": "web", "team": "a"}, "k8s:app")
	want := with(pairs{"k8s:app": "web"})
	delete(want, "k8s:io.cilium.k8s.policy.serviceaccount")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := identity(t, pairs{"app": "web", "team": "a"}, "k8s:!team"); !cmp.Equal(got, with(pairs{"k8s:app": "web"})) {
		t.Errorf("got %v", got)
	}
	noAccount := labels.Pod{Cluster: "c", Namespace: "n", Labels: maps.All(pairs{}), NamespaceLabels: maps.All(pairs{})}.Identity(filter(t).Keeps)
	if diff := cmp.Diff(labels.Set{"k8s:io.cilium.k8s.policy.cluster": "c", "k8s:io.kubernetes.pod.namespace": "n"}, noAccount); diff != "" {
		t.Error(diff)
	}
}

// ID-3: the label string.
func TestString(t *testing.T) {
	for want, set := range map[string]labels.Set{
		"": nil,
		"k8s:app=web;k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=shop;k8s:io.cilium.k8s.policy.cluster=default;k8s:io.cilium.k8s.policy.serviceaccount=default;k8s:io.kubernetes.pod.namespace=shop;": identity(t, pairs{"app": "web"}),
		"k8s:key=;":             {"k8s:key": ""},
		"k8s:a=1;gen:b=2;":      {"gen:b": "2", "k8s:a": "1"},
		"gen:a=2;k8s:a=1;":      {"gen:a": "2", "k8s:a": "1"},
		"k8s:a.b=1;k8s:a/b=2;":  {"k8s:a/b": "2", "k8s:a.b": "1"},
		"k8s:a=b=c;k8s:a:b=d;":  {"k8s:a": "b=c", "k8s:a:b": "d"},
		"reserved:host=;x:y=z;": {"x:y": "z", "reserved:host": ""},
	} {
		if got := set.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Of an object's own labels there is the namespace: ID-40, ID-E15; numbers 16 of the contract's identities.md.
func TestMetadata(t *testing.T) {
	set := identity(t, pairs{"app": "web"})
	set["k8s:io.cilium.k8s.policy.serviceaccount"] = strings.Repeat("s", 70)
	if diff := cmp.Diff(pairs{"io.kubernetes.pod.namespace": "shop"}, set.Metadata()); diff != "" {
		t.Error(diff)
	}
	for _, set := range []labels.Set{{"k8s:app": "web"}, {"k8s:io.kubernetes.pod.namespace": "not a name"}, {"gen:io.kubernetes.pod.namespace": "shop"}} {
		if meta := set.Metadata(); meta != nil {
			t.Errorf("%v has %v", set, meta)
		}
	}
}

// Sets depend on nothing but the labels: neither on their order nor on those that
// are dropped, and different ones have different strings.
func TestIdentityIsAFunctionOfWhatIsKept(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	keys := []string{"app", "team", "reserved.x", "x", "pod-template-hash", "kubernetes.io/x", "io.cilium.k8s.policy.cluster", "app.kubernetes.io/name"}
	byText := map[string]labels.Set{}
	for range 1000 {
		pod := pairs{}
		for range r.IntN(6) {
			pod[keys[r.IntN(len(keys))]] = []string{"", "a", "b", "a;k8s:b=c"}[r.IntN(4)]
		}
		set := identity(t, pod)
		pod["pod-template-hash"], pod["controller-uid"] = "other", "other"
		if again := identity(t, pod); !cmp.Equal(set, again) {
			t.Fatalf("%v has %v, then %v", pod, set, again)
		}
		text := set.String()
		if strings.Contains(text, "a;k8s:b=c") {
			continue // no API server has such values
		}
		if other, ok := byText[text]; ok && !cmp.Equal(other, set) {
			t.Fatalf("%v and %v are both %s", other, set, text)
		}
		byText[text] = set
	}
	if len(byText) < 50 {
		t.Errorf("only %d sets: the sample says little", len(byText))
	}
}
