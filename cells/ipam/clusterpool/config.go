// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"errors"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config is the cluster's CIDRs and how they are cut.
type Config struct {
	ClusterPoolIPv4CIDR     []string `flag:"cluster-pool-ipv4-cidr"`
	ClusterPoolIPv4MaskSize int      `flag:"cluster-pool-ipv4-mask-size"`
	ClusterPoolIPv6CIDR     []string `flag:"cluster-pool-ipv6-cidr"`
	ClusterPoolIPv6MaskSize int      `flag:"cluster-pool-ipv6-mask-size"`
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.StringSlice("cluster-pool-ipv4-cidr", c.ClusterPoolIPv4CIDR, "IPv4 CIDRs of the cluster, in order of preference")
	fs.Int("cluster-pool-ipv4-mask-size", c.ClusterPoolIPv4MaskSize, "Prefix length of a node's IPv4 CIDR")
	fs.StringSlice("cluster-pool-ipv6-cidr", c.ClusterPoolIPv6CIDR, "IPv6 CIDRs of the cluster, in order of preference")
	fs.Int("cluster-pool-ipv6-mask-size", c.ClusterPoolIPv6MaskSize, "Prefix length of a node's IPv6 CIDR")
}

// validate is asked where cluster-pool is the mode, on every replica.
func validate(c Config, shared cluster.Config) error {
	_, err := newAllocator(c, shared)
	return err
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

// pools cuts the CIDRs of a family.
func (f family) pools() ([]*pool, error) {
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
	var errs []error
	for _, text := range f.cidrs {
		p, err := f.pool(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, earlier := range pools {
			if earlier.prefix.Overlaps(p.prefix) {
				errs = append(errs, cell.Invalid(f.cidrFlag, "requested CIDR %s collides with %s", p.prefix, earlier))
			}
		}
		pools = append(pools, p)
	}
	return pools, errors.Join(errs...)
}

func (f family) pool(text string) (*pool, error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return nil, cell.Invalid(f.cidrFlag, "invalid CIDR address: %s", text)
	case prefix.Addr().BitLen() != f.bits:
		return nil, cell.Invalid(f.cidrFlag, "CIDR is not v%s family: %s", f.name[3:], text)
	case f.mask < prefix.Bits():
		return nil, cell.Invalid(f.maskFlag, "must be at least %d: a node's CIDR fits into %s", prefix.Bits(), text)
	case f.mask-prefix.Bits() > f.maxSpread:
		return nil, cell.Invalid(f.maskFlag, "must be at most %d: node CIDR size is too big, %s would be cut into more than 2^%d", prefix.Bits()+f.maxSpread, text, f.maxSpread)
	}
	return newPool(prefix, f.mask), nil
}
