// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
	"github.com/skep-operator/skep/runtime/health"
)

// routed is a region whose node's subnet is nearly full. subnet-b has the routes of it, subnet-c has others.
func routed(zoneOfB string) *ec2test.Cloud {
	c := ec2test.New()
	c.AddSubnet("subnet-a", "vpc-1", "eu-west-1a", "10.1.0.0/24", nil)
	c.AddSubnet("subnet-b", "vpc-1", zoneOfB, "10.2.0.0/24", nil)
	c.AddSubnet("subnet-c", "vpc-1", "eu-west-1a", "10.3.0.0/24", map[string]string{"role": "pods"})
	c.AddRouteTable("rtb-public", "vpc-1", "subnet-c")
	if err := c.Run("i-1", "m5.large", "subnet-a", nil); err != nil {
		panic(err)
	}
	for subnet, free := range map[string]int{"subnet-a": 3, "subnet-b": 50, "subnet-c": 200} {
		c.Fill(subnet, free)
	}
	return c
}

// otherRoutes is part of the warning.
const otherRoutes = "has another route table"

// Numbers 29, 30 and 31 of the contract's ipam-aws-eni.md; AWS-15, AWS-28: a subnet with the routes of the node's is preferred to one
// with more free addresses, and one that the node names to both.
func TestSubnetsByRoutes(t *testing.T) {
	const here, away = "eu-west-1a", "eu-west-1b"
	wants := func(ids []string, tags map[string]string) func(*v2.CiliumNodeSpec) {
		return func(s *v2.CiliumNodeSpec) { s.ENI.SubnetIDs, s.ENI.SubnetTags = ids, tags }
	}
	pods := map[string]string{"role": "pods"}
	for name, test := range map[string]struct {
		zone   string // of subnet-b
		denied bool
		edit   func(*v2.CiliumNodeSpec)
		want   string
		warns  int
	}{
		"29: its routes":                         {here, false, nil, "subnet-b", 0},
		"29: route tables are denied":            {here, true, nil, "subnet-c", 0},
		"30: its routes in another zone":         {away, false, nil, "subnet-c", 1},
		"31: an id of none, and tags":            {here, false, wants([]string{"subnet-x"}, pods), "subnet-c", 1},
		"31: an id of none, and tags of none":    {here, false, wants([]string{"subnet-x"}, map[string]string{"role": "x"}), "subnet-b", 0},
		"an id, whatever its routes":             {here, false, wants([]string{"subnet-c"}, nil), "subnet-c", 1},
		"the node does not say which is its own": {here, false, func(s *v2.CiliumNodeSpec) { s.ENI.NodeSubnetID = "" }, "subnet-b", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := routed(test.zone)
			if test.denied {
				c.Fault = ec2test.Deny("DescribeRouteTables")
			}
			s := newSubject(t, Config{}, c)
			for range 2 {
				if got := s.create(2, test.edit); got != test.want {
					t.Errorf("the interface is in %s, want %s", got, test.want)
				}
			}
			if n := s.log.Count(otherRoutes, "subnet=subnet-c", "nodeSubnet=subnet-a"); n != test.warns {
				t.Errorf("%d warnings about routes, want %d:\n%s", n, test.warns, s.log)
			}
			denied, asked := s.log.Count("reading route tables is denied"), len(s.calls.of("DescribeRouteTables"))
			if test.denied && (denied != 1 || asked != 1) {
				t.Errorf("%d warnings that they are denied, and %d requests; want one of each", denied, asked)
			}
		})
	}
}

