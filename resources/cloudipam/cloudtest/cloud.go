// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/outside"
)

// Cloud is a cloud in memory. It is safe for concurrent use. The fields are set before its first call.
type Cloud struct {
	// Interfaces and PerInterface are the quotas of every instance: by default 3 interfaces of 9 addresses.
	Interfaces, PerInterface int
	// PrefixBits has interfaces get prefixes of this length, and no single addresses; 0 for single addresses.
	PrefixBits int
	// Public are public addresses that no instance has yet, by the tags that they have.
	Public map[string]map[string]string
	// Fault is called for every call with the name of its operation, with the lock of the cloud: it must not use the cloud.
	// nil is for no faults.
	Fault func(operation string) Fault
	// Latency is how long a call takes.
	Latency time.Duration

	mu        sync.Mutex
	instances map[string]*machine
	subnets   map[string]*subnet
	free      map[string][]netip.Addr // by subnet, the one released last at the end
	calls     map[string]int          // by operation
	number    int                     // of the last interface
	frozen    map[string]machineView  // what reads show, nil for what is so
}

// Fault is what goes wrong in a call.
type Fault struct {
	// Refuse is the error of a call that is not made.
	Refuse error
	// Lose is the error of a call that is made.
	Lose error
	// Partial has a change of several addresses be made for the first of them only; with Lose.
	Partial bool
}

type machine struct {
	interfaces []*nic
	detail
}

// detail is what an instance has beside its interfaces.
type detail struct {
	public string
	prefix bool // of IPv6
}

type nic struct {
	id, subnet string
	addresses  []string
}

type subnet struct {
	cidr netip.Prefix
	next netip.Addr
}

// Operations of the cloud. The first two read.
const (
	OpList     = "ListInstances"
	OpGet      = "GetInstances"
	OpAssign   = "AssignAddresses"
	OpUnassign = "UnassignAddresses"
	OpAttach   = "AttachInterface"
	OpPublish  = "AssociatePublicAddress"
	OpPrefix   = "AssignIPv6Prefix"
)

// NewCloud returns a cloud with one subnet.
func NewCloud(cidr string) *Cloud {
	p := netip.MustParsePrefix(cidr)
	return &Cloud{
		Interfaces: 3, PerInterface: 9, instances: map[string]*machine{}, calls: map[string]int{},
		subnets: map[string]*subnet{"subnet-1": {p, p.Addr().Next()}}, free: map[string][]netip.Addr{},
	}
}

// ErrQuota is the error of a change that a quota forbids. It is not returned for one that a fault refuses.
var ErrQuota = errors.New("quota exceeded")

// Run adds an instance, with one interface and no addresses for pods.
func (c *Cloud) Run(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[id] = &machine{interfaces: []*nic{c.newNIC()}}
}

// Terminate removes an instance with its interfaces.
func (c *Cloud) Terminate(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.instances[id]; m != nil {
		for _, n := range m.interfaces {
			c.release(n, n.addresses)
		}
	}
	delete(c.instances, id)
}

func (c *Cloud) newNIC() *nic {
	c.number++
	return &nic{id: fmt.Sprintf("nic-%d", c.number), subnet: "subnet-1"}
}

// Owners are the instances of all addresses.
func (c *Cloud) Owners() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	owners := map[string]string{}
	for id, m := range c.instances {
		for _, n := range m.interfaces {
			for _, a := range n.addresses {
				if other := owners[a]; other != "" {
					owners[a] = other + " and " + id
					continue
				}
				owners[a] = id
			}
		}
	}
	return owners
}

// Calls are the numbers of calls by operation, without those that a fault refused.
func (c *Cloud) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

// Changes is the number of calls that change something.
func (c *Cloud) Changes() int {
	calls := c.Calls()
	return calls[OpAssign] + calls[OpUnassign] + calls[OpAttach] + calls[OpPublish] + calls[OpPrefix]
}

