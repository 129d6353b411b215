// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// protocolPort is a port of TCP or UDP.
type protocolPort struct {
	protocol corev1.Protocol
	port     int32
}

func comparePorts(a, b protocolPort) int {
	return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.protocol, b.protocol))
}

// protocolPort is the port of the Service for a listener.
func (l *listener) protocolPort() protocolPort {
	if l.of.Protocol == gatewayv1.UDPProtocolType {
		return protocolPort{corev1.ProtocolUDP, l.of.Port}
	}
	return protocolPort{corev1.ProtocolTCP, l.of.Port}
}

// isPort reports whether a listener is one of connections or datagrams, whatever they have.
func (l *listener) isPort() bool {
	return l.of.Protocol == gatewayv1.TCPProtocolType || l.of.Protocol == gatewayv1.UDPProtocolType
}

// portsOf are the ports of the listeners that are accepted, sorted.
func portsOf(all []*listener) (ports []protocolPort) {
	for _, l := range all {
		if l.accepted.OK {
			ports = append(ports, l.protocolPort())
		}
	}
	slices.SortFunc(ports, comparePorts)
	return slices.Compact(ports)
}
