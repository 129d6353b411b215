// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package listener

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ProtocolPort is a port of TCP or UDP.
type ProtocolPort struct {
	Protocol corev1.Protocol
	Port     int32
}

// ComparePorts sorts ports by their numbers.
func ComparePorts(a, b ProtocolPort) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}

// ProtocolPort is the port of the Service for a listener.
func (l *Listener) ProtocolPort() ProtocolPort {
	if l.Of.Protocol == gatewayv1.UDPProtocolType {
		return ProtocolPort{corev1.ProtocolUDP, l.Of.Port}
	}
	return ProtocolPort{corev1.ProtocolTCP, l.Of.Port}
}

// IsPort reports whether a listener is one of connections or datagrams, whatever they have.
func (l *Listener) IsPort() bool {
	return l.Of.Protocol == gatewayv1.TCPProtocolType || l.Of.Protocol == gatewayv1.UDPProtocolType
}

// PortsOf are the ports of the listeners that are accepted, sorted.
func PortsOf(all []*Listener) (ports []ProtocolPort) {
	for _, l := range all {
		if l.Accepted.OK {
			ports = append(ports, l.ProtocolPort())
		}
	}
	slices.SortFunc(ports, ComparePorts)
	return slices.Compact(ports)
}
