// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ec2test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Cloud is a region of an account. It is safe for concurrent use; the fields are set before its first request.
type Cloud struct {
	Region string
	// Self is the id of the instance whose metadata are served.
	Self string
	// Fault is called for every request with the name of its operation, with the lock of the cloud: it must not use the cloud.
	// nil is for no faults.
	Fault func(operation string, parameters map[string]string) Fault
	// Throttling has the token buckets of EC2 refuse requests.
	Throttling bool
	// Lag is how long, at most, descriptions may not show a change.
	Lag time.Duration
	// Latency is how long a request takes.
	Latency time.Duration
	// MaxInterfaces is the quota of the region; 0 is 5000.
	MaxInterfaces int
	// PagesOnly has lists without MaxResults be refused, as for accounts that have much.
	PagesOnly bool
	// Now is the clock; nil is the time of the day.
	Now func() time.Time
	// Credential is the key id that is accepted; "" is for any.
	Credential func() string

	mu        sync.Mutex
	number    int
	vpcs      map[string]*vpc
	subnets   map[string]*subnet
	groups    map[string]*group
	instances map[string]*instance
	types     map[string]Type
	enis      map[string]*eni // replaced, never changed
	history   []snapshot
	frozen    map[string]*eni   // what descriptions show, nil for what is so
	tokens    map[string]string // interfaces by client token
	public    map[string]string // by private address; "" for an association without an address of IPv4
	tables    map[string]*routeTable
	elastic   map[string]*elasticAddress // by allocation
	odd       map[string][]string        // what descriptions show as more addresses of an interface
	buckets   map[string]*bucket
	calls     map[string]int
	refused   map[string]int
	random    *rand.Rand
}

// Type is an instance type.
type Type struct {
	Interfaces, IPv4 int
	Hypervisor       string // "" for bare metal
	Cards            int    // network cards, with as many interfaces each; 0 is 1
}

// perCard is how many interfaces a network card can have.
func (t Type) perCard() int { return t.Interfaces / max(1, t.Cards) }

// Fault is what goes wrong in a request.
type Fault struct {
	// Refuse is the error of a request that is not carried out.
	Refuse *Error
	// Lose has a request be carried out, and the connection be closed without an answer.
	Lose bool
	// Stuck has an attachment never end: it stays "attaching".
	Stuck bool
	// Slow is how much longer the request takes.
	Slow time.Duration
}

// Error is an error of EC2.
type Error struct {
	Status        int // of HTTP; 0 is 400
	Code, Message string
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Deny is a [Cloud.Fault] by which IAM denies operations.
func Deny(operations ...string) func(string, map[string]string) Fault {
	return func(operation string, _ map[string]string) (f Fault) {
		if slices.Contains(operations, operation) {
			f.Refuse = &Error{http.StatusForbidden, "UnauthorizedOperation", "You are not authorized to perform this operation."}
		}
		return f
	}
}

type vpc struct {
	id, cidr string
	cidrs    []string
	tags     map[string]string
}

type group struct {
	id, vpc string
	tags    map[string]string
}

type instance struct {
	id, kind, subnet string
	state            string
	tags             map[string]string
}

type eni struct {
	id, subnet, description, mac string
	groups                       []string
	tags                         map[string]string
	primary                      string
	singles, prefixes            []string
	ipv6                         []string // prefixes
	instance, attachment, status string   // of the attachment; "" for none
	index, card                  int
	deletedWithInstance          bool
}

// snapshot is what was so at a time.
type snapshot struct {
	at   time.Time
	enis map[string]*eni
}

// New returns a region with one VPC, vpc-1 (10.0.0.0/8), and a security group, sg-1.
func New() *Cloud {
	c := &Cloud{
		Region: "eu-west-1", Self: "i-operator", vpcs: map[string]*vpc{}, subnets: map[string]*subnet{}, groups: map[string]*group{},
		instances: map[string]*instance{}, enis: map[string]*eni{}, tokens: map[string]string{}, public: map[string]string{}, buckets: map[string]*bucket{},
		tables: map[string]*routeTable{}, elastic: map[string]*elasticAddress{}, odd: map[string][]string{},
		calls: map[string]int{}, refused: map[string]int{}, random: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // no secret
		types: map[string]Type{
			"t2.micro": {2, 2, "xen", 1}, "t2.xlarge": {3, 15, "xen", 1}, "t3.micro": {2, 2, "nitro", 1}, "m4.xlarge": {4, 15, "xen", 1},
			"m5.large": {3, 10, "nitro", 1}, "m5.xlarge": {4, 15, "nitro", 1}, "m5a.large": {3, 10, "nitro", 1}, "c5.4xlarge": {8, 30, "nitro", 1},
			"m5.24xlarge": {15, 50, "nitro", 1}, "c5.metal": {15, 50, "", 1}, "x9.large": {3, 10, "nitro", 1}, "p5.48xlarge": {64, 50, "nitro", 32},
		},
	}
	c.vpcs["vpc-1"] = &vpc{id: "vpc-1", cidr: "10.0.0.0/8", cidrs: []string{"100.64.0.0/16"}}
	c.tables[mainTable("vpc-1")] = &routeTable{id: mainTable("vpc-1"), vpc: "vpc-1", isMain: true}
	c.AddGroup("sg-1", "vpc-1", nil)
	return c
}

func (c *Cloud) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// AddVPC adds a VPC.
func (c *Cloud) AddVPC(id, cidr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vpcs[id] = &vpc{id: id, cidr: cidr}
	c.tables[mainTable(id)] = &routeTable{id: mainTable(id), vpc: id, isMain: true}
}

// AddType adds an instance type.
func (c *Cloud) AddType(name string, t Type) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.types[name] = t
}

