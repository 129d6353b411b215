// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/outside"
)

// Assign implements cloudipam.Provider.
func (p *provider) Assign(ctx context.Context, _ *cloudipam.Node, i *cloudipam.Instance, to cloudipam.Candidate, count int) error {
	addresses, err := p.session.assign(ctx, to.Interface, count, rand.Text())
	if err != nil {
		return asProblem(err, "", i.ID, to.Subnet)
	}
	p.recent.Assigned(to.Interface, addresses, nil, time.Now())
	return nil
}

// Unassign implements cloudipam.Provider. Addresses that the interface does not have are no error.
func (p *provider) Unassign(ctx context.Context, _ *cloudipam.Node, i *cloudipam.Instance, from cloudipam.Surplus) error {
	p.recent.Removed(from.Interface, from.Addresses)
	for some := range slices.Chunk(from.Addresses, maxUnassigned) {
		err := p.session.unassign(ctx, from.Interface, some)
		if codeOf(err) == codeNoAddress {
			err = p.unassignEach(ctx, from.Interface, some)
		}
		if err != nil && codeOf(err) != codeNoInterface {
			return asProblem(err, "", i.ID, from.Subnet)
		}
	}
	return nil
}

// unassignEach unassigns those of addresses that an interface has: ECS has refused all of them, since it does not have one, and may
// not show yet which.
func (p *provider) unassignEach(ctx context.Context, id string, addresses []string) error {
	for _, one := range addresses {
		if err := p.session.unassign(ctx, id, []string{one}); err != nil && codeOf(err) != codeNoAddress {
			return err
		}
	}
	return nil
}

// CreateInterface implements cloudipam.Provider.
func (p *provider) CreateInterface(ctx context.Context, n *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet, count int) (made cloudipam.Created, err error) {
	v, known := viewOf(n, i)
	if !known {
		return made, unknownType(n)
	}
	a, err := p.current(ctx)
	if err != nil {
		return made, err
	}
	in, err := v.chooseVSwitch(subnets)
	if err != nil {
		return made, err
	}
	made.Subnet = in.ID
	o := order{instance: i.ID, vSwitch: in.ID, secondary: v.sizeOf(count, in) - 1, token: rand.Text()} // one address is the primary one
	var unmatched bool
	o.groups, unmatched, err = v.chooseGroups(a.groups, in.Detail.(*vSwitch).vpc)
	if unmatched {
		p.log.Warn("no security group has the tags that the node wants", "name", n.Name, "tags", v.spec.SecurityGroupTags)
	}
	if err != nil {
		return made, err
	}
	if o.index, err = v.nextIndex(); err != nil {
		return made, err
	}
	if made.Interface, err = p.create(ctx, o); err != nil {
		return made, asProblem(err, "unableToCreateENI", i.ID, in.ID)
	}
	e, err := p.attach(ctx, made.Interface, i.ID, a)
	if err != nil {
		return made, err
	}
	made.Count = len(e.PrivateIPSets)
	p.recent.Created(e, time.Now())
	return made, nil
}

// create creates an interface. A request whose outcome is not known is repeated: ECS knows it by its token, and an interface that is
// not known here would be left.
func (p *provider) create(ctx context.Context, o order) (string, error) {
	id, err := p.session.create(ctx, o)
	if err == nil || ctx.Err() != nil || !isUnknown(err) {
		return id, err
	}
	p.log.Warn("whether an interface was created is not known, repeating the request", "instance", o.instance, "error", err)
	if id, err = p.session.create(ctx, o); err != nil {
		p.upkeep.resolve(o)
	}
	return id, err
}

// maxPolls is how often is looked whether an interface is attached, and how many pauses of ECS are waited for.
const maxPolls = 6

// attach attaches a new interface, and waits until it is. One that is not attached is deleted.
func (p *provider) attach(ctx context.Context, id, instance string, a *account) (*eni, error) {
	err := afterPauses(ctx, func() error { return p.session.attach(ctx, id, instance) })
	if err == nil || ctx.Err() == nil && isUnknown(err) { // it may have been carried out
		var e *eni
		if e, err = p.awaitAttached(ctx, id, instance, a); err == nil {
			return e, nil
		}
	}
	if ctx.Err() == nil {
		if undo := p.session.remove(ctx, id); undo != nil {
			p.log.Warn("deleting an interface that could not be attached failed, retrying", "interface", id, "instance", instance, "error", undo)
			p.upkeep.remove(id)
		}
	}
	return nil, asProblem(err, "unableToAttachENI", instance, "")
}

// afterPauses makes a call once ECS no longer wants to be left alone: what was begun is to be completed.
func afterPauses(ctx context.Context, call func() error) (err error) {
	for range maxPolls {
		asked := new(outside.ThrottledError)
		if err = call(); !errors.As(err, &asked) {
			return err
		}
		select {
		case <-time.After(asked.RetryAfter()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// awaitAttached waits until an interface is attached to an instance. A pause that ECS asks for is kept, and no reason to give up.
func (p *provider) awaitAttached(ctx context.Context, id, instance string, a *account) (*eni, error) {
	poll, err := p.session.Network.poll, error(nil)
	timer := time.NewTimer(poll)
	defer timer.Stop()
	for range maxPolls {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		var n interfaceItem
		if n, _, err = p.session.interfaceOf(ctx, id); err == nil && n.Status == inUse && n.InstanceID == instance {
			return a.describe(n), nil
		}
		wait, asked := poll, new(outside.ThrottledError)
		if errors.As(err, &asked) {
			wait = max(wait, asked.RetryAfter())
		}
		timer.Reset(wait)
	}
	if err != nil {
		return nil, err
	}
	return nil, &cloudipam.NodeError{Text: fmt.Sprintf("a new interface was not attached to instance %s within %s", instance, maxPolls*poll)}
}
