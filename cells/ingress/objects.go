// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// namePrefix is that of the names of what a load balancer of one Ingress consists of.
const namePrefix = "cilium-ingress-"

// serviceKey is the Service of an Ingress, and its placeholder.
func serviceKey(of slim.Key) slim.Key {
	return slim.Key{Namespace: of.Namespace, Name: envoy.Shorten(namePrefix + of.Name)}
}

// configNames are those of the CiliumEnvoyConfig of an Ingress.
func configNames(of slim.Key) envoyres.ConfigNames {
	return envoyres.NewConfigNames(of.Namespace, namePrefix+of.Namespace+"-"+of.Name)
}

func ownerOf(i *ingress, blocks bool) *metav1.OwnerReference {
	ref := &metav1.OwnerReference{
		APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress", Name: i.Name, UID: i.UID.API(), Controller: new(true),
	}
	if blocks {
		ref.BlockOwnerDeletion = new(true)
	}
	return ref
}

// isOwner reports whether an Ingress is the controller of an object.
func isOwner(i *ingress, of slim.Owner) bool {
	return !of.IsZero() && of.Reference().UID == i.UID
}

// setService sets what is written of the spec of a Service. What the API server allocates stays.
func setService(s *corev1.Service, of settings, hostNetwork bool, model envoy.Model, isNew bool) {
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.ExternalTrafficPolicy = cmp.Or(of.trafficPolicy, s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	switch {
	case of.nodePort:
		s.Spec.Type = corev1.ServiceTypeNodePort
	case hostNetwork:
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, ""
	case isNew && of.loadBalancerClass != "":
		s.Spec.LoadBalancerClass = &of.loadBalancerClass
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer { // the API server refuses it there
		s.Spec.LoadBalancerClass = nil
	}
	http := corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: of.insecureNodePort}
	https := corev1.ServicePort{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, NodePort: of.secureNodePort}
	if len(model.HTTP) == 0 {
		s.Spec.Ports = []corev1.ServicePort{https}
	} else {
		s.Spec.Ports = []corev1.ServicePort{http, https}
	}
}

// statusOf is the addresses of a Service as those of an Ingress.
func statusOf(s *service) (all []networkingv1.IngressLoadBalancerIngress) {
	for _, a := range s.Status.LoadBalancer.Ingress {
		to := networkingv1.IngressLoadBalancerIngress{IP: a.IP, Hostname: a.Hostname}
		for _, p := range a.Ports {
			to.Ports = append(to.Ports, networkingv1.IngressPortStatus{Port: p.Port, Protocol: p.Protocol, Error: p.Error})
		}
		all = append(all, to)
	}
	return all
}
