// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package armtest

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Names of the cluster's part of Azure.
const (
	Subscription = "S1"
	Group        = "RG"
	scope        = "/subscriptions/" + Subscription + "/resourceGroups/" + Group + "/providers"
	// SubnetID is the subnet that machines are made in.
	SubnetID = scope + "/Microsoft.Network/virtualNetworks/vnet/subnets/pods"
	// GroupID is the security group of interfaces.
	GroupID = scope + "/Microsoft.Network/networkSecurityGroups/nsg"
)

// perInterface is how many ipConfigurations an interface can have.
const perInterface = 256

// Cloud is Azure. It is safe for concurrent use. The fields are set before its first call.
type Cloud struct {
	// PageSize is how many items a page of a list has.
	PageSize int
	// Settle is after how many further requests a change is made; until then the machine is updating.
	Settle int
	// Stale is for how many further requests lists show what was before a change.
	Stale int
	// Latency is how long a page of a list takes.
	Latency time.Duration
	// Gallery has models of machines refer to an image that the operator may not read.
	Gallery bool
	// Forbidden is called as Fault is, with the path of the request, too: true refuses it for want of a permission.
	Forbidden func(operation, path string) bool
	// Fault is called for every request with its operation, with the lock of the cloud: it must not use the cloud.
	Fault func(operation string) Fault

	mu       sync.Mutex
	requests int
	subnets  map[string]*subnet  // by id in lower case
	machines map[string]*machine // by id in lower case
	sets     []string            // scale sets, by name
	capacity map[string]int64    // by scale set, where it has more than machines
	prefixes map[string]*prefix  // public ones, by id in lower case
	publics  map[string]*public  // public addresses of their own, by id in lower case
	running  map[string]*operation
	calls    map[string]int
	adds     map[string]int // calls that changed a machine, by its id in lower case
	number   int
	removed  int // ipConfigurations that a change left out
	noTokens bool
	away     bool // instance metadata
	request  request
}

// Fault is what goes wrong in a request.
type Fault struct {
	// Status is that of a refusal, Code its error code.
	Status int
	Code   string
	// RetryAfter is the header of a refusal, in seconds.
	RetryAfter int
	// Lose has the connection be cut after the request was carried out.
	Lose bool
	// Fail has a change fail half way: a part of what was asked for is there, and has failed.
	Fail bool
}

// request is what the fake servers do not pass on.
type request struct {
	operation string
	ifMatch   string
	url       url.URL
	skip      int
	fail      bool
	notFound  bool // the answer of a list, for which the fake servers have no error
}

type subnet struct {
	id   string
	cidr netip.Prefix
	next netip.Addr
	free []netip.Addr
	used int
}

type machine struct {
	id       string
	scaleSet string // "" for a stand-alone one
	name     string
	nics     []*nic
	tag      int
	busy     int  // running operations
	failed   bool // the last operation
}

type nic struct {
	id, name, mac string
	configs       []*config
	shown         []config // by lists, until request number shownUntil
	shownUntil    int
}

type config struct {
	name, address, subnet, state string
	groups                       []string
	primary                      bool
	public                       *public
}

type operation struct {
	due    int
	finish func()
	done   bool
	failed string // code
}

// NewCloud returns Azure with one subnet.
func NewCloud(cidr string) *Cloud {
	c := &Cloud{
		PageSize: 100, Settle: 1, subnets: map[string]*subnet{}, machines: map[string]*machine{}, running: map[string]*operation{},
		calls: map[string]int{}, adds: map[string]int{}, capacity: map[string]int64{}, prefixes: map[string]*prefix{}, publics: map[string]*public{},
	}
	c.AddSubnet(SubnetID, cidr)
	return c
}

// AddSubnet adds a subnet by its id.
func (c *Cloud) AddSubnet(id, cidr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := netip.MustParsePrefix(cidr)
	first := p.Addr()
	for range 4 { // the network, the gateway, and what Azure keeps
		first = first.Next()
	}
	c.subnets[strings.ToLower(id)] = &subnet{id: id, cidr: p, next: first}
}

// RemoveSubnet removes a subnet from lists.
func (c *Cloud) RemoveSubnet(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subnets, strings.ToLower(id))
}

// AddScaleSet adds a scale set without machines, which says that it has a number of them.
func (c *Cloud) AddScaleSet(name string, capacity int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.capacity[name] = capacity
	if !slices.Contains(c.sets, name) {
		c.sets = append(c.sets, name)
	}
}

