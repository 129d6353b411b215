// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudtest

import (
	"context"
	"encoding/json"
	"slices"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/outside"
)

// provider is the provider of a Cloud. Its part of the status is that of AWS.
type provider struct {
	cloud *Cloud
	door  *outside.Door
}

// NewProvider returns the provider of a cloud.
func NewProvider(c *Cloud, d *outside.Door) cloudipam.Provider { return &provider{c, d} }

func (p *provider) Read(ctx context.Context) (*cloudipam.State, error) {
	instances, free, err := p.get(ctx, OpList, nil)
	if err != nil {
		return nil, err
	}
	s := &cloudipam.State{Instances: instances, Subnets: map[string]cloudipam.Subnet{}}
	for id, n := range free {
		s.Subnets[id] = cloudipam.Subnet{ID: id, Zone: "zone-a", Free: n}
	}
	return s, nil
}

func (p *provider) ReadInstances(ctx context.Context, ids []string) (map[string]*cloudipam.Instance, error) {
	instances, _, err := p.get(ctx, OpGet, ids)
	return instances, err
}

func (p *provider) get(ctx context.Context, operation string, ids []string) (map[string]*cloudipam.Instance, map[string]int, error) {
	var list []machineView
	var free map[string]int
	if err := p.door.ReadOperation(ctx, operation, func(ctx context.Context) (err error) {
		list, free, err = p.cloud.get(ctx, operation, ids)
		return err
	}); err != nil {
		return nil, nil, err
	}
	return instancesOf(list), free, nil
}

func instancesOf(list []machineView) map[string]*cloudipam.Instance {
	instances := map[string]*cloudipam.Instance{}
	for _, m := range list {
		i := &cloudipam.Instance{ID: m.id, Detail: m.detail}
		for _, n := range m.interfaces {
			i.Interfaces = append(i.Interfaces, cloudipam.Interface{ID: n.id, Subnet: n.subnet, Addresses: n.addresses})
		}
		instances[m.id] = i
	}
	return instances
}

func (p *provider) Limits(_ *cloudipam.Node, i *cloudipam.Instance) (cloudipam.Limits, error) {
	l := cloudipam.Limits{
		Addresses: p.cloud.Interfaces * p.cloud.PerInterface, Capacity: p.cloud.Interfaces * p.cloud.PerInterface,
		PreAllocate: 8, EmptySlots: p.cloud.Interfaces - len(i.Interfaces),
	}
	for _, n := range i.Interfaces {
		if len(n.Addresses)+p.cloud.block() <= p.cloud.PerInterface {
			l.Interfaces++
		}
	}
	return l, nil
}

func (p *provider) Addresses(_ *cloudipam.Node, i *cloudipam.Instance) map[string]cloudipam.Address {
	all := map[string]cloudipam.Address{}
	for _, n := range i.Interfaces {
		for _, a := range n.Addresses {
			all[a] = cloudipam.Address{Resource: n.ID, Prefix: p.cloud.prefixOf(a)}
		}
	}
	return all
}

func (p *provider) FreeInterface(_ *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	for _, n := range i.Interfaces {
		count := min(p.cloud.PerInterface-len(n.Addresses), subnets[n.Subnet].Free)
		if count -= count % p.cloud.block(); count > 0 {
			return cloudipam.Candidate{Interface: n.ID, Subnet: n.Subnet, Count: count}, true
		}
	}
	return cloudipam.Candidate{}, false
}

func (p *provider) do(ctx context.Context, verb, operation, resource, name string, request map[string]any, call func(context.Context) error) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return p.door.Do(ctx, outside.Call{Verb: verb, Operation: operation, Resource: resource, Name: name, Request: body}, call)
}

func (p *provider) Assign(ctx context.Context, _ *cloudipam.Node, i *cloudipam.Instance, to cloudipam.Candidate, count int) error {
	return p.do(ctx, "assign", OpAssign, "addresses", to.Interface, map[string]any{"count": count}, func(ctx context.Context) error {
		return p.cloud.assign(ctx, i.ID, to.Interface, count)
	})
}

