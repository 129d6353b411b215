// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam_test

import (
	"context"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
)

// dual is a provider of a cloud whose instance can have a prefix of IPv6.
type dual struct {
	cloudipam.Provider
	refuses error
	has     bool
	calls   int
	created bool // an interface with one
}

func (p *dual) IPv6Interface(n *cloudipam.Node, i *cloudipam.Instance, _ map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	return cloudipam.Candidate{Interface: i.Interfaces[0].ID, Count: 1}, n.IPv6 && !p.has
}

func (p *dual) AssignIPv6Prefix(context.Context, *cloudipam.Node, *cloudipam.Instance, cloudipam.Candidate) error {
	p.calls++
	p.has = p.has || p.refuses == nil
	return p.refuses
}

func (p *dual) CreateInterface(ctx context.Context, n *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet, count int) (cloudipam.Created, error) {
	p.created = n.IPv6 && !p.has
	p.has = p.has || p.created
	return p.Provider.CreateInterface(ctx, n, i, subnets, count)
}

// newDual is a calm world whose agent asks for addresses of both families.
func newDual(t *testing.T, p *dual, ipv4, ipv6 int) *world {
	return calm(t, 8, func(w *world) {
		w.agents["n0"].pools = true
		w.edit = func(of cloudipam.Provider) cloudipam.Provider {
			p.Provider = of
			return p
		}
		n := w.nodes["n0"]
		n.Spec.IPAM.Pools.Requested = []v2.IPAMPoolRequest{{Pool: "default", Needed: v2.IPAMPoolDemand{IPv4Addrs: ipv4, IPv6Addrs: ipv6}}}
	})
}

// CIPAM-49; number 43 of the contract's ipam-aws-eni.md: the prefix is assigned once, before addresses of IPv4, and whether the node lacks
// any of these or not.
func TestIPv6ComesFirst(t *testing.T) {
	p := &dual{}
	w := newDual(t, p, 8, 8)
	if err := w.process(); err != nil || p.calls != 1 || w.cloud.Calls()[cloudtest.OpAssign] != 0 {
		t.Fatalf("%v: %d calls, %v", err, p.calls, w.cloud.Calls())
	}
	w.settle(t)
	w.wantAttached(t, "8 requested", 8)
	p.has = false // by another program: the node lacks no address of IPv4
	w.settle(t)
	if p.calls != 2 || w.cloud.Calls()[cloudtest.OpAssign] != 1 {
		t.Errorf("%d calls, %v", p.calls, w.cloud.Calls())
	}
	p = &dual{}
	if newDual(t, p, 8, 0).settle(t); p.calls != 0 {
		t.Errorf("%d calls, and none was asked for", p.calls)
	}
}

// CIPAM-49: an error is one of the node, ends the run, and is retried after the pause of failures.
func TestIPv6Fails(t *testing.T) {
	p := &dual{refuses: &cloudipam.NodeError{Text: "the subnet has no block of IPv6"}}
	w := newDual(t, p, 8, 8)
	w.settle(t)
	if text := w.nodes["n0"].Status.IPAM.OperatorStatus.Error; p.calls == 0 || w.cloud.Calls()[cloudtest.OpAssign] != 0 || text != "the subnet has no block of IPv6" {
		t.Fatalf("%d calls, %v, %q", p.calls, w.cloud.Calls(), text)
	}
	p.refuses = nil
	w.after(t, cloudipam.Backoff(20, 1, 1))
	w.wantAttached(t, "it has one", 8)
	if text := w.nodes["n0"].Status.IPAM.OperatorStatus.Error; !p.has || text != "" {
		t.Errorf("%v, %q", p.has, text)
	}
}

// CIPAM-49: an interface that is attached for addresses of IPv4 has the prefix from the start.
func TestIPv6WithANewInterface(t *testing.T) {
	p := &dual{has: true}
	w := newDual(t, p, 40, 8) // all that one interface can have
	w.settle(t)
	p.has = false
	w.nodes["n0"].Spec.IPAM.Pools.Requested[0].Needed.IPv4Addrs = 50
	w.stored(w.nodes["n0"].DeepCopy())
	w.settle(t)
	if !p.created || p.calls != 0 {
		t.Errorf("created with one: %v; %d calls", p.created, p.calls)
	}
}
