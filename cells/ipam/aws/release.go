// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"cmp"
	"context"
	"errors"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// releasable are addresses and prefixes of the interface that has most of those that can be released.
func releasable(spec *v2.ENISpec, i *cloudipam.Instance, isUsed func(string) bool, count int) (best cloudipam.Surplus) {
	most := 0
	for _, of := range slices.SortedFunc(slices.Values(i.Interfaces), func(a, b cloudipam.Interface) int { return cmp.Compare(a.ID, b.ID) }) {
		e := eniOf(of)
		if isExcluded(spec, e) {
			continue
		}
		prefixes, addresses, n := e.surplus(isUsed, count)
		if n > most {
			most, best = n, cloudipam.Surplus{Interface: of.ID, Subnet: of.Subnet, Addresses: addresses, Prefixes: prefixes}
		}
	}
	return best
}

// surplus are up to count addresses that are not used: whole prefixes first, then single ones. n is how many they are together.
func (e *eni) surplus(isUsed func(string) bool, count int) (prefixes, addresses []string, n int) {
	for _, prefix := range e.Prefixes {
		all := addressesOf(prefix)
		if n+len(all) > count || slices.ContainsFunc(all, isUsed) {
			continue
		}
		prefixes, n = append(prefixes, prefix), n+len(all)
	}
	addresses = slices.DeleteFunc(slices.Clone(e.singles), isUsed)
	addresses = addresses[:max(0, min(count-n, len(addresses)))]
	return prefixes, addresses, n + len(addresses)
}

// Unassign implements cloudipam.Provider. What the interface does not have is no error.
func (p *provider) Unassign(ctx context.Context, _ *cloudipam.Node, _ *cloudipam.Instance, from cloudipam.Surplus) error {
	p.recent.Removed(from.Interface, slices.Concat(from.Addresses, from.Prefixes))
	for _, these := range []holding{{prefixes: from.Prefixes}, {addresses: from.Addresses}} {
		if these.len() == 0 {
			continue
		}
		if err := p.unassign(ctx, from.Interface, these); err != nil {
			return err
		}
	}
	return nil
}

// unassign removes what the interface has of addresses, or of prefixes. EC2 refuses all of them if it does not have one: then a read
// shows which are left.
func (p *provider) unassign(ctx context.Context, id string, these holding) error {
	err := p.session.unassign(ctx, id, these)
	if codeOf(err) != codeInvalid {
		return err
	}
	left, readErr := p.left(ctx, id, these)
	switch {
	case readErr != nil:
		return errors.Join(err, readErr)
	case left.len() == 0:
		return nil
	case left.len() == these.len():
		return err
	}
	return p.session.unassign(ctx, id, left)
}

// left are those addresses and prefixes that an interface has. An address of a prefix is one that it has: it is not gone because EC2
// does not take it back alone.
func (p *provider) left(ctx context.Context, id string, these holding) (left holding, err error) {
	list, err := p.session.interfaces(ctx, filter("network-interface-id", id))
	if err != nil {
		return left, err
	}
	has := map[string]bool{}
	for _, of := range list {
		for _, a := range of.PrivateIpAddresses {
			has[sdk.ToString(a.PrivateIpAddress)] = !sdk.ToBool(a.Primary)
		}
		for _, of := range of.Ipv4Prefixes {
			prefix := sdk.ToString(of.Ipv4Prefix)
			has[prefix] = true
			for _, a := range addressesOf(prefix) {
				has[a] = true
			}
		}
	}
	isGone := func(one string) bool { return !has[one] }
	return holding{slices.DeleteFunc(slices.Clone(these.addresses), isGone), slices.DeleteFunc(slices.Clone(these.prefixes), isGone)}, nil
}