func (p *provider) CreateInterface(ctx context.Context, n *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet, count int) (made cloudipam.Created, err error) {
	made.Subnet = "subnet-1"
	most := min(p.cloud.PerInterface, subnets[made.Subnet].Free)
	made.Count = min((count+p.cloud.block()-1)/p.cloud.block()*p.cloud.block(), most-most%p.cloud.block())
	if made.Count == 0 {
		return made, &cloudipam.NodeError{Status: "unableToFindSubnet", Text: "no matching subnet available for interface creation"}
	}
	err = p.do(ctx, "attach", OpAttach, "interfaces", i.ID, map[string]any{"count": made.Count}, func(ctx context.Context) error {
		made.Interface, err = p.cloud.attach(ctx, i.ID, made.Count, n.IPv6)
		return err
	})
	return made, err
}

func (p *provider) Releasable(_ *cloudipam.Node, i *cloudipam.Instance, isUsed func(string) bool, count int) (best cloudipam.Surplus) {
	most := 0
	for _, n := range i.Interfaces {
		unused := slices.DeleteFunc(slices.Clone(n.Addresses), isUsed)
		of := cloudipam.Surplus{Interface: n.ID, Subnet: n.Subnet, Addresses: unused[:min(count, len(unused))]}
		if p.cloud.PrefixBits > 0 {
			of.Addresses, of.Prefixes = nil, p.wholePrefixes(unused)
			of.Prefixes = of.Prefixes[:min(count/p.cloud.block(), len(of.Prefixes))]
		}
		if has := len(of.Addresses) + len(of.Prefixes)*p.cloud.block(); has > most {
			best, most = of, has
		}
	}
	return best
}

// wholePrefixes are the prefixes of which all addresses are listed.
func (p *provider) wholePrefixes(addresses []string) (whole []string) {
	count := map[string]int{}
	for _, a := range addresses {
		if of := p.cloud.prefixOf(a); count[of]+1 == p.cloud.block() {
			whole = append(whole, of)
		} else {
			count[of]++
		}
	}
	return whole
}

func (p *provider) Unassign(ctx context.Context, _ *cloudipam.Node, i *cloudipam.Instance, from cloudipam.Surplus) error {
	return p.do(ctx, "unassign", OpUnassign, "addresses", from.Interface, map[string]any{"addresses": from.Addresses, "prefixes": from.Prefixes}, func(ctx context.Context) error {
		return p.cloud.unassign(ctx, i.ID, from.Interface, from.Addresses, from.Prefixes)
	})
}

// StaticIP implements cloudipam.StaticAddresser.
func (p *provider) StaticIP(_ *cloudipam.Node, i *cloudipam.Instance) string {
	return detailOf(i).public
}

// detailOf is what the instance has beside its interfaces.
func detailOf(i *cloudipam.Instance) detail {
	d, _ := i.Detail.(detail)
	return d
}

// AssignStaticIP implements cloudipam.StaticAddresser.
func (p *provider) AssignStaticIP(ctx context.Context, n *cloudipam.Node, i *cloudipam.Instance) (address string, err error) {
	if has := p.StaticIP(n, i); has != "" {
		return has, nil
	}
	err = p.do(ctx, "associate", OpPublish, "addresses", i.ID, map[string]any{"tags": n.Spec.IPAM.StaticIPTags}, func(ctx context.Context) error {
		address, err = p.cloud.publish(ctx, i.ID, n.Spec.IPAM.StaticIPTags)
		return err
	})
	return address, err
}

func (p *provider) SetStatus(_ *cloudipam.Node, i *cloudipam.Instance, status *v2.CiliumNodeStatus) {
	enis := map[string]v2.ENI{}
	if i != nil {
		for number, n := range i.Interfaces {
			of := v2.ENI{ID: n.ID, Number: number, Subnet: v2.AWSSubnet{ID: n.Subnet}, Addresses: n.Addresses}
			if p.cloud.PrefixBits > 0 {
				of.Prefixes = p.wholePrefixes(n.Addresses)
			}
			enis[n.ID] = of
		}
	}
	if status.ENI.ENIs = enis; len(enis) == 0 {
		status.ENI.ENIs = nil
	}
}