// AddSubnet adds a subnet.
func (c *Cloud) AddSubnet(id, vpc, zone, cidr string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subnets[id] = newSubnet(id, vpc, zone, cidr, tags)
}

// RemoveSubnet removes a subnet, with whatever is in it.
func (c *Cloud) RemoveSubnet(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subnets, id)
	for _, t := range c.tables {
		t.subnets = slices.DeleteFunc(t.subnets, func(of string) bool { return of == id })
	}
}

// Fill has all addresses of a subnet be taken, but for some.
func (c *Cloud) Fill(id string, free int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subnets[id].fill(free)
}

// Empty frees the addresses of a subnet that Fill has taken.
func (c *Cloud) Empty(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subnets[id].empty()
}

// AddGroup adds a security group.
func (c *Cloud) AddGroup(id, vpc string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups[id] = &group{id, vpc, tags}
}

// firstGroup is the first security group of the VPC of a subnet.
func (c *Cloud) firstGroup(subnet string) []string {
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		if s := c.subnets[subnet]; s != nil && c.groups[id].vpc == s.vpc {
			return []string{id}
		}
	}
	return nil
}

// Run starts an instance, with its first interface.
func (c *Cloud) Run(id, kind, subnet string, tags map[string]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[id] = &instance{id: id, kind: kind, subnet: subnet, state: "running", tags: tags}
	e, err := c.newENI(subnet, c.firstGroup(subnet), amounts{})
	if err != nil {
		return err
	}
	e.instance, e.attachment, e.status, e.deletedWithInstance = id, c.next("eni-attach"), "attached", true
	c.put(e)
	return nil
}

// SetState changes the state of an instance: pending, running, stopped.
func (c *Cloud) SetState(id, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[id].state = state
}

// Terminate removes an instance, with those interfaces that are deleted with it.
func (c *Cloud) Terminate(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.instances, id)
	for _, e := range maps.Clone(c.enis) {
		switch {
		case e.instance != id:
		case e.deletedWithInstance:
			c.drop(e)
		default:
			detached := *e
			detached.instance, detached.attachment, detached.status, detached.index, detached.card = "", "", "", 0, 0
			c.put(&detached)
		}
	}
}

// Attach adds an interface to an instance, on a network card, at a device index.
func (c *Cloud) Attach(instance, subnet string, card, index int) (id string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, refused := c.newENI(subnet, c.firstGroup(subnet), amounts{})
	if refused != nil {
		return "", refused
	}
	e.instance, e.attachment, e.status, e.card, e.index, e.deletedWithInstance = instance, c.next("eni-attach"), "attached", card, index, true
	c.put(e)
	return e.id, nil
}