// AWS-28: what IAM denies is asked again after an hour. Other errors keep what was read before, and do not fail a read then.
func TestRoutesAreReadAgain(t *testing.T) {
	c := routed("eu-west-1a")
	deny, isAllowed, broken := ec2test.Deny("DescribeRouteTables"), false, false
	c.Fault = func(operation string, parameters map[string]string) (f ec2test.Fault) {
		switch {
		case !isAllowed:
			return deny(operation, parameters)
		case broken && operation == "DescribeRouteTables":
			f.Refuse = &ec2test.Error{Status: 500, Code: "InternalError", Message: "An internal error has occurred"}
		}
		return f
	}
	s := newSubject(t, Config{}, c)
	routes := func() string { return routesOf(s.read().Subnets["subnet-b"]) }
	if got := routes(); got != "" {
		t.Errorf("its route table is %s, and they are denied", got)
	}
	isAllowed = true
	if got := routes(); got != "" || len(s.calls.of("DescribeRouteTables")) != 1 {
		t.Errorf("they are read again at once: %s", got)
	}
	s.denied[opTables] = time.Now().Add(-2 * deniedInterval)
	if got := routes(); got != "rtb-main-vpc-1" {
		t.Errorf("its route table is %q, and they are allowed", got)
	}
	broken = true
	if got := routes(); got != "rtb-main-vpc-1" {
		t.Errorf("its route table is %q after one that could not be read", got)
	}
}

// Numbers 32 and 33 of the contract's ipam-aws-eni.md; AWS-11, AWS-17: machines of metal have prefixes, and an interface is created with
// all that are asked for.
func TestPrefixesAtCreate(t *testing.T) {
	config := Config{AWSEnablePrefixDelegation: true}
	c := ec2test.New()
	c.AddSubnet("subnet-a", "vpc-1", "eu-west-1a", "10.1.0.0/20", nil)
	if err := c.Run("i-1", "c5.metal", "subnet-a", nil); err != nil {
		t.Fatal(err)
	}
	s := newSubject(t, config, c)
	metalNode := func(spec *v2.CiliumNodeSpec) { spec.ENI.InstanceType = "c5.metal" }
	if n := s.assign(8, metalNode); n != 16 || c.Interfaces()[0].Prefixes == nil {
		t.Errorf("a machine of metal has %d addresses: %+v", n, c.Interfaces())
	}

	one := 1
	for count, want := range map[int]string{1: "1", 100: "7", 500: "9"} { // m5.large has nine slots
		c := ec2test.New()
		c.AddSubnet("subnet-a", "vpc-1", "eu-west-1a", "10.1.0.0/20", nil)
		if err := c.Run("i-1", "m5.large", "subnet-a", nil); err != nil {
			t.Fatal(err)
		}
		s := newSubject(t, config, c)
		s.create(count, func(spec *v2.CiliumNodeSpec) { spec.ENI.FirstInterfaceIndex = &one })
		if made := s.calls.of("CreateNetworkInterface"); len(made) != 1 || made[0]["Ipv4PrefixCount"] != want {
			t.Errorf("%d addresses: %v, want one request with %s prefixes", count, made, want)
		}
	}
}

// AWS-12: single addresses in place of a prefix are for once. The node gets prefixes when its subnet has some, also on the interface
// that has got single ones, and never more than the interface has slots for.
func TestPrefixesAfterSingleAddresses(t *testing.T) {
	c := region("m5.large", "i-1")
	c.Fill("subnet-a", 100) // which leaves no prefix
	s := newSubject(t, Config{AWSEnablePrefixDelegation: true}, c)
	if n := s.assign(20, nil); n != 9 {
		t.Errorf("%d addresses were assigned to 9 slots", n)
	}
	if got := s.create(2, nil); got != "subnet-a" {
		t.Error(got)
	}
	if list := c.Interfaces(); len(list) != 2 || len(list[1].Addresses) != 2 || list[1].Prefixes != nil {
		t.Fatalf("%+v", list)
	}
	c.Empty("subnet-a")
	if n := s.assign(8, nil); n != 9+2+16 {
		t.Errorf("%d addresses, want one prefix more: %+v", n, c.Interfaces())
	}
	if limits, err := s.Limits(nodeOf("i-1", nil), s.one()); err != nil || limits.Interfaces != 1 || limits.EmptySlots != 1 {
		t.Errorf("%+v, %v", limits, err)
	}
}

