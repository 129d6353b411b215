// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudtest

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
)

func (k *checker) complete() {
	before := k.Breaker.count()
	s, i := k.read()
	calls := k.Breaker.count() - before
	if s.Instances[k.Other] == nil {
		k.Errorf("Read returns the instances %v, and not %s", ids(s.Instances), k.Other)
	}
	if len(i.Interfaces) == 0 {
		k.Fatalf("Read returns no interface of %s", i.ID)
	}
	if of := i.Interfaces[0].Subnet; s.Subnets[of].ID != of {
		k.Errorf("Read returns the subnets %v, and not %s of an interface", ids(s.Subnets), of)
	}
	for n := range calls {
		k.Breaker.breakAt(n+1, 1)
		part, err := k.p.Read(k.Context())
		if err != nil {
			continue
		}
		if cmp.Diff(ids(s.Instances), ids(part.Instances)) != "" || cmp.Diff(ids(s.Subnets), ids(part.Subnets)) != "" {
			k.Errorf("call %d of %d failed, and Read returns no error, instances %v and subnets %v", n+1, calls, ids(part.Instances), ids(part.Subnets))
		}
	}
	k.Breaker.breakAll()
	if _, err := k.p.Read(k.Context()); err == nil {
		k.Error("all calls fail, and Read returns no error")
	}
}

func (k *checker) fresh() {
	before := len(k.p.Addresses(k.Node, k.one()))
	if after := len(k.p.Addresses(k.Node, k.assign(2))); after != before+2 {
		k.Errorf("ReadInstances has %d addresses before 2 were assigned, and %d after it", before, after)
	}
	const absent = "i-does-not-exist"
	for _, test := range []struct{ ask, want []string }{
		{[]string{k.Node.InstanceID, absent, k.Other}, []string{k.Node.InstanceID, k.Other}},
		{[]string{k.Other}, []string{k.Other}},
		{[]string{absent}, nil},
	} {
		all, err := k.p.ReadInstances(k.Context(), test.ask)
		if want := slices.Sorted(slices.Values(test.want)); err != nil || !slices.Equal(ids(all), want) {
			k.Errorf("ReadInstances of %v returns %v, %v: want %v", test.ask, ids(all), err, want)
		}
	}
	k.Breaker.breakAll()
	if _, err := k.p.ReadInstances(k.Context(), []string{k.Node.InstanceID}); err == nil {
		k.Error("all calls fail, and ReadInstances returns no error")
	}
}

// lasting checks what reads show while the lists of the cloud are late.
func (k *checker) lasting() {
	if k.Lag == nil {
		k.Skip("the lists of the cloud are never late")
	}
	s, i := k.read()
	had := len(k.p.Addresses(k.Node, i))
	k.Lag()
	k.showsBoth("2 assigned addresses", k.assign(2), had+2, len(i.Interfaces))
	if k.Fixed {
		return
	}
	after, made := k.attach(s, k.one(), 2)
	k.showsBoth("an attached interface", after, had+2+made.Count, len(i.Interfaces)+1)
}

// showsBoth checks what a read of an instance alone, and one of all, show of it.
func (k *checker) showsBoth(what string, alone *cloudipam.Instance, addresses, interfaces int) {
	k.Helper()
	_, all := k.read()
	for read, i := range map[string]*cloudipam.Instance{"ReadInstances": alone, "Read": all} {
		if n := len(k.p.Addresses(k.Node, i)); n != addresses || len(i.Interfaces) != interfaces {
			k.Errorf("%s after %s, which the cloud does not show yet: %d addresses on %d interfaces, want %d on %d", read, what, n, len(i.Interfaces), addresses, interfaces)
		}
	}
}

