// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicel7

import (
	corev1 "k8s.io/api/core/v1"

	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// service is what this duty reads of a Service.
type service struct {
	serviceMeta `json:"metadata"`
	slim.Cut    `json:"-"`
	Spec        serviceSpec `json:"spec"`
}

// CutDown implements slim.Cutter.
func (s *service) CutDown() { s.Spec.Ports = nil }

type serviceMeta struct {
	slim.Meta
	Annotations       slim.Subset[l7Annotations] `json:"annotations"`
	Labels            slim.Subset[entryLabels]   `json:"labels"`
	DeletionTimestamp slim.Time                  `json:"deletionTimestamp"`
}

type serviceSpec struct {
	Type      slim.String   `json:"type"`
	ClusterIP string        `json:"clusterIP"`
	Ports     []servicePort `json:"ports"`
}

type servicePort struct {
	Name     slim.String `json:"name"`
	Protocol slim.String `json:"protocol"`
	Port     int32       `json:"port"`
	NodePort int32       `json:"nodePort"`
}

const (
	enabledAnnotation   = "service.cilium.io/lb-l7"
	algorithmAnnotation = "service.cilium.io/lb-l7-algorithm"
)

type l7Annotations struct{}

// Keep implements slim.KeyFilter.
func (l7Annotations) Keep(key string) bool {
	return key == enabledAnnotation || key == algorithmAnnotation
}

// Labels of the Services of Ingresses and Gateways.
const (
	ingressLabel = "cilium.io/ingress"
	gatewayLabel = "io.cilium.gateway/owning-gateway"
)

type entryLabels struct{}

// Keep implements slim.KeyFilter.
func (entryLabels) Keep(key string) bool { return key == ingressLabel || key == gatewayLabel }

// isEntry reports whether a Service is that of an Ingress or a Gateway. Envoy has its requests by the CiliumEnvoyConfig of these.
func (s *service) isEntry() bool {
	return s.Labels.Get(ingressLabel) == "true" || s.Labels.Get(gatewayLabel) != ""
}

// Trim implements slim.Trimmer: of addresses it only matters whether there are any.
func (s *service) Trim() {
	if s.Spec.ClusterIP != corev1.ClusterIPNone {
		s.Spec.ClusterIP = ""
	}
}

// duty tells the stream of agents of this duty from those of others.
type duty struct{}

var agentPods = envoyres.AgentPods[duty]()

var services = stream.Core[service, corev1.Service](corev1.SchemeGroupVersion.WithResource("services"))
