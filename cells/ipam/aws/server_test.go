// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// server is the CiliumNodes of a real API server, and EC2.
type server struct {
	t     testing.TB
	env   *operatortest.Env
	nodes cloudtest.Nodes
	ec2   *ec2test.Cloud
}

func newServer(t testing.TB) *server {
	t.Helper()
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
	env.Clear(v2.CiliumNodeResource)
	s := &server{t, env, cloudtest.NewNodes(t, env), region("m5.large")}
	serve(t, s.ec2)
	return s
}

// start leads.
func (s *server) start(args ...string) *operatortest.Operator {
	s.t.Helper()
	o := s.startUnready(append([]string{"--limit-ipam-api-qps=1000", "--limit-ipam-api-burst=1000"}, args...)...)
	o.Log().Wait(s.t, "caches synced, allocating addresses of the cloud")
	return o
}

func (s *server) startUnready(args ...string) *operatortest.Operator {
	s.t.Helper()
	return operatortest.Setup{Process: []cell.Cell{cloudipam.Cell}}.Start(s.t, Cell, s.env.Kubeconfig(), append([]string{"--ipam=eni"}, args...)...)
}

// run starts an instance and registers its node.
func (s *server) run(kind string, edit func(*v2.CiliumNode)) (name string) {
	s.t.Helper()
	s.machine("i-1", kind, "subnet-a")
	s.create("a", "i-1", kind, edit)
	return "a"
}

// machine starts an instance.
func (s *server) machine(id, kind, subnet string) {
	s.t.Helper()
	if err := s.ec2.Run(id, kind, subnet, nil); err != nil {
		s.t.Fatal(err)
	}
}

// leave has an interface that nothing uses.
func (s *server) leave(tags map[string]string) {
	s.t.Helper()
	if _, err := s.ec2.Leave("subnet-a", tags); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) create(name, instance, kind string, edit func(*v2.CiliumNode)) {
	s.t.Helper()
	s.nodes.Register(name, instance, func(n *v2.CiliumNode) {
		n.Spec = *nodeOf(instance, func(spec *v2.CiliumNodeSpec) { spec.ENI.InstanceType = kind }).Spec
		if edit != nil {
			edit(n)
		}
	})
}

// use has the agent use the first addresses of the pool.
func (s *server) use(name string, count int) {
	s.t.Helper()
	s.nodes.Edit(name, true, func(n *v2.CiliumNode) {
		n.Status.IPAM.Used = map[string]v2.AllocationIP{}
		for _, a := range poolOf(n)[:count] {
			n.Status.IPAM.Used[a] = v2.AllocationIP{Owner: "default/" + a}
		}
	})
}

func poolOf(n *v2.CiliumNode) []string {
	return slices.SortedFunc(maps.Keys(n.Spec.IPAM.Pool), compareAddresses)
}

// wantPool waits until a node has a number of addresses.
func (s *server) wantPool(name string, count int) {
	s.t.Helper()
	var n *v2.CiliumNode
	defer func() {
		if s.t.Failed() {
			s.t.Logf("node %s has %q, error %q, calls: %v", name, poolOf(n), n.Status.IPAM.OperatorStatus.Error, s.ec2.Calls())
		}
	}()
	operatortest.Eventually(s.t, fmt.Sprintf("node %s has %d addresses", name, count), func() bool {
		n = s.nodes.Read(name)
		return len(n.Spec.IPAM.Pool) == count
	})
	for a, of := range n.Spec.IPAM.Pool {
		if !slices.Contains(n.Status.ENI.ENIs[of.Resource].Addresses, a) {
			s.t.Errorf("%s of the pool is not in the status of %s", a, of.Resource)
		}
	}
}

