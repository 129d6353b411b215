// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// enrolment is the label of namespaces that are enrolled.
const enrolment = "io.cilium/mtls-enabled=true"

// namespace is an enrolled Namespace.
type namespace struct {
	slim.Meta `json:"metadata"`
}

// serviceAccount is a ServiceAccount of any namespace.
type serviceAccount struct {
	slim.Meta `json:"metadata"`
}

// The server sends metadata alone, and of Namespaces only those that are enrolled: one whose label goes is deleted from the
// stream.
var (
	namespaces      = stream.Metadata[namespace](corev1.SchemeGroupVersion.WithResource("namespaces")).MatchingLabels(enrolment).OfKind("Namespace")
	serviceAccounts = stream.Metadata[serviceAccount](corev1.SchemeGroupVersion.WithResource("serviceaccounts")).OfKind("ServiceAccount")
)

// byNamespace finds the ServiceAccounts of a namespace.
var byNamespace = stream.NewIndex("namespace", func(s *serviceAccount, add func(string)) { add(s.Namespace.String()) })
