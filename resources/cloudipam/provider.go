// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"net/netip"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// region provider

// Provider is a cloud. What it promises, [cloudtest.Check] tests by these names:
//
//   - Complete: Read returns every instance and subnet, of all pages, or an error. An error of any page is an error of Read.
//   - Fresh: ReadInstances asks the cloud, and returns those of the instances that exist. An instance that is left out
//     does not exist.
//   - Lasting: what the provider has added is in its later reads, also while the lists of the cloud do not show it yet: [Recent] is
//     for that.
//   - Immutable: what a read has returned is not changed later.
//   - Pure: Limits, Addresses, FreeInterface, Releasable and SetStatus make no call, depend on their arguments only, change
//     none but the status, and return the same for the same.
//   - Exact: Assign and CreateInterface add at least one address and at most count, on one interface, or return an error.
//     Where a cloud has prefixes, count is rounded up to whole ones.
//   - Whole: a call that returns an error has changed nothing, or what it has changed is in the next read. An interface
//     that could not be attached is deleted. CreateInterface says in which subnet it was to be, also with an error.
//   - Idempotent: Unassign of an address or prefix that the interface does not have is no error.
//   - Guarded: every call passes the door. Nothing is changed behind a shut fence, outside the term, or in a plan, where
//     the error is outside.ErrPlanned.
//   - Prompt: calls end when their context ends.
//   - Concurrent: all methods are safe for concurrent use. The engine reads with one worker, and changes one node at a time
//     with each of the others.
type Provider interface {
	// Read returns the state of the cloud.
	Read(ctx context.Context) (*State, error)
	// ReadInstances returns the state of single instances, by id. It is called with many ids at once.
	ReadInstances(ctx context.Context, ids []string) (map[string]*Instance, error)
	// Limits returns how many addresses the instance of a node can have.
	Limits(n *Node, i *Instance) (Limits, error)
	// Addresses returns the addresses of an instance that the node's pods can use.
	Addresses(n *Node, i *Instance) map[string]Address
	// FreeInterface returns an interface of the instance to which addresses can be added, false if there is none.
	FreeInterface(n *Node, i *Instance, subnets map[string]Subnet) (Candidate, bool)
	// Assign adds count addresses to the interface that FreeInterface has returned. count is at most its room.
	Assign(ctx context.Context, n *Node, i *Instance, to Candidate, count int) error
	// CreateInterface attaches a new interface with up to count addresses for pods. It is called if Limits shows an empty
	// slot. The result says in which subnet, also with an error, and how many addresses it has.
	CreateInterface(ctx context.Context, n *Node, i *Instance, subnets map[string]Subnet, count int) (Created, error)
	// Releasable returns up to count addresses of one interface, the one with most, that can be released and are not used. A
	// prefix is released as a whole: all of its addresses count.
	Releasable(n *Node, i *Instance, isUsed func(address string) bool, count int) Surplus
	// Unassign removes addresses, or prefixes, from an interface. It is not known to the agent that uses none of them any more.
	Unassign(ctx context.Context, n *Node, i *Instance, from Surplus) error
	// SetStatus sets the provider's part of the status of a CiliumNode. i is nil if the instance is not known. Lists are
	// in a fixed order. The engine takes off what pods cannot have, as it does of Addresses.
	SetStatus(n *Node, i *Instance, status *v2.CiliumNodeStatus)
}

// endregion

// Explainer is a [Provider] that knows why FreeInterface has found nothing. ExhaustedError returns it, nil if the instance is at its
// limits. It is called for instances without an empty slot, and is Pure.
type Explainer interface {
	ExhaustedError(n *Node, i *Instance, subnets map[string]Subnet) error
}