// Machine is a new machine.
type Machine struct {
	// ScaleSet is "" for a stand-alone machine.
	ScaleSet, Name string
	// NICs are names of interfaces, by default one that is called as the scale set is, or as the machine.
	NICs []string
	// Secondary is how many addresses the first interface has beside the primary one.
	Secondary int
	// ApplicationGroups are those of the first ipConfiguration.
	ApplicationGroups []string
	// Subnet is SubnetID by default.
	Subnet string
	// PublicPrefix is the id of the prefix that the primary ipConfiguration has a public address of, called PublicName. It has failed if
	// the prefix is full.
	PublicPrefix, PublicName string
}

// Run adds a machine and returns its id as a CiliumNode has it, in lower case.
func (c *Cloud) Run(m Machine) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Subnet == "" {
		m.Subnet = SubnetID
	}
	of := &machine{id: scope + "/Microsoft.Compute/virtualMachines/" + m.Name, scaleSet: m.ScaleSet, name: m.Name, tag: 1}
	home := scope + "/Microsoft.Network"
	if m.ScaleSet != "" {
		of.id = scope + "/Microsoft.Compute/virtualMachineScaleSets/" + m.ScaleSet + "/virtualMachines/" + m.Name
		home = of.id
		if !slices.Contains(c.sets, m.ScaleSet) {
			c.sets = append(c.sets, m.ScaleSet)
		}
	}
	if m.NICs == nil {
		m.NICs = []string{m.Name}
		if m.ScaleSet != "" {
			m.NICs[0] = m.ScaleSet
		}
	}
	for at, name := range m.NICs {
		c.number++
		n := &nic{id: home + "/networkInterfaces/" + name, name: name, mac: fmt.Sprintf("00-0D-3A-%02X-%02X-%02X", c.number>>16&255, c.number>>8&255, c.number&255)}
		n.configs = append(n.configs, c.newConfig("primary", m.Subnet, true, m.ApplicationGroups))
		for k := range m.Secondary {
			if at == 0 {
				n.configs = append(n.configs, c.newConfig(fmt.Sprintf("secondary-%d", k), m.Subnet, false, nil))
			}
		}
		of.nics = append(of.nics, n)
	}
	if m.PublicPrefix != "" {
		c.givePublic(of, m.PublicName, m.PublicPrefix)
	}
	c.machines[strings.ToLower(of.id)] = of
	return strings.ToLower(of.id)
}

func (c *Cloud) newConfig(name, subnetID string, primary bool, groups []string) *config {
	address, _ := c.subnets[strings.ToLower(subnetID)].take()
	return &config{name: name, address: address, subnet: subnetID, state: "Succeeded", groups: groups, primary: primary}
}

// take allocates an address.
func (s *subnet) take() (string, bool) {
	if s == nil || s.Free() == 0 {
		return "", false
	}
	s.used++
	if len(s.free) > 0 {
		a := s.free[0]
		s.free = s.free[1:]
		return a.String(), true
	}
	a := s.next
	s.next = a.Next()
	return a.String(), true
}

// Free is how many addresses a subnet has left: Azure keeps five.
func (s *subnet) Free() int { return 1<<(32-s.cidr.Bits()) - 5 - s.used }

func (s *subnet) release(address string) {
	if s != nil {
		s.used--
		s.free = append(s.free, netip.MustParseAddr(address))
	}
}

// Terminate removes a machine with its interfaces.
func (c *Cloud) Terminate(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[id]
	if m == nil {
		return
	}
	for _, n := range m.nics {
		for _, a := range n.configs {
			c.subnets[strings.ToLower(a.subnet)].release(a.address)
			c.dropPublic(a)
		}
	}
	m.nics = nil
	delete(c.machines, id)
}

// SetState sets the provisioning state of an address.
func (c *Cloud) SetState(address, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.machines {
		for _, n := range m.nics {
			for _, a := range n.configs {
				if a.address == address {
					a.state = state
				}
			}
		}
	}
}

// Touch is a change of a machine by another writer: its entity tag is another one.
func (c *Cloud) Touch(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machines[id].tag++
}

// SetTokens says whether tokens are issued, and accepted.
func (c *Cloud) SetTokens(issued bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noTokens = !issued
}

// SetMetadata says whether instance metadata is reachable.
func (c *Cloud) SetMetadata(reachable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = !reachable
}

