// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ecstest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// Cloud is a region of an account. It is safe for concurrent use; the fields are set before its first request.
type Cloud struct {
	Region, Zone string
	// KeyID is the key that is accepted; "" is for any.
	KeyID func() string
	// PageSize is how many items a page has at most; 0 is for the bounds of the APIs.
	PageSize int
	// Settle is for how many requests an interface is being attached.
	Settle int
	// Stale is for how many requests descriptions of interfaces may show what was before a change.
	Stale int
	// MaxInterfaces is the quota of the region; 0 is for any number.
	MaxInterfaces int
	// Hardened has the metadata service want a token.
	Hardened bool
	// Fault is called for every request with its operation and its parameters, with the lock of the cloud: it must not use the cloud.
	Fault func(operation string, parameters map[string]string) Fault

	mu        sync.Mutex
	requests  int
	number    int
	vpcs      map[string]*vpc
	vSwitches map[string]*vSwitch
	groups    map[string]*group
	instances map[string]*instance
	types     map[string]Type
	enis      map[string]*eni // replaced, never changed
	history   []snapshot
	tokens    map[string]done // by client token
	nonces    map[string]bool
	calls     map[string]int
	changes   int
	away      bool
}

// VPC is the id of the VPC that a cloud has from the start.
const VPC = "vpc-1"

// Group is the id of the security group that it has.
const Group = "sg-1"

// Type is an instance type.
type Type struct {
	Adapters, IPv4 int
}

// Fault is what goes wrong in a request.
type Fault struct {
	// Status and Code are those of a refusal; 0 for none.
	Status int
	Code   string
	// Message is that of a refusal, by default one that says nothing else.
	Message string
	// RetryAfter is the header of a refusal, in seconds; TimeLeft is that of the rate limit of users, in milliseconds.
	RetryAfter, TimeLeft int
	// Lose has the request be carried out, and the connection be closed without an answer.
	Lose bool
	// Partial has one of several addresses be assigned, and the request fail.
	Partial bool
	// Stuck has an attachment never end.
	Stuck bool
	// Garbage has the answer be no JSON.
	Garbage bool
}

// refusal is an error of the APIs.
type refusal struct {
	status        int
	code, message string
}

type vpc struct {
	id, cidr, ipv6 string
	others         []string
}

type vSwitch struct {
	id, vpc, zone string
	cidr          netip.Prefix
	tags          map[string]string
	taken         map[netip.Addr]bool
	next          netip.Addr
	released      []netip.Addr
	reserved      int // addresses that are not given
}

type group struct {
	id, vpc string
	tags    map[string]string
}

type instance struct {
	id, kind, vSwitch, state string
	tags                     map[string]string
}

type eni struct {
	id, vSwitch, kind, mac, description string
	groups                              []string
	tags                                map[string]string
	primary                             string
	secondary                           []string
	status, instance                    string
	attachedAt                          int // the request from which on it is attached
	garbage                             []string
}

// snapshot is what was so until a request.
type snapshot struct {
	until int
	enis  map[string]*eni
}

// done is a request that was carried out.
type done struct{ parameters, id string }

// States of interfaces.
const (
	available = "Available"
	attaching = "Attaching"
	inUse     = "InUse"
)

// New returns a region with a VPC, its security group and no vSwitch.
func New() *Cloud {
	c := &Cloud{
		Region: "cn-test", Zone: "cn-test-a", vpcs: map[string]*vpc{}, vSwitches: map[string]*vSwitch{}, groups: map[string]*group{},
		instances: map[string]*instance{}, enis: map[string]*eni{}, tokens: map[string]done{}, nonces: map[string]bool{}, calls: map[string]int{},
		types: map[string]Type{"ecs.small": {2, 10}, "ecs.medium": {3, 6}, "ecs.large": {4, 20}, "ecs.alone": {1, 5}, "ecs.none": {0, 0}},
	}
	c.vpcs[VPC] = &vpc{id: VPC, cidr: "10.0.0.0/8", ipv6: "2001:db8::/56", others: []string{"172.16.0.0/16"}}
	c.AddGroup(Group, VPC, nil)
	return c
}

// AddVPC adds a VPC.
func (c *Cloud) AddVPC(id, cidr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vpcs[id] = &vpc{id: id, cidr: cidr}
}

// AddVSwitch adds a vSwitch. Alibaba Cloud has the first address and the last three.
func (c *Cloud) AddVSwitch(id, vpc, zone, cidr string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := netip.MustParsePrefix(cidr).Masked()
	c.vSwitches[id] = &vSwitch{id: id, vpc: vpc, zone: zone, cidr: p, tags: tags, taken: map[netip.Addr]bool{}, next: p.Addr(), reserved: 4}
}

// RemoveVSwitch removes a vSwitch, with whatever is in it.
func (c *Cloud) RemoveVSwitch(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.vSwitches, id)
}

// Fill has all addresses of a vSwitch be taken, but for some.
func (c *Cloud) Fill(id string, free int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.vSwitches[id]
	s.reserved += s.free() - free
}