// AWS-E1; AWS-6, AWS-14, AWS-17, AWS-18, AWS-20, AWS-24: interfaces, and what is written of them. A restart changes nothing.
func TestServerInterfaces(t *testing.T) {
	s := newServer(t)
	o := s.start("--eni-tags=team=net", "--cluster-name=one")
	name := s.run("m5.large", nil)
	s.wantPool(name, 8)
	if calls := s.ec2.Calls(); calls["AssignPrivateIpAddresses"] != 1 || s.ec2.Changes() != 1 {
		t.Errorf("%v", calls)
	}
	s.use(name, 7)
	s.wantPool(name, 15)
	list := s.ec2.Interfaces()
	if len(list) != 2 || len(list[0].Addresses)+len(list[1].Addresses) != 15 {
		t.Fatalf("%+v", list)
	}
	second := list[1]
	wantTags := map[string]string{"team": "net", managedTag: "true", clusterTag: "one"}
	if second.Index != 1 || second.Description != "Cilium-CNI (i-1)" || !second.DeletedWithInstance || !maps.Equal(second.Tags, wantTags) {
		t.Errorf("%+v", second)
	}
	operatortest.Eventually(t, "its status is that of EC2", func() bool {
		e := s.nodes.Read(name).Status.ENI.ENIs[second.ID]
		return e.Number == 1 && e.IP == second.Primary && e.Subnet == v2.AWSSubnet{ID: "subnet-a", CIDR: "10.1.0.0/24"} && e.VPC.PrimaryCIDR == "10.0.0.0/8" &&
			slices.Equal(e.VPC.CIDRs, []string{"100.64.0.0/16"}) && slices.Equal(e.SecurityGroups, []string{"sg-1"}) && maps.Equal(e.Tags, wantTags)
	})
	for _, operation := range []string{"DescribeNetworkInterfaces", "CreateNetworkInterface", "ModifyNetworkInterface"} {
		if !slices.ContainsFunc(o.Samples("ec2_api_duration_seconds"), func(m operatortest.Sample) bool {
			return m.Label("operation") == operation && m.Label("response_code") == "OK"
		}) {
			t.Errorf("%s is not counted", operation)
		}
	}
	s.env.CheckHealthy(o)
	o.Stop()

	changes, before := s.ec2.Changes(), s.nodes.Read(name).ResourceVersion
	o = s.start("--eni-tags=team=net", "--cluster-name=one")
	operatortest.Eventually(t, "it is processed again", func() bool { return o.Metric("ipam_ips", "available") == 8 && o.Metric("ipam_nodes", "total") == 1 })
	if s.ec2.Changes() != changes || s.nodes.Read(name).ResourceVersion != before {
		t.Errorf("a restart made %d changes, or wrote the node", s.ec2.Changes()-changes)
	}
	s.env.CheckHealthy(o)
}

// AWS-E2; AWS-21: watermarks, and a release.
func TestServerWatermarksAndRelease(t *testing.T) {
	s := newServer(t)
	s.start("--aws-release-excess-ips", "--excess-ip-release-delay=0")
	name := s.run("m4.xlarge", func(n *v2.CiliumNode) {
		n.Spec.IPAM.PreAllocate, n.Spec.IPAM.MinAllocate, n.Spec.IPAM.MaxAboveWatermark = 2, 10, 3
	})
	s.wantPool(name, 13)
	s.use(name, 11)
	s.wantPool(name, 13)
	s.use(name, 13)
	s.wantPool(name, 18)
	s.use(name, 10)
	released := map[string]bool{} // of one interface at a time
	operatortest.Eventually(t, "13 remain", func() bool {
		s.nodes.Edit(name, true, func(n *v2.CiliumNode) {
			for a, state := range n.Status.IPAM.ReleaseIPs {
				switch _, isInPool := n.Spec.IPAM.Pool[a]; {
				case state == v2.IPMarkedForRelease:
					n.Status.IPAM.ReleaseIPs[a] = v2.IPReadyForRelease
					released[a] = true
				case state == v2.IPReleased && !isInPool:
					delete(n.Status.IPAM.ReleaseIPs, a)
				}
			}
		})
		return len(s.nodes.Read(name).Spec.IPAM.Pool) == 13
	})
	owners := s.ec2.Owners()
	for a := range released {
		if owners[a] != "" {
			t.Errorf("%s is still assigned", a)
		}
	}
	if len(released) != 5 {
		t.Errorf("%d addresses were released", len(released))
	}
	if len(s.ec2.Interfaces()) != 2 {
		t.Error("an interface was detached")
	}
}

