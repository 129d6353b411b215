// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CIPAM-44; number 4.5 of the contract's tenants.md: what is no address of a pod.
func TestFitAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "192.0.2.7": true, "100.64.0.1": true, "fd00::1": true, "2001:db8::1": true,
		"not-an-ip": false, "999.1.1.1": false, "0.0.0.0": false, "::": false, "::1": false, "127.0.0.1": false, "169.254.169.10": false, "fe80::1": false,
		"fe80::1%eth0": false, "224.0.0.1": false, "255.255.255.255": false, "": false, "10.0.0.0/28": false,
	} {
		if got := isFit(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// shown is a cloud that shows instances.
type shown struct {
	Provider
	instances map[string]*Instance
}

func (p *shown) Read(context.Context) (*State, error) { return &State{Instances: p.instances}, nil }

func (p *shown) ReadInstances(_ context.Context, ids []string) (map[string]*Instance, error) {
	found := map[string]*Instance{}
	for _, id := range ids {
		found[id] = p.instances[id]
	}
	return found, nil
}

func (p *shown) Limits(*Node, *Instance) (Limits, error) { return Limits{}, nil }

func (p *shown) Addresses(_ *Node, i *Instance) map[string]Address {
	all := map[string]Address{}
	for _, a := range i.Interfaces[0].Addresses {
		all[a] = Address{}
	}
	return all
}

// CIPAM-46; number 4.4 of the contract's tenants.md: an address of several instances is given to none that does not have it.
func TestSharedAddresses(t *testing.T) {
	instance := func(addresses ...string) *Instance { return &Instance{Interfaces: []Interface{{Addresses: addresses}}} }
	p := &shown{instances: map[string]*Instance{"i-a": instance("10.0.0.1", "10.0.0.2"), "i-b": instance("10.0.0.1", "10.0.0.3"), "i-c": instance("10.0.0.1")}}
	cloud := newCloudState(p, time.Now)
	if _, err := cloud.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := &Node{Name: "a", Spec: &v2.CiliumNodeSpec{}, Status: &v2.CiliumNodeStatus{}}
	check := func(what, want, unfit string) {
		t.Helper()
		i, _, _ := cloud.get("i-a")
		s, err := snapshotOf(p, modeWithPools, node, i.Instance, func(string) bool { return false }, cloud.isShared)
		if got := strings.Join(slices.Sorted(maps.Keys(s.has)), " "); err != nil || got != want || strings.Join(s.unfit, " ") != unfit {
			t.Errorf("%s: %v, the node has %q and not %q", what, err, got, s.unfit)
		}
	}
	check("new", "10.0.0.2", "10.0.0.1 (of several instances)")
	node.Spec.IPAM.Pool = map[string]v2.AllocationIP{"10.0.0.1": {}}
	check("in its pool", "10.0.0.1 10.0.0.2", "10.0.0.1 (of several instances)")
	node.Spec.IPAM.Pool = nil
	p.instances["i-b"], p.instances["i-c"] = instance("10.0.0.3"), nil
	cloud.want("i-b")
	cloud.want("i-c")
	if _, err := cloud.readWanted(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("shown once", "10.0.0.1 10.0.0.2", "")
	cloud.forget("i-a")
	cloud.forget("i-b")
	if len(cloud.shownBy) != 0 {
		t.Errorf("%v is kept of instances that are forgotten", cloud.shownBy)
	}
}
