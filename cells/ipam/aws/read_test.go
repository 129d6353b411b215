// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
)

// AWS-4, AWS-5, AWS-6, AWS-8: what filters select, over several pages: instances are read whole, or not at all.
func TestFilters(t *testing.T) {
	c := region("m5.large")
	c.AddVPC("vpc-2", "172.16.0.0/16")
	c.AddGroup("sg-2", "vpc-2", nil)
	pods := map[string]string{"role": "pods"}
	c.AddSubnet("subnet-b", "vpc-1", "eu-west-1a", "10.2.0.0/24", pods)
	for id, tags := range map[string]map[string]string{"i-1": pods, "i-2": nil, "i-3": pods, "i-4": nil, "i-5": nil, "i-6": nil, "i-7": nil} {
		if err := c.Run(id, "m5.large", "subnet-a", tags); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Leave("subnet-a", nil); err != nil {
		t.Fatal(err)
	}
	serve(t, c)
	all := []string{"i-1", "i-2", "i-3", "i-4", "i-5", "i-6", "i-7"}
	for name, test := range map[string]struct {
		config Config
		filter map[string]string
		want   []string
	}{
		"none":                      {Config{}, nil, all},
		"small pages":               {Config{AWSMaxResultsPerCall: 5}, nil, all},
		"tags of instances":         {Config{}, pods, []string{"i-1", "i-3"}},
		"tags that no instance has": {Config{}, map[string]string{"role": "x"}, nil},
		"tags of subnets":           {Config{SubnetTagsFilter: pods}, nil, all},
		"ids of subnets":            {Config{SubnetIDsFilter: []string{"subnet-b"}}, nil, all},
		"tags that no subnet has":   {Config{SubnetTagsFilter: map[string]string{"role": "x"}}, nil, nil},
	} {
		p := providerOf(t, test.config, nil)
		p.filter = test.filter
		s, err := p.Read(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := slices.Sorted(maps.Keys(s.Instances)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		one, err := p.ReadInstances(t.Context(), []string{"i-2"})
		if err != nil || one["i-2"] == nil {
			t.Errorf("%s: an instance alone: %v, %v", name, one, err)
		}
		eligible := s.Subnets["subnet-a"].Detail.(*subnetDetail).eligible
		if filtered := len(test.config.SubnetIDsFilter)+len(test.config.SubnetTagsFilter) > 0; eligible == filtered {
			t.Errorf("%s: interfaces in subnet-a: %v", name, eligible)
		}
	}
}

// AWS-35: what there is in all VPCs is read with one call of each kind, and a node that joins in another VPC has its addresses, and the
// ranges of that VPC, without one more of these.
func TestNodeInAnotherVPC(t *testing.T) {
	c := region("m5.large", "i-1")
	c.AddVPC("vpc-2", "172.16.0.0/16")
	c.AddGroup("sg-2", "vpc-2", nil)
	c.AddSubnet("subnet-2", "vpc-2", "eu-west-1a", "172.16.1.0/24", nil)
	s := newSubject(t, Config{}, c)
	state := s.read()
	if err := c.Run("i-2", "m5.large", "subnet-2", nil); err != nil {
		t.Fatal(err)
	}
	n := nodeOf("i-2", func(spec *v2.CiliumNodeSpec) { spec.ENI.VPCID, spec.ENI.NodeSubnetID = "vpc-2", "subnet-2" })
	all, err := s.ReadInstances(s.ctx(), []string{"i-2"})
	if err != nil || all["i-2"] == nil {
		t.Fatalf("%v, %v", all, err)
	}
	to, ok := s.FreeInterface(n, all["i-2"], state.Subnets)
	if !ok {
		t.Fatal("no interface has room")
	}
	if err := s.Assign(s.ctx(), n, all["i-2"], to, 8); err != nil {
		t.Error(err)
	}
	if made, err := s.CreateInterface(s.ctx(), n, all["i-2"], state.Subnets, 8); err != nil || made.Subnet != "subnet-2" {
		t.Errorf("%+v, %v", made, err)
	}
	var status v2.CiliumNodeStatus
	s.SetStatus(n, all["i-2"], &status)
	if of := status.ENI.ENIs[to.Interface]; of.VPC.PrimaryCIDR != "172.16.0.0/16" || of.Subnet.CIDR != "172.16.1.0/24" {
		t.Errorf("%+v", of)
	}
	for _, operation := range []string{"DescribeVpcs", "DescribeSubnets", "DescribeSecurityGroups", "DescribeRouteTables"} {
		if calls := s.calls.of(operation); len(calls) != 1 || calls[0]["Filter.1.Name"] != "" {
			t.Errorf("%s: %v", operation, calls)
		}
	}
}

// AWS-8: IAM that denies instance types costs nothing but a log line; types are read once an hour.
func TestDeniedTypes(t *testing.T) {
	c := region("m5.large", "i-1")
	c.Fault = func(operation string, _ map[string]string) (f ec2test.Fault) {
		if operation == "DescribeInstanceTypes" {
			f.Refuse = &ec2test.Error{Status: http.StatusForbidden, Code: codeDenied, Message: "You are not authorized to perform this operation."}
		}
		return f
	}
	serve(t, c)
	p := providerOf(t, Config{UpdateEC2AdapterLimitViaAPI: true}, nil)
	for range 3 {
		s, err := p.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l, err := p.Limits(nodeOf("i-1", nil), s.Instances["i-1"]); err != nil || l.Addresses != 27 {
			t.Errorf("%+v, %v", l, err)
		}
	}
	if n := c.Calls()["DescribeInstanceTypes"]; n != 1 {
		t.Errorf("types were read %d times", n)
	}
}

// AWS-24: the name of an EKS cluster is found by the tags of the operator's instance.
func TestTagsOfOwnInterfaces(t *testing.T) {
	c := region("m5.large")
	if err := c.Run(c.Self, "m5.large", "subnet-a", map[string]string{eksTag: "blue", "other": "tag"}); err != nil {
		t.Fatal(err)
	}
	serve(t, c)
	for name, test := range map[string]struct {
		config Config
		want   map[string]string
	}{
		"by EKS":     {Config{}, map[string]string{managedTag: "true", clusterTag: "blue"}},
		"by options": {Config{ENIGCTags: map[string]string{"a": "b"}}, map[string]string{"a": "b"}},
		"and others": {Config{ENITags: map[string]string{"team": "net", clusterTag: "x"}}, map[string]string{managedTag: "true", clusterTag: "blue", "team": "net"}},
	} {
		p := providerOf(t, test.config, nil)
		b, err := p.session.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := b.tagsOf(test.config); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// AWS-7: what EC2 has confirmed is shown before EC2 shows it, unless another interface has it since.
func TestRecentChanges(t *testing.T) {
	p := providerOf(t, Config{}, nil)
	interfaceOf := func(id, instance, ip string, singles ...string) *eni {
		e := &eni{instance: instance, singles: singles}
		e.ID, e.IP = id, ip
		p.list(e)
		return e
	}
	var r cloudipam.Recent[*eni]
	now := time.Now()
	shown := func(more ...*eni) []string {
		enis := map[string]map[string]*eni{"i-1": {"eni-0": interfaceOf("eni-0", "i-1", "10.0.0.1")}}
		for _, e := range more {
			enis[e.instance] = map[string]*eni{e.ID: e}
		}
		r.Complete(enis, now)
		if e := enis["i-1"]["eni-1"]; e != nil {
			p.list(e)
			return append([]string{e.IP}, e.Addresses...)
		}
		return nil
	}
	r.Created(interfaceOf("eni-1", "i-1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"), now)
	r.Assigned("eni-1", []string{"10.0.0.6"}, nil, now)
	for _, step := range []struct {
		what   string
		happen func()
		also   *eni
		want   []string
	}{
		{what: "confirmed", want: []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"}},
		{what: "unassigned", happen: func() { r.Removed("eni-1", []string{"10.0.0.4"}) }, want: []string{"10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6"}},
		{what: "assigned to another", happen: func() { r.Assigned("eni-2", []string{"10.0.0.3"}, nil, now) }, want: []string{"10.0.0.2", "10.0.0.5", "10.0.0.6"}},
		{what: "shown on another", also: interfaceOf("eni-3", "i-2", "10.0.0.9", "10.0.0.6"), want: []string{"10.0.0.2", "10.0.0.5"}},
		{what: "was shown on another", want: []string{"10.0.0.2", "10.0.0.5"}},
		{what: "the primary address is another's", happen: func() { r.Created(interfaceOf("eni-4", "i-3", "10.0.0.2"), now) }},
	} {
		if step.happen != nil {
			step.happen()
		}
		also := []*eni{}
		if step.also != nil {
			also = append(also, step.also)
		}
		if got := shown(also...); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
	}
}

// AWS-1: large answers are read whole, also those that come before the transport is done with the request.
func TestLargeAnswers(t *testing.T) {
	c := region("m5.large")
	for n := range 300 {
		c.AddType(fmt.Sprintf("m%d.large", 100+n), ec2test.Type{Interfaces: 3, IPv4: 10, Hypervisor: "nitro"})
	}
	serve(t, c)
	p := providerOf(t, Config{}, nil)
	for range 100 {
		if all, err := p.readTypes(t.Context()); err != nil || len(all) < 300 {
			t.Fatalf("%d types: %v", len(all), err)
		}
	}
}
