// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skep-operator/skep/resources/cluster"
)

// class is the load balancer class of Services that get addresses of nodes.
const class = "io.cilium/node"

// isServed reports whether a Service gets addresses of nodes.
func isServed(s *service, c cluster.Config) bool {
	if s.Spec.Type.String() != string(corev1.ServiceTypeLoadBalancer) || !s.DeletionTimestamp.IsZero() {
		return false
	}
	switch s.Spec.LoadBalancerClass.String() {
	case class:
		return true
	case "": // it may be another proxy's
		return c.DefaultLBServiceIPAM == cluster.NodeIPAM && s.Labels.Get(proxyNameLabel) == c.K8sServiceProxyName
	}
	return false
}

// isLocal reports whether nodes without endpoints drop the traffic of a Service.
func isLocal(s *service) bool {
	return s.Spec.ExternalTrafficPolicy.String() == string(corev1.ServiceExternalTrafficPolicyLocal)
}

// excludedBy is the taint of a node that is about to be deleted.
const excludedBy = "ToBeDeletedByClusterAutoscaler"

// isEligible reports whether load balancers may use a node.
func isEligible(n *node) bool {
	return n.DeletionTimestamp.IsZero() && !n.Labels.Has(corev1.LabelNodeExcludeBalancers) &&
		!slices.ContainsFunc(n.Spec.Taints, func(t taint) bool { return t.Key.String() == excludedBy })
}

// withEndpoints are the nodes of ready endpoints.
func withEndpoints(all iter.Seq[*endpointSlice]) map[string]bool {
	names := map[string]bool{}
	for s := range all {
		for _, e := range s.Endpoints {
			if ready := e.Conditions.Ready; ready == nil || *ready {
				names[e.NodeName.String()] = true
			}
		}
	}
	return names
}

// addresses are those of the eligible nodes that a selector matches, sorted and each once: the external ones, or, if no
// node has any of the families, the internal ones. A Service without families takes both. on are the names of nodes with
// endpoints; nil is all nodes.
func addresses(all iter.Seq[*node], selector labels.Selector, on map[string]bool, families []string) []string {
	found := map[string]map[string]bool{string(corev1.NodeExternalIP): {}, string(corev1.NodeInternalIP): {}}
	for n := range all {
		if !isEligible(n) || !selector.Matches(n.Labels) || on != nil && !on[n.Name] {
			continue
		}
		for _, a := range n.Status.Addresses {
			ofType := found[a.Type.String()]
			if ip, ok := parse(a.Address, families); ok && ofType != nil {
				ofType[ip] = true
			}
		}
	}
	for _, addressType := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		if ips := found[string(addressType)]; len(ips) > 0 {
			return slices.Sorted(maps.Keys(ips))
		}
	}
	return nil
}

// parse returns an address of one of the families in canonical form. The API server refuses zones.
func parse(text string, families []string) (ip string, ok bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return "", false
	}
	addr = addr.Unmap()
	family := string(corev1.IPv4Protocol)
	if addr.Is6() {
		family = string(corev1.IPv6Protocol)
	}
	return addr.String(), len(families) == 0 || slices.Contains(families, family)
}

// familiesOf are the families of a Service, as in its spec.
func familiesOf(s *service) (families []string) {
	for _, f := range s.Spec.IPFamilies {
		families = append(families, f.String())
	}
	return families
}

// current are the addresses in the status of a Service, and whether there is nothing else, such as a host name.
func current(s *service) (ips []string, only bool) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if ip := i.IP.String(); ip != "" {
			ips = append(ips, ip)
		}
	}
	return ips, len(ips) == len(s.Status.LoadBalancer.Ingress)
}

// union returns the addresses of two lists, sorted and each once.
func union(a, b []string) []string {
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	return slices.Compact(all)
}

// ingressOf is the status of a Service with these addresses.
func ingressOf(ips []string) (all []corev1.LoadBalancerIngress) {
	for _, ip := range ips {
		all = append(all, corev1.LoadBalancerIngress{IP: ip})
	}
	return all
}
