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

// free leaves out the addresses that older Services of another namespace have for one of the ports, and names the oldest of these: the address and the
// port would be those of both.
func (c *controller) free(s *service, want []string) (left []string, holder string) {
	wanted := make(map[string]bool, len(want))
	for _, ip := range want {
		wanted[ip] = true
	}
	taken := map[string]bool{}
	var oldest *service
	for other := range c.rivals(s) {
		if compareAge(other, s) > 0 {
			continue
		}
		for _, in := range other.Status.LoadBalancer.Ingress {
			if ip := in.IP.String(); wanted[ip] {
				if taken[ip] = true; oldest == nil || compareAge(other, oldest) < 0 {
					oldest = other
				}
			}
		}
	}
	if oldest == nil {
		return want, ""
	}
	return slices.DeleteFunc(want, func(ip string) bool { return taken[ip] }), oldest.Key().String()
}

// rivals yields the Services of other namespaces that are served and have one of the ports of a Service, for each such port.
func (c *controller) rivals(s *service) iter.Seq[*service] {
	return func(yield func(*service) bool) {
		for _, p := range s.Spec.Ports {
			for other := range stream.ByIndex(c.services, byPort, p) {
				if other.Namespace != s.Namespace && isServed(other, c.Cluster) && !yield(other) {
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
		has, _ := current(s)
		if len(has) == 0 || !isServed(s, c.Cluster) {
			continue
		}
		if left, _ := c.free(s, has); len(left) < len(has) || componentOf(s) != "" {
			losers++
		}
	}
	if losers > 0 {
		c.Log.Warn("ports of some of them are those of components of the cluster, or of older Services of other namespaces, at addresses of nodes that they have and do not keep; node-ipam-join-namespaces leaves them, as the original does",
			"services", losers)
	}
}

// compareAge sorts Services: the older first, then by namespace and name.
func compareAge(a, b *service) int {
	return cmp.Or(cmp.Compare(a.CreationTimestamp, b.CreationTimestamp), cmp.Compare(a.Namespace.String(), b.Namespace.String()), cmp.Compare(a.Name, b.Name))
}

// serviceChanged is the younger Services of other namespaces that have a port of a Service which comes, changes or goes, also one that it had.
func (c *controller) serviceChanged(ch stream.Change[service]) (keys []slim.Key) {
	all := []*service{ch.Object}
	if was := c.last[ch.Key]; was != nil {
		all = append(all, was) // also one of the name that was older
	}
	if delete(c.last, ch.Key); ch.Kind != stream.Delete && len(ch.Object.Spec.Ports) > 0 {
		c.last[ch.Key] = ch.Object
	}
	if !c.synced || c.Config.NodeIPAMJoinNamespaces {
		return nil
	}
	younger := map[slim.Key]bool{}
	for _, s := range all {
		for other := range c.rivals(s) {
			if compareAge(s, other) < 0 {
				younger[other.Key()] = true
			}
		}
	}
	return slices.Collect(maps.Keys(younger))
}