// AWS-E3: a node that can have no more.
func TestServerInstanceIsFull(t *testing.T) {
	s := newServer(t)
	o := s.start()
	name := s.run("t2.xlarge", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 20 })
	s.wantPool(name, 20)
	s.nodes.Edit(name, false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 42 })
	s.wantPool(name, 42)
	s.use(name, 40)
	operatortest.Eventually(t, "it uses them", func() bool { return o.Metric("ipam_ips", "used") == 40 })
	s.wantPool(name, 42)
	operatortest.Eventually(t, "it is at its capacity", func() bool { return o.Metric("ipam_nodes", "at-capacity") == 1 })
	s.env.CheckHealthy(o)
}

// AWS-E4, AWS-E5; AWS-11, AWS-12: prefixes, and single addresses where a subnet has none.
func TestServerPrefixes(t *testing.T) {
	s := newServer(t)
	s.ec2.AddSubnet("subnet-b", "vpc-1", "eu-west-1a", "10.2.0.0/24", nil)
	s.start("--aws-enable-prefix-delegation")
	s.machine("i-1", "m5a.large", "subnet-b")
	s.create("a", "i-1", "m5a.large", nil)
	s.wantPool("a", 16)
	s.use("a", 12)
	s.wantPool("a", 32)
	if list := s.ec2.Interfaces(); len(list) != 1 || len(list[0].Prefixes) != 2 || len(list[0].Addresses) != 0 {
		t.Fatalf("%+v", list)
	}
	s.ec2.Fill("subnet-b", 15)
	s.use("a", 25)
	s.wantPool("a", 33)
	if list := s.ec2.Interfaces(); len(list) != 1 || len(list[0].Prefixes) != 2 || len(list[0].Addresses) != 1 {
		t.Errorf("%+v", list)
	}
}

// AWS-E6, AWS-E7; AWS-9, AWS-13, AWS-16: security groups by tag; the first interface is not for pods.
func TestServerGroupsAndIndex(t *testing.T) {
	s := newServer(t)
	s.ec2.AddGroup("sg-2", "vpc-1", map[string]string{"test-sg-1": "yes"})
	s.start()
	one := 1
	name := s.run("m5.large", func(n *v2.CiliumNode) {
		n.Spec.ENI.FirstInterfaceIndex, n.Spec.ENI.SecurityGroupTags = &one, map[string]string{"test-sg-1": "yes"}
		n.Spec.IPAM.MinAllocate = 30
	})
	s.wantPool(name, 18)
	list := s.ec2.Interfaces()
	if len(list) != 3 || len(list[0].Addresses) != 0 || !slices.Equal(list[1].Groups, []string{"sg-2"}) || list[1].Index != 1 || list[2].Index != 2 {
		t.Errorf("%+v", list)
	}
}

// AWS-E9; AWS-18: a device index that EC2 shows free and is taken.
func TestServerIndexIsTaken(t *testing.T) {
	s := newServer(t)
	s.ec2.Fault = func(operation string, parameters map[string]string) (f ec2test.Fault) {
		if operation == "AttachNetworkInterface" && parameters["DeviceIndex"] == "1" {
			f.Refuse = &ec2test.Error{Code: codeInvalid, Message: "Instance 'i-1' already has an interface attached at device index '1'."}
		}
		return f
	}
	s.start()
	name := s.run("m5.large", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 12 })
	s.wantPool(name, 12)
	if list, calls := s.ec2.Interfaces(), s.ec2.Calls(); len(list) != 2 || list[1].Index != 2 || calls["CreateNetworkInterface"] != 1 || calls["DeleteNetworkInterface"] != 0 {
		t.Errorf("%+v, %v", list, calls)
	}
}