// call runs f as a call of an operation.
func (c *Cloud) call(ctx context.Context, operation string, f func(Fault) error) error {
	if c.Latency > 0 {
		select {
		case <-time.After(c.Latency):
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var fault Fault
	if c.Fault != nil {
		fault = c.Fault(operation)
	}
	if fault.Refuse != nil {
		return fault.Refuse
	}
	c.calls[operation]++
	return errors.Join(f(fault), fault.Lose)
}

// Throttled is the error of a call that a cloud refuses for a time.
func Throttled(d time.Duration) error {
	return outside.Throttled(errors.New("429 too many requests"), d)
}

// machineView is an instance as a client reads it.
type machineView struct {
	id         string
	interfaces []nic
	detail
}

// Freeze has reads show none of the changes that are made from now on.
func (c *Cloud) Freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	frozen := map[string]machineView{}
	for id := range c.instances {
		frozen[id] = c.view(id)
	}
	c.frozen = frozen
}

func (c *Cloud) view(id string) machineView {
	if of, is := c.frozen[id]; is {
		return of
	}
	v := machineView{id: id, detail: c.instances[id].detail}
	for _, n := range c.instances[id].interfaces {
		copied := *n
		copied.addresses = slices.Clone(n.addresses)
		v.interfaces = append(v.interfaces, copied)
	}
	return v
}

// get returns instances, all of them for no ids, and the free addresses of the subnets.
func (c *Cloud) get(ctx context.Context, operation string, ids []string) (list []machineView, free map[string]int, err error) {
	err = c.call(ctx, operation, func(Fault) error {
		if ids == nil {
			ids = slices.Sorted(maps.Keys(c.instances))
		}
		for _, id := range ids {
			if c.instances[id] != nil {
				list = append(list, c.view(id))
			}
		}
		free = map[string]int{}
		for id := range c.subnets {
			free[id] = c.freeIn(id)
		}
		return nil
	})
	return list, free, err
}

func (c *Cloud) freeIn(id string) int {
	s := c.subnets[id]
	n := len(c.free[id])
	for a := s.next; s.cidr.Contains(a.Next()) && n < 1<<16; a = a.Next() {
		n++
	}
	return n
}

func (c *Cloud) find(instance, nicID string) (*nic, error) {
	if m := c.instances[instance]; m != nil {
		for _, n := range m.interfaces {
			if n.id == nicID {
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("instance %s has no interface %s", instance, nicID)
}

func (c *Cloud) assign(ctx context.Context, instance, nicID string, count int) error {
	return c.call(ctx, OpAssign, func(f Fault) error {
		n, err := c.find(instance, nicID)
		if err != nil {
			return err
		}
		return c.add(n, count, f)
	})
}

// blocks is how many addresses are given out together.
func (c *Cloud) block() int {
	if c.PrefixBits == 0 {
		return 1
	}
	return 1 << (32 - c.PrefixBits)
}

// prefixOf is the prefix of an address, "" for a single one.
func (c *Cloud) prefixOf(address string) string {
	if c.PrefixBits == 0 {
		return ""
	}
	return netip.PrefixFrom(netip.MustParseAddr(address), c.PrefixBits).Masked().String()
}

func (c *Cloud) add(n *nic, count int, f Fault) error {
	count = (count + c.block() - 1) / c.block() * c.block()
	if len(n.addresses)+count > c.PerInterface || c.freeIn(n.subnet) < count {
		return ErrQuota
	}
	if f.Partial {
		count = c.block()
	}
	for range count / c.block() {
		n.addresses = append(n.addresses, c.take(n.subnet)...)
	}
	return nil
}

// take returns a free address, or those of a free prefix: what was released last.
func (c *Cloud) take(id string) (block []string) {
	size := c.block()
	if free := c.free[id]; len(free) > 0 {
		c.free[id] = free[:len(free)-size]
		for _, a := range free[len(free)-size:] {
			block = append(block, a.String())
		}
		return block
	}
	s := c.subnets[id]
	if size > 1 { // prefixes begin where their length wants it
		for netip.PrefixFrom(s.next, c.PrefixBits).Masked().Addr() != s.next {
			s.next = s.next.Next()
		}
	}
	for range size {
		block = append(block, s.next.String())
		s.next = s.next.Next()
	}
	return block
}

// errNotWhole is the error of a request to take single addresses off a prefix.
var errNotWhole = errors.New("the address is part of a prefix")

func (c *Cloud) unassign(ctx context.Context, instance, nicID string, addresses, prefixes []string) error {
	return c.call(ctx, OpUnassign, func(f Fault) error {
		n, err := c.find(instance, nicID)
		if err != nil {
			return err
		}
		if c.PrefixBits > 0 && len(addresses) > 0 {
			return errNotWhole
		}
		if f.Partial {
			addresses, prefixes = addresses[:min(1, len(addresses))], prefixes[:min(1, len(prefixes))]
		}
		c.release(n, addresses)
		for _, prefix := range prefixes {
			c.release(n, slices.DeleteFunc(slices.Clone(n.addresses), func(a string) bool { return c.prefixOf(a) != prefix }))
		}
		return nil
	})
}

// publish associates a free public address that has all of the tags.
func (c *Cloud) publish(ctx context.Context, instance string, tags map[string]string) (address string, err error) {
	err = c.call(ctx, OpPublish, func(Fault) error {
		m := c.instances[instance]
		if m == nil {
			return fmt.Errorf("instance %s does not exist", instance)
		}
		for _, free := range slices.Sorted(maps.Keys(c.Public)) {
			if m.public == "" && hasAll(c.Public[free], tags) {
				m.public = free
				delete(c.Public, free)
			}
		}
		if address = m.public; address == "" {
			return fmt.Errorf("no free public address has the tags %v", tags)
		}
		return nil
	})
	return address, err
}

// assignPrefix gives an instance a prefix of IPv6.
func (c *Cloud) assignPrefix(ctx context.Context, instance string) error {
	return c.call(ctx, OpPrefix, func(Fault) error {
		m := c.instances[instance]
		if m == nil {
			return fmt.Errorf("instance %s does not exist", instance)
		}
		if m.prefix {
			return fmt.Errorf("instance %s: %w", instance, ErrQuota)
		}
		m.prefix = true
		return nil
	})
}

func hasAll(tags, wanted map[string]string) bool {
	for key, value := range wanted {
		if tags[key] != value {
			return false
		}
	}
	return true
}

func (c *Cloud) release(n *nic, addresses []string) {
	for _, a := range slices.Clone(addresses) {
		if i := slices.Index(n.addresses, a); i >= 0 {
			n.addresses = slices.Delete(n.addresses, i, i+1)
			c.free[n.subnet] = append(c.free[n.subnet], netip.MustParseAddr(a))
		}
	}
}

func (c *Cloud) attach(ctx context.Context, instance string, count int, prefix bool) (id string, err error) {
	err = c.call(ctx, OpAttach, func(f Fault) error {
		m := c.instances[instance]
		if m == nil || len(m.interfaces) >= c.Interfaces {
			return ErrQuota
		}
		n := c.newNIC()
		if err := c.add(n, count, f); err != nil {
			return err
		}
		m.interfaces = append(m.interfaces, n)
		m.prefix = m.prefix || prefix
		id = n.id
		return nil
	})
	return id, err
}
