// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/outside"
)

// Assign implements cloudipam.Provider.
func (p *provider) Assign(ctx context.Context, n *cloudipam.Node, i *cloudipam.Instance, to cloudipam.Candidate, count int) error {
	v, known := p.config.viewOf(n, i)
	if !known {
		return p.unknownType(n)
	}
	o := order{addresses: count}
	if v.delegated {
		o = order{prefixes: (count + prefixSize - 1) / prefixSize}
	}
	out, err := p.session.assign(ctx, to.Interface, o)
	if o.prefixes > 0 && lacksPrefixes(err) {
		p.log.Info("subnet has no room for a prefix, assigning single addresses", "name", n.Name, "subnet", to.Subnet)
		out, err = p.session.assign(ctx, to.Interface, order{addresses: v.singles(to.Interface, count)})
	}
	if err != nil {
		return pausing(err, "", i.ID)
	}
	var addresses, prefixes []string
	for _, a := range out.AssignedPrivateIpAddresses {
		addresses = append(addresses, sdk.ToString(a.PrivateIpAddress))
	}
	for _, prefix := range out.AssignedIpv4Prefixes {
		prefixes = append(prefixes, sdk.ToString(prefix.Ipv4Prefix))
	}
	p.recent.Assigned(to.Interface, addresses, prefixes, time.Now())
	return nil
}

// CreateInterface implements cloudipam.Provider.
func (p *provider) CreateInterface(ctx context.Context, n *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet, count int) (made cloudipam.Created, err error) {
	v, known := p.config.viewOf(n, i)
	if !known {
		return made, p.unknownType(n)
	}
	a, err := p.current(ctx)
	if err != nil {
		return made, err
	}
	subnet, err := v.chooseSubnet(subnets)
	if err != nil {
		return made, err
	}
	made.Subnet = subnet.ID
	p.warnRoutes(n.Name, v, subnets, subnet)
	groups, unmatched, err := v.chooseGroups(a.groups, subnet.Detail.(*subnetDetail).vpc)
	if unmatched {
		p.log.Warn("no security group has the tags that the node wants", "name", n.Name, "tags", v.spec.SecurityGroupTags)
	}
	if err != nil {
		return made, err
	}
	o := v.orderOf(count, subnet.Free)
	if o.addresses+o.prefixes == 0 {
		return made, &cloudipam.NodeError{Status: "unableToCreateENI", Text: fmt.Sprintf("interfaces of instance type %s have their primary address only", v.spec.InstanceType)}
	}
	o.ipv6 = n.IPv6 && !v.hasIPv6()
	of, err := p.session.create(ctx, n.InstanceID, subnet.ID, groups, o)
	if o.prefixes > 0 && lacksPrefixes(err) {
		p.log.Info("subnet has no room for a prefix, assigning single addresses", "name", n.Name, "subnet", subnet.ID)
		of, err = p.session.create(ctx, n.InstanceID, subnet.ID, groups, order{addresses: max(1, min(count, v.slots(), subnet.Free-1)), ipv6: o.ipv6})
	}
	if err != nil {
		return made, pausing(err, "unableToCreateENI", i.ID)
	}
	made.Interface = *of.NetworkInterfaceId
	e, err := p.attach(ctx, v, of, a)
	if err != nil {
		return made, err
	}
	made.Count = len(e.singles) + len(e.Prefixes)*prefixSize
	p.recent.Created(e, time.Now())
	return made, nil
}

// maxAttaches is how many device indexes are tried.
const maxAttaches = 5

// attach attaches a new interface, at the first device index that EC2 takes. One that it does not attach is deleted.
func (p *provider) attach(ctx context.Context, v view, of *types.NetworkInterface, a *account) (*eni, error) {
	defer p.upkeep.protect(*of.NetworkInterfaceId)()
	e := p.describe(*of, a)
	p.list(e)
	e.instance, e.attached = v.instance.ID, true
	var attachment string
	err := errors.New("no device index is free")
	for _, index := range v.freeIndexes()[:min(maxAttaches, len(v.freeIndexes()))] {
		e.Number = index
		if attachment, err = p.session.attach(ctx, e.ID, v.instance.ID, index); !isError(err, codeInvalid, "interface attached at device") {
			break
		}
	}
	if err != nil {
		if undo := p.session.remove(ctx, e.ID); undo != nil {
			p.log.Warn("deleting an interface that could not be attached failed, leaving it to garbage collection", "interface", e.ID, "instance", v.instance.ID, "error", undo)
		}
		return nil, pausing(err, "unableToAttachENI", v.instance.ID)
	}
	if v.spec.DeleteOnTermination == nil || *v.spec.DeleteOnTermination {
		if err := p.session.deleteWithInstance(ctx, e.ID, attachment); err != nil {
			p.log.Warn("marking interface for deletion with its instance failed, retrying", "interface", e.ID, "instance", v.instance.ID, "error", err)
			p.upkeep.modify(e.ID, attachment)
		}
	}
	return e, nil
}

// pausing is an error of a change as users see it. Those that the next attempt would have as well say for how long nothing
// is changed for the node.
func pausing(err error, status, instance string) error {
	of := &cloudipam.NodeError{Status: status, Err: err}
	var api smithy.APIError
	switch code := codeOf(err); {
	case code == "" || errors.As(err, new(*outside.ThrottledError)): // EC2 has not refused it
	case isError(err, code, "is not 'running'"):
		of.Text, of.Pause = fmt.Sprintf("instance %s is not running", instance), time.Minute
	case code == codeNoInstance:
		of.Text, of.Pause = fmt.Sprintf("instance %s does not exist: delete the CiliumNode if it is obsolete", instance), time.Hour
	case code == codeAttachmentLimit:
		of.Text, of.Pause = fmt.Sprintf("instance %s has as many interfaces as EC2 allows", instance), 10*time.Minute
	case code == codeDenied: // the message is different each time
		of.Text = "EC2 denies a change of addresses: allow the operator's role the actions that docs/wire/ipam.aws.md lists"
	case errors.As(err, &api):
		of.Text = code + ": " + api.ErrorMessage()
	}
	return of
}
