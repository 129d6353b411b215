// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/networkpolicy"
)

// groups looks up the groups of network policies: security groups, and instances with tags.
type groups struct{ session *session }

func provideGroups(s *session) networkpolicy.ProviderOut {
	return networkpolicy.ProviderOut{Provider: groups{s}}
}

// Name implements networkpolicy.Provider.
func (groups) Name() string { return "aws" }

// Addresses implements networkpolicy.Provider.
func (g groups) Addresses(ctx context.Context, raw json.RawMessage) ([]netip.Addr, error) {
	var group v2.AWSGroup
	if err := json.Unmarshal(raw, &group); err != nil {
		return nil, fmt.Errorf("decoding a group: %w", err)
	}
	if err := checkGroup(&group); err != nil {
		return nil, err
	}
	all := map[netip.Addr]struct{}{}
	add := func(of []*string) error {
		if err := addAddresses(all, of); err != nil {
			return err
		}
		if len(all) > maxGroupAddresses {
			return fmt.Errorf("%w: name fewer security groups or instances than those of %d addresses", networkpolicy.ErrTooManyAddresses, maxGroupAddresses)
		}
		return nil
	}
	if filters := groupFilters(&group); len(filters) > 0 {
		if err := g.session.eachInterface(ctx, group.Region, filters, func(i *types.NetworkInterface) error { return add(interfaceAddresses(i)) }); err != nil {
			return nil, err
		}
	}
	if len(group.Labels) > 0 {
		if err := g.session.eachInstance(ctx, group.Region, group.Labels, func(i *types.Instance) error { return add(instanceAddresses(i)) }); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare), nil
}

// maxGroupAddresses is how many addresses EC2 may show for a group: no policy has place for more (DERIV-27). EC2 takes wildcards in names, so that a group can
// be all that the account has.
const maxGroupAddresses = 50_000

// regionName keeps a policy from naming another host: the region is part of that of EC2.
var regionName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// checkGroup refuses what EC2 refuses with less to read, or does not refuse.
func checkGroup(g *v2.AWSGroup) error {
	switch {
	case g.Region != "" && !regionName.MatchString(g.Region):
		return fmt.Errorf("region %q is none: use a name such as eu-west-1", g.Region)
	case len(g.SecurityGroupsIDs)+len(g.SecurityGroupsNames) > maxFilterValues, len(g.Labels) > maxFilterValues:
		return fmt.Errorf("a group has more than %d security groups or labels: divide it, EC2 takes no more in a filter", maxFilterValues)
	}
	return nil
}

// groupFilters select the interfaces of security groups, by ids and names.
func groupFilters(g *v2.AWSGroup) (filters []types.Filter) {
	if len(g.SecurityGroupsIDs) > 0 {
		filters = append(filters, filter("group-id", g.SecurityGroupsIDs...))
	}
	if len(g.SecurityGroupsNames) > 0 {
		filters = append(filters, filter("group-name", g.SecurityGroupsNames...))
	}
	return filters
}

// interfaceAddresses are the private addresses of an interface, and the public ones that are associated with them.
func interfaceAddresses(i *types.NetworkInterface) (texts []*string) {
	texts = append(texts, i.PrivateIpAddress)
	if i.Association != nil {
		texts = append(texts, i.Association.PublicIp)
	}
	for _, a := range i.PrivateIpAddresses {
		texts = append(texts, a.PrivateIpAddress)
		if a.Association != nil {
			texts = append(texts, a.Association.PublicIp)
		}
	}
	return texts
}

// instanceAddresses are those of all interfaces of an instance.
func instanceAddresses(i *types.Instance) (texts []*string) {
	texts = append(texts, i.PrivateIpAddress, i.PublicIpAddress)
	for _, e := range i.NetworkInterfaces {
		texts = append(texts, e.PrivateIpAddress)
		if e.Association != nil {
			texts = append(texts, e.Association.PublicIp)
		}
		for _, a := range e.PrivateIpAddresses {
			texts = append(texts, a.PrivateIpAddress)
			if a.Association != nil {
				texts = append(texts, a.Association.PublicIp)
			}
		}
	}
	return texts
}

// addAddresses skips those that are not set. An answer has an address several times.
func addAddresses(to map[netip.Addr]struct{}, texts []*string) error {
	for _, t := range texts {
		if sdk.ToString(t) == "" {
			continue
		}
		a, err := netip.ParseAddr(*t)
		if err != nil {
			return fmt.Errorf("EC2 has an address that is none: %w", err)
		}
		to[a] = struct{}{}
	}
	return nil
}
