// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/cloudipam/ecstest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
)

// caused is the context of a decision.
func caused(t *testing.T) context.Context {
	return explain.WithCause(t.Context(), &explain.Cause{Rule: "ipam.alibabacloud test"})
}

// ALI-19: the provider keeps the promises of the contract, with descriptions that are out of date and small pages, too.
func TestProvider(t *testing.T) {
	for name, edit := range map[string]func(*ecstest.Cloud){
		"as documented": func(*ecstest.Cloud) {},
		"slow":          func(c *ecstest.Cloud) { c.Settle, c.Stale, c.PageSize = 2, 3, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			cloudtest.Check(t, func(t *testing.T) cloudtest.Subject {
				c := region("ecs.large", "i-1", "i-2")
				var breaker cloudtest.Breaker
				c.Fault = func(string, map[string]string) (f ecstest.Fault) {
					if breaker.Fails() {
						f.Status, f.Code = http.StatusServiceUnavailable, "ServiceUnavailable"
					}
					return f
				}
				edit(c)
				n := serve(t, c)
				// An interface of its own, with room for more than eight addresses.
				p, node := providerOf(t, Config{}, n, nil), nodeOf("i-1", nil)
				s, err := p.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.CreateInterface(caused(t), node, s.Instances["i-1"], s.Subnets, 1); err != nil {
					t.Fatal(err)
				}
				return cloudtest.Subject{
					New:  func(d *outside.Door) cloudipam.Provider { return providerOf(t, Config{}, n, d) },
					Node: node, Other: "i-2", Changes: c.Changes, Breaker: &breaker, Lag: func() { c.SetStale(4) },
				}
			})
		})
	}
}