// prefixed is an instance with interfaces of prefixes and single addresses: eth0 has three prefixes, eth1 two single addresses.
func prefixed(t *testing.T) (s *subject, prefixes, singles []string) {
	t.Helper()
	c := ec2test.New()
	c.AddSubnet("subnet-a", "vpc-1", "eu-west-1a", "10.1.0.0/24", nil)
	if err := c.Run("i-1", "m5.large", "subnet-a", nil); err != nil {
		t.Fatal(err)
	}
	s = newSubject(t, Config{}, c)
	first := c.Interfaces()[0].ID
	if _, err := s.session.assign(s.ctx(), first, order{prefixes: 3}); err != nil {
		t.Fatal(err)
	}
	s.create(2, nil)
	list := c.Interfaces()
	return s, list[0].Prefixes, list[1].Addresses
}

// Number 34 of the contract's ipam-aws-eni.md; AWS-21, AWS-29: whole prefixes without a used address are surplus, of the interface that
// has most; then what another one has.
func TestSurplusPrefixes(t *testing.T) {
	s, prefixes, singles := prefixed(t)
	used := addressesOf(prefixes[0])[5]
	isUsed := func(a string) bool { return a == used }
	n, list := nodeOf("i-1", nil), s.ec2.Interfaces()
	surplus := s.Releasable(n, s.one(), isUsed, 35)
	if surplus.Interface != list[0].ID || !slices.Equal(surplus.Prefixes, prefixes[1:]) || len(surplus.Addresses) > 0 {
		t.Fatalf("%+v", surplus)
	}
	if err := s.Unassign(s.ctx(), n, s.one(), surplus); err != nil {
		t.Fatal(err)
	}
	if surplus = s.Releasable(n, s.one(), isUsed, 3); surplus.Interface != list[1].ID || !slices.Equal(surplus.Addresses, singles) || surplus.Prefixes != nil {
		t.Errorf("%+v", surplus)
	}

	for count, want := range map[int]string{0: "", 15: "", 16: prefixes[0], 17: prefixes[0]} { // a prefix goes as a whole
		e := &eni{}
		e.Prefixes = prefixes
		got, singles, total := e.surplus(func(string) bool { return false }, count)
		if strings.Join(got, " ") != want || len(singles) != 0 || total != 16*len(got) {
			t.Errorf("%d: %v, %v, %d", count, got, singles, total)
		}
	}
	mixed := &eni{singles: []string{"10.9.0.1", "10.9.0.2"}}
	mixed.Prefixes = prefixes
	got, single, total := mixed.surplus(isUsed, 33)
	if !slices.Equal(got, prefixes[1:]) || !slices.Equal(single, []string{"10.9.0.1"}) || total != 33 {
		t.Errorf("%v, %v, %d", got, single, total)
	}
}

// Number 35 of the contract's ipam-aws-eni.md, and 41 of ipam-cloud.md; AWS-29: a prefix is unassigned as one, in one call, and never as
// its addresses. What EC2 refuses is not done before a read shows that it is gone.
func TestPrefixesAreUnassigned(t *testing.T) {
	s, prefixes, _ := prefixed(t)
	n, i, id := nodeOf("i-1", nil), s.one(), s.ec2.Interfaces()[0].ID
	unassign := func(from cloudipam.Surplus) error { return s.Unassign(s.ctx(), n, i, from) }
	asked := func() []map[string]string { return s.calls.of("UnassignPrivateIpAddresses") }

	if err := unassign(cloudipam.Surplus{Interface: id, Prefixes: prefixes[1:2]}); err != nil {
		t.Fatal(err)
	}
	if all := asked(); len(all) != 1 || all[0]["Ipv4Prefix.1"] != prefixes[1] || all[0]["PrivateIpAddress.1"] != "" {
		t.Errorf("%v", all)
	}
	if got := s.ec2.Interfaces()[0].Prefixes; !slices.Equal(got, []string{prefixes[0], prefixes[2]}) {
		t.Errorf("%v are left", got)
	}
	if err := unassign(cloudipam.Surplus{Interface: id, Prefixes: prefixes[1:2]}); err != nil {
		t.Errorf("a prefix that the interface does not have: %v", err)
	}
	if err := unassign(cloudipam.Surplus{Interface: id, Prefixes: prefixes}); err != nil || len(s.ec2.Interfaces()[0].Prefixes) > 0 {
		t.Errorf("some of which the interface has: %v, %v are left", err, s.ec2.Interfaces()[0].Prefixes)
	}

	var singles []string
	s, prefixes, singles = prefixed(t)
	list := s.ec2.Interfaces()
	if err := unassign(cloudipam.Surplus{Interface: list[0].ID, Addresses: addressesOf(prefixes[0])}); codeOf(err) != codeInvalid {
		t.Errorf("the addresses of a prefix count as released: %v", err)
	}
	if err := unassign(cloudipam.Surplus{Interface: list[1].ID, Addresses: append([]string{list[1].Primary}, singles...)}); err != nil {
		t.Error(err) // the primary one is left out
	}
	if got := s.ec2.Interfaces()[1]; len(got.Addresses) != 0 || got.Primary != list[1].Primary {
		t.Errorf("%+v", got)
	}
}