// static checks the public address of an instance.
func (k *checker) static() {
	p, can := k.p.(cloudipam.StaticAddresser)
	if !can {
		k.Skip("the provider assigns no public addresses")
	}
	node := *k.Node
	spec := *node.Spec
	spec.IPAM.StaticIPTags = k.Static
	node.Spec = &spec
	_, i := k.read()
	if of := p.StaticIP(&node, i); of != "" {
		k.Errorf("the instance has the public address %s before one was assigned", of)
	}
	changes := k.Changes()
	k.Breaker.breakAll()
	if of, err := p.AssignStaticIP(k.ctx(), &node, i); err == nil {
		k.Errorf("all calls fail, and AssignStaticIP returns %s", of)
	}
	k.Breaker.repair()
	for what, edit := range map[string]func(*outside.Scope){"behind the fence": func(s *outside.Scope) { s.Fence.Close() }, "in a plan": func(s *outside.Scope) { s.Plan = dryrun.New(time.Minute) }} {
		if of, err := k.New(k.door(edit)).(cloudipam.StaticAddresser).AssignStaticIP(k.ctx(), &node, i); err == nil {
			k.Errorf("AssignStaticIP returns %s %s", of, what)
		}
	}
	if k.Changes() != changes {
		k.Errorf("the cloud was changed %d times", k.Changes()-changes)
	}
	first, err := p.AssignStaticIP(k.ctx(), &node, i)
	if _, parseErr := netip.ParseAddr(first); err != nil || parseErr != nil {
		k.Fatalf("AssignStaticIP returns %q, %v: want an address", first, err)
	}
	changes = k.Changes()
	if again, err := p.AssignStaticIP(k.ctx(), &node, k.one()); err != nil || again != first || k.Changes() != changes {
		k.Errorf("AssignStaticIP returns %s, %v after %s, with %d changes", again, err, first, k.Changes()-changes)
	}
	if of := p.StaticIP(&node, k.one()); of != "" && of != first {
		k.Errorf("the instance is read with %s, and %s was assigned", of, first)
	}
	spec.IPAM.StaticIPTags = map[string]string{"of": "no address"}
	other := cloudipam.Node{Name: "other", InstanceID: k.Other, Spec: &spec, Status: &v2.CiliumNodeStatus{}}
	_, its := k.readFor(k.Other)
	if of, err := p.AssignStaticIP(k.ctx(), &other, its); err == nil {
		k.Errorf("AssignStaticIP returns %s for tags that no address has", of)
	}
}

func (k *checker) immutable() {
	_, before := k.read()
	addresses := k.p.Addresses(k.Node, before)
	k.assign(2)
	if diff := cmp.Diff(addresses, k.p.Addresses(k.Node, before)); diff != "" {
		k.Errorf("the addresses of an instance that was read before 2 were assigned have changed:\n%s", diff)
	}
}

func (k *checker) pure() {
	s, _ := k.read()
	i := k.assign(3)
	twin := k.one() // the same, read again
	changes, calls := k.Changes(), k.Breaker.count()
	k.Breaker.breakAll()
	first := k.decide(s, i)
	if diff := cmp.Diff(first, k.decide(s, i)); diff != "" {
		k.Errorf("decisions about the same instance differ:\n%s", diff)
	}
	all := cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(twin, i, all); diff != "" {
		k.Errorf("decisions have changed the instance:\n%s", diff)
	}
	if k.Changes() != changes || k.Breaker.count() != calls {
		k.Errorf("decisions have made %d calls, %d of them changes", k.Breaker.count()-calls, k.Changes()-changes)
	}
	k.areUsable(i, first)
	var empty v2.CiliumNodeStatus
	if k.p.SetStatus(k.Node, nil, &empty); cmp.Diff(empty, v2.CiliumNodeStatus{}) != "" {
		k.Errorf("SetStatus without an instance sets %+v", empty)
	}
}

// decisions are the results of what makes no calls.
type decisions struct {
	Limits    cloudipam.Limits
	Addresses map[string]cloudipam.Address
	Candidate cloudipam.Candidate
	Surplus   []cloudipam.Surplus
	Status    v2.CiliumNodeStatus
}