// stateOf reads everything.
func stateOf(t *testing.T, p *provider) *cloudipam.State {
	t.Helper()
	s, err := p.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ALI-1, ALI-6, ALI-7: all pages are read, of the VPC alone; with tags those instances that have all of them.
func TestReads(t *testing.T) {
	c := region("ecs.large")
	c.PageSize = 2
	tags := map[string]string{"role": "pods", "team": "net"}
	c.AddVPC("vpc-2", "10.2.0.0/16")
	c.AddVSwitch("vsw-other", "vpc-2", c.Zone, "10.2.0.0/24", nil)
	c.AddGroup("sg-other", "vpc-2", nil)
	for _, id := range []string{"sg-2", "sg-3", "sg-4"} {
		c.AddGroup(id, ecstest.VPC, map[string]string{"a": id})
	}
	for id, of := range map[string]map[string]string{"i-1": tags, "i-2": nil, "i-3": {"role": "pods"}, "i-4": tags, "i-5": tags} {
		c.Run(id, "ecs.large", "vsw-a", of)
	}
	c.Run("i-elsewhere", "ecs.large", "vsw-other", nil)
	n := serve(t, c)
	for name, test := range map[string]struct {
		filter map[string]string
		want   []string
	}{
		"all":                       {nil, []string{"i-1", "i-2", "i-3", "i-4", "i-5"}},
		"tags":                      {tags, []string{"i-1", "i-4", "i-5"}},
		"tags that no instance has": {map[string]string{"role": "x"}, nil},
	} {
		p := providerOf(t, Config{}, n, nil)
		p.filter = test.filter
		s := stateOf(t, p)
		if got := slices.Sorted(maps.Keys(s.Instances)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if len(s.Subnets) != 1 || len(p.last().groups) != 4 || len(p.last().limits) != 4 {
			t.Errorf("%s: %d vSwitches, %d groups, %d types", name, len(s.Subnets), len(p.last().groups), len(p.last().limits))
		}
		one, err := p.ReadInstances(t.Context(), []string{"i-2", "i-none"})
		if err != nil || len(one) != 1 || one["i-2"] == nil {
			t.Errorf("%s: an instance alone: %v, %v", name, one, err)
		}
	}
	if n := c.Calls()["DescribeInstanceTypes"]; n != 9 {
		t.Errorf("types were read with %d calls, 3 pages each", n)
	}
}

// ALI-8: few instances are read alone, many by one list.
func TestReadsOfInstances(t *testing.T) {
	c := region("ecs.large", "i-1", "i-2", "i-3", "i-4", "i-5")
	p := providerOf(t, Config{}, serve(t, c), nil)
	stateOf(t, p)
	for ids, want := range map[string]int{"i-1 i-2 i-3": 3, "i-1 i-2 i-3 i-4": 1} {
		before := c.Calls()["DescribeNetworkInterfaces"]
		got, err := p.ReadInstances(t.Context(), strings.Fields(ids))
		if made := c.Calls()["DescribeNetworkInterfaces"] - before; err != nil || len(got) != len(strings.Fields(ids)) || made != want {
			t.Errorf("%s: %d instances, %d calls, want %d, %v", ids, len(got), made, want, err)
		}
	}
}

// ALI-7: who may not read instances gets an empty list of them, which is no list of no instances.
func TestInstancesThatMayNotBeRead(t *testing.T) {
	c := region("ecs.large")
	c.Run("i-1", "ecs.large", "vsw-a", map[string]string{"a": "b"})
	n := serve(t, c)
	p := providerOf(t, Config{}, n, nil)
	p.filter = map[string]string{"a": "b"}
	stateOf(t, p)
	c.SetFault(func(operation string, q map[string]string) (f ecstest.Fault) {
		if operation == "ListTagResources" {
			return f
		}
		if operation == "DescribeInstances" && q["InstanceIds"] != "" {
			f.Garbage = true
		}
		return f
	})
	if _, err := p.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "decoding the answer to DescribeInstances") {
		t.Errorf("an answer that is no JSON: %v", err)
	}
	_, err := p.session.interfacesOfInstances(t.Context(), nil)
	if err != nil {
		t.Errorf("no instances: %v", err)
	}
	c.SetFault(nil)
	if _, err := p.session.interfacesOfInstances(t.Context(), []string{"i-gone"}); err == nil || !strings.Contains(err.Error(), "allow the operator's RAM identity ecs:DescribeInstances") {
		t.Errorf("an empty list: %v", err)
	}
}

// ALI-3: where the nodes are is asked of the metadata service, in its hardened mode, too; options come first.
func TestMetadata(t *testing.T) {
	c := region("ecs.large", "i-1")
	c.Hardened = true
	n := serve(t, c)
	stateOf(t, providerOf(t, Config{}, n, nil))
	if calls := c.Calls()["metadata"]; calls != 6 {
		t.Errorf("the metadata service was asked %d times, want a refusal, a token and a value of two fields", calls)
	}
	c.SetMetadata(false)
	if _, err := providerOf(t, Config{AlibabaCloudVPCID: ecstest.VPC}, n, nil).Read(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "reading region-id from instance metadata") || !strings.Contains(err.Error(), "--alibaba-cloud-region-id sets it") {
		t.Errorf("without metadata: %v", err)
	}
	stateOf(t, providerOf(t, Config{AlibabaCloudVPCID: ecstest.VPC, AlibabaCloudRegionID: c.Region}, n, nil))
	if _, err := providerOf(t, Config{AlibabaCloudVPCID: "vpc-other", AlibabaCloudRegionID: c.Region}, n, nil).Read(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "VPC vpc-other does not exist in region "+c.Region) {
		t.Errorf("a VPC that does not exist: %v", err)
	}
}

// ALI-4, ALI-5: errors name the credentials that were used, and why others were not; answers are not part of them.
func TestCredentials(t *testing.T) {
	c := region("ecs.large", "i-1")
	c.KeyID = func() string { return "STS.good" }
	n := serve(t, c)
	read := func() error {
		_, err := providerOf(t, Config{}, n, nil).Read(t.Context())
		return err
	}
	if err := read(); err == nil || !strings.Contains(err.Error(), "InvalidAccessKeyId.NotFound: the credentials are not accepted: the key "+keyID) {
		t.Errorf("another key: %v", err)
	}
	setenv(t, envKeyID, "STS.good")
	setenv(t, envToken, "a-token")
	if err := read(); err != nil {
		t.Errorf("a key with a token: %v", err)
	}
	setenv(t, envToken, "")
	setenv(t, envKeySecret, "")
	setenv(t, envKeyID, "half")
	var requests atomic.Int64
	answer := atomic.Pointer[string]{}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = w.Write([]byte(*answer.Load()))
	}))
	t.Cleanup(front.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	setenv(t, envURI, front.URL)
	secret := `{"AccessKeyId": "STS.good", "AccessKeySecret": "hidden"}`
	answer.Store(&secret)
	if err := read(); err == nil || !strings.Contains(err.Error(), "requesting credentials from the service of "+envURI) ||
		!strings.Contains(err.Error(), envKeySecret+" is empty") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("a service that leaves things out: %v", err)
	}
	whole := `{"AccessKeyId": "STS.good", "AccessKeySecret": "s", "SecurityToken": "t", "Expiration": "2099-01-01T00:00:00Z"}`
	answer.Store(&whole)
	before := requests.Load()
	p := providerOf(t, Config{}, n, nil)
	stateOf(t, p)
	stateOf(t, p)
	if asked := requests.Load() - before; asked != 1 {
		t.Errorf("the service was asked %d times", asked)
	}
}