// AWS-E10; AWS-19: an instance that is not running is left alone until its CiliumNode changes.
func TestServerInstanceIsNotRunning(t *testing.T) {
	s := newServer(t)
	o := s.start()
	name := s.run("m5.large", nil)
	s.wantPool(name, 8)
	s.ec2.SetState("i-1", "pending")
	s.nodes.Edit(name, false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 9 }) // all that the first interface has
	s.wantPool(name, 9)
	s.nodes.Edit(name, false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 12 })
	operatortest.Eventually(t, "it is reported", func() bool {
		return s.nodes.Read(name).Status.IPAM.OperatorStatus.Error == "instance i-1 is not running"
	})
	calls := s.ec2.Calls()
	if len(s.ec2.Interfaces()) != 1 || calls["CreateNetworkInterface"] != 1 || calls["DeleteNetworkInterface"] != 1 {
		t.Errorf("%v", calls)
	}
	s.use(name, 9) // a change of the status is none
	operatortest.Eventually(t, "it is seen", func() bool { return o.Metric("ipam_needed_ips", name) == 8 })
	if n := s.ec2.Calls()["CreateNetworkInterface"]; n != 1 {
		t.Errorf("%d attempts", n)
	}
	s.ec2.SetState("i-1", "running")
	s.nodes.Edit(name, false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 13 })
	s.wantPool(name, 17)
	operatortest.Eventually(t, "the error is gone", func() bool { return s.nodes.Read(name).Status.IPAM.OperatorStatus.Error == "" })
}

// AWS-20: an interface that could not be marked for deletion with its instance stays, and is marked later. One that is not to be
// deleted with it is not marked.
func TestServerMarkingFails(t *testing.T) {
	s := newServer(t)
	var failures atomic.Int32
	s.ec2.Fault = func(operation string, _ map[string]string) (f ec2test.Fault) {
		if operation == "ModifyNetworkInterfaceAttribute" && failures.Add(1) <= 2 {
			f.Refuse = &ec2test.Error{Status: http.StatusInternalServerError, Code: "InternalError", Message: "An internal error has occurred"}
		}
		return f
	}
	s.start()
	name := s.run("m5.large", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 12 })
	s.wantPool(name, 12)
	operatortest.Eventually(t, "it is marked", func() bool { return s.ec2.Interfaces()[1].DeletedWithInstance })
	if calls := s.ec2.Calls(); calls["DeleteNetworkInterface"] != 0 || calls["CreateNetworkInterface"] != 1 {
		t.Errorf("%v", calls)
	}
	keep := false
	s.nodes.Edit(name, false, func(n *v2.CiliumNode) { n.Spec.ENI.DeleteOnTermination, n.Spec.IPAM.MinAllocate = &keep, 20 })
	s.wantPool(name, 20)
	if list := s.ec2.Interfaces(); len(list) != 3 || list[2].DeletedWithInstance {
		t.Errorf("%+v", list)
	}
}

// AWS-E11; AWS-10, AWS-15: what users have to remedy is in the status. A subnet that vanishes hurts its nodes only.
func TestServerNodesThatCannotBeServed(t *testing.T) {
	s := newServer(t)
	o := s.start()
	name := s.run("m5.large", func(n *v2.CiliumNode) {
		n.Spec.ENI.AvailabilityZone, n.Spec.ENI.SubnetIDs, n.Spec.IPAM.MinAllocate = "eu-west-1c", []string{"subnet-x"}, 12
	})
	operatortest.Eventually(t, "it is reported", func() bool {
		return s.nodes.Read(name).Status.IPAM.OperatorStatus.Error == "No matching subnet available for interface creation (VPC=vpc-1 AZ=eu-west-1c SubnetIDs=[subnet-x] SubnetTags=map[])"
	})
	if s.ec2.Calls()["CreateNetworkInterface"] != 0 {
		t.Error("an interface was created")
	}
	s.machine("i-2", "m5.large", "subnet-a")
	s.create("untyped", "i-2", "", nil)
	s.machine("i-3", "m5.large", "subnet-a")
	s.create("odd", "i-3", "z0.nano", nil)
	s.create("nameless", "", "m5.large", nil)
	s.create("double", "i-1", "m5.large", nil)
	operatortest.Eventually(t, "all are reported", func() bool { return strings.Contains(o.Degraded("ipam.aws.nodes"), "5 CiliumNodes lack addresses") })
	o.Log().Wait(t, "instance type is not known")

	s.ec2.AddSubnet("subnet-v", "vpc-1", "eu-west-1a", "10.3.0.0/24", nil)
	s.machine("i-4", "m5.large", "subnet-v")
	s.ec2.RemoveSubnet("subnet-v")
	s.create("vanished", "i-4", "m5.large", func(n *v2.CiliumNode) { n.Spec.ENI.NodeSubnetID = "subnet-v" })
	s.wantPool("vanished", 8) // of an interface in another subnet
	s.machine("i-5", "m5.large", "subnet-a")
	s.create("well", "i-5", "m5.large", nil)
	s.wantPool("well", 8)
}

