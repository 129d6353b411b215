// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var (
	secretsResource = corev1.Resource("secrets")
	secrets         = stream.Metadata[secret](corev1.SchemeGroupVersion.WithResource("secrets"))
)

// secret is what is kept of each Secret of the cluster: whether it exists, and whose copy it is.
type secret struct {
	secretMeta `json:"metadata"`
}

type secretMeta struct {
	slim.Meta
	Labels      slim.Subset[ownerKeys] `json:"labels"`
	Annotations slim.Subset[ownerKeys] `json:"annotations"`
}

type ownerKeys struct{}

// Keep implements slim.KeyFilter.
func (ownerKeys) Keep(key string) bool { return strings.HasPrefix(key, ownerPrefix) }

// The labels of a copy name what it is a copy of. A name that is too long for a label is shortened there, and an annotation of
// the same key has it.
const ownerPrefix = "secretsync.cilium.io/owning-"

func namespaceKey(kind secretref.Kind) string {
	return ownerPrefix + strings.ToLower(string(kind)) + "-namespace"
}
func nameKey(kind secretref.Kind) string {
	return ownerPrefix + strings.ToLower(string(kind)) + "-name"
}

// ownerOf is what a Secret is a copy of.
func ownerOf(label, annotation func(key string) string) (of secretref.Object, isCopy bool) {
	for _, kind := range []secretref.Kind{secretref.Secret, secretref.ConfigMap} {
		namespace, name := label(namespaceKey(kind)), label(nameKey(kind))
		if namespace == "" || name == "" {
			continue
		}
		if full := annotation(nameKey(kind)); full != "" && envoy.Shorten(full) == name {
			name = full
		}
		return secretref.Object{Kind: kind, Key: slim.Key{Namespace: namespace, Name: name}}, true
	}
	return of, false
}

func (s *secret) owner() (of secretref.Object, isCopy bool) {
	return ownerOf(s.Labels.Get, s.Annotations.Get)
}

// byOwner finds the copies of an object.
var byOwner = stream.NewIndex("owner", func(s *secret, add func(secretref.Object)) {
	if of, isCopy := s.owner(); isCopy {
		add(of)
	}
})
