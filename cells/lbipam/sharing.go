// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// sharing is what decides whether a Service shares an address with another.
type sharing struct {
	key           string // "" for none
	namespace     string
	permitted     []string // other namespaces, or *
	ports         []int32
	trafficPolicy slim.String
	selector      slim.Labels
}

func parseSharing(o *serviceObject) sharing {
	s := sharing{namespace: o.Namespace.String(), trafficPolicy: o.Spec.ExternalTrafficPolicy, selector: o.Spec.Selector}
	if s.key, _ = annotation(o, sharingKeyAnnotation, sharingKeyAlias); s.key == "" {
		return s
	}
	if list, ok := annotation(o, crossNamespaceAnnotation, crossNamespaceAlias); ok {
		s.permitted = strings.Split(list, ",")
	}
	for _, p := range o.Spec.Ports {
		s.ports = append(s.ports, p.Port)
	}
	return s
}

func (s *sharing) equal(o *sharing) bool {
	return s.key == o.key && slices.Equal(s.permitted, o.permitted) && slices.Equal(s.ports, o.ports) &&
		s.trafficPolicy == o.trafficPolicy && s.selector == o.selector
}

func (s *sharing) permits(namespace string) bool {
	return s.namespace == namespace || slices.Contains(s.permitted, "*") || slices.Contains(s.permitted, namespace)
}

// incompatible returns why two Services cannot share an address, "" if they can.
func incompatible(a, b *sharing) (reason string) {
	const local = "Local"
	switch {
	case a.key == "" || a.key != b.key:
		return "different sharing key"
	case !a.permits(b.namespace) || !b.permits(a.namespace):
		return "different and not permitted namespace"
	case slices.ContainsFunc(a.ports, func(p int32) bool { return slices.Contains(b.ports, p) }):
		return "same port"
	case a.trafficPolicy != b.trafficPolicy:
		return "different ExternalTrafficPolicy"
	case a.trafficPolicy.String() == local && (a.selector != b.selector || a.selector == slim.Labels{}):
		return "compatible ExternalTrafficPolicy local but selecting different set of pods"
	}
	return ""
}
