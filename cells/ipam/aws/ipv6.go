// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"context"
	"net/netip"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/outside"
)

// hasIPv6 reports whether an interface that pods can use has a prefix of IPv6.
func (v view) hasIPv6() bool {
	for _, of := range v.instance.Interfaces {
		if e := eniOf(of); !isExcluded(v.spec, e) && len(e.IPv6Prefixes) > 0 {
			return true
		}
	}
	return false
}

// IPv6Interface implements cloudipam.IPv6Prefixer. An interface without a slot for addresses of IPv4 may have one for those of IPv6.
func (p *provider) IPv6Interface(n *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	v, known := p.config.viewOf(n, i)
	if !known || !n.IPv6 || v.hasIPv6() {
		return cloudipam.Candidate{}, false
	}
	if to, ok := v.freeInterface(subnets); ok {
		return cloudipam.Candidate{Interface: to.Interface, Subnet: to.Subnet, Count: 1}, true
	}
	for _, of := range i.Interfaces {
		if e := eniOf(of); e.attached && !isExcluded(v.spec, e) {
			return cloudipam.Candidate{Interface: of.ID, Subnet: of.Subnet, Count: 1}, true
		}
	}
	return cloudipam.Candidate{}, false
}

// AssignIPv6Prefix implements cloudipam.IPv6Prefixer.
func (p *provider) AssignIPv6Prefix(ctx context.Context, _ *cloudipam.Node, i *cloudipam.Instance, to cloudipam.Candidate) error {
	prefixes, err := p.session.assignIPv6(ctx, to.Interface)
	if err != nil {
		return pausing(err, "", i.ID)
	}
	p.recent.Assigned(to.Interface, nil, prefixes, time.Now())
	return nil
}

// assignIPv6 assigns a prefix of IPv6 to an interface. The operation has the name that metrics of the original have.
func (s *session) assignIPv6(ctx context.Context, id string) (prefixes []string, err error) {
	err = change(ctx, s, outside.Call{Verb: "assign", Operation: "AssignIPv6Addresses", Resource: "addresses", Name: id}, map[string]any{"ipv6Prefixes": 1},
		func(ctx context.Context, b *begun) error {
			out, err := b.client.AssignIpv6Addresses(ctx, &ec2.AssignIpv6AddressesInput{NetworkInterfaceId: &id, Ipv6PrefixCount: sdk.Int32(1)})
			if err == nil {
				prefixes = out.AssignedIpv6Prefixes
			}
			return err
		})
	return prefixes, err
}

// bitsOfIPv6 are those of each prefix of IPv6 that EC2 assigns: so two of them are the same, or have no address in common.
const bitsOfIPv6 = 80

// isIPv6Prefix reports whether a text is a prefix of IPv6 whose addresses pods can have.
func isIPv6Prefix(text string) bool {
	p, err := netip.ParsePrefix(text)
	return err == nil && p.Addr().Is6() && !p.Addr().Is4In6() && p.Bits() == bitsOfIPv6 && p == p.Masked() && p.Addr().IsGlobalUnicast()
}

// byFamily divides prefixes.
func byFamily(prefixes []string) (ipv4, ipv6 []string) {
	for _, p := range prefixes {
		if strings.Contains(p, ":") {
			ipv6 = append(ipv6, p)
		} else {
			ipv4 = append(ipv4, p)
		}
	}
	return ipv4, ipv6
}
