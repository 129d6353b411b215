// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"context"
	"errors"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Secrets are the names of secrets, as agents offer them, that the CiliumEnvoyConfigs of an owner have. Sorted, each once.
func (n ConfigNames) Secrets(in *stream.Store[Object], owner *metav1.OwnerReference) []string {
	all := map[string]bool{}
	for _, key := range n.owned(in, owner) {
		o, _ := in.Get(key)
		for name := range o.Spec.Secrets.All() {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Withdraw takes keys, by the names that agents offer them by, out of the CiliumEnvoyConfigs of an owner that are not made anew. All else in these stays: hosts
// that have no other key are not served any more. One without a listener that is left is deleted.
func (n ConfigNames) Withdraw(ctx context.Context, c k8s.Client, in *stream.Store[Object], owner *metav1.OwnerReference, keys []string) error {
	for _, key := range n.owned(in, owner) {
		if o, exists := in.Get(key); exists && o.Spec.isVast { // it is none that was written here
			if err := Delete(ctx, c, in, key, owner); err != nil {
				return err
			}
			continue
		}
		ref, serves := Ref(key), true
		_, _, err := c.Modify(k8s.NewOpaqueField("spec", editedSpec).With(ctx), ref, func(u *unstructured.Unstructured) error {
			if err := (Desired{Owner: owner}).check(ref, u); err != nil {
				return err
			}
			if serves = u.Object["spec"] != tooLargeToEdit; serves {
				serves = withdraw(u, keys)
			}
			return nil
		})
		if err == nil && !serves {
			err = Delete(ctx, c, in, key, owner)
		}
		if k8s.IsNotFound(err, ref) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxEdited is how many objects a spec may have that is edited, of which there are five copies in memory meanwhile. Those that are written here have fewer: each
// of these has 25 bytes or more.
const maxEdited = 60_000

// tooLargeToEdit is in the place of a spec with more.
const tooLargeToEdit = "too large"

// editedSpec is the digest of a spec that is too large to be edited. Others have none: they are decoded.
func editedSpec(text []byte) (string, error) {
	if slim.Entries(text) > maxEdited {
		return tooLargeToEdit, nil
	}
	return "", errEdited
}

// errEdited has a spec decoded.
var errEdited = errors.New("it is edited")

// owned are the names of those that the owner has.
func (n ConfigNames) owned(in *stream.Store[Object], owner *metav1.OwnerReference) []slim.Key {
	return slices.DeleteFunc(slices.Compact([]slim.Key{n.long, n.short}), func(key slim.Key) bool { return !isOwned(in, key, owner) })
}

// withdraw takes keys out of the listeners of a CiliumEnvoyConfig, the filter chains that have no other, and the listeners that have no other filter chain. It
// reports whether it has a listener with one still; it changes nothing if not.
func withdraw(u *unstructured.Unstructured, keys []string) (serves bool) {
	resources, _, _ := unstructured.NestedSlice(u.Object, "spec", "resources") // a copy
	changed, gone := false, map[string]bool{}
	var left []any
	for _, r := range resources {
		l, _ := r.(map[string]any)
		chains, _ := l["filterChains"].([]any)
		rest := slices.DeleteFunc(slices.Clone(chains), func(chain any) bool {
			took, has := withdrawFrom(chain, keys)
			changed = changed || took
			return took && !has
		})
		if len(chains) > 0 && len(rest) == 0 {
			name, _ := l["name"].(string)
			if gone[name] = true; len(gone) == 1 && !serves {
				gone[""] = true // what names no listener means the first one
			}
			continue
		}
		if serves = serves || len(rest) > 0; len(rest) < len(chains) {
			l["filterChains"] = rest
		}
		left = append(left, r)
	}
	if !changed || !serves {
		return !changed
	}
	services, _, _ := unstructured.NestedSlice(u.Object, "spec", "services")
	services = slices.DeleteFunc(services, func(s any) bool {
		fields, _ := s.(map[string]any)
		name, _ := fields["listener"].(string)
		return gone[name]
	})
	_ = unstructured.SetNestedSlice(u.Object, left, "spec", "resources") // both have been found there
	if len(gone) > 0 {
		_ = unstructured.SetNestedSlice(u.Object, services, "spec", "services")
	}
	return true
}

// withdrawFrom takes keys out of a filter chain. It reports whether it took one, and whether there are others.
func withdrawFrom(chain any, keys []string) (took, has bool) {
	fields, _ := chain.(map[string]any)
	tls, _, _ := unstructured.NestedFieldNoCopy(fields, "transportSocket", "typedConfig", "commonTlsContext")
	of, _ := tls.(map[string]any)
	secrets, _ := of["tlsCertificateSdsSecretConfigs"].([]any)
	left := slices.DeleteFunc(slices.Clone(secrets), func(secret any) bool {
		fields, _ := secret.(map[string]any)
		name, _ := fields["name"].(string)
		return slices.Contains(keys, name)
	})
	if took = len(left) < len(secrets); took {
		of["tlsCertificateSdsSecretConfigs"] = left
	}
	return took, len(left) > 0
}
