// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudtest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// Subject is a provider to check, with a cloud of its own: it has the instance of Node and one more, and the instance of
// Node has one interface with room for eight addresses, and an empty slot.
type Subject struct {
	// New returns a provider of the cloud, whose calls pass the door.
	New func(*outside.Door) cloudipam.Provider
	// Node is the CiliumNode of an instance; Other is the id of the other instance.
	Node  *cloudipam.Node
	Other string
	// Changes is the number of calls so far that have changed the cloud.
	Changes func() int
	// Break has all further calls fail, until it is called with false.
	Break func(broken bool)
	// Fixed is a cloud whose instances keep their interfaces and addresses: its provider attaches and releases nothing, and
	// there is no empty slot.
	Fixed bool
}

// Check tests the promises of a provider, each as a subtest of its name. newSubject is called for each.
func Check(t *testing.T, newSubject func(*testing.T) Subject) {
	t.Helper()
	for name, check := range map[string]func(*checker){
		"Complete": (*checker).complete, "Fresh": (*checker).fresh, "Immutable": (*checker).immutable, "Pure": (*checker).pure,
		"Exact": (*checker).exact, "Whole": (*checker).whole, "Idempotent": (*checker).idempotent, "Guarded": (*checker).guarded,
		"Prompt": (*checker).prompt, "Concurrent": (*checker).concurrent,
	} {
		t.Run(name, func(t *testing.T) {
			k := &checker{T: t, Subject: newSubject(t)}
			k.p = k.New(k.door(func(*outside.Scope) {}))
			check(k)
		})
	}
}

type checker struct {
	*testing.T
	Subject
	p cloudipam.Provider
}

// door is a door of a module in its term.
func (k *checker) door(edit func(*outside.Scope)) *outside.Door {
	fence := leading.Unfenced()
	k.Cleanup(fence.Close)
	s := outside.Scope{
		Module: cell.ModuleInfo{ID: "ipam.checked", Term: "leader"}, Log: slog.New(slog.DiscardHandler),
		Health: health.NewTree().Reporter("ipam.checked"), Fence: fence, Book: explain.NewHistory(),
	}
	edit(&s)
	return outside.New(s, "checked", outside.Limits{QPS: 1e6, Burst: 1e6})
}

// ctx is that of a decision.
func (k *checker) ctx() context.Context {
	return explain.WithCause(k.Context(), &explain.Cause{Rule: "ipam.checked check"})
}

func (k *checker) read() (*cloudipam.State, *cloudipam.Instance) {
	k.Helper()
	s, err := k.p.Read(k.Context())
	if err != nil {
		k.Fatal(err)
	}
	i := s.Instances[k.Node.InstanceID]
	if i == nil {
		k.Fatalf("Read does not have the instance %s", k.Node.InstanceID)
	}
	return s, i
}

// one reads the instance alone.
func (k *checker) one() *cloudipam.Instance {
	k.Helper()
	all, err := k.p.ReadInstances(k.Context(), []string{k.Node.InstanceID})
	if err != nil || all[k.Node.InstanceID] == nil {
		k.Fatalf("%v, %v", all, err)
	}
	return all[k.Node.InstanceID]
}

// assign adds addresses and returns the instance with them.
func (k *checker) assign(count int) *cloudipam.Instance {
	k.Helper()
	s, i := k.read()
	room, ok := k.p.FreeInterface(k.Node, i, s.Subnets)
	if !ok || room.Count < count {
		k.Fatalf("there is no room for %d addresses: %+v", count, room)
	}
	if err := k.p.Assign(k.ctx(), k.Node, i, room, count); err != nil {
		k.Fatal(err)
	}
	return k.one()
}

func (k *checker) complete() {
	s, i := k.read()
	if s.Instances[k.Other] == nil || len(i.Interfaces) == 0 || s.Subnets[i.Interfaces[0].Subnet].ID != i.Interfaces[0].Subnet {
		k.Errorf("%+v", s)
	}
	k.Break(true)
	if s, err := k.p.Read(k.Context()); err == nil {
		k.Errorf("without an error from a cloud that fails: %+v", s)
	}
}

