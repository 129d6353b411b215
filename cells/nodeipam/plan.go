// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/cidr"
)

// class is the load balancer class of Services that get addresses of nodes.
const class = "io.cilium/node"

// isServed reports whether a Service gets addresses of nodes.
func isServed(s *service, c cluster.Config) bool {
	return isOurs(s, c) && s.DeletionTimestamp.IsZero()
}

// isOurs reports whether the addresses of a Service are those of nodes. One that is being deleted has them until it is gone.
func isOurs(s *service, c cluster.Config) bool {
	if s.Spec.Type.String() != string(corev1.ServiceTypeLoadBalancer) {
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
		for addressType, ofType := range found {
			all, _ := n.hosts(addressType)
			for _, a := range all {
				if isOf(a, families) {
					ofType[a.String()] = true
				}
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

// hosts are the addresses of a type at which a node is reached. refused are texts that are none, or too many.
func (n *node) hosts(addressType string) (all []netip.Addr, refused []string) {
	var texts []string
	for _, a := range n.Status.Addresses {
		if a.Type.String() == addressType {
			texts = append(texts, a.Address)
		}
	}
	return cidr.Hosts(texts)
}

// problem is what is refused of the addresses of a node, "" for nothing.
func (n *node) problem() string {
	_, external := n.hosts(string(corev1.NodeExternalIP))
	_, internal := n.hosts(string(corev1.NodeInternalIP))
	all := slices.Concat(external, internal)
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("its status has %d addresses at which no node is reached, or more than %d of a family, and they are left out: %.60q", len(all), cidr.MaxOfNode, all[:min(len(all), 3)])
}

// isOf reports whether an address is of one of the families.
func isOf(a netip.Addr, families []string) bool {
	family := corev1.IPv4Protocol
	if a.Is6() {
		family = corev1.IPv6Protocol
	}
	return len(families) == 0 || slices.Contains(families, string(family))
}

// familiesOf are the families of a Service, as in its spec.
func familiesOf(s *service) (families []string) {
	for _, f := range s.Spec.IPFamilies {
		families = append(families, f.String())
	}
	return families
}

// current are the addresses in a list of entries of a status.
func current(all []ingress) (ips []string) {
	for _, i := range all {
		if ip := i.IP.String(); ip != "" {
			ips = append(ips, ip)
		}
	}
	return ips
}

// shows reports whether a status has addresses in their order, and nothing else, such as a host name.
func (s *serviceStatus) shows(ips []string) bool {
	if s.isCut() {
		d := newDigester()
		for _, ip := range ips {
			d.add(ip)
		}
		return d.sum() == s.digest
	}
	return slices.EqualFunc(s.LoadBalancer.Ingress, ips, func(i ingress, ip string) bool { return i.IP.String() == ip })
}

// union returns the addresses of two lists, sorted and each once.
func union(a, b []string) []string {
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	return slices.Compact(all)
}

// addressesIn are the addresses in a whole status.
func addressesIn(all []corev1.LoadBalancerIngress) (ips []string) {
	for _, i := range all {
		if i.IP != "" {
			ips = append(ips, i.IP)
		}
	}
	return ips
}

// ingressOf is the status of a Service with these addresses.
func ingressOf(ips []string) (all []corev1.LoadBalancerIngress) {
	for _, ip := range ips {
		all = append(all, corev1.LoadBalancerIngress{IP: ip})
	}
	return all
}
