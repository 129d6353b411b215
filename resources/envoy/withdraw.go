// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"context"
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
		for _, name := range o.Spec.Secrets {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Withdraw takes keys, by the names that agents offer them by, out of the CiliumEnvoyConfigs of an owner that are not made anew. All else in these stays: hosts
// that have no other key are not served any more. One that would be left with a listener for no connection is deleted.
func (n ConfigNames) Withdraw(ctx context.Context, c k8s.Client, in *stream.Store[Object], owner *metav1.OwnerReference, keys []string) error {
	for _, key := range n.owned(in, owner) {
		ref, serves := Ref(key), true
		_, _, err := c.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
			if err := (Desired{Owner: owner}).check(ref, u); err != nil {
				return err
			}
			serves = withdraw(u, keys)
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

// owned are the names of those that the owner has.
func (n ConfigNames) owned(in *stream.Store[Object], owner *metav1.OwnerReference) []slim.Key {
	return slices.DeleteFunc(slices.Compact([]slim.Key{n.long, n.short}), func(key slim.Key) bool { return !isOwned(in, key, owner) })
}

// withdraw takes keys out of the listeners of a CiliumEnvoyConfig, and the filter chains that have no other. It reports whether each listener has a filter
// chain; it changes nothing if one has none then.
func withdraw(u *unstructured.Unstructured, keys []string) (serves bool) {
	resources, _, _ := unstructured.NestedSlice(u.Object, "spec", "resources") // a copy
	changed := false
	for _, r := range resources {
		l, _ := r.(map[string]any)
		chains, _ := l["filterChains"].([]any)
		left := slices.DeleteFunc(slices.Clone(chains), func(chain any) bool {
			took, has := withdrawFrom(chain, keys)
			changed = changed || took
			return took && !has
		})
		switch {
		case len(left) == len(chains):
		case len(left) == 0:
			return false
		default:
			l["filterChains"] = left
		}
	}
	if changed {
		_ = unstructured.SetNestedSlice(u.Object, resources, "spec", "resources") // it has been found there
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
