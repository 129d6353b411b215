// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// peers are those of an entry.
type peers struct {
	kinds           []string // the names of the lists that have elements, sorted
	selectors       []*v2.LabelSelector
	cidrs           []string
	cidrSets        []v2.CIDRRule
	entities        []v2.Entity
	fqdns           []v2.FQDNSelector
	services, nodes bool
}

func (p *peers) addKind(name string, n int) {
	if n > 0 {
		p.kinds = append(p.kinds, name)
	}
}

func (p *peers) addSelectors(all []v2.LabelSelector) {
	for i := range all {
		p.selectors = append(p.selectors, &all[i])
	}
}

func ingressPeers(in *v2.IngressPeers) peers {
	p := peers{cidrs: in.FromCIDR, cidrSets: in.FromCIDRSet, entities: in.FromEntities, nodes: len(in.FromNodes) > 0}
	p.addKind("FromCIDR", len(in.FromCIDR))
	p.addKind("FromCIDRSet", len(in.FromCIDRSet))
	p.addKind("FromEndpoints", len(in.FromEndpoints))
	p.addKind("FromEntities", len(in.FromEntities))
	p.addKind("FromGroups", len(in.FromGroups))
	p.addKind("FromNodes", len(in.FromNodes))
	p.addSelectors(in.FromEndpoints)
	p.addSelectors(in.FromRequires)
	p.addSelectors(in.FromNodes)
	return p
}

func egressPeers(out *v2.EgressPeers, fqdns []v2.FQDNSelector) peers {
	p := peers{
		cidrs: out.ToCIDR, cidrSets: out.ToCIDRSet, entities: out.ToEntities, fqdns: fqdns,
		services: len(out.ToServices) > 0, nodes: len(out.ToNodes) > 0,
	}
	p.addKind("ToCIDR", len(out.ToCIDR))
	p.addKind("ToCIDRSet", len(out.ToCIDRSet))
	p.addKind("ToEndpoints", len(out.ToEndpoints))
	p.addKind("ToEntities", len(out.ToEntities))
	p.addKind("ToFQDNs", len(fqdns))
	p.addKind("ToGroups", len(out.ToGroups))
	p.addKind("ToNodes", len(out.ToNodes))
	p.addKind("ToServices", len(out.ToServices))
	p.addSelectors(out.ToEndpoints)
	p.addSelectors(out.ToRequires)
	p.addSelectors(out.ToNodes)
	for _, s := range out.ToServices {
		if s.K8sServiceSelector != nil {
			p.selectors = append(p.selectors, &s.K8sServiceSelector.Selector)
		}
	}
	return p
}

func checkCombination(p peers) string {
	if len(p.kinds) < 2 {
		return ""
	}
	return fmt.Sprintf("Combining %s and %s is not supported yet", p.kinds[0], p.kinds[1])
}

func checkAddresses(p peers) string {
	for _, text := range p.cidrs {
		if text := checkCIDR(text); text != "" {
			return text
		}
	}
	for _, rule := range p.cidrSets {
		if text := checkCIDRRule(rule); text != "" {
			return text
		}
	}
	for _, e := range p.entities {
		if !slices.Contains(entities, e) {
			return fmt.Sprintf("unsupported entity: %s", e)
		}
	}
	for _, s := range p.fqdns {
		if text := checkFQDN(s); text != "" {
			return text
		}
	}
	return ""
}

// checkCIDR checks a prefix or an address.
func checkCIDR(text string) string {
	_, err := netip.ParsePrefix(text)
	if err == nil {
		return ""
	}
	if addr, addrErr := netip.ParseAddr(text); addrErr == nil && addr.Zone() == "" {
		return ""
	}
	return fmt.Sprintf("unable to parse CIDR: %v", err)
}

// checkCIDRRule checks a prefix, or a group of prefixes, and what is excepted of it.
func checkCIDRRule(rule v2.CIDRRule) string {
	var whole netip.Prefix
	if rule.CIDRGroupRef == "" {
		var text string
		if whole, text = parseCIDRRule(rule.CIDR); text != "" {
			return text
		}
	}
	for _, text := range rule.Except {
		part, problem := parseCIDRRule(text)
		if problem != "" {
			return problem
		}
		if rule.CIDRGroupRef == "" && (!whole.Contains(part.Addr()) || part.Bits() < whole.Bits()) {
			return fmt.Sprintf("allow CIDR prefix %s does not contain exclude CIDR prefix %s", whole, part)
		}
	}
	return ""
}

func parseCIDRRule(text string) (p netip.Prefix, problem string) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Sprintf("Unable to parse CIDRRule %q: %v", text, err)
	}
	return p, ""
}

var entities = []v2.Entity{
	v2.EntityAll, v2.EntityWorld, "world-ipv4", "world-ipv6", v2.EntityCluster, v2.EntityHost, v2.EntityInit, v2.EntityIngress,
	v2.EntityRemoteNode, v2.EntityHealth, v2.EntityUnmanaged, v2.EntityNone, v2.EntityKubeAPIServer,
}

var (
	nameCharacters    = regexp.MustCompile(`^[-a-zA-Z0-9_.]+$`)
	patternCharacters = regexp.MustCompile(`^[-a-zA-Z0-9_.*]+$`)
)

const textTwoFQDNs = "only one of MatchName or MatchPattern is allowed in an FQDNSelector"

func checkFQDN(s v2.FQDNSelector) string {
	switch {
	case s.MatchName != "" && s.MatchPattern != "":
		return textTwoFQDNs
	case s.MatchName != "" && !nameCharacters.MatchString(s.MatchName):
		return fmt.Sprintf("Invalid characters in MatchName: %q. Only 0-9, a-z, A-Z and . and - characters are allowed", s.MatchName)
	case s.MatchPattern != "" && !patternCharacters.MatchString(s.MatchPattern):
		return fmt.Sprintf("Invalid characters in MatchPattern: %q. Only 0-9, a-z, A-Z and ., - and * characters are allowed", s.MatchPattern)
	}
	return ""
}