// StaticAddresser is a [Provider] whose instances can have a public address of their own: spec.ipam.static-ip-tags of a CiliumNode asks
// for one that has all of these tags. The address goes to status.ipam.assigned-static-ip, and is never taken away.
type StaticAddresser interface {
	// StaticIP returns the public address that the instance was read with, "" if it has none, or if reads do not show it. It is
	// Pure.
	StaticIP(n *Node, i *Instance) string
	// AssignStaticIP gives the instance a public address that has the tags and is free, and returns it. If the instance has
	// one already, that is returned. An error has changed nothing, or the next call takes over what it has changed. It is Guarded
	// and Prompt.
	AssignStaticIP(ctx context.Context, n *Node, i *Instance) (address string, err error)
}

// Node is a CiliumNode for a provider, which does not change it.
type Node struct {
	Name       string
	InstanceID string // as it is in spec.instance-id, never empty
	Spec       *v2.CiliumNodeSpec
	Status     *v2.CiliumNodeStatus
	// IPv6 is whether the agent asks for addresses of IPv6, and can use a prefix of these: see [IPv6Prefixer].
	IPv6 bool
}

// State is what a cloud has.
type State struct {
	Instances map[string]*Instance // by id, as it is in CiliumNodes
	Subnets   map[string]Subnet    // by id
}

// Instance is a machine and its interfaces. It is immutable.
type Instance struct {
	ID         string      // as it is in spec.instance-id of CiliumNodes, letter by letter
	Interfaces []Interface // in the order in which they are used
	Detail     any         // what else the provider reads of it
}

// Interface is a network interface.
type Interface struct {
	ID        string
	Subnet    string
	Addresses []string // for pods
	// Own are addresses that it has besides, such as its primary one. Pods of this instance and of others get none of them.
	Own []string
	// IPv6Prefixes are those for pods.
	IPv6Prefixes []string
	// Ranges are those of its subnet, or of several where its addresses are of several; none if one of them is not known. Pods get no
	// addresses that are outside.
	Ranges []netip.Prefix
	// Network is the id of that within which no address is twice; "" for all of the cloud.
	Network string
	Detail  any // what else the provider reads of it
}

// Subnet is what addresses are taken from.
type Subnet struct {
	ID   string
	Zone string // "" where the cloud has none
	Free int    // addresses; the engine subtracts what it has assigned since the last read
	// Detail is what else the provider reads of it.
	Detail any
}

// Limits bound the addresses of a node.
type Limits struct {
	Addresses   int // at most, 0 for any number
	Capacity    int // for the metric available_ips
	PreAllocate int // for CiliumNodes without pre-allocate
	EmptySlots  int // interfaces that can be attached
	Interfaces  int // that are attached and have room
}

// Address is an address for pods.
type Address struct {
	Resource string // the interface
	Prefix   string // the CIDR that it is part of, "" for a single address
}

// Candidate is an interface with room.
type Candidate struct {
	Interface string
	Subnet    string
	Count     int // of addresses, at least 1
}

// Created is an interface that CreateInterface has attached.
type Created struct {
	Interface string
	Subnet    string
	Count     int
}

// Surplus are addresses of one interface.
type Surplus struct {
	Interface string
	Subnet    string
	Addresses []string // single ones
	Prefixes  []string // with all of their addresses. Unassign gets these or single addresses, not both
}

// NodeError is an error that users see in the status of the CiliumNode, since they can remedy it. Text is the same for the
// same reason: without times, and without ids of requests.
type NodeError struct {
	Status string // label of metrics, such as unableToFindSubnet; "" for failed
	Text   string // "" if users cannot remedy it
	Err    error  // more about it, for the log; nil for nothing
	// Pause is for how long nothing is changed for the node, unless the spec of its CiliumNode changes; 0 for the back-off of
	// failures.
	Pause time.Duration
}

func (e *NodeError) Error() string {
	switch {
	case e.Err == nil:
		return e.Text
	case e.Text == "":
		return e.Err.Error()
	}
	return e.Text + ": " + e.Err.Error()
}

func (e *NodeError) Unwrap() error { return e.Err }