func (k *checker) decide(s *cloudipam.State, i *cloudipam.Instance) (d decisions) {
	d.Limits, _ = k.p.Limits(k.Node, i)
	d.Addresses = maps.Clone(k.p.Addresses(k.Node, i))
	clear(k.p.Addresses(k.Node, i)) // it is the caller's
	d.Candidate, _ = k.p.FreeInterface(k.Node, i, s.Subnets)
	one := ids(d.Addresses)[:min(1, len(d.Addresses))]
	for _, isUsed := range []func(string) bool{
		func(string) bool { return false }, func(string) bool { return true },
		func(a string) bool { return slices.Contains(one, a) }, func(a string) bool { return !slices.Contains(one, a) },
	} {
		d.Surplus = append(d.Surplus, k.p.Releasable(k.Node, i, isUsed, 2))
	}
	k.p.SetStatus(k.Node, i, &d.Status)
	k.p.SetStatus(k.Node, i, &d.Status) // once more changes nothing
	return d
}

// areUsable checks what the engine builds on.
func (k *checker) areUsable(i *cloudipam.Instance, d decisions) {
	k.Helper()
	if len(d.Addresses) < 3 || d.Limits.Addresses < 3 || d.Limits.Capacity < 3 || d.Limits.Interfaces < 1 {
		k.Errorf("an instance with 3 addresses and room for more has the limits %+v and the addresses %v", d.Limits, ids(d.Addresses))
	}
	has := func(id string) bool {
		return slices.ContainsFunc(i.Interfaces, func(n cloudipam.Interface) bool { return n.ID == id })
	}
	for a, of := range d.Addresses {
		if !has(of.Resource) {
			k.Errorf("address %s is of the interface %q, which the instance does not have", a, of.Resource)
		}
	}
	if !has(d.Candidate.Interface) || d.Candidate.Count < 1 {
		k.Errorf("FreeInterface returns %+v, which is no room on an interface of the instance", d.Candidate)
	}
	if room, ok := k.p.FreeInterface(k.Node, i, exhausted(d.Candidate)); ok {
		k.Errorf("FreeInterface returns %+v, and the subnet has no free addresses", room)
	}
}

// exhausted is the subnet of an interface without free addresses.
func exhausted(c cloudipam.Candidate) map[string]cloudipam.Subnet {
	return map[string]cloudipam.Subnet{c.Subnet: {ID: c.Subnet}}
}

func (k *checker) exact() {
	before := len(k.p.Addresses(k.Node, k.one()))
	if n := len(k.p.Addresses(k.Node, k.assign(3))); n != before+3 {
		k.Errorf("%d addresses after 3 were assigned to %d", n, before)
	}
	s, i := k.read()
	if k.Fixed {
		k.fixed(s, i)
		return
	}
	after, made := k.attach(s, i, 2)
	added := len(k.p.Addresses(k.Node, after)) - len(k.p.Addresses(k.Node, i))
	if added != made.Count || added < 1 || added > 2 {
		k.Errorf("CreateInterface returns %+v for up to 2 addresses, and has added %d", made, added)
	}
	had, err := k.p.Limits(k.Node, i)
	has, afterErr := k.p.Limits(k.Node, after)
	if err != nil || afterErr != nil || has.EmptySlots != had.EmptySlots-1 {
		k.Errorf("%d empty slots, and %d with an interface more; %v, %v", had.EmptySlots, has.EmptySlots, err, afterErr)
	}
}

// attach adds an interface and returns the instance with it.
func (k *checker) attach(s *cloudipam.State, i *cloudipam.Instance, count int) (*cloudipam.Instance, cloudipam.Created) {
	k.Helper()
	made, err := k.p.CreateInterface(k.ctx(), k.Node, i, s.Subnets, count)
	if err != nil {
		k.Fatal(err)
	}
	after := k.one()
	if len(after.Interfaces) != len(i.Interfaces)+1 {
		k.Fatalf("CreateInterface returns %+v: the instance had %d interfaces, and has %d", made, len(i.Interfaces), len(after.Interfaces))
	}
	return after, made
}