// Owners are the machines of all addresses but primary ones, as they really are.
func (c *Cloud) Owners() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	owners := map[string]string{}
	for id, m := range c.machines {
		for _, n := range m.nics {
			for _, a := range n.configs {
				if !a.primary {
					owners[a.address] = id
				}
			}
		}
	}
	return owners
}

// Configs are the names of the ipConfigurations of a machine's interface, with their application security groups.
func (c *Cloud) Configs(id, nicName string) map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string][]string{}
	for _, n := range c.machines[id].nics {
		for _, a := range n.configs {
			if n.name == nicName {
				all[a.name] = a.groups
			}
		}
	}
	return all
}

// Calls are the numbers of requests by operation, without those that were refused by a fault.
func (c *Cloud) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

// Changes is the number of changes that were accepted.
func (c *Cloud) Changes() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range c.adds {
		n += of
	}
	return n
}

// ChangesOf is the number of changes by machine.
func (c *Cloud) ChangesOf() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.adds)
}

// Removed is the number of ipConfigurations that changes have left out.
func (c *Cloud) Removed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removed
}

// tick is the passing of time: a request. Changes that are due are made.
func (c *Cloud) tick() {
	c.requests++
	for _, id := range slices.Sorted(maps.Keys(c.running)) {
		if o := c.running[id]; !o.done && c.requests >= o.due {
			o.done = true
			o.finish()
		}
	}
}

// wanted is an ipConfiguration that a change asks for.
type wanted struct {
	name, subnet string
	groups       []string
	public       *public
}

// change gives an interface the ipConfigurations that a change asks for, and returns the id of the operation.
func (c *Cloud) change(m *machine, n *nic, list []wanted) (id, code string) {
	if len(list) > perInterface {
		return "", "NetworkInterfaceIpConfigurationLimitReached"
	}
	has := map[string]bool{}
	for _, a := range n.configs {
		has[a.name] = true
	}
	keeps := map[string]bool{}
	bySubnet := map[string]int{}
	for _, w := range list {
		if keeps[w.name] {
			return "", "DuplicateResourceName"
		}
		keeps[w.name] = true
		if !has[w.name] {
			bySubnet[strings.ToLower(w.subnet)]++
		}
	}
	for key, count := range bySubnet {
		if s := c.subnets[key]; s == nil {
			return "", "InvalidResourceReference"
		} else if s.Free() < count {
			return "", "SubnetIsFull"
		}
	}
	before := make([]config, len(n.configs))
	for at, a := range n.configs {
		before[at] = *a
	}
	n.configs = slices.DeleteFunc(n.configs, func(a *config) bool {
		if keeps[a.name] {
			return false
		}
		c.removed++
		c.subnets[strings.ToLower(a.subnet)].release(a.address)
		c.dropPublic(a)
		return true
	})
	c.changePublics(n, list)
	var added []*config
	for _, w := range list {
		if has[w.name] {
			continue
		}
		address, _ := c.subnets[strings.ToLower(w.subnet)].take()
		added = append(added, &config{name: w.name, address: address, subnet: w.subnet, state: "Updating", groups: w.groups})
	}
	fail := c.request.fail
	if fail {
		for _, lost := range added[(len(added)+1)/2:] {
			c.subnets[strings.ToLower(lost.subnet)].release(lost.address)
		}
		added = added[:(len(added)+1)/2]
	}
	n.configs = append(n.configs, added...)
	c.number++
	m.tag++
	m.busy++
	c.adds[strings.ToLower(m.id)]++
	id = fmt.Sprintf("op-%d", c.number)
	o := &operation{due: c.requests + c.Settle}
	if fail {
		o.failed = "InternalExecutionError"
	}
	o.finish = func() {
		m.busy--
		m.tag++
		if code := c.settlePublics(n, fail); code != "" && o.failed == "" {
			o.failed = code
		}
		m.failed = o.failed != ""
		for _, a := range added {
			if a.state = "Succeeded"; fail {
				a.state = "Failed"
			}
		}
		n.shown, n.shownUntil = before, c.requests+c.Stale
	}
	c.running[id] = o
	return id, ""
}

// listed are the ipConfigurations of an interface as lists show them: all are updating while their machine is.
func (c *Cloud) listed(m *machine, n *nic) (list []config) {
	if m.busy == 0 && c.requests < n.shownUntil {
		return n.shown
	}
	for _, a := range n.configs {
		of := *a
		if m.busy > 0 {
			of.state = "Updating"
		}
		list = append(list, of)
	}
	return list
}