// AWS-7: a prefix that was unassigned is not shown again because it was assigned a moment ago.
func TestPrefixIsForgotten(t *testing.T) {
	c := ec2test.New()
	c.AddSubnet("subnet-a", "vpc-1", "eu-west-1a", "10.1.0.0/24", nil)
	if err := c.Run("i-1", "m5.large", "subnet-a", nil); err != nil {
		t.Fatal(err)
	}
	s := newSubject(t, Config{AWSEnablePrefixDelegation: true}, c)
	if n := s.assign(8, nil); n != 16 {
		t.Fatalf("%d addresses", n)
	}
	n := nodeOf("i-1", nil)
	surplus := s.Releasable(n, s.one(), func(string) bool { return false }, 16)
	if err := s.Unassign(s.ctx(), n, s.one(), surplus); err != nil {
		t.Fatal(err)
	}
	if left := s.Addresses(n, s.one()); len(left) != 0 {
		t.Errorf("%v are shown", left)
	}
}

// Number 39 of the contract's ipam-aws-eni.md; AWS-30: EC2 is asked for a type that a node has and that is not known, once a minute.
func TestUnknownTypes(t *testing.T) {
	c := region("m5.large", "i-1")
	s := newSubject(t, Config{UpdateEC2AdapterLimitViaAPI: true}, c)
	typed := func(name string) (cloudipam.Limits, error) {
		n := nodeOf("i-1", func(spec *v2.CiliumNodeSpec) { spec.ENI.InstanceType = name })
		return s.Limits(n, s.read().Instances["i-1"])
	}
	of := func() []map[string]string { return s.calls.of("DescribeInstanceTypes") }
	if _, err := typed("m9.large"); err == nil || len(of()) != 1 {
		t.Fatalf("%v, %v", err, of())
	}
	c.AddType("m9.large", ec2test.Type{Interfaces: 3, IPv4: 10, Hypervisor: "nitro"})
	if l, err := typed("m9.large"); err != nil || l.Addresses != 27 {
		t.Errorf("%+v, %v", l, err)
	}
	if all := of(); len(all) != 2 || all[1]["Filter.1.Name"] != "instance-type" || all[1]["Filter.1.Value.1"] != "m9.large" || all[1]["Filter.1.Value.2"] != "" {
		t.Errorf("%v", all)
	}
	c.AddType("m9.xlarge", ec2test.Type{Interfaces: 4, IPv4: 15, Hypervisor: "nitro"})
	for range 2 {
		if _, err := typed("m9.xlarge"); err == nil || len(of()) != 2 {
			t.Errorf("EC2 was asked again within a minute: %v, %v", err, of())
		}
	}
	if l, err := typed("m5.large"); err != nil || l.Addresses != 27 {
		t.Errorf("another node: %+v, %v", l, err)
	}
	s.askedAt = time.Now().Add(-2 * unknownInterval)
	if l, err := typed("m9.xlarge"); err != nil || l.Addresses != 4*14 {
		t.Errorf("%+v, %v", l, err)
	}
	for _, odd := range []string{"*", "m5.*", "z0.nano, m5.large", strings.Repeat("m", 99) + ".large", "z0.nano"} {
		s.askedAt = time.Time{}
		_, _ = typed(odd)
		if _, err := typed(odd); err == nil {
			t.Errorf("%s has limits", odd)
		}
	}
	if all := of(); len(all) != 4 || all[3]["Filter.1.Value.1"] != "z0.nano" {
		t.Errorf("%v", all)
	}
}