func (k *checker) fresh() {
	before := len(k.p.Addresses(k.Node, k.one()))
	if after := len(k.p.Addresses(k.Node, k.assign(2))); after != before+2 {
		k.Errorf("%d addresses, then %d", before, after)
	}
	all, err := k.p.ReadInstances(k.Context(), []string{k.Node.InstanceID, "i-does-not-exist", k.Other})
	if err != nil || len(all) != 2 || all[k.Other] == nil {
		k.Errorf("%v, %v", all, err)
	}
	k.Break(true)
	if all, err := k.p.ReadInstances(k.Context(), []string{k.Node.InstanceID}); err == nil {
		k.Errorf("without an error from a cloud that fails: %v", all)
	}
}

func (k *checker) immutable() {
	_, before := k.read()
	addresses := k.p.Addresses(k.Node, before)
	k.assign(2)
	if diff := cmp.Diff(addresses, k.p.Addresses(k.Node, before)); diff != "" {
		k.Error(diff)
	}
}

func (k *checker) pure() {
	s, _ := k.read()
	i := k.assign(3)
	changes := k.Changes()
	k.Break(true)
	type results struct {
		Limits    cloudipam.Limits
		Addresses map[string]cloudipam.Address
		Candidate cloudipam.Candidate
		Surplus   cloudipam.Surplus
		Status    v2.CiliumNodeStatus
	}
	get := func() (r results) {
		r.Limits, _ = k.p.Limits(k.Node, i)
		r.Addresses = k.p.Addresses(k.Node, i)
		clear(k.p.Addresses(k.Node, i)) // it is the caller's
		r.Candidate, _ = k.p.FreeInterface(k.Node, i, s.Subnets)
		r.Surplus = k.p.Releasable(k.Node, i, func(string) bool { return false }, 2)
		k.p.SetStatus(k.Node, i, &r.Status)
		k.p.SetStatus(k.Node, i, &r.Status) // once more changes nothing
		return r
	}
	first := get()
	if diff := cmp.Diff(first, get()); diff != "" {
		k.Error(diff)
	}
	if k.Changes() != changes || len(first.Addresses) < 3 || first.Limits.Addresses < 3 {
		k.Errorf("%d changes, %+v", k.Changes()-changes, first)
	}
	var empty v2.CiliumNodeStatus
	if k.p.SetStatus(k.Node, nil, &empty); cmp.Diff(empty, v2.CiliumNodeStatus{}) != "" {
		k.Errorf("the status without an instance is %+v", empty)
	}
}

func (k *checker) exact() {
	before := len(k.p.Addresses(k.Node, k.one()))
	i := k.assign(3)
	if n := len(k.p.Addresses(k.Node, i)); n != before+3 {
		k.Errorf("%d addresses after 3 were added to %d", n, before)
	}
	s, i := k.read()
	if k.Fixed {
		k.fixed(s, i)
		return
	}
	before = len(k.p.Addresses(k.Node, i))
	made, err := k.p.CreateInterface(k.ctx(), k.Node, i, s.Subnets, 2)
	if err != nil {
		k.Fatal(err)
	}
	after := k.one()
	if n := len(k.p.Addresses(k.Node, after)) - before; n != made.Count || n < 1 || n > 2 || len(after.Interfaces) != len(i.Interfaces)+1 {
		k.Errorf("%d addresses and %d interfaces more: %+v", n, len(after.Interfaces)-len(i.Interfaces), made)
	}
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
	k.Break(true)
	_, created := k.p.CreateInterface(k.ctx(), k.Node, i, s.Subnets, 1)
	for what, err := range map[string]error{
		"Assign": k.p.Assign(k.ctx(), k.Node, i, room, 1), "CreateInterface": created,
		"Unassign": k.p.Unassign(k.ctx(), k.Node, i, cloudipam.Surplus{Interface: room.Interface, Subnet: room.Subnet, Addresses: []string{"192.0.2.1"}}),
	} {
		if err == nil {
			k.Errorf("%s succeeds at a cloud that fails", what)
		}
	}
	k.Break(false)
	after := k.one()
	if len(after.Interfaces) != len(i.Interfaces) || len(k.p.Addresses(k.Node, after)) != len(k.p.Addresses(k.Node, i)) || k.Changes() != changes {
		k.Errorf("%d changes, %+v", k.Changes()-changes, after)
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
		k.Fatalf("%+v", surplus)
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
}

func (k *checker) guarded() {
	s, _ := k.read()
	i := k.assign(3)
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
	if n := len(k.p.Addresses(k.Node, k.one())); n == 0 || n != int(assigned.Load()) {
		k.Errorf("%d addresses after %d calls that succeeded", n, assigned.Load())
	}
}