// AWS-E12; AWS-22: interfaces that nothing uses are deleted when two runs have seen them.
func TestServerGarbage(t *testing.T) {
	s := newServer(t)
	ours := map[string]string{managedTag: "true", clusterTag: "one"}
	for i := range 80 {
		switch {
		case i < 50:
			s.leave(ours)
		case i < 65:
			s.leave(nil)
		default:
			s.leave(map[string]string{managedTag: "true", clusterTag: "two"})
		}
	}
	var runs []int
	s.ec2.Fault = func(operation string, parameters map[string]string) (f ec2test.Fault) {
		switch {
		case operation == "DeleteNetworkInterface":
			runs[len(runs)-1]++
		case operation == "DescribeNetworkInterfaces" && parameters["MaxResults"] == "25":
			runs = append(runs, 0) // deletions after this list are those of the next run
		}
		return f
	}
	o := s.start("--eni-gc-interval=100ms", "--cluster-name=one")
	operatortest.Eventually(t, "ours are deleted", func() bool {
		return !slices.ContainsFunc(s.ec2.Interfaces(), func(i ec2test.Interface) bool { return i.Tags[clusterTag] == "one" })
	})
	if n := len(s.ec2.Interfaces()); n != 30 {
		t.Errorf("%d interfaces are left", n)
	}
	o.Stop()
	if len(runs) < 2 || runs[0] != 25 || runs[1] != 25 {
		t.Errorf("the runs after the first deleted %v", runs)
	}
}

// AWS-E13; AWS-8: a mapping overrides what EC2 says.
func TestServerMapping(t *testing.T) {
	s := newServer(t)
	s.start("--aws-instance-limit-mapping=m5.large=2,5,5")
	name := s.run("m5.large", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 30 })
	s.wantPool(name, 8)
	if list := s.ec2.Interfaces(); len(list) != 2 || len(list[0].Addresses) != 4 || len(list[1].Addresses) != 4 {
		t.Errorf("%+v", list)
	}
}

// AWS-E14; AWS-2: without the metadata service it is degraded, says why, and works once there is one. Credentials that have
// expired degrade it, too.
func TestServerMetadataAndCredentials(t *testing.T) {
	s := newServer(t)
	var away atomic.Bool
	away.Store(true)
	metadata := s.ec2.Metadata()
	front := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		metadata.ServeHTTP(w, r)
	}))
	setenv(t, "AWS_EC2_METADATA_SERVICE_ENDPOINT", front)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		setenv(t, name, "") // those of the instance's role
	}
	var key atomic.Value
	key.Store("ASIAFIRST")
	s.ec2.Credential = func() string { return key.Load().(string) }
	o := s.startUnready("--limit-ipam-api-qps=1000", "--limit-ipam-api-burst=1000")
	name := s.run("m5.large", nil)
	operatortest.Eventually(t, "it is degraded", func() bool { return strings.Contains(o.Degraded("ipam.aws"), "instance identity document") })
	if s.ec2.Changes() != 0 {
		t.Error("EC2 was changed")
	}
	away.Store(false)
	s.wantPool(name, 8)
	operatortest.Eventually(t, "it recovers", func() bool { return o.Degraded("ipam.aws") == "" })

	key.Store("ASIASECOND")
	s.nodes.Edit(name, false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 9 })
	operatortest.Eventually(t, "it is degraded again", func() bool { return strings.Contains(o.Degraded("ipam.aws"), "RequestExpired") })
	key.Store("ASIAFIRST")
	s.wantPool(name, 9)
}
