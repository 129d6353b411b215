// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// shelf is a client for one CiliumEnvoyConfig, which has as many objects in its spec as another writer has put there.
type shelf struct {
	k8s.Client
	owner   metav1.OwnerReference
	spec    string
	decoded bool
	deleted k8s.Preconditions
}

// Modify implements k8s.Client.
func (s *shelf) Modify(_ context.Context, _ k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetOwnerReferences([]metav1.OwnerReference{s.owner})
	digest, err := editedSpec([]byte(s.spec))
	u.Object["spec"] = digest
	if s.decoded = err != nil; s.decoded {
		u.Object["spec"] = map[string]any{"resources": []any{map[string]any{"name": "l", "filterChains": []any{map[string]any{"name": "c"}}}}}
	}
	return u, true, edit(u)
}

// Delete implements k8s.Client.
func (s *shelf) Delete(_ context.Context, _ k8s.Ref, only k8s.Preconditions) error {
	s.deleted = only
	return nil
}

// GW-63: of a configuration that another writer has made too large keys are not taken out: it is deleted, of what the cache has that and no other.
func TestWithdrawFromVastSpecs(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway", Name: "g", UID: "2d1d3f3c-0000-4000-8000-000000000001", Controller: new(true)}
	for name, test := range map[string]struct {
		cached, stored   int // objects
		decoded, deleted bool
	}{
		"usual":                     {3, 3, true, false},
		"vast, as the cache has it": {maxEntries, maxEntries, false, true},
		"vast since":                {3, maxEntries, false, true},
		"too large to edit":         {maxEdited + 1, maxEdited + 1, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			specOf := func(n int) string { return `{"resources":[` + strings.Repeat(`{},`, n) + `{}]}` }
			o := &Object{}
			o.Name, o.Namespace, o.UID = "cilium-gateway-g", slim.MakeString("bb"), slim.ParseUID("2d1d3f3c-0000-4000-8000-000000000009")
			o.Controller = slim.MakeOwner(slim.OwnerReference{APIVersion: slim.MakeString(owner.APIVersion), Kind: slim.MakeString(owner.Kind), Name: owner.Name, UID: slim.ParseUID(string(owner.UID))})
			if err := o.Spec.UnmarshalJSON([]byte(specOf(test.cached))); err != nil {
				t.Fatal(err)
			}
			local, err := stream.NewLocal[Object]()
			if err != nil {
				t.Fatal(err)
			}
			local.Replace(o)
			store, err := local.Store(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s := &shelf{owner: owner, spec: specOf(test.stored)}
			if err := NewConfigNames("bb", o.Name).Withdraw(t.Context(), s, store, &owner, []string{"cilium-secrets/bb-tls"}); err != nil {
				t.Fatal(err)
			}
			if is := s.deleted.UID == types.UID("2d1d3f3c-0000-4000-8000-000000000009") && s.deleted.ResourceVersion == "1"; is != test.deleted || s.decoded != test.decoded {
				t.Errorf("deleted %t (%+v), decoded %t", is, s.deleted, s.decoded)
			}
		})
	}
}
