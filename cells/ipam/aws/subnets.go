// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skep-operator/skep/resources/cloudipam"
)

// subnetDetail is what else is known of a subnet.
type subnetDetail struct {
	vpc, cidr string
	ranges    []netip.Prefix // of both families
	routes    string         // its route table, "" if it is not known
	tags      map[string]string
	eligible  bool // for new interfaces, by the filters
}

// home is the VPC and the zone of an instance: what the agent has written, or else those of the first interface.
func (v view) home(subnets map[string]cloudipam.Subnet) (vpc, zone string) {
	vpc, zone = v.spec.VPCID, v.spec.AvailabilityZone
	if len(v.instance.Interfaces) > 0 {
		first := v.instance.Interfaces[0]
		vpc, zone = cmp.Or(vpc, eniOf(first).VPC.ID), cmp.Or(zone, subnets[first.Subnet].Zone)
	}
	return vpc, zone
}

// ownSubnet is that of the node: what the agent has written, or else that of the first interface.
func (v view) ownSubnet() string {
	if e := firstOf(v.instance); e != nil {
		return cmp.Or(v.spec.NodeSubnetID, e.Subnet.ID)
	}
	return v.spec.NodeSubnetID
}

// chooseSubnet is the subnet for a new interface: the first of the wishes that a subnet fulfils. Of several, it is the one with most
// free addresses.
func (v view) chooseSubnet(subnets map[string]cloudipam.Subnet) (cloudipam.Subnet, error) {
	vpc, zone := v.home(subnets)
	for _, isWanted := range v.wishes(subnets) {
		var best cloudipam.Subnet
		for _, id := range slices.Sorted(maps.Keys(subnets)) {
			s := subnets[id]
			d, _ := s.Detail.(*subnetDetail)
			if d == nil || !d.eligible || d.vpc != vpc || s.Zone != zone || !isWanted(s, d) {
				continue
			}
			if best.ID == "" || s.Free > best.Free {
				best = s
			}
		}
		switch {
		case best.ID == "":
		case best.Free < minFree:
			return best, &cloudipam.NodeError{Status: "unableToFindSubnet", Text: fmt.Sprintf("subnet %s has no free addresses for another interface", best.ID)}
		default:
			return best, nil
		}
	}
	return cloudipam.Subnet{}, &cloudipam.NodeError{Status: "unableToFindSubnet", Text: fmt.Sprintf(
		"No matching subnet available for interface creation (VPC=%s AZ=%s SubnetIDs=%v SubnetTags=%v)", vpc, zone, v.spec.SubnetIDs, v.spec.SubnetTags)}
}

// minFree is how many addresses a new interface has at least: its own, and one for pods.
const minFree = 2

// wishes are by id, by tags, the node's subnet, one with its routes, and any. With other routes pods may lose what these lead to, such as
// a NAT gateway: a subnet that has them is the last wish, unless the node names it.
func (v view) wishes(subnets map[string]cloudipam.Subnet) []func(cloudipam.Subnet, *subnetDetail) bool {
	own := v.ownSubnet()
	routes := routesOf(subnets[own])
	return []func(cloudipam.Subnet, *subnetDetail) bool{
		func(s cloudipam.Subnet, _ *subnetDetail) bool { return slices.Contains(v.spec.SubnetIDs, s.ID) },
		func(_ cloudipam.Subnet, d *subnetDetail) bool {
			return len(v.spec.SubnetTags) > 0 && hasTags(d.tags, v.spec.SubnetTags)
		},
		func(s cloudipam.Subnet, _ *subnetDetail) bool { return s.ID == own && s.Free >= v.limit.ipv4 },
		func(s cloudipam.Subnet, d *subnetDetail) bool {
			return s.ID != own && routes != "" && d.routes == routes && s.Free >= minFree
		},
		func(cloudipam.Subnet, *subnetDetail) bool { return true },
	}
}

// routesOf is the route table of a subnet, "" if it is not known.
func routesOf(s cloudipam.Subnet) string {
	if d, ok := s.Detail.(*subnetDetail); ok {
		return d.routes
	}
	return ""
}

// warnRoutes logs once of each pair of subnets that one with other routes than the node's was chosen.
func (p *provider) warnRoutes(name string, v view, subnets map[string]cloudipam.Subnet, chosen cloudipam.Subnet) {
	own := v.ownSubnet()
	has, wants := routesOf(chosen), routesOf(subnets[own])
	if has == "" || wants == "" || has == wants || !p.isNews("routes of "+own+" "+chosen.ID) {
		return
	}
	p.log.Warn("the subnet of a new interface has another route table than that of the node: its pods may lack routes, such as the one to a NAT gateway",
		"name", name, "subnet", chosen.ID, "routeTable", has, "nodeSubnet", own, "nodeRouteTable", wants)
}

// routes are the route tables of subnets.
type routes struct {
	bySubnet map[string]string
	main     map[string]string // of subnets without another, by VPC
}

func (r routes) of(subnet, vpc string) string { return cmp.Or(r.bySubnet[subnet], r.main[vpc]) }

// readRoutes reads the route tables. Where IAM denies it, subnets are chosen without them, and it is logged once: nodes get addresses
// nevertheless. What was read before holds while EC2 does not answer.
func (p *provider) readRoutes(ctx context.Context) (routes, error) {
	if p.isDenied(opTables) {
		return routes{}, nil
	}
	tables, err := p.session.routeTables(ctx)
	last := p.last()
	switch {
	case err == nil:
		p.setDenied(opTables, false)
		return newRoutes(tables), nil
	case isDenied(err):
		if !p.setDenied(opTables, true) {
			p.log.Warn("reading route tables is denied, choosing subnets without them, asking again in an hour: allow ec2:DescribeRouteTables", "error", err)
		}
		return routes{}, nil
	case last != nil:
		p.log.Warn("reading route tables failed, using those of the last read", "error", err)
		return last.routes, nil
	}
	return routes{}, err
}

func newRoutes(tables []types.RouteTable) routes {
	r := routes{bySubnet: map[string]string{}, main: map[string]string{}}
	for _, t := range tables {
		id := sdk.ToString(t.RouteTableId)
		for _, a := range t.Associations {
			if subnet := sdk.ToString(a.SubnetId); subnet != "" {
				r.bySubnet[subnet] = id
			} else if sdk.ToBool(a.Main) {
				r.main[sdk.ToString(t.VpcId)] = id
			}
		}
	}
	return r
}
