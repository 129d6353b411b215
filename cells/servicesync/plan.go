// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster/release"
)

// Annotations of Services. An alias counts where its annotation is not set.
const (
	globalAnnotation = "service.cilium.io/global"
	globalAlias      = "io.cilium/global-service"
	sharedAnnotation = "service.cilium.io/shared"
	sharedAlias      = "io.cilium/shared-service"
)

// isShared reports whether a Service is global and shared.
func isShared(m *serviceMeta) bool {
	global, _ := m.flag(globalAnnotation, globalAlias)
	shared, set := m.flag(sharedAnnotation, sharedAlias)
	return global && (shared || !set)
}

// flag returns the value of an annotation, and whether it or its alias is set.
func (m *serviceMeta) flag(name, alias string) (on, set bool) {
	value, set := m.Annotations.Lookup(name)
	if !set {
		value, set = m.Annotations.Lookup(alias)
	}
	return strings.EqualFold(value, "true"), set
}

// isExported reports whether a Service has a key. nodePort says that agents serve NodePort Services.
func isExported(s *service, nodePort bool) bool {
	switch {
	case !mayBeExported(s):
		return false
	case s.Spec.ClusterIP == "" && !(nodePort && len(s.Spec.ExternalIPs) > 0):
		return false
	}
	switch corev1.ServiceType(s.Spec.Type.String()) {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return false
}

// mayBeExported reports whether a Service may have a key, by what is also kept of one that is cut.
func mayBeExported(s *service) bool { return isShared(&s.serviceMeta) && !isControlPlane(s.Name) }

// isControlPlane reports whether a Service is one that some distributions make for metrics of the control plane, without
// endpoints.
func isControlPlane(name string) bool {
	return name == "kube-scheduler" || name == "kube-controller-manager"
}

// isHeadless reports whether a Service has no frontends, for the agents of a release.
func isHeadless(s *service, of release.Release) bool {
	_, labelled := s.Labels.Lookup(corev1.IsHeadlessService)
	return strings.EqualFold(s.Spec.ClusterIP, corev1.ClusterIPNone) || labelled && release.HeadlessByLabel.In(of)
}

// isBackend reports whether an endpoint in a state is a backend, for the agents of a release.
func (c Config) isBackend(state byte, of release.Release) bool {
	return state == ready || c.EnableK8sTerminatingEndpoint || release.ServingBackends.In(of)
}