// Leave adds an interface that is attached to nothing, and returns its id.
func (c *Cloud) Leave(subnet string, tags map[string]string) (id string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, refused := c.newENI(subnet, c.firstGroup(subnet), amounts{})
	if refused != nil {
		return "", refused
	}
	e.tags = tags
	c.put(e)
	return e.id, nil
}

// Tag sets the tags of an interface.
func (c *Cloud) Tag(id string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := *c.enis[id]
	e.tags = tags
	c.put(&e)
}

// SetGroups sets the security groups of an interface.
func (c *Cloud) SetGroups(id string, groups ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := *c.enis[id]
	e.groups = groups
	c.put(&e)
}

// ShowAddress has descriptions of an interface show texts as more of its secondary addresses, or as prefixes of either family if they have
// a slash.
func (c *Cloud) ShowAddress(id string, texts ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.odd[id] = texts
}

// Associate gives a private address a public one; "" is for that of a carrier, which has none of IPv4.
func (c *Cloud) Associate(private, public string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.public[private] = public
}

// GroupName is the name of a security group.
func GroupName(id string) string { return "name-of-" + id }

func (c *Cloud) next(prefix string) string {
	c.number++
	return fmt.Sprintf("%s-%017x", prefix, c.number)
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
	c.disassociate(e)
	s := c.subnets[e.subnet]
	if s == nil {
		return
	}
	s.release(append(slices.Clone(e.singles), e.primary)...)
	s.releasePrefixes(e.prefixes...)
}

// Freeze has descriptions show none of the changes of interfaces that are made from now on.
func (c *Cloud) Freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = maps.Clone(c.enis)
}

// remember keeps what was so before a change, for as long as descriptions may show it.
func (c *Cloud) remember() {
	if c.Lag == 0 {
		return
	}
	oldest := c.now().Add(-c.Lag)
	c.history = slices.DeleteFunc(c.history, func(s snapshot) bool { return s.at.Before(oldest) })
	c.history = append(c.history, snapshot{c.now(), maps.Clone(c.enis)})
}

// shown are the interfaces as a description shows them: as they are, or as they were a moment ago.
func (c *Cloud) shown() map[string]*eni {
	if c.frozen != nil {
		return c.frozen
	}
	if c.Lag == 0 {
		return c.enis
	}
	at := c.now().Add(-time.Duration(c.random.Int64N(int64(c.Lag))))
	for _, s := range c.history { // each is what was so until its time
		if s.at.After(at) {
			return s.enis
		}
	}
	return c.enis
}

// Interface is an interface for tests.
type Interface struct {
	ID, Subnet, Instance, Description string
	Index, Card                       int
	Groups                            []string
	Tags                              map[string]string
	Addresses, Prefixes               []string // without the primary one
	Primary                           string
	Public                            string // of the primary address
	IPv6Prefixes                      []string
	DeletedWithInstance               bool
}

// Interfaces are all interfaces, by id.
func (c *Cloud) Interfaces() (list []Interface) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.enis)) {
		e := c.enis[id]
		list = append(list, Interface{
			e.id, e.subnet, e.instance, e.description, e.index, e.card, e.groups, e.tags, slices.Clone(e.singles), slices.Clone(e.prefixes), e.primary,
			c.public[e.primary], slices.Clone(e.ipv6), e.deletedWithInstance,
		})
	}
	return list
}

// Owners are the instances of all secondary addresses and prefixes, "" for those of interfaces that are not attached.
func (c *Cloud) Owners() map[string]string {
	owners := map[string]string{}
	for _, i := range c.Interfaces() {
		for _, a := range slices.Concat(i.Addresses, i.Prefixes) {
			owners[a] = i.Instance
		}
	}
	return owners
}

// Calls are the numbers of requests by operation that were carried out, or refused for another reason than their rate.
func (c *Cloud) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

// Throttled are the numbers of requests by operation that were refused for their rate.
func (c *Cloud) Throttled() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.refused)
}

// Changes is the number of requests that changed something.
func (c *Cloud) Changes() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[changed]
}

// changed counts changes among the calls.
const changed = "changes"
