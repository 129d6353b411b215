// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func full(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func secretNamed(namespace, name string) secretref.Object {
	return secretref.Object{Kind: secretref.Secret, Key: slim.Key{Namespace: namespace, Name: name}}
}

// SEC-8, SEC-11, SEC-20: what a copy has, and whose it is.
func TestContent(t *testing.T) {
	long := strings.Repeat("n", 100)
	for _, test := range []struct {
		of           secretref.Object
		source, want string
	}{
		{secretNamed("a", "b"), `{type: T, immutable: true, data: {k: dg==}, metadata: {labels: {x: "1", secretsync.cilium.io/owning-secret-name: other}, annotations: {kubectl.kubernetes.io/last-applied-configuration: z, note: "2"}}}`,
			`{type: T, immutable: true, data: {k: dg==}, metadata: {annotations: {note: "2"}, labels: {x: "1", secretsync.cilium.io/owning-secret-name: b, secretsync.cilium.io/owning-secret-namespace: a}}}`},
		{secretNamed("a", long), `{}`, `{type: Opaque, metadata: {annotations: {secretsync.cilium.io/owning-secret-name: ` + long + `}, labels: {secretsync.cilium.io/owning-secret-name: ` +
			`SHORT, secretsync.cilium.io/owning-secret-namespace: a}}}`},
		{secretNamed("a", "b"), `{type: kubernetes.io/service-account-token, data: {k: dg==}}`,
			`{type: Opaque, data: {k: dg==}, metadata: {labels: {secretsync.cilium.io/owning-secret-name: b, secretsync.cilium.io/owning-secret-namespace: a}}}`},
		{secretNamed("bootstrap-token", "abcdef"), `{type: bootstrap.kubernetes.io/token, data: {token-id: dg==}}`,
			`{type: Opaque, data: {token-id: dg==}, metadata: {labels: {secretsync.cilium.io/owning-secret-name: abcdef, secretsync.cilium.io/owning-secret-namespace: bootstrap-token}}}`},
		{secretref.Object{Kind: secretref.ConfigMap, Key: slim.Key{Namespace: "a", Name: "b"}}, `{data: {ca.crt: v, other: w}}`,
			`{type: Opaque, data: {ca.crt: dg==}, metadata: {labels: {secretsync.cilium.io/owning-configmap-name: b, secretsync.cilium.io/owning-configmap-namespace: a}}}`},
		{secretref.Object{Kind: secretref.ConfigMap, Key: slim.Key{Namespace: "a", Name: "b"}}, `{binaryData: {ca.crt: dg==}}`,
			`{type: Opaque, data: {ca.crt: dg==}, metadata: {labels: {secretsync.cilium.io/owning-configmap-name: b, secretsync.cilium.io/owning-configmap-namespace: a}}}`},
	} {
		c := contentOf(test.of, full(t, test.source))
		got := &unstructured.Unstructured{Object: map[string]any{}}
		c.apply(got)
		want := full(t, strings.ReplaceAll(test.want, "SHORT", got.GetLabels()[secretref.NameKey(test.of.Kind)]))
		if fmt.Sprint(got.Object) != fmt.Sprint(want.Object) {
			t.Errorf("%s:\n%v\nwant\n%v", test.of, got.Object, want.Object)
		}
		if owner, isCopy := ownerOfFull(got); !isCopy || owner != test.of {
			t.Errorf("%s is the copy of %s", test.of, owner)
		}
		if !c.isIn(got) || c.replaces(got) {
			t.Errorf("%s: what was applied differs", test.of)
		}
		for _, of := range []secretref.Object{test.of, secretNamed("a", configMapPrefix+"b"), secretNamed("a", secretPrefix+"b"), secretNamed("a", "b/c")} {
			if got := objectOf(keyOf(of)); got != of {
				t.Errorf("the key of %s is that of %s", of, got)
			}
		}
		got.SetLabels(merged(got.GetLabels(), map[string]string{"added": "by another"}))
		if !c.isIn(got) {
			t.Errorf("%s: a label of another is to go", test.of)
		}
	}
}

// SEC-F3: what the API server refuses to change is replaced.
func TestReplaces(t *testing.T) {
	source := full(t, `{type: T, data: {k: dg==}}`)
	for text, want := range map[string]bool{
		`{type: T, data: {k: dg==}}`:                  false,
		`{type: T, data: {k: eA==}}`:                  false,
		`{type: U, data: {k: dg==}}`:                  true,
		`{type: T, immutable: true, data: {k: dg==}}`: true,
		`{type: T, immutable: true, data: {k: eA==}}`: true,
	} {
		if got := contentOf(secretNamed("a", "b"), source).replaces(full(t, text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// The references are those that were set last, whatever was set before.
func TestReferences(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	refs, last := newReferences(), map[reference][]secretref.Object{}
	for i := range 5000 {
		from := reference{source: fmt.Sprint("s", r.IntN(2)), from: corev1.ObjectReference{Kind: "K", Namespace: "n", Name: fmt.Sprint(r.IntN(5))}}
		before := map[secretref.Object]bool{}
		for _, of := range last[from] {
			before[of] = true
		}
		var to []secretref.Object
		for range r.IntN(4) {
			to = append(to, secretNamed([]string{"a", "a-b"}[r.IntN(2)], []string{"b-c", "c", "d"}[r.IntN(3)]))
		}
		after := map[secretref.Object]bool{}
		for _, of := range to {
			after[of] = true
		}
		replaced := from
		replaced.from.UID = types.UID(fmt.Sprint(i)) // by another object of the name
		added, removed := refs.set(replaced, to)
		for _, of := range added {
			if before[of] || !after[of] {
				t.Fatalf("%s was added", of)
			}
		}
		for _, of := range removed {
			if !before[of] || after[of] {
				t.Fatalf("%s was removed", of)
			}
		}
		if last[from] = slices.Collect(maps.Keys(after)); len(after) == 0 {
			delete(last, from)
		}
		referred := map[secretref.Object]int{}
		for _, all := range last {
			for _, of := range all {
				referred[of]++
			}
		}
		for _, namespace := range []string{"a", "a-b"} {
			for _, name := range []string{"b-c", "c", "d"} {
				of := secretNamed(namespace, name)
				if n := len(refs.of(of)); n != referred[of] || refs.has(of) != (n > 0) || slices.Contains(refs.byCopy(of.CopyName()), of) != (n > 0) {
					t.Fatalf("%s has %d references, and %d were set", of, n, referred[of])
				}
			}
		}
	}
	for from := range last {
		refs.set(from, nil)
	}
	if len(refs.to)+len(refs.from)+len(refs.named)+len(refs.uids) > 0 {
		t.Errorf("something is left: %v %v %v", refs.to, refs.from, refs.named)
	}
}
