// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// componentOf is why a Service gets no addresses of nodes whatever others have, "" if it may: agents would send it what comes to a port of a node that
// is that of a component of the cluster (NIPAM-14).
func componentOf(s *service) string {
	if s.Spec.portsCut {
		return fmt.Sprintf("it has more than %d ports", maxPorts)
	}
	for _, p := range s.Spec.Ports {
		at := envoy.ComponentAt
		if p.Protocol.String() == string(corev1.ProtocolUDP) {
			at = envoy.ComponentAtUDP
		}
		if of := at(uint32(p.Port)); of != "" && p.Protocol.String() != string(corev1.ProtocolSCTP) {
			return fmt.Sprintf("port %d of the nodes is that of %s", p.Port, of)
		}
	}
	return ""
}

// free leaves out the addresses that an older Service of another namespace has for one of the ports, and names one of these: the address and the
// port would be those of both.
func (c *controller) free(s *service, want []string) (left []string, holder string) {
	taken := map[string]slim.Key{}
	for _, p := range s.Spec.Ports {
		for other := range stream.ByIndex(c.services, byPort, p) {
			if other.Namespace == s.Namespace || !isServed(other, c.Cluster) || compareAge(other, s) > 0 {
				continue
			}
			for _, in := range other.Status.LoadBalancer.Ingress {
				taken[in.IP.String()] = other.Key()
			}
		}
	}
	for _, ip := range want {
		if by, is := taken[ip]; !is {
			left = append(left, ip)
		} else if holder == "" {
			holder = by.String()
		}
	}
	return left, holder
}

// compareAge sorts Services: the older first, then by namespace and name.
func compareAge(a, b *service) int {
	return cmp.Or(cmp.Compare(a.CreationTimestamp, b.CreationTimestamp), cmp.Compare(a.Namespace.String(), b.Namespace.String()), cmp.Compare(a.Name, b.Name))
}

// serviceChanged is the younger Services of other namespaces that have a port of a Service which comes, changes or goes.
func (c *controller) serviceChanged(ch stream.Change[service]) (keys []slim.Key) {
	if !c.synced {
		return nil
	}
	for _, p := range ch.Object.Spec.Ports {
		for other := range stream.ByIndex(c.services, byPort, p) {
			if other.Namespace != ch.Object.Namespace && isServed(other, c.Cluster) && compareAge(ch.Object, other) < 0 && !slices.Contains(keys, other.Key()) {
				keys = append(keys, other.Key())
			}
		}
	}
	return keys
}
