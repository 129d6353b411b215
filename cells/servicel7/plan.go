// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicel7

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// prefix is that of the names of CiliumEnvoyConfigs; the name of the Service follows.
const prefix = "cilium-envoy-lb-"

// configKey is the CiliumEnvoyConfig of a Service.
func configKey(service slim.Key) slim.Key {
	return slim.Key{Namespace: service.Namespace, Name: prefix + service.Name}
}

// serviceKey is the Service of a CiliumEnvoyConfig by its name.
func serviceKey(config slim.Key) (key slim.Key, ok bool) {
	name, ok := strings.CutPrefix(config.Name, prefix)
	return slim.Key{Namespace: config.Namespace, Name: name}, ok
}

// isSelected reports whether the requests of a Service are to be balanced. By its port, none of an Ingress or a Gateway is.
func isSelected(s *service, c Config) bool {
	return s.Annotations.Get(enabledAnnotation) == "enabled" || !s.isEntry() && slices.ContainsFunc(s.Spec.Ports, func(p servicePort) bool {
		return slices.Contains(c.LoadbalancerL7Ports, portText(p))
	})
}

// unknownMode is about an annotation that neither asks for balancing nor does without it.
func unknownMode(s *service) []envoyres.Notice {
	text, annotated := s.Annotations.Lookup(enabledAnnotation)
	if !annotated || slices.Contains([]string{"", "enabled", "disabled"}, text) {
		return nil
	}
	return []envoyres.Notice{{Reason: "UnknownMode", Message: fmt.Sprintf("the annotation %s is %.100q, which has no effect: it should be enabled", enabledAnnotation, text)}}
}

// portText is a port as --loadbalancer-l7-ports has it.
func portText(p servicePort) string {
	switch {
	case p.Port != 0:
		return strconv.Itoa(int(p.Port))
	case p.NodePort != 0:
		return strconv.Itoa(int(p.NodePort))
	}
	return p.Name.String()
}

// plan is what is done for a Service that is selected.
type plan struct {
	serves  bool // false: notices say why not
	service envoy.Service
	notices []envoyres.Notice
}

// mostListeners is how many ports of a Service have listeners of their own: each takes a port of the proxy on all nodes.
const mostListeners = 16

// mayBeApart reports whether the ports have a listener each where agents can redirect them so.
func (p plan) mayBeApart() bool {
	return len(p.service.Ports) > 1 && len(p.service.Ports) <= mostListeners
}

func notServed(reason, message string) plan {
	return plan{notices: []envoyres.Notice{{Reason: reason, Message: message, Degrades: true}}}
}

// planFor decides about a Service that is selected.
func planFor(s *service, c Config) plan {
	if s.Spec.Type.String() == string(corev1.ServiceTypeExternalName) || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return notServed("NoClusterIP", "requests are not balanced: the Service has no address that agents could redirect")
	}
	if s.isEntry() {
		return notServed("ServedAlready", "requests are not balanced here: the Service is that of an Ingress or a Gateway, by whose rules Envoy has its requests")
	}
	var ports []uint32
	for _, p := range s.Spec.Ports {
		if cmp.Or(p.Protocol.String(), string(corev1.ProtocolTCP)) == string(corev1.ProtocolTCP) {
			ports = append(ports, uint32(p.Port))
		}
	}
	if len(ports) == 0 {
		return notServed("NoTCPPort", "requests are not balanced: the Service has no TCP port")
	}
	slices.Sort(ports)
	if len(s.Spec.Ports) == 1 {
		ports = nil // all of the Service
	}
	algorithm, notices := algorithmOf(s, c)
	notices = append(unknownMode(s), notices...)
	return plan{true, envoy.Service{Name: envoy.Name{Namespace: s.Namespace.String(), Name: s.Name}, Ports: ports, Algorithm: algorithm}, notices}
}

// algorithmOf is how the requests of a Service are balanced.
func algorithmOf(s *service, c Config) (envoy.Algorithm, []envoyres.Notice) {
	text, annotated := s.Annotations.Lookup(algorithmAnnotation)
	if !annotated {
		text = c.LoadbalancerL7Algorithm
	}
	algorithm := envoy.Algorithm(strings.ToLower(text))
	switch {
	case !algorithm.Known() && annotated:
		return envoy.RoundRobin, []envoyres.Notice{{Reason: "InvalidAlgorithm", Message: fmt.Sprintf(
			"the annotation %s is %.100q, round_robin is used: it should be round_robin, least_request or random", algorithmAnnotation, text)}}
	case !algorithm.Known():
		return envoy.RoundRobin, nil // the option is reported at the start
	case annotated && (algorithm == envoy.RingHash || algorithm == envoy.Maglev):
		return algorithm, []envoyres.Notice{{Reason: "AlgorithmWithoutHash", Message: fmt.Sprintf(
			"the annotation %s is %.100q, which balances as random: there is no policy for hashes", algorithmAnnotation, text)}}
	}
	return algorithm, nil
}

// ownerOf is the owner reference of what is written for a Service.
func ownerOf(s *service) *metav1.OwnerReference {
	return &metav1.OwnerReference{
		APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID.API(), Controller: new(true), BlockOwnerDeletion: new(true),
	}
}
