// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"strings"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// CopyMeta is the metadata of a Secret that may be a copy. A slim type embeds it.
type CopyMeta struct {
	slim.Meta
	Labels      slim.Subset[ownerKeys] `json:"labels"`
	Annotations slim.Subset[ownerKeys] `json:"annotations"`
}

type ownerKeys struct{}

// Keep implements slim.KeyFilter.
func (ownerKeys) Keep(key string) bool { return strings.HasPrefix(key, OwnerPrefix) }

// OwnerPrefix begins the labels of a copy, which name what it is a copy of. A name that is too long for a label is shortened there, and an annotation
// of the same key has it.
const OwnerPrefix = "secretsync.cilium.io/owning-"

// NamespaceKey is the label with the namespace of an object of a kind, on its copies.
func NamespaceKey(kind Kind) string {
	return OwnerPrefix + strings.ToLower(string(kind)) + "-namespace"
}

// NameKey is the label with the name of an object of a kind, on its copies.
func NameKey(kind Kind) string {
	return OwnerPrefix + strings.ToLower(string(kind)) + "-name"
}

// Owner is what the Secret is a copy of.
func (m *CopyMeta) Owner() (of Object, isCopy bool) {
	return OwnerOf(m.Labels.Get, m.Annotations.Get)
}

// OwnerOf is what a Secret with labels and annotations is a copy of.
func OwnerOf(label, annotation func(key string) string) (of Object, isCopy bool) {
	for _, kind := range []Kind{Secret, ConfigMap} {
		namespace, name := label(NamespaceKey(kind)), label(NameKey(kind))
		if namespace == "" || name == "" {
			continue
		}
		if full := annotation(NameKey(kind)); full != "" && envoy.Shorten(full) == name {
			name = full
		}
		return Object{Kind: kind, Key: slim.Key{Namespace: namespace, Name: name}}, true
	}
	return of, false
}
