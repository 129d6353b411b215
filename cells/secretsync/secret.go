// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
)

var (
	secretsResource = corev1.Resource("secrets")
	secrets         = stream.Metadata[secret](corev1.SchemeGroupVersion.WithResource("secrets"))
)

// secret is what is kept of each Secret of the cluster: whether it exists, and whose copy it is.
type secret struct {
	secretref.CopyMeta `json:"metadata"`
}

// byOwner finds the copies of an object.
var byOwner = stream.NewIndex("owner", func(s *secret, add func(secretref.Object)) {
	if of, isCopy := s.Owner(); isCopy {
		add(of)
	}
})