// fixed checks that nothing is attached.
func (k *checker) fixed(s *cloudipam.State, i *cloudipam.Instance) {
	changes := k.Changes()
	if l, err := k.p.Limits(k.Node, i); err != nil || l.EmptySlots != 0 {
		k.Errorf("the limits of an instance that keeps its interfaces are %+v, %v", l, err)
	}
	if made, err := k.p.CreateInterface(k.ctx(), k.Node, i, s.Subnets, 2); err == nil || k.Changes() != changes {
		k.Errorf("%+v was attached with %d changes", made, k.Changes()-changes)
	}
}

func (k *checker) whole() {
	s, i := k.read()
	room, _ := k.p.FreeInterface(k.Node, i, s.Subnets)
	changes := k.Changes()
	k.Breaker.breakAll()
	made, created := k.p.CreateInterface(k.ctx(), k.Node, i, s.Subnets, 1)
	for what, err := range map[string]error{
		"Assign": k.p.Assign(k.ctx(), k.Node, i, room, 1), "CreateInterface": created,
		"Unassign": k.p.Unassign(k.ctx(), k.Node, i, cloudipam.Surplus{Interface: room.Interface, Subnet: room.Subnet, Addresses: []string{"192.0.2.1"}}),
	} {
		if err == nil {
			k.Errorf("all calls fail, and %s returns no error", what)
		}
	}
	if _, known := s.Subnets[made.Subnet]; !known && !k.Fixed {
		k.Errorf("CreateInterface fails and returns %+v: want the subnet that was chosen", made)
	}
	k.Breaker.repair()
	k.isAsBefore(i, k.one())
	if k.Changes() != changes {
		k.Errorf("calls that failed have made %d changes", k.Changes()-changes)
	}
}

func (k *checker) isAsBefore(before, after *cloudipam.Instance) {
	k.Helper()
	if len(after.Interfaces) != len(before.Interfaces) || len(k.p.Addresses(k.Node, after)) != len(k.p.Addresses(k.Node, before)) {
		k.Errorf("calls that failed have left %+v of %+v", after.Interfaces, before.Interfaces)
	}
}

func (k *checker) idempotent() {
	i := k.assign(3)
	surplus := k.p.Releasable(k.Node, i, func(string) bool { return false }, 2)
	if k.Fixed {
		if len(surplus.Addresses) > 0 {
			k.Errorf("%+v is proposed where nothing is released", surplus)
		}
		return
	}
	if len(surplus.Addresses) != 2 {
		k.Fatalf("Releasable returns %+v of 3 addresses: want 2", surplus)
	}
	for range 2 {
		if err := k.p.Unassign(k.ctx(), k.Node, i, surplus); err != nil {
			k.Error(err)
		}
	}
	has := k.p.Addresses(k.Node, k.one())
	for _, a := range surplus.Addresses {
		if _, still := has[a]; still {
			k.Errorf("%s is still assigned", a)
		}
	}
	used := k.p.Releasable(k.Node, i, func(string) bool { return true }, 2)
	if len(used.Addresses) != 0 {
		k.Errorf("used addresses are released: %+v", used)
	}
	k.releasesOfMost()
}

// releasesOfMost checks that surplus is of the interface with most, whichever that is.
func (k *checker) releasesOfMost() {
	s, i := k.read()
	first := interfaces(k.p.Addresses(k.Node, i))
	after, made := k.attach(s, i, 3)
	room, ok := k.p.FreeInterface(k.Node, after, s.Subnets)
	if !ok || room.Interface == made.Interface || len(first) != 1 {
		return // addresses are added to the interface that was attached
	}
	if err := k.p.Assign(k.ctx(), k.Node, after, room, min(2, room.Count)); err != nil {
		k.Fatal(err)
	}
	of := interfaces(k.p.Addresses(k.Node, k.one()))
	old, added := of[room.Interface], of[made.Interface]
	if len(old) == 0 || len(added) == 0 {
		k.Fatalf("the addresses by interface are %v: want some of %s and of %s", of, room.Interface, made.Interface)
	}
	for _, test := range []struct {
		unused []string
		want   string
	}{
		{slices.Concat(old[:1], added), made.Interface},
		{slices.Concat(old, added[:1]), room.Interface},
	} {
		surplus := k.p.Releasable(k.Node, k.one(), func(a string) bool { return !slices.Contains(test.unused, a) }, 10)
		if surplus.Interface != test.want {
			k.Errorf("Releasable returns %+v: want addresses of %s, which has most of the unused addresses %v", surplus, test.want, test.unused)
		}
	}
}

