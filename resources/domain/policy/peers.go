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

func ingressPeers(in *v2.IngressPeers, d *Dialect) peers {
	p := peers{cidrs: in.FromCIDR, cidrSets: in.FromCIDRSet, entities: in.FromEntities, nodes: len(in.FromNodes) > 0}
	p.addKind("FromCIDR", len(in.FromCIDR))
	p.addKind("FromCIDRSet", len(in.FromCIDRSet))
	p.addKind("FromEndpoints", len(in.FromEndpoints))
	p.addKind("FromEntities", len(in.FromEntities))
	p.addKind("FromGroups", len(in.FromGroups))
	p.addKind("FromNodes", len(in.FromNodes))
	p.addSelectors(in.FromEndpoints)
	if d.Requires {
		p.addSelectors(in.FromRequires)
	}
	p.addSelectors(in.FromNodes)
	return p
}

func egressPeers(out *v2.EgressPeers, fqdns []v2.FQDNSelector, d *Dialect) peers {
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
	if d.Requires {
		p.addSelectors(out.ToRequires)
	}
	p.addSelectors(out.ToNodes)
	for _, s := range out.ToServices {
		if s.K8sServiceSelector != nil {
			p.selectors = append(p.selectors, &s.K8sServiceSelector.Selector)
		}
	}
	return p
}

func (k *check) checkCombination(p peers) string {
	if len(p.kinds) < 2 {
		return ""
	}
	return k.text(fmt.Sprintf("Combining %s and %s is not supported yet", p.kinds[0], p.kinds[1]))
}

func (k *check) checkAddresses(p peers) string {
	for _, text := range p.cidrs {
		if text := checkCIDR(text); text != "" {
			return text
		}
	}
	for _, rule := range p.cidrSets {
		if text := k.checkCIDRRule(rule); text != "" {
			return text
		}
	}
	for _, e := range p.entities {
		if !slices.Contains(entities, e) {
			return fmt.Sprintf("unsupported entity: %s", e)
		}
	}
	return ""
}

func (k *check) checkNames(p peers) string {
	for _, s := range p.fqdns {
		if text := k.checkFQDN(s); text != "" {
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

const (
	textNoCIDR   = "one of cidr, cidrGroupRef, or cidrGroupSelector is required"
	textTwoCIDRs = "more than one of cidr, cidrGroupRef, or cidrGroupSelector may not be set"
)

func (k *check) checkCIDRRule(rule v2.CIDRRule) string {
	if !k.Later {
		return k.checkRange(rule, rule.CIDRGroupRef == "")
	}
	set := 0
	for _, is := range []bool{rule.CIDR != "", rule.CIDRGroupRef != "", rule.CIDRGroupSelector != nil} {
		if is {
			set++
		}
	}
	switch {
	case set == 0:
		return textNoCIDR
	case set > 1:
		return textTwoCIDRs
	case rule.CIDR != "":
		return k.checkRange(rule, true)
	case rule.CIDRGroupSelector == nil:
		return ""
	}
	text := k.checkSelector(rule.CIDRGroupSelector)
	switch {
	case text == "":
		return ""
	case k.Within:
		return "failed to sanitize cidrGroupSelector: " + text
	}
	return "failed to parse cidrGroupSelector: " + text
}

// checkRange is the finding of a range with exceptions; own says that it is one, and no reference to a group.
func (k *check) checkRange(rule v2.CIDRRule, own bool) string {
	var whole netip.Prefix
	if own {
		var text string
		if whole, text = k.parseCIDRRule(rule.CIDR); text != "" {
			return text
		}
	}
	for _, text := range rule.Except {
		part, problem := k.parseCIDRRule(text)
		if problem != "" {
			return problem
		}
		if own && (!whole.Contains(part.Addr()) || k.Within && part.Bits() < whole.Bits()) {
			return fmt.Sprintf("allow CIDR prefix %s does not contain exclude CIDR prefix %s", whole, part)
		}
	}
	return ""
}

func (k *check) parseCIDRRule(text string) (p netip.Prefix, problem string) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, k.text(fmt.Sprintf("Unable to parse CIDRRule %q: %v", text, err))
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

// maxPattern is how long a pattern may be from 1.19 on.
const maxPattern = 255

func (k *check) checkFQDN(s v2.FQDNSelector) string {
	name, pattern := ". and -", "., - and *"
	if k.EmptyPorts {
		name, pattern = "., -, _", "., -, _ and *"
	}
	switch {
	case s.MatchName != "" && s.MatchPattern != "":
		return textTwoFQDNs
	case s.MatchName != "" && !nameCharacters.MatchString(s.MatchName):
		return fmt.Sprintf("Invalid characters in MatchName: %q. Only 0-9, a-z, A-Z and %s characters are allowed", s.MatchName, name)
	case s.MatchPattern != "" && !patternCharacters.MatchString(s.MatchPattern):
		return fmt.Sprintf("Invalid characters in MatchPattern: %q. Only 0-9, a-z, A-Z and %s characters are allowed", s.MatchPattern, pattern)
	case k.EmptyPorts && len(s.MatchPattern) > maxPattern:
		return fmt.Sprintf("Invalid MatchPattern: %q. Must be <= %d characters long.", s.MatchPattern, maxPattern)
	}
	return ""
}
