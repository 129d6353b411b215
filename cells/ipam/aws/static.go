// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skep-operator/skep/resources/cloudipam"
)

// StaticIP implements cloudipam.StaticAddresser: the public address of the first interface, whether pods use that interface or not.
func (p *provider) StaticIP(_ *cloudipam.Node, i *cloudipam.Instance) string {
	if e := firstOf(i); e != nil {
		return e.PublicIP
	}
	return ""
}

// maxAssociations is how many elastic addresses are tried: other programs may take one at the same time.
const maxAssociations = 3

// AssignStaticIP implements cloudipam.StaticAddresser.
func (p *provider) AssignStaticIP(ctx context.Context, n *cloudipam.Node, i *cloudipam.Instance) (string, error) {
	e, tags := firstOf(i), n.Spec.IPAM.StaticIPTags
	switch {
	case e == nil:
		return "", &cloudipam.NodeError{Text: fmt.Sprintf("instance %s has no interface number 0, which a static IP is for", i.ID)}
	case e.PublicIP != "":
		return e.PublicIP, nil
	case len(tags) == 0:
		return "", &cloudipam.NodeError{Text: "spec.ipam.static-ip-tags is empty: a static IP is chosen by its tags"}
	}
	all, err := p.session.elasticAddresses(ctx, tags)
	if err != nil {
		return "", pausing(err, "", i.ID)
	}
	if has := slices.IndexFunc(all, func(a types.Address) bool { return sdk.ToString(a.NetworkInterfaceId) == e.ID }); has >= 0 {
		return sdk.ToString(all[has].PublicIp), nil // of an earlier attempt, which reads of the interface do not show yet
	}
	return p.associate(ctx, n, e, freeAddresses(all))
}

// associate gives an interface the first of the elastic addresses that EC2 lets it have.
func (p *provider) associate(ctx context.Context, n *cloudipam.Node, e *eni, free []types.Address) (string, error) {
	attempts, last := 0, error(nil)
	for _, a := range free {
		id := sdk.ToString(a.AllocationId)
		if attempts == maxAssociations {
			break
		}
		if !p.reserve(id, time.Now()) {
			continue
		}
		attempts++
		if last = p.session.associate(ctx, id, e.ID); last == nil {
			p.log.Info("associated a static IP", "name", n.Name, "interface", e.ID, "address", sdk.ToString(a.PublicIp), "allocation", id)
			return sdk.ToString(a.PublicIp), nil
		}
		if codeOf(last) != codeAssociated {
			p.unreserve(id)
			return "", pausing(last, "", e.instance)
		}
	}
	return "", &cloudipam.NodeError{Text: fmt.Sprintf("no unassociated EIPs found for tags %v", n.Spec.IPAM.StaticIPTags), Err: last}
}

// freeAddresses are those that nothing has, in the order of their allocations.
func freeAddresses(all []types.Address) (free []types.Address) {
	for _, a := range all {
		if cmp.Or(sdk.ToString(a.AssociationId), sdk.ToString(a.NetworkInterfaceId), sdk.ToString(a.InstanceId)) == "" && sdk.ToString(a.AllocationId) != "" && cloudipam.IsForPods(sdk.ToString(a.PublicIp)) {
			free = append(free, a)
		}
	}
	slices.SortFunc(free, func(a, b types.Address) int { return cmp.Compare(*a.AllocationId, *b.AllocationId) })
	return free
}

// reservedAge is how long an elastic address may be shown as free after it was associated.
const reservedAge = 30 * time.Second

// reserve returns false for an elastic address that another node gets: many nodes may ask for one at once, and all see the same list.
func (p *provider) reserve(allocation string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, until := range p.reserved {
		if now.After(until) {
			delete(p.reserved, id)
		}
	}
	if _, is := p.reserved[allocation]; is {
		return false
	}
	p.reserved[allocation] = now.Add(reservedAge)
	return true
}

func (p *provider) unreserve(allocation string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.reserved, allocation)
}
