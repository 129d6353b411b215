// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
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

// denial is why a Service does not get addresses of nodes, zero if it gets all.
type denial struct {
	message string
	ofAll   bool // of whichever there are
}

// denied is the denial of all addresses.
func denied(problem string) denial {
	return denial{problem + ": the Service gets no addresses of nodes", true}
}

// allowed leaves out the addresses at which a Service does not have one of its ports. why is the reason.
func (c *controller) allowed(s *service, want []string) (left []string, why denial) {
	if c.Config.NodeIPAMJoinNamespaces {
		return want, denial{}
	}
	if component := componentOf(s); component != "" {
		return nil, denied(component)
	}
	left, holder := c.free(s, want)
	if holder != "" {
		why.message = fmt.Sprintf("Service %s, which is older, has a port of it at addresses of nodes, which it does not get", holder)
	}
	if c.Listeners != nil {
		var beside denial
		if left, beside = c.Listeners.besides(s, left); beside.message != "" {
			why = beside
		}
	}
	return left, why
}

// free leaves out the addresses that older Services of another namespace have for one of the ports, and names the oldest of these: the address and the
// port would be those of both. A node port is one at all addresses.
func (c *controller) free(s *service, want []string) (left []string, holder string) {
	wanted := make(map[string]bool, len(want))
	for _, ip := range want {
		wanted[ip] = true
	}
	taken := map[string]bool{}
	var oldest *service
	note := func(other *service) {
		if oldest == nil || compareAge(other, oldest) < 0 {
			oldest = other
		}
	}
	for other := range c.rivals(s, s.Spec.Ports) {
		if compareAge(other, s) > 0 {
			continue
		}
		if other.Status.isCut() {
			for _, ip := range want {
				if other.Status.mayHide(ip) {
					taken[ip] = true
					note(other)
				}
			}
		}
		for _, in := range other.Status.LoadBalancer.Ingress {
			if ip := in.IP.String(); wanted[ip] {
				taken[ip] = true
				note(other)
			}
		}
	}
	everywhere := false
	for _, p := range s.Spec.Ports {
		for other := range stream.ByIndex(c.services, byNodePort, p) {
			if other.Namespace != s.Namespace && compareAge(other, s) < 0 && len(want) > 0 {
				everywhere = true
				note(other)
			}
		}
	}
	switch {
	case oldest == nil:
		return want, ""
	case everywhere:
		return nil, oldest.Key().String()
	}
	return slices.DeleteFunc(slices.Clone(want), func(ip string) bool { return taken[ip] }), oldest.Key().String()
}

// rivals yields the LoadBalancer Services of other namespaces than a Service's that have one of some ports, for each such port. What their statuses show
// agents serve, whichever duty or other load balancer has written it.
func (c *controller) rivals(s *service, ports []servicePort) iter.Seq[*service] {
	return func(yield func(*service) bool) {
		for _, p := range ports {
			for other := range stream.ByIndex(c.services, byPort, p) {
				if other.Namespace != s.Namespace && !yield(other) {
					return
				}
			}
		}
	}
}

// logLosers says in one line how many Services have addresses in their status, and do not keep them, or not all, for their ports, as a leader begins.
func (c *controller) logLosers() {
	if c.Config.NodeIPAMJoinNamespaces {
		return
	}
	losers := 0
	for s := range c.services.All() {
		has := current(s.Status.LoadBalancer.Ingress)
		if len(has) == 0 || !isOurs(s, c.Cluster) {
			continue
		}
		if left, _ := c.allowed(s, has); len(left) < len(has) {
			losers++
		}
	}
	if losers > 0 {
		c.Log.Warn("ports of some of them are those of components of the cluster, of listeners on the network of the nodes, or of older Services of other namespaces, at addresses of nodes that they have and do not keep; node-ipam-join-namespaces leaves them, as the original does",
			"services", losers)
	}
}

// compareAge sorts Services: the older first, then by namespace and name.
func compareAge(a, b *service) int {
	return cmp.Or(cmp.Compare(a.CreationTimestamp, b.CreationTimestamp), cmp.Compare(a.Namespace.String(), b.Namespace.String()), cmp.Compare(a.Name, b.Name))
}

// serviceChanged is the younger Services of other namespaces that have a port, or as one the node port, of a Service which comes, changes or goes, also one that it had.
func (c *controller) serviceChanged(ch stream.Change[service]) (keys []slim.Key) {
	all := []*service{ch.Object}
	if was := c.last[ch.Key]; was != nil {
		all = append(all, was) // also one of the name that was older
	}
	if delete(c.last, ch.Key); ch.Kind != stream.Delete && len(ch.Object.Spec.Ports)+len(ch.Object.Spec.nodePorts) > 0 {
		c.last[ch.Key] = ch.Object
	}
	if !c.synced || c.Config.NodeIPAMJoinNamespaces {
		return nil
	}
	younger := map[slim.Key]bool{}
	for _, s := range all {
		for other := range c.rivals(s, slices.Concat(s.Spec.Ports, s.Spec.nodePorts)) {
			if isOurs(other, c.Cluster) && compareAge(s, other) < 0 {
				younger[other.Key()] = true
			}
		}
	}
	return slices.Collect(maps.Keys(younger))
}