// Number 39 of the contract's ipam-aws-eni.md, and AWS-8: where IAM denies it, only nodes of unknown types lack limits, and EC2 is asked
// again after an hour. What it has said before holds.
func TestUnknownTypesAreDenied(t *testing.T) {
	c := region("m5.large", "i-1")
	c.AddType("m9.large", ec2test.Type{Interfaces: 3, IPv4: 10, Hypervisor: "nitro"})
	isAllowed, deny := true, ec2test.Deny("DescribeInstanceTypes")
	c.Fault = func(operation string, parameters map[string]string) (f ec2test.Fault) {
		if !isAllowed {
			f = deny(operation, parameters)
		}
		return f
	}
	s := newSubject(t, Config{UpdateEC2AdapterLimitViaAPI: true}, c)
	typed := func(name string) error {
		_, err := s.Limits(nodeOf("i-1", func(spec *v2.CiliumNodeSpec) { spec.ENI.InstanceType = name }), s.read().Instances["i-1"])
		return err
	}
	if err := typed("m9.large"); err != nil {
		t.Fatal(err)
	}
	isAllowed = false
	for range 3 {
		s.askedAt = time.Time{}
		if err := typed("m9.xlarge"); err == nil || !strings.Contains(err.Error(), "instance type m9.xlarge is not known") {
			t.Error(err)
		}
	}
	if n := len(s.calls.of("DescribeInstanceTypes")); n != 2 || s.log.Count("reading the limits of instance types is denied") != 1 {
		t.Errorf("%d requests; the log is\n%s", n, s.log)
	}
	s.account.limitsAt = time.Now().Add(-2 * typesInterval)
	for _, name := range []string{"m5.large", "m9.large"} {
		if err := typed(name); err != nil {
			t.Error(err)
		}
	}
	if n := len(s.calls.of("DescribeInstanceTypes")); n != 3 {
		t.Errorf("%d requests", n)
	}
}

// Number 40 of the contract's ipam-aws-eni.md; AWS-18: interfaces are attached to the first network card, at the lowest device index that is
// free there, as many as it can have.
func TestNetworkCards(t *testing.T) {
	c := ec2test.New()
	c.AddSubnet("subnet-a", "vpc-1", "eu-west-1a", "10.1.0.0/20", nil)
	if err := c.Run("i-1", "p5.48xlarge", "subnet-a", nil); err != nil {
		t.Fatal(err)
	}
	for card := 1; card < 4; card++ {
		if _, err := c.Attach("i-1", "subnet-a", card, 1); err != nil {
			t.Fatal(err)
		}
	}
	s := newSubject(t, Config{UpdateEC2AdapterLimitViaAPI: true}, c)
	edit := func(spec *v2.CiliumNodeSpec) { spec.ENI.InstanceType = "p5.48xlarge" }
	if l, err := s.Limits(nodeOf("i-1", edit), s.read().Instances["i-1"]); err != nil || l.EmptySlots != 1 {
		t.Errorf("%+v, %v: want the one slot that is left on the first card", l, err)
	}
	s.create(8, edit)
	if all := s.calls.of("AttachNetworkInterface"); len(all) != 1 || all[0]["NetworkCardIndex"] != "0" || all[0]["DeviceIndex"] != "1" {
		t.Errorf("%v", all)
	}
	if l, err := s.Limits(nodeOf("i-1", edit), s.one()); err != nil || l.EmptySlots != 0 {
		t.Errorf("%+v, %v: the first card is full", l, err)
	}
}

