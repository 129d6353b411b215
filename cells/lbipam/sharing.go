// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"cmp"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// sharing is what decides whether a Service shares an address with another.
type sharing struct {
	key           string // "" for none
	namespace     string
	permitted     []string      // other namespaces, or *
	ports         []servicePort // sorted
	numbersOnly   bool          // ports of one number are equal, whatever their protocols
	trafficPolicy slim.String
	selector      slim.Labels
}

// maxPermitted is how many other namespaces a Service can name.
const maxPermitted = 1000

func (s settings) parseSharing(o *serviceObject) sharing {
	of := sharing{namespace: o.Namespace.String(), numbersOnly: s.numbersOnly, trafficPolicy: o.Spec.ExternalTrafficPolicy, selector: o.Spec.Selector}
	if of.key, _ = annotation(o, sharingKeyAnnotation, sharingKeyAlias); of.key == "" || o.Spec.portsCut {
		of.key = ""
		return of
	}
	if list, ok := annotation(o, crossNamespaceAnnotation, crossNamespaceAlias); ok {
		for name := range strings.SplitSeq(list, ",") {
			if len(of.permitted) == maxPermitted {
				break
			}
			of.permitted = append(of.permitted, name)
		}
	}
	for _, p := range o.Spec.Ports {
		if p.Protocol == (slim.String{}) {
			p.Protocol = tcp
		}
		of.ports = append(of.ports, p)
	}
	slices.SortFunc(of.ports, comparePorts)
	return of
}

// tcp is the protocol of a port that names none.
var tcp = slim.MakeString("TCP")

func (s *sharing) equal(o *sharing) bool {
	return s.key == o.key && slices.Equal(s.permitted, o.permitted) && slices.Equal(s.ports, o.ports) &&
		s.trafficPolicy == o.trafficPolicy && s.selector == o.selector
}

func (s *sharing) permits(namespace string) bool {
	return s.namespace == namespace || slices.Contains(s.permitted, "*") || slices.Contains(s.permitted, namespace)
}

// incompatible returns why two Services cannot share an address, "" if they can.
func incompatible(a, b *sharing) (reason string) {
	if reason := a.differs(b); reason != "" {
		return reason
	}
	return a.collides(b)
}

// differs returns why two Services could not share an address whatever their ports, "" if they could.
func (s *sharing) differs(o *sharing) (reason string) {
	const local = "Local"
	switch {
	case s.key == "" || s.key != o.key:
		return "different sharing key"
	case !s.permits(o.namespace) || !o.permits(s.namespace):
		return "different and not permitted namespace"
	case s.trafficPolicy != o.trafficPolicy:
		return "different ExternalTrafficPolicy"
	case s.trafficPolicy.String() == local && (s.selector != o.selector || s.selector == slim.Labels{}):
		return "compatible ExternalTrafficPolicy local but selecting different set of pods"
	}
	return ""
}

// collides returns why the ports of two Services cannot be on one address, "" if they can. Both are sorted: a Service can have 40,000.
func (s *sharing) collides(o *sharing) (reason string) {
	for a, b := s.ports, o.ports; len(a) > 0 && len(b) > 0; {
		order := comparePorts(a[0], b[0])
		switch {
		case order == 0 && !s.numbersOnly:
			return "same port and protocol"
		case a[0].Port == b[0].Port && s.numbersOnly:
			return "same port"
		case order < 0:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return ""
}

// hasPortOf reports whether two Services have a port of one number and protocol.
func (s *sharing) hasPortOf(o *sharing) bool {
	return (&sharing{ports: s.ports}).collides(o) != ""
}

// comparePorts sorts ports by their number, then by their protocol.
func comparePorts(a, b servicePort) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), strings.Compare(a.Protocol.String(), b.Protocol.String()))
}
