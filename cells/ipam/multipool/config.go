// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config has the pools to create, and how nodes come from the mode cluster-pool.
type Config struct {
	// AutoCreateCiliumPodIPPools are specs of CiliumPodIPPools by name.
	AutoCreateCiliumPodIPPools map[string]string `flag:"auto-create-cilium-pod-ip-pools" usage:"CiliumPodIPPools to create if they do not exist: name=ipv4-cidrs:CIDR,CIDR;ipv4-mask-size:24;ipv6-cidrs:CIDR;ipv6-mask-size:96;allow-first-ip:true;allow-last-ip:true, with commas between pools, or a JSON object of strings"`
	// EnableClusterPoolToMultiPoolMigration converts podCIDRs of nodes to CIDRs of a pool.
	EnableClusterPoolToMultiPoolMigration bool `flag:"enable-cluster-pool-to-multi-pool-migration" usage:"When the operator begins to lead, make the pod CIDRs that nodes have of the IPAM mode cluster-pool CIDRs of the pool of --ipam-default-ip-pool"`
	// MultiPoolMigrationWorkers is how many nodes are converted at once.
	MultiPoolMigrationWorkers int `flag:"multi-pool-migration-workers" usage:"How many nodes are migrated from cluster-pool at once"`
	// IPAMDefaultIPPool is the pool that migrated nodes have their CIDRs of.
	IPAMDefaultIPPool string `flag:"ipam-default-ip-pool" usage:"CiliumPodIPPool of which nodes that are migrated from cluster-pool have their CIDRs"`
}

const createFlag = "auto-create-cilium-pod-ip-pools"

// validate runs on every replica where multi-pool is the IPAM mode.
func validate(c Config) error {
	_, err := c.pools()
	if c.MultiPoolMigrationWorkers < 1 {
		err = errors.Join(err, cell.Invalid("multi-pool-migration-workers", "must be at least 1"))
	}
	if c.EnableClusterPoolToMultiPoolMigration && c.IPAMDefaultIPPool == "" {
		err = errors.Join(err, cell.Invalid("ipam-default-ip-pool", "must name the pool of which migrated nodes have their CIDRs"))
	}
	return err
}

// pools are the specs to create, by name. The error names every pool that cannot be parsed.
func (c Config) pools() (map[string]v2alpha1.CiliumPodIPPoolSpec, error) {
	specs := map[string]v2alpha1.CiliumPodIPPoolSpec{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.AutoCreateCiliumPodIPPools)) {
		spec, err := parseSpec(c.AutoCreateCiliumPodIPPools[name])
		if err != nil {
			errs = append(errs, cell.Invalid(createFlag, "pool %q: %v", name, err))
		}
		specs[name] = spec
	}
	return specs, errors.Join(errs...)
}

// parseSpec parses the spec of a pool. Spaces, and fields with other keys, are ignored.
func parseSpec(text string) (spec v2alpha1.CiliumPodIPPoolSpec, err error) {
	v4, v6 := v2alpha1.IPv4PoolSpec{}, v2alpha1.IPv6PoolSpec{}
	for field := range strings.SplitSeq(strings.ReplaceAll(text, " ", ""), ";") {
		key, value, ok := strings.Cut(field, ":")
		if !ok {
			return spec, fmt.Errorf("field %q must be key:value, with ; between fields", field)
		}
		switch key {
		case "ipv4-cidrs":
			v4.CIDRs, err = parseCIDRs(value)
			spec.IPv4 = &v4
		case "ipv4-mask-size":
			v4.MaskSize, err = parseMaskSize(value)
			spec.IPv4 = &v4
		case "ipv6-cidrs":
			v6.CIDRs, err = parseCIDRs(value)
			spec.IPv6 = &v6
		case "ipv6-mask-size":
			v6.MaskSize, err = parseMaskSize(value)
			spec.IPv6 = &v6
		case "allow-first-ip":
			spec.AllowFirstIP, err = parseBool(value)
		case "allow-last-ip":
			spec.AllowLastIP, err = parseBool(value)
		}
		if err != nil {
			return spec, fmt.Errorf("%s: %w", key, err)
		}
	}
	return spec, nil
}

func parseCIDRs(list string) (cidrs []string, err error) {
	for text := range strings.SplitSeq(list, ",") {
		_, network, err := net.ParseCIDR(text)
		if err != nil {
			return nil, err
		}
		cidrs = append(cidrs, network.String())
	}
	return cidrs, nil
}

func parseBool(text string) (bool, error) {
	is, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%q must be true or false", text)
	}
	return is, nil
}

// parseMaskSize takes any number of eight bits. The API server knows which of them are valid.
func parseMaskSize(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%q must be a number from 0 to 255", text)
	}
	return int(n), nil
}