// AWS-16: security groups are in order, whatever the order in which the node has them.
func TestGroupsAreInOrder(t *testing.T) {
	c := region("m5.large", "i-1")
	for _, id := range []string{"sg-9", "sg-5"} {
		c.AddGroup(id, "vpc-1", nil)
	}
	s := newSubject(t, Config{}, c)
	s.create(1, func(spec *v2.CiliumNodeSpec) { spec.ENI.SecurityGroups = []string{"sg-9", "sg-1", "sg-5"} })
	c.SetGroups(c.Interfaces()[0].ID, "sg-9", "sg-5")
	s.create(1, nil)
	var got []string
	for _, made := range s.calls.of("CreateNetworkInterface") {
		for n := 1; made["SecurityGroupId."+strconv.Itoa(n)] != ""; n++ {
			got = append(got, made["SecurityGroupId."+strconv.Itoa(n)])
		}
	}
	if want := "[sg-1 sg-5 sg-9 sg-5 sg-9]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// Number 41 of the contract's ipam-aws-eni.md; AWS-31: an account that refuses lists without pages is served, with as many results on a page
// as the option says.
func TestPages(t *testing.T) {
	for option, want := range map[int]string{0: "1000", 200: "200"} {
		c := region("m5.large", "i-1")
		c.PagesOnly = true
		s := newSubject(t, Config{UpdateEC2AdapterLimitViaAPI: true, AWSMaxResultsPerCall: option}, c)
		s.read()
		s.one()
		s.filter = map[string]string{"team": "net"}
		s.read()
		if err := s.upkeep.collect(s.ctx()); codeOf(err) != "" {
			t.Errorf("garbage collection: %v", err)
		}
		for _, r := range s.calls.all() {
			most := want
			switch {
			case r["Action"] == "DescribeRouteTables", r["Action"] == "DescribeInstanceTypes":
				most = "100"
			case r["Filter.3.Value.1"] == "available": // of garbage collection
				most = "25"
			}
			if r["NetworkInterfaceId.1"] != "" || r["MaxResults"] != most {
				t.Errorf("option %d: %v, want %s results", option, r, most)
			}
		}
	}
}

// AWS-32: what is no address is left out of the status, from which agents get theirs, and reported. All other addresses are there.
func TestOddAddress(t *testing.T) {
	c := region("m5.large", "i-1", "i-2")
	s := newSubject(t, Config{}, c)
	tree := health.NewTree()
	s.health = tree.Reporter("ipam.aws")
	if n := s.assign(8, nil); n != 8 {
		t.Fatalf("%d addresses", n)
	}
	id := c.Interfaces()[0].ID
	c.ShowAddress(id, "10.1.0.256")
	for range 2 {
		i := s.read().Instances["i-1"]
		var status v2.CiliumNodeStatus
		s.SetStatus(nodeOf("i-1", nil), i, &status)
		if list := status.ENI.ENIs[id].Addresses; len(list) != 8 || slices.Contains(list, "10.1.0.256") {
			t.Errorf("%v", list)
		}
		if l, err := s.Limits(nodeOf("i-1", nil), i); err != nil || l.Interfaces != 0 {
			t.Errorf("%+v, %v: it has the ninth slot of the interface", l, err)
		}
	}
	if d := tree.Degraded(); len(d) != 1 || !strings.Contains(d[0].Message, "EC2 shows what is no address as one of 1 interfaces, "+id+` among them, and it is left out: ["10.1.0.256"]`) {
		t.Errorf("%+v", d)
	}
	if n := s.log.Count("EC2 shows addresses that are none"); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
	c.ShowAddress(id)
	s.read()
	if d := tree.Degraded(); len(d) != 0 {
		t.Errorf("%+v", d)
	}
}