// ALI-5: a request for credentials that outlives its caller is waited for by the next one.
func TestSlowCredentials(t *testing.T) {
	c := region("ecs.large", "i-1")
	n := serve(t, c)
	setenv(t, envKeyID, "")
	release, asked := make(chan struct{}), make(chan struct{}, 10)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-release
		_, _ = w.Write([]byte(`{"AccessKeyId": "k", "AccessKeySecret": "s", "SecurityToken": "t", "Expiration": "2099-01-01T00:00:00Z"}`))
	}))
	t.Cleanup(front.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	setenv(t, envURI, front.URL)
	p := providerOf(t, Config{}, n, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := p.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a read whose context has ended: %v", err)
	}
	close(release)
	stateOf(t, p)
	if len(asked) != 0 {
		t.Errorf("credentials were requested %d times more", len(asked))
	}
}

// ALI-20: pauses that ECS asks for are kept, by its own header, by Retry-After, and without any.
func TestThrottling(t *testing.T) {
	for name, fault := range map[string]ecstest.Fault{
		"without a time":     {Status: http.StatusBadRequest, Code: "Throttling.User"},
		"TimeLeft":           {Status: http.StatusBadRequest, Code: "Throttling", TimeLeft: 1500},
		"Retry-After":        {Status: http.StatusTooManyRequests, Code: "Throttling.Api", RetryAfter: 2},
		"another spelling":   {Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable.Throttling"},
		"of changes as well": {Status: http.StatusBadRequest, Code: "Throttling.User"},
	} {
		c := region("ecs.large", "i-1")
		p := providerOf(t, Config{}, serve(t, c), nil)
		s := stateOf(t, p)
		c.SetFault(func(string, map[string]string) ecstest.Fault { return fault })
		var err error
		if strings.Contains(name, "changes") {
			_, err = p.CreateInterface(caused(t), nodeOf("i-1", nil), s.Instances["i-1"], s.Subnets, 2)
		} else {
			_, err = p.Read(t.Context())
		}
		pause := new(outside.ThrottledError)
		if !errors.As(err, &pause) || pause.RetryAfter() <= 0 || pause.RetryAfter() > 2e9 {
			t.Errorf("%s: %v", name, err)
		}
		before := c.Calls()
		if _, err := p.Read(t.Context()); !errors.As(err, new(*outside.ThrottledError)) || !maps.Equal(before, c.Calls()) {
			t.Errorf("%s: the pause is not kept: %v", name, err)
		}
	}
}

// ALI-18: what ECS refuses is said as users can remedy it, without ids and times, and with a pause where the next attempt would fail
// as well.
func TestRefusals(t *testing.T) {
	for code, test := range map[string]struct {
		status int
		text   string
		pauses bool
	}{
		"InvalidVSwitchId.IpNotEnough":     {403, "vSwitch vsw-a has no free addresses", false},
		"InvalidVSwitchId.NotFound":        {404, "vSwitch vsw-a does not exist any more", false},
		"EniPerInstanceLimitExceeded":      {403, "instance i-1 has as many interfaces as ECS allows", true},
		"InvalidEcsId.NotFound":            {404, "instance i-1 does not exist", true},
		"InvalidOperation.InvalidEcsState": {400, "instance i-1 is not running", true},
		"Forbidden.RAM":                    {403, "allow the operator's RAM identity ecs:AssignPrivateIpAddresses", false},
		"QuotaExceeded.PrivateIpAddress":   {400, "a quota is used up: ECS answers QuotaExceeded.PrivateIpAddress", false},
		"SomethingElse":                    {400, "ECS refuses AssignPrivateIpAddresses: SomethingElse", false},
		"Operation.Conflict":               {403, "", false},
		"InternalError":                    {500, "", false},
	} {
		c := region("ecs.large", "i-1")
		p, node := providerOf(t, Config{}, serve(t, c), nil), nodeOf("i-1", nil)
		s := stateOf(t, p)
		if _, err := p.CreateInterface(caused(t), node, s.Instances["i-1"], s.Subnets, 1); err != nil {
			t.Fatal(err)
		}
		s = stateOf(t, p)
		to, _ := p.FreeInterface(node, s.Instances["i-1"], s.Subnets)
		c.SetFault(func(string, map[string]string) ecstest.Fault { return ecstest.Fault{Status: test.status, Code: code} })
		err := p.Assign(caused(t), node, s.Instances["i-1"], to, 2)
		of := new(cloudipam.NodeError)
		if !errors.As(err, &of) || !strings.HasPrefix(of.Text, test.text) || (of.Text == "") != (test.text == "") || (of.Pause > 0) != test.pauses || strings.Contains(of.Text, "0000-") {
			t.Errorf("%s: %+v", code, err)
		}
	}
}

// ALI-15: the answer to a creation that is lost is asked for again by its token: one interface is created.
func TestLostAnswers(t *testing.T) {
	for _, operation := range []string{"CreateNetworkInterface", "AttachNetworkInterface"} {
		c := region("ecs.large", "i-1")
		c.Settle = 2
		lost := false
		c.Fault = func(of string, _ map[string]string) (f ecstest.Fault) {
			if of == operation && !lost {
				lost, f.Lose = true, true
			}
			return f
		}
		p := providerOf(t, Config{}, serve(t, c), nil)
		s := stateOf(t, p)
		made, err := p.CreateInterface(caused(t), nodeOf("i-1", nil), s.Instances["i-1"], s.Subnets, 4)
		if all := c.Interfaces(); err != nil || made.Count != 4 || len(all) != 2 || all[1].Instance != "i-1" || !lost {
			t.Errorf("%s: %+v, %v, %+v", operation, made, err, all)
		}
	}
}

// ALI-15: where the repeated request is not answered either, the interface that was perhaps created is deleted later.
func TestUnknownOutcomes(t *testing.T) {
	for name, fault := range map[string]ecstest.Fault{"created": {Lose: true}, "not created": {Status: http.StatusInternalServerError, Code: "InternalError"}} {
		c := region("ecs.large", "i-1")
		p := providerOf(t, Config{}, serve(t, c), nil)
		s := stateOf(t, p)
		var tasks []task
		p.upkeep.add = func(of task, _ ...k8s.Trigger) { tasks = append(tasks, of) }
		c.SetFault(func(string, map[string]string) ecstest.Fault { return fault })
		_, err := p.CreateInterface(caused(t), nodeOf("i-1", nil), s.Instances["i-1"], s.Subnets, 4)
		if err == nil || len(tasks) != 1 {
			t.Fatalf("%s: %v, %+v", name, err, tasks)
		}
		if err := p.upkeep.reconcile(caused(t), tasks[0]); err == nil {
			t.Errorf("%s: done while the cloud fails", name)
		}
		c.SetFault(nil)
		for range 2 {
			if err := p.upkeep.reconcile(caused(t), tasks[0]); err != nil || len(c.Interfaces()) != 1 {
				t.Errorf("%s: %v, %+v", name, err, c.Interfaces())
			}
		}
	}
}

// ALI-16: an interface that is not attached is deleted; one that cannot be deleted yet is deleted later, unless it is attached.
func TestAttachments(t *testing.T) {
	refuse := func(operation string) func(string, map[string]string) ecstest.Fault {
		return func(of string, _ map[string]string) (f ecstest.Fault) {
			if of == operation {
				f.Status, f.Code = http.StatusForbidden, "InvalidOperation.AvailabilityZoneMismatch"
			}
			return f
		}
	}
	c := region("ecs.large", "i-1")
	p := providerOf(t, Config{}, serve(t, c), nil)
	s := stateOf(t, p)
	create := func() error {
		_, err := p.CreateInterface(caused(t), nodeOf("i-1", nil), s.Instances["i-1"], s.Subnets, 4)
		return err
	}
	of := new(cloudipam.NodeError)
	c.SetFault(refuse("AttachNetworkInterface"))
	if err := create(); !errors.As(err, &of) || of.Status != "unableToAttachENI" || len(c.Interfaces()) != 1 {
		t.Errorf("%v, %+v", err, c.Interfaces())
	}
	c.SetFault(func(string, map[string]string) ecstest.Fault { return ecstest.Fault{Stuck: true} })
	if err := create(); !errors.As(err, &of) || of.Status != "unableToAttachENI" || !strings.HasPrefix(of.Text, "a new interface was not attached to instance i-1 within ") || len(c.Interfaces()) != 2 {
		t.Errorf("%v, %+v", err, c.Interfaces())
	}
	left := c.Interfaces()[1].ID
	for _, e := range stateOf(t, p).Instances["i-1"].Interfaces {
		if len(e.Addresses) > 0 && len(p.Addresses(nodeOf("i-1", nil), stateOf(t, p).Instances["i-1"])) > 0 {
			t.Errorf("addresses of an interface that is not attached are in the pool: %+v", e)
		}
	}
	if err := p.upkeep.reconcile(caused(t), task{id: left}); err == nil || len(c.Interfaces()) != 2 {
		t.Errorf("an interface that is stuck is deleted: %v", err)
	}
	c.Detach(left)
	for range 2 { // it may be gone
		if err := p.upkeep.reconcile(caused(t), task{id: left}); err != nil || len(c.Interfaces()) != 1 {
			t.Errorf("an interface is left: %v, %+v", err, c.Interfaces())
		}
	}
	c.SetFault(nil)
	if err := create(); err != nil {
		t.Fatal(err)
	}
	used := c.Interfaces()[1].ID
	if err := p.upkeep.reconcile(caused(t), task{id: used}); err != nil || len(c.Interfaces()) != 2 {
		t.Errorf("an interface that is attached is deleted: %v", err)
	}
}

// ALI-17: of addresses of which the interface lacks one the others are unassigned; more than ten take several calls.
func TestUnassign(t *testing.T) {
	c := region("ecs.large", "i-1")
	p, node := providerOf(t, Config{}, serve(t, c), nil), nodeOf("i-1", nil)
	s := stateOf(t, p)
	if _, err := p.CreateInterface(caused(t), node, s.Instances["i-1"], s.Subnets, 10); err != nil {
		t.Fatal(err)
	}
	s = stateOf(t, p)
	to, _ := p.FreeInterface(node, s.Instances["i-1"], s.Subnets)
	if err := p.Assign(caused(t), node, s.Instances["i-1"], to, 6); err != nil {
		t.Fatal(err)
	}
	s = stateOf(t, p)
	from := p.Releasable(node, s.Instances["i-1"], func(string) bool { return false }, 12)
	if len(from.Addresses) != 12 || from.Subnet != "vsw-a" || slices.Contains(from.Addresses, c.Interfaces()[1].Primary) {
		t.Fatalf("%+v", from)
	}
	gone := cloudipam.Surplus{Interface: from.Interface, Subnet: from.Subnet, Addresses: from.Addresses[:1]}
	if err := p.Unassign(caused(t), node, s.Instances["i-1"], gone); err != nil {
		t.Fatal(err)
	}
	before := c.Calls()["UnassignPrivateIpAddresses"]
	if err := p.Unassign(caused(t), node, s.Instances["i-1"], from); err != nil {
		t.Fatal(err)
	}
	if left := c.Interfaces()[1].Secondary; len(left) != 3 || c.Calls()["UnassignPrivateIpAddresses"]-before != 12 { // ten, each of them, and two
		t.Errorf("%d addresses are left after %d calls", len(left), c.Calls()["UnassignPrivateIpAddresses"]-before)
	}
	if n := len(p.Addresses(node, stateOf(t, p).Instances["i-1"])); n != 4 {
		t.Errorf("%d addresses are in the pool", n)
	}
}

// ALI-9: the status has all interfaces, whole.
func TestStatus(t *testing.T) {
	c := region("ecs.large", "i-1")
	p, node := providerOf(t, Config{}, serve(t, c), nil), nodeOf("i-1", nil)
	s := stateOf(t, p)
	if _, err := p.CreateInterface(caused(t), node, s.Instances["i-1"], s.Subnets, 3); err != nil {
		t.Fatal(err)
	}
	var status v2.CiliumNodeStatus
	p.SetStatus(node, stateOf(t, p).Instances["i-1"], &status)
	e := c.Interfaces()[1]
	got := status.AlibabaCloud.ENIs[e.ID]
	if len(status.AlibabaCloud.ENIs) != 2 || got.Type != "Secondary" || got.InstanceID != "i-1" || got.ZoneID != c.Zone || got.PrimaryIPAddress != e.Primary || got.MACAddress == "" ||
		got.VPC.VPCID != ecstest.VPC || got.VPC.CIDRBlock != "10.0.0.0/8" || got.VPC.IPv6CIDRBlock != "2001:db8::/56" || !slices.Equal(got.VPC.SecondaryCIDRs, []string{"172.16.0.0/16"}) ||
		got.VSwitch.VSwitchID != "vsw-a" || got.VSwitch.CIDRBlock != "10.1.0.0/24" || !slices.Equal(got.SecurityGroupIDs, []string{ecstest.Group}) ||
		len(got.PrivateIPSets) != 3 || !got.PrivateIPSets[0].Primary || got.PrivateIPSets[1].Primary || got.Tags[indexTag] != "1" {
		t.Errorf("%+v", got)
	}
}

// ALI-9; numbers 16 and 17 of the contract's ipam-azure.md: what is no address is in no status, counts against the limit of its interface,
// and is left to the engine, which reports it. A VPC with a range that is none fails the read.
func TestWhatCannotBeParsed(t *testing.T) {
	c := region("ecs.large", "i-1")
	p, node := providerOf(t, Config{}, serve(t, c), nil), nodeOf("i-1", nil)
	s := stateOf(t, p)
	if _, err := p.CreateInterface(caused(t), node, s.Instances["i-1"], s.Subnets, 3); err != nil {
		t.Fatal(err)
	}
	before, _ := p.FreeInterface(node, stateOf(t, p).Instances["i-1"], s.Subnets)
	e := c.Interfaces()[1]
	c.Garble(e.ID, "", "10.1.0.256")
	i := stateOf(t, p).Instances["i-1"]
	var status v2.CiliumNodeStatus
	p.SetStatus(node, i, &status)
	var published []string
	for _, a := range status.AlibabaCloud.ENIs[e.ID].PrivateIPSets {
		published = append(published, a.PrivateIPAddress)
	}
	if want := append([]string{e.Primary}, e.Secondary...); !slices.Equal(published, want) {
		t.Errorf("published are %q, want %q", published, want)
	}
	if has := slices.Sorted(maps.Keys(p.Addresses(node, i))); len(has) != 5 || has[0] != "" || !slices.Contains(has, "10.1.0.256") {
		t.Errorf("the engine gets %q", has)
	}
	if after, _ := p.FreeInterface(node, i, s.Subnets); after.Count != before.Count-2 {
		t.Errorf("there is room for %d, and was for %d", after.Count, before.Count)
	}
	c.AddVPC(ecstest.VPC, "10.0.0.0/33")
	if _, err := p.Read(t.Context()); err == nil || !strings.Contains(err.Error(), ecstest.VPC+` has "10.0.0.0/33" among its ranges`) {
		t.Errorf("a VPC with a range that is none: %v", err)
	}
}