func (s *vSwitch) free() int { return max(0, 1<<(32-s.cidr.Bits())-s.reserved-len(s.taken)) }

// take returns an address: the one that was released last.
func (s *vSwitch) take() string {
	a := s.next
	if n := len(s.released); n > 0 {
		a, s.released = s.released[n-1], s.released[:n-1]
	} else {
		a = a.Next()
		s.next = a
	}
	s.taken[a] = true
	return a.String()
}

func (s *vSwitch) release(addresses ...string) {
	for _, text := range addresses {
		a := netip.MustParseAddr(text)
		delete(s.taken, a)
		s.released = append(s.released, a)
	}
}

// AddGroup adds a security group.
func (c *Cloud) AddGroup(id, vpc string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups[id] = &group{id, vpc, tags}
}

// Run starts an instance, with its primary interface.
func (c *Cloud) Run(id, kind, vSwitch string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[id] = &instance{id: id, kind: kind, vSwitch: vSwitch, state: "Running", tags: tags}
	e := c.newENI(c.vSwitches[vSwitch], []string{Group}, 0)
	e.kind, e.status, e.instance = "Primary", inUse, id
	c.put(e)
}

// SetState changes the state of an instance: Running, Stopped, Starting.
func (c *Cloud) SetState(id, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[id].state = state
}

// Terminate removes an instance with its interfaces.
func (c *Cloud) Terminate(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.instances, id)
	for _, e := range maps.Clone(c.enis) {
		if e.instance == id {
			c.drop(e)
		}
	}
}

// Tag sets the tags of an interface.
func (c *Cloud) Tag(id string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := *c.enis[id]
	e.tags = tags
	c.put(&e)
}

// Garble has an interface be described with further addresses, which may be none.
func (c *Cloud) Garble(id string, addresses ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := *c.enis[id]
	e.garbage = addresses
	c.put(&e)
}

// SetMetadata has the metadata service be away, or be there again.
func (c *Cloud) SetMetadata(serves bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = !serves
}

// newENI returns an interface that is not stored yet.
func (c *Cloud) newENI(in *vSwitch, groups []string, secondary int) *eni {
	c.number++
	e := &eni{
		id: fmt.Sprintf("eni-%04d", c.number), vSwitch: in.id, kind: "Secondary", groups: groups, status: available,
		mac: fmt.Sprintf("00:16:3e:00:%02x:%02x", c.number>>8&255, c.number&255), primary: in.take(),
	}
	for range secondary {
		e.secondary = append(e.secondary, in.take())
	}
	return e
}

// put replaces an interface.
func (c *Cloud) put(e *eni) {
	c.remember()
	c.enis[e.id] = e
}

// drop deletes an interface.
func (c *Cloud) drop(e *eni) {
	c.remember()
	delete(c.enis, e.id)
	if s := c.vSwitches[e.vSwitch]; s != nil {
		s.release(append(slices.Clone(e.secondary), e.primary)...)
	}
}

// SetStale sets Stale of a cloud that has had requests.
func (c *Cloud) SetStale(requests int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Stale = requests
}

// remember keeps what was so before a change, for as long as descriptions may show it.
func (c *Cloud) remember() {
	if c.Stale == 0 {
		return
	}
	c.history = slices.DeleteFunc(c.history, func(s snapshot) bool { return s.until < c.requests-c.Stale })
	c.history = append(c.history, snapshot{c.requests, maps.Clone(c.enis)})
}

// shown are the interfaces as a description shows them.
func (c *Cloud) shown() map[string]*eni {
	for _, s := range c.history {
		if s.until > c.requests-c.Stale {
			return s.enis
		}
	}
	return c.enis
}

// Interface is an interface for tests.
type Interface struct {
	ID, VSwitch, Type, Status, Instance, Primary string
	Groups, Secondary                            []string
	Tags                                         map[string]string
}

// Interfaces are all interfaces, by id.
func (c *Cloud) Interfaces() (list []Interface) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.enis)) {
		e := c.enis[id]
		list = append(list, Interface{e.id, e.vSwitch, e.kind, c.statusOf(e), e.instance, e.primary, e.groups, slices.Clone(e.secondary), e.tags})
	}
	return list
}

// Owners are the instances of all addresses but those of primary interfaces, "" for interfaces that are not attached.
func (c *Cloud) Owners() map[string]string {
	owners := map[string]string{}
	for _, i := range c.Interfaces() {
		if i.Type == "Primary" {
			continue
		}
		for _, a := range append(i.Secondary, i.Primary) {
			owners[a] = i.Instance
		}
	}
	return owners
}

// Calls are the numbers of requests by operation, without those that a fault refused.
func (c *Cloud) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

// Changes is the number of requests that changed something.
func (c *Cloud) Changes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

// SetFault sets Fault after the first request.
func (c *Cloud) SetFault(f func(operation string, parameters map[string]string) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Fault = f
}

// Show has descriptions show what is so, until the next change.
func (c *Cloud) Show() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = nil
}
