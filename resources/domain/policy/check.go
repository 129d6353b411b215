// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy

import (
	v2 "github.com/skep-operator/skep/resources/api/v2"
)

const (
	textNoSelector   = "rule must have one of EndpointSelector or NodeSelector"
	textTwoSelectors = "rule cannot have both EndpointSelector and NodeSelector"

	textL7OnHostIngress = "L7 policy is not supported on host ingress yet"
	textL7Proxy         = "L7 policy is not supported since L7 proxy is not enabled"
	textDNSOnIngress    = "L7 protocol DNS is not supported on ingress yet"
	textICMPOff         = `ICMP rules can only be applied when the "enable-icmp-rules" flag is set`
	textICMPWithPorts   = "The ICMPs block may only be present without ToPorts. Define a separate rule to use ToPorts."
	textNodesOff        = `FromNodes/ToNodes rules can only be applied when the "enable-node-selector-labels" flag is set`
	textServicePorts    = "Combining ToServices and ToPorts is not supported yet"
)

// Check returns what agents find wrong with a rule. Each entry of the rule is checked in its order: ingress, ingressDeny,
// egress, egressDeny. The rule is not changed.
func Check(r *v2.Rule) Findings {
	var f Findings
	f.addText(checkSubject(r))
	host := r.NodeSelector != nil
	for i := range r.Ingress {
		e := &r.Ingress[i]
		checkEntry(&f, entry{host: host, ingress: true, peers: ingressPeers(&e.IngressPeers), ports: e.ToPorts, icmps: e.ICMPs})
	}
	for i := range r.IngressDeny {
		e := &r.IngressDeny[i]
		checkEntry(&f, entry{host: host, ingress: true, peers: ingressPeers(&e.IngressPeers), ports: openPorts(e.ToPorts), icmps: e.ICMPs})
	}
	for i := range r.Egress {
		e := &r.Egress[i]
		checkEntry(&f, entry{host: host, peers: egressPeers(&e.EgressPeers, e.ToFQDNs), ports: e.ToPorts, icmps: e.ICMPs})
	}
	for i := range r.EgressDeny {
		e := &r.EgressDeny[i]
		checkEntry(&f, entry{host: host, peers: egressPeers(&e.EgressPeers, nil), ports: openPorts(e.ToPorts), icmps: e.ICMPs})
	}
	return f
}

// checkSubject checks what the rule is about.
func checkSubject(r *v2.Rule) string {
	switch {
	case r.EndpointSelector == nil && r.NodeSelector == nil:
		return textNoSelector
	case r.EndpointSelector != nil && r.NodeSelector != nil:
		return textTwoSelectors
	case r.NodeSelector != nil:
		return checkSelector(r.NodeSelector)
	}
	return checkSelector(r.EndpointSelector)
}

// openPorts are ports that have no rules for messages.
func openPorts(closed []v2.PortDenyRule) (ports []v2.PortRule) {
	for _, c := range closed {
		ports = append(ports, v2.PortRule{Ports: c.Ports})
	}
	return ports
}

// entry is an element of one of the four lists of a rule.
type entry struct {
	host, ingress bool
	peers         peers
	ports         []v2.PortRule
	icmps         []v2.ICMPRule
}

func checkEntry(f *Findings, e entry) {
	if f.done() {
		return
	}
	f.addText(checkSelectors(e.peers.selectors))
	if e.host && e.ingress && e.hasL7() {
		f.add(Always, textL7OnHostIngress)
	}
	f.addText(checkCombination(e.peers))
	if e.peers.services && len(e.ports) > 0 {
		f.add(Always, textServicePorts)
	}
	checkL7Support(f, e)
	checkICMP(f, e)
	for i := range e.ports {
		f.addText(checkPorts(&e.ports[i], e.ingress))
	}
	f.addText(checkAddresses(e.peers))
	if e.peers.nodes {
		f.add(NodeSelectors, textNodesOff)
	}
}

func (e entry) hasL7() bool {
	for i := range e.ports {
		if hasL7(e.ports[i].Rules) {
			return true
		}
	}
	return false
}

// checkL7Support checks whether the messages of an entry can be checked at all.
func checkL7Support(f *Findings, e entry) {
	if !e.hasL7() {
		return
	}
	f.add(L7Proxy, textL7Proxy)
	for i := range e.ports {
		rules := e.ports[i].Rules
		switch {
		case rules == nil:
		case e.ingress && rules.DNS != nil:
			f.add(Always, textDNSOnIngress)
		case e.host && !e.ingress && rules.HTTP != nil:
			f.add(Always, onHostEgress("HTTP"))
		case e.host && !e.ingress && rules.Kafka != nil:
			f.add(Always, onHostEgress("Kafka"))
		}
	}
}

func onHostEgress(protocol string) string {
	return "L7 protocol " + protocol + " is not supported on host egress yet"
}

// maxElements is how many ports an entry of toPorts may have, and how many fields one of icmps.
const maxElements = 40

func checkICMP(f *Findings, e entry) {
	if len(e.icmps) == 0 {
		return
	}
	f.add(ICMPRules, textICMPOff)
	if len(e.ports) > 0 {
		f.add(Always, textICMPWithPorts)
	}
	for _, rule := range e.icmps {
		if len(rule.Fields) > maxElements {
			f.add(Always, "too many types, the max is 40")
		}
		for _, field := range rule.Fields {
			if field.Family != "" && field.Family != v2.ICMPv4 && field.Family != v2.ICMPv6 {
				f.add(Always, "wrong family: "+string(field.Family))
			}
		}
	}
}