// interfaces are addresses by their interface.
func interfaces(addresses map[string]cloudipam.Address) map[string][]string {
	of := map[string][]string{}
	for _, a := range ids(addresses) {
		of[addresses[a].Resource] = append(of[addresses[a].Resource], a)
	}
	return of
}

func (k *checker) guarded() {
	made, passed := k.Breaker.count(), k.guardedCalls()
	s, _ := k.read()
	i := k.assign(3)
	if made, passed = k.Breaker.count()-made, k.guardedCalls()-passed; passed < made {
		k.Errorf("%d calls were made, and %d have passed the door", made, passed)
	}
	changes := k.Changes()
	for name, test := range map[string]struct {
		edit func(*outside.Scope)
		want error
	}{
		"behind the fence": {func(s *outside.Scope) { s.Fence.Close() }, leading.ErrFenced},
		"in a plan":        {func(s *outside.Scope) { s.Plan = dryrun.New(time.Minute) }, outside.ErrPlanned},
	} {
		p := k.New(k.door(test.edit))
		room, _ := p.FreeInterface(k.Node, i, s.Subnets)
		_, created := p.CreateInterface(k.ctx(), k.Node, i, s.Subnets, 1)
		errs := map[string]error{
			"Assign": p.Assign(k.ctx(), k.Node, i, room, 1), "CreateInterface": created,
			"Unassign": p.Unassign(k.ctx(), k.Node, i, p.Releasable(k.Node, i, func(string) bool { return false }, 1)),
		}
		if k.Fixed {
			errs = map[string]error{"Assign": errs["Assign"]} // the others make no call
		}
		for what, err := range errs {
			if !errors.Is(err, test.want) {
				k.Errorf("%s %s: %v, want %v: its call does not pass the door", what, name, err, test.want)
			}
		}
	}
	if k.Changes() != changes {
		k.Errorf("the cloud was changed %d times", k.Changes()-changes)
	}
}

func (k *checker) prompt() {
	s, i := k.read()
	room, _ := k.p.FreeInterface(k.Node, i, s.Subnets)
	ctx, cancel := context.WithCancel(k.ctx())
	cancel()
	_, readErr := k.p.Read(ctx)
	_, instancesErr := k.p.ReadInstances(ctx, []string{i.ID})
	for what, err := range map[string]error{"Read": readErr, "ReadInstances": instancesErr, "Assign": k.p.Assign(ctx, k.Node, i, room, 1)} {
		if !errors.Is(err, context.Canceled) {
			k.Errorf("%s: %v, and its context has ended", what, err)
		}
	}
}

func (k *checker) concurrent() {
	s, i := k.read()
	room, _ := k.p.FreeInterface(k.Node, i, s.Subnets)
	before := len(k.p.Addresses(k.Node, i))
	var all sync.WaitGroup
	var assigned atomic.Int64
	for range 4 {
		all.Go(func() { _, _ = k.p.Read(k.Context()) })
		all.Go(func() {
			if k.p.Assign(k.ctx(), k.Node, i, room, 1) == nil { // a cloud may refuse one of two
				assigned.Add(1)
			}
		})
		all.Go(func() { k.p.SetStatus(k.Node, i, &v2.CiliumNodeStatus{}) })
		all.Go(func() { _ = k.p.Addresses(k.Node, i) })
	}
	all.Wait()
	if n := len(k.p.Addresses(k.Node, k.one())) - before; n == 0 || n != int(assigned.Load()) {
		k.Errorf("%d addresses more after %d calls that succeeded", n, assigned.Load())
	}
}
