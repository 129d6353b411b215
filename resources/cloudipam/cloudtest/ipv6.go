// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudtest

import (
	"context"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/outside"
)

// prefix checks the prefix of IPv6 of an instance.
func (k *checker) prefix() {
	p, can := k.p.(cloudipam.IPv6Prefixer)
	if !can {
		k.Skip("the provider assigns no prefixes of IPv6")
	}
	s, i := k.read()
	if to, lacks := p.IPv6Interface(k.Node, i, s.Subnets); lacks {
		k.Errorf("IPv6Interface returns %+v for a node that asks for none", to)
	}
	node := *k.Node
	node.IPv6 = true
	to, lacks := p.IPv6Interface(&node, i, s.Subnets)
	if room, has := k.p.FreeInterface(&node, i, s.Subnets); !lacks || has && to.Interface != room.Interface {
		k.Fatalf("IPv6Interface returns %+v, %t, and FreeInterface %+v", to, lacks, room)
	}
	k.prefixIsGuarded(&node, i, to)
	changes := k.Changes()
	if err := p.AssignIPv6Prefix(k.ctx(), &node, i, to); err != nil || k.Changes() != changes+1 {
		k.Fatalf("AssignIPv6Prefix returns %v, and has made %d changes", err, k.Changes()-changes)
	}
	after := k.one()
	if to, lacks := p.IPv6Interface(&node, after, s.Subnets); lacks {
		k.Errorf("IPv6Interface returns %+v for an instance with a prefix", to)
	}
	k.isAsBefore(i, after) // pods have no addresses of IPv6 from it
	k.prefixOfANewInterface(p)
}

// prefixIsGuarded checks that the cloud is not changed by calls that fail.
func (k *checker) prefixIsGuarded(node *cloudipam.Node, i *cloudipam.Instance, to cloudipam.Candidate) {
	k.Helper()
	changes := k.Changes()
	assign := func(p cloudipam.Provider, when string) {
		if err := p.(cloudipam.IPv6Prefixer).AssignIPv6Prefix(k.ctx(), node, i, to); err == nil {
			k.Errorf("AssignIPv6Prefix returns no error %s", when)
		}
	}
	k.Breaker.breakAll()
	assign(k.p, "while all calls fail")
	k.Breaker.repair()
	assign(k.New(k.door(func(s *outside.Scope) { s.Fence.Close() })), "behind the fence")
	assign(k.New(k.door(func(s *outside.Scope) { s.Plan = dryrun.New(time.Minute) })), "in a plan")
	if k.Changes() != changes {
		k.Errorf("the cloud was changed %d times", k.Changes()-changes)
	}
}

// prefixOfANewInterface checks that an instance without a prefix has one with an interface that is attached.
func (k *checker) prefixOfANewInterface(p cloudipam.IPv6Prefixer) {
	k.Helper()
	if k.Fixed {
		return
	}
	s, its := k.readFor(k.Other)
	other := &cloudipam.Node{Name: "other", InstanceID: k.Other, Spec: k.Node.Spec, Status: &v2.CiliumNodeStatus{}, IPv6: true}
	if _, lacks := p.IPv6Interface(other, its, s.Subnets); !lacks {
		k.Fatal("IPv6Interface returns nothing for the other instance")
	}
	if _, err := k.p.CreateInterface(k.ctx(), other, its, s.Subnets, 1); err != nil {
		k.Fatal(err)
	}
	s, its = k.readFor(k.Other)
	if to, lacks := p.IPv6Interface(other, its, s.Subnets); lacks {
		k.Errorf("IPv6Interface returns %+v after an interface was attached", to)
	}
}

// IPv6Interface implements cloudipam.IPv6Prefixer. The first interface can have the prefix always.
func (p *provider) IPv6Interface(n *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	if !n.IPv6 || detailOf(i).prefix {
		return cloudipam.Candidate{}, false
	}
	to := cloudipam.Candidate{Interface: i.Interfaces[0].ID, Subnet: i.Interfaces[0].Subnet}
	if room, has := p.FreeInterface(n, i, subnets); has {
		to = room
	}
	to.Count = 1
	return to, true
}

// AssignIPv6Prefix implements cloudipam.IPv6Prefixer.
func (p *provider) AssignIPv6Prefix(ctx context.Context, _ *cloudipam.Node, i *cloudipam.Instance, to cloudipam.Candidate) error {
	return p.do(ctx, "assign", OpPrefix, "addresses", to.Interface, map[string]any{"prefixes": 1}, func(ctx context.Context) error {
		return p.cloud.assignPrefix(ctx, i.ID)
	})
}
