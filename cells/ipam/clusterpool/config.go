// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"errors"
	"net/netip"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config are the cluster CIDRs and the sizes of node CIDRs, and how far nodes are believed.
type Config struct {
	ClusterPoolIPv4CIDR     []string `flag:"cluster-pool-ipv4-cidr" usage:"IPv4 CIDRs to allocate node CIDRs from, in order of preference"`
	ClusterPoolIPv4MaskSize int      `flag:"cluster-pool-ipv4-mask-size" usage:"Prefix length of the IPv4 CIDR of a node"`
	ClusterPoolIPv6CIDR     []string `flag:"cluster-pool-ipv6-cidr" usage:"IPv6 CIDRs to allocate node CIDRs from, in order of preference"`
	ClusterPoolIPv6MaskSize int      `flag:"cluster-pool-ipv6-mask-size" usage:"Prefix length of the IPv6 CIDR of a node"`

	ClusterPoolBelieveAllBlocks bool `flag:"cluster-pool-believe-all-blocks" usage:"Believe a CiliumNode for all CIDRs that it lists or shows, and not for one of each cluster CIDR: no other node is given these"`
}

// validate runs on every replica where cluster-pool is the IPAM mode.
func validate(c Config, shared cluster.Config) error {
	_, err := newAllocator(c, shared)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range families(c, shared) {
		for _, text := range f.cidrs {
			prefix, err := netip.ParsePrefix(text)
			if err == nil && prefix != prefix.Masked() {
				errs = append(errs, cell.Questionable(f.cidrFlag, "should be %s: %s counts as that", prefix.Masked(), text))
			}
			if err == nil && f.mask < prefix.Bits() {
				errs = append(errs, cell.Questionable(f.maskFlag, "should be at least %d: no node's CIDR is cut from %s, which is not used", prefix.Bits(), text))
			}
		}
	}
	return errors.Join(errs...)
}

// family is an address family with its options.
type family struct {
	name      string // IPv4
	enabled   bool
	cidrs     []string
	mask      int
	cidrFlag  string
	maskFlag  string
	bits      int
	maxSpread int // the most bits between a cluster CIDR and a node's
}

func families(c Config, shared cluster.Config) [2]family {
	return [2]family{
		{"IPv4", shared.EnableIPv4, c.ClusterPoolIPv4CIDR, c.ClusterPoolIPv4MaskSize, "cluster-pool-ipv4-cidr", "cluster-pool-ipv4-mask-size", 32, 32},
		{"IPv6", shared.EnableIPv6, c.ClusterPoolIPv6CIDR, c.ClusterPoolIPv6MaskSize, "cluster-pool-ipv6-cidr", "cluster-pool-ipv6-mask-size", 128, 16},
	}
}

// pools makes the pools of a family.
func (f family) pools(blocks *alloc.Blocks[string]) ([]*pool, error) {
	switch {
	case f.enabled && len(f.cidrs) == 0:
		return nil, cell.Invalid(f.cidrFlag, "%s must be provided when using ClusterPool", f.cidrFlag)
	case !f.enabled && len(f.cidrs) > 0:
		return nil, cell.Invalid(f.cidrFlag, "%s must not be set if %s is disabled", f.cidrFlag, f.name)
	case !f.enabled:
		return nil, nil
	case f.mask < 1 || f.mask > f.bits:
		return nil, cell.Invalid(f.maskFlag, "must be between 1 and %d", f.bits)
	}
	var pools []*pool
	var seen []netip.Prefix
	var errs, narrow []error
	for _, text := range f.cidrs {
		prefix, err := f.parse(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, earlier := range seen {
			if earlier.Overlaps(prefix) {
				errs = append(errs, cell.Invalid(f.cidrFlag, "requested CIDR %s collides with %s", prefix, &pool{prefix: earlier, mask: f.mask}))
			}
		}
		seen = append(seen, prefix)
		switch {
		case f.mask < prefix.Bits():
			narrow = append(narrow, cell.Invalid(f.maskFlag, "must be at least %d: a node's CIDR fits into %s", prefix.Bits(), text))
		case f.mask-prefix.Bits() > f.maxSpread:
			errs = append(errs, cell.Invalid(f.maskFlag, "must be at most %d: node CIDR size is too big, %s would be cut into more than 2^%d", prefix.Bits()+f.maxSpread, text, f.maxSpread))
		default:
			p, err := newPool(blocks, prefix, f.mask)
			if err != nil {
				errs = append(errs, cell.Invalid(f.cidrFlag, "%s", err))
				continue
			}
			pools = append(pools, p)
		}
	}
	if len(pools) == 0 { // nothing could be allocated
		errs = append(errs, narrow...)
	}
	return pools, errors.Join(errs...)
}

func (f family) parse(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return prefix, cell.Invalid(f.cidrFlag, "invalid CIDR address: %s", text)
	case prefix.Addr().BitLen() != f.bits || prefix.Addr().Is4In6():
		return prefix, cell.Invalid(f.cidrFlag, "CIDR is not v%s family: %s", f.name[3:], text)
	}
	return prefix.Masked(), nil
}
