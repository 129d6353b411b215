// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy

import (
	"fmt"
	"slices"
	"strings"

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

	textNoEntries = "rule must have at least one of Ingress, IngressDeny, Egress, EgressDeny"
	textAuth      = "mutual auth feature is disabled but an %s auth rule is defined in policy"
)

// check is the check of a rule for a release.
type check struct {
	*Checker
	*Dialect
	Findings
}

// Check returns what is wrong with the rule for the agents of a release.
func (c *Checker) Check(d Dialect) Findings {
	r, k := c.rule, check{Checker: c, Dialect: &d}
	k.checkAuthentication()
	if d.Later && len(r.Ingress)+len(r.IngressDeny)+len(r.Egress)+len(r.EgressDeny) == 0 {
		k.add(Always, textNoEntries)
	}
	k.addText(k.checkSubject())
	host := r.NodeSelector != nil
	for i := range r.Ingress {
		e := &r.Ingress[i]
		k.checkEntry(entry{host: host, ingress: true, peers: ingressPeers(&e.IngressPeers, &d), ports: e.ToPorts, icmps: e.ICMPs})
	}
	for i := range r.IngressDeny {
		e := &r.IngressDeny[i]
		k.checkEntry(entry{host: host, ingress: true, peers: ingressPeers(&e.IngressPeers, &d), ports: openPorts(e.ToPorts), icmps: e.ICMPs})
	}
	for i := range r.Egress {
		e := &r.Egress[i]
		k.checkEntry(entry{host: host, peers: egressPeers(&e.EgressPeers, e.ToFQDNs, &d), ports: e.ToPorts, icmps: e.ICMPs})
	}
	for i := range r.EgressDeny {
		e := &r.EgressDeny[i]
		k.checkEntry(entry{host: host, peers: egressPeers(&e.EgressPeers, nil, &d), ports: openPorts(e.ToPorts), icmps: e.ICMPs})
	}
	return k.Findings
}

// checkAuthentication comes first: its finding does not depend on others.
func (k *check) checkAuthentication() {
	if !k.Authentication {
		return
	}
	switch {
	case slices.ContainsFunc(k.rule.Ingress, func(e v2.IngressRule) bool { return e.Authentication != nil }):
		k.add(Authentication, fmt.Sprintf(textAuth, "ingress"))
	case slices.ContainsFunc(k.rule.Egress, func(e v2.EgressRule) bool { return e.Authentication != nil }):
		k.add(Authentication, fmt.Sprintf(textAuth, "egress"))
	}
}

// checkSubject checks what the rule is about.
func (c *Checker) checkSubject() string {
	switch r := c.rule; {
	case r.EndpointSelector == nil && r.NodeSelector == nil:
		return textNoSelector
	case r.EndpointSelector != nil && r.NodeSelector != nil:
		return textTwoSelectors
	case r.NodeSelector != nil:
		return c.checkSelector(r.NodeSelector)
	default:
		return c.checkSelector(r.EndpointSelector)
	}
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

func (k *check) checkEntry(e entry) {
	if k.done() {
		return
	}
	if k.Later {
		k.checkLaterEntry(e)
		return
	}
	k.addText(k.checkSelectors(e.peers.selectors))
	k.checkHostIngress(e)
	k.addText(k.checkCombination(e.peers))
	if e.peers.services && len(e.ports) > 0 {
		k.add(Always, textServicePorts)
	}
	k.checkL7Support(e)
	k.checkICMP(e)
	k.checkFields(e)
	for i := range e.ports {
		k.checkPorts(&e.ports[i], e.ingress)
	}
	k.addText(k.checkAddresses(e.peers))
	k.addText(k.checkNames(e.peers))
	if e.peers.nodes {
		k.add(NodeSelectors, textNodesOff)
	}
}

// checkLaterEntry has the order of 1.18 and later.
func (k *check) checkLaterEntry(e entry) {
	k.addText(k.checkCombination(e.peers))
	peers := k.checkSelectors(e.peers.selectors)
	if peers == "" {
		peers = k.checkAddresses(e.peers)
	}
	switch {
	case e.peers.nodes && peers != "":
		k.add(NodeSelectors, peers+"\n"+textNodesOff)
	case e.peers.nodes:
		k.add(NodeSelectors, textNodesOff)
	}
	k.addText(peers)
	k.checkHostIngress(e)
	k.checkL7Support(e)
	k.checkICMP(e)
	for i := range e.ports {
		k.checkPorts(&e.ports[i], e.ingress)
	}
	k.checkFields(e)
	k.addText(k.checkNames(e.peers))
}

func (k *check) checkHostIngress(e entry) {
	if e.host && e.ingress && k.entryHasL7(e) {
		k.add(Always, textL7OnHostIngress)
	}
}

func (k *check) entryHasL7(e entry) bool {
	return slices.ContainsFunc(e.ports, func(p v2.PortRule) bool { return k.hasL7(p.Rules) })
}

// checkL7Support reports protocols that are not supported in a place, whatever their rules are.
func (k *check) checkL7Support(e entry) {
	if !k.entryHasL7(e) {
		return
	}
	k.add(L7Proxy, textL7Proxy)
	for i := range e.ports {
		rules := e.ports[i].Rules
		switch {
		case rules == nil:
		case e.ingress && rules.DNS != nil:
			k.add(Always, textDNSOnIngress)
		case e.host && !e.ingress && rules.HTTP != nil:
			k.add(Always, onHostEgress("HTTP"))
		case e.host && !e.ingress && rules.Kafka != nil && k.Messages:
			k.add(Always, onHostEgress("Kafka"))
		}
	}
}

func onHostEgress(protocol string) string {
	return "L7 protocol " + protocol + " is not supported on host egress yet"
}

// maxElements is how many ports an entry of toPorts may have, and how many fields one of icmps.
const maxElements = 40

func (k *check) checkICMP(e entry) {
	if len(e.icmps) == 0 {
		return
	}
	k.add(ICMPRules, textICMPOff)
	if len(e.ports) > 0 {
		text := k.text(textICMPWithPorts)
		if k.Later {
			text = strings.TrimSuffix(text, ".")
		}
		k.add(Always, text)
	}
}

func (k *check) checkFields(e entry) {
	for _, rule := range e.icmps {
		if len(rule.Fields) > maxElements {
			k.add(Always, "too many types, the max is 40")
		}
		for _, field := range rule.Fields {
			if field.Family != "" && field.Family != v2.ICMPv4 && field.Family != v2.ICMPv6 {
				k.add(Always, "wrong family: "+string(field.Family))
			}
		}
	}
}
