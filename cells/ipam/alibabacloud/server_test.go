// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/cloudipam/ecstest"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// server is the CiliumNodes of a real API server, and a region.
type server struct {
	t       *testing.T
	env     *operatortest.Env
	nodes   cloudtest.Nodes
	cloud   *ecstest.Cloud
	network network
}

func newServer(t *testing.T, c *ecstest.Cloud) *server {
	t.Helper()
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
	env.Clear(v2.CiliumNodeResource)
	return &server{t, env, cloudtest.NewNodes(t, env), c, serve(t, c)}
}

// launch leads, and does not wait for anything.
func (s *server) launch(args ...string) *operatortest.Operator {
	s.t.Helper()
	args = append([]string{"--ipam=alibabacloud", "--limit-ipam-api-qps=1000", "--limit-ipam-api-burst=1000"}, args...)
	return operatortest.Setup{Process: []cell.Cell{cloudipam.Cell}}.Start(s.t, newCell(func() network { return s.network }), s.env.Kubeconfig(), args...)
}

// start leads.
func (s *server) start(args ...string) *operatortest.Operator {
	s.t.Helper()
	o := s.launch(args...)
	o.Log().Wait(s.t, "caches synced, allocating addresses of the cloud")
	return o
}

// run starts an instance and registers its node.
func (s *server) run(name, kind string, edit func(*v2.CiliumNode)) {
	s.t.Helper()
	s.cloud.Run("i-"+name, kind, "vsw-a", nil)
	s.nodes.Register(name, "i-"+name, func(n *v2.CiliumNode) {
		n.Spec.AlibabaCloud = v2.AlibabaCloudSpec{InstanceType: kind, VPCID: ecstest.VPC, AvailabilityZone: s.cloud.Zone}
		if edit != nil {
			edit(n)
		}
	})
}

// wantPool waits until a node has a number of addresses, which are its instance's.
func (s *server) wantPool(name string, count int) *v2.CiliumNode {
	s.t.Helper()
	var n *v2.CiliumNode
	defer func() {
		if s.t.Failed() {
			s.t.Logf("node %s has %d addresses, %q, calls: %v", name, len(n.Spec.IPAM.Pool), n.Status.IPAM.OperatorStatus.Error, s.cloud.Calls())
		}
	}()
	operatortest.Eventually(s.t, fmt.Sprintf("node %s has %d addresses", name, count), func() bool {
		n = s.nodes.Read(name)
		owners := s.cloud.Owners()
		return len(n.Spec.IPAM.Pool) == count && !slices.ContainsFunc(slices.Collect(maps.Keys(n.Spec.IPAM.Pool)), func(a string) bool { return owners[a] != n.Spec.InstanceID })
	})
	return n
}

// interfacesOf are the interfaces of an instance, without the primary one.
func (s *server) interfacesOf(instance string) []ecstest.Interface {
	return slices.DeleteFunc(s.cloud.Interfaces(), func(i ecstest.Interface) bool { return i.Instance != instance || i.Type == "Primary" })
}

func (s *server) versions() map[string]string {
	s.t.Helper()
	list, err := s.nodes.List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string]string{}
	for _, n := range list.Items {
		all[n.GetName()] = n.GetResourceVersion()
	}
	return all
}

// ALI-E14, ALI-E15, ALI-13 to ALI-15, and ALI-21: a restart changes nothing.
func TestExamples(t *testing.T) {
	c := region("ecs.large")
	c.Settle, c.PageSize = 1, 3
	c.AddVSwitch("vsw-pods", ecstest.VPC, c.Zone, "10.9.0.0/24", map[string]string{"role": "pods"})
	c.AddGroup("sg-pods", ecstest.VPC, map[string]string{"role": "pods"})
	s := newServer(t, c)
	s.run("medium", "ecs.medium", nil)
	s.run("small", "ecs.small", nil)
	s.run("tagged", "ecs.large", func(n *v2.CiliumNode) {
		n.Spec.AlibabaCloud.VSwitchTags, n.Spec.AlibabaCloud.SecurityGroupTags = map[string]string{"role": "pods"}, map[string]string{"role": "pods"}
	})
	s.run("alone", "ecs.alone", nil)
	s.nodes.Register("without", "", nil)
	o := s.start()
	for _, name := range []string{"medium", "small", "tagged"} {
		s.wantPool(name, 8)
	}
	of := s.interfacesOf("i-medium")
	if len(of) != 2 || len(of[0].Secondary) != 5 || len(of[1].Secondary) != 1 || of[0].Tags[indexTag] != "1" || of[1].Tags[indexTag] != "2" {
		t.Errorf("ALI-E14: %+v", of)
	}
	if of = s.interfacesOf("i-small"); len(of) != 1 || len(of[0].Secondary) != 7 || o.Metric("ipam_available_ips", "small") != 10 {
		t.Errorf("ALI-E15: %+v, capacity %v", of, o.Metric("ipam_available_ips", "small"))
	}
	if of = s.interfacesOf("i-tagged"); len(of) != 1 || of[0].VSwitch != "vsw-pods" || !slices.Equal(of[0].Groups, []string{"sg-pods"}) {
		t.Errorf("by tags: %+v", of)
	}
	if n := s.nodes.Read("small"); len(n.Status.AlibabaCloud.ENIs) != 2 {
		t.Errorf("the status is %+v", n.Status.AlibabaCloud)
	}
	if n := s.nodes.Read("without"); len(n.Status.AlibabaCloud.ENIs) != 0 || n.Status.IPAM.OperatorStatus.Error == "" {
		t.Errorf("a node without instance has the status %+v", n.Status)
	}
	operatortest.Eventually(t, "an instance with one adapter is at capacity", func() bool { return o.Metric("ipam_nodes", "at-capacity") == 1 })
	if got := len(s.nodes.Read("alone").Spec.IPAM.Pool); got != 0 {
		t.Errorf("an instance with one adapter has %d addresses", got)
	}
	if n := o.Metric("alibabacloud_api_duration_seconds", "CreateNetworkInterface", "OK"); n != 4 {
		t.Errorf("%v creations are counted", n)
	}
	o.Stop()
	before, changes := s.versions(), c.Changes()
	o = s.start()
	operatortest.Eventually(t, "all nodes are processed again", func() bool { return o.Metric("ipam_ips", "available") == 24 })
	o.Stop()
	if after := s.versions(); !maps.Equal(before, after) || c.Changes() != changes {
		t.Errorf("ALI-21: a restart wrote CiliumNodes, %v and then %v, or changed the cloud: %d", before, after, c.Changes()-changes)
	}
}

// ALI-16, ALI-18, ALI-20: attachments that fail or are stuck leave no interface; what half succeeds is used; vSwitches that vanish are
// named.
func TestFaults(t *testing.T) {
	c := region("ecs.large")
	c.Settle, c.Stale = 1, 2
	var attaches, assigns atomic.Int64
	c.Fault = func(operation string, _ map[string]string) (f ecstest.Fault) {
		switch operation {
		case "AttachNetworkInterface":
			switch attaches.Add(1) {
			case 1:
				f.Status, f.Code = http.StatusForbidden, "InvalidOperation.VpcMismatch"
			case 2:
				f.Stuck = true
			}
		case "AssignPrivateIpAddresses":
			f.Partial = assigns.Add(1) == 1
		}
		return f
	}
	s := newServer(t, c)
	s.run("a", "ecs.large", nil)
	o := s.start()
	o.Log().Wait(t, "changing addresses of instance failed, retrying")
	if n := s.nodes.Read("a"); len(n.Spec.IPAM.Pool) != 0 {
		t.Errorf("the pool is %v after an attachment that failed", n.Spec.IPAM.Pool)
	}
	o.Log().Wait(t, "deleting an interface that could not be attached failed, retrying")
	left := s.interfacesOf("i-a")[0]
	c.Detach(left.ID)
	s.wantPool("a", 8)
	operatortest.Eventually(t, "the interface that was stuck is deleted", func() bool {
		return !slices.ContainsFunc(c.Interfaces(), func(i ecstest.Interface) bool { return i.ID == left.ID })
	})
	s.nodes.Edit("a", true, func(n *v2.CiliumNode) {
		n.Status.IPAM.Used = map[string]v2.AllocationIP{}
		for _, a := range slices.Sorted(maps.Keys(n.Spec.IPAM.Pool))[:6] {
			n.Status.IPAM.Used[a] = v2.AllocationIP{Owner: "default/web"}
		}
	})
	s.wantPool("a", 15) // one was assigned before the call failed, and another interface has six
	if of := s.interfacesOf("i-a"); assigns.Load() != 1 || len(of) != 2 || len(of[0].Secondary) != 8 || len(of[1].Secondary) != 5 {
		t.Errorf("%d calls, %+v", assigns.Load(), of)
	}

	c.RemoveVSwitch("vsw-a")
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.PreAllocate = 20 })
	operatortest.Eventually(t, "the vSwitch that vanished is named", func() bool {
		return strings.Contains(s.nodes.Read("a").Status.IPAM.OperatorStatus.Error, "vSwitch")
	})
	if n := s.nodes.Read("a"); len(n.Spec.IPAM.Pool) != 15 {
		t.Errorf("the pool is %v", n.Spec.IPAM.Pool)
	}
}

// ALI-3 to ALI-5: metadata that are away, credentials that are not accepted and types that may not be read are waited for, and
// reported; then all is served.
func TestOutages(t *testing.T) {
	c := region("ecs.large")
	c.SetMetadata(false)
	var accepted, denied atomic.Bool
	denied.Store(true)
	c.KeyID = func() string {
		if accepted.Load() {
			return keyID
		}
		return "LTAI-other"
	}
	c.Fault = func(operation string, _ map[string]string) (f ecstest.Fault) {
		if operation == "DescribeInstanceTypes" && denied.Load() {
			f.Status, f.Code = http.StatusForbidden, "Forbidden.RAM"
		}
		return f
	}
	s := newServer(t, c)
	s.run("a", "ecs.large", nil)
	o := s.launch()
	wait := func(text string) {
		t.Helper()
		operatortest.Eventually(t, text+" is reported", func() bool { return strings.Contains(o.Degraded("ipam.alibabacloud"), text) })
	}
	wait("reading region-id from instance metadata")
	c.SetMetadata(true)
	wait("the credentials are not accepted: the key " + keyID)
	accepted.Store(true)
	wait("allow the operator's RAM identity ecs:DescribeInstanceTypes")
	denied.Store(false)
	s.wantPool("a", 8)
	operatortest.Eventually(t, "health is good again", func() bool { return o.Degraded("ipam.alibabacloud") == "" })
}

// ALI-9 and CIPAM-44; number 17 of the contract's ipam-azure.md: an address that is none is in neither the status nor the pool, and is
// logged and in health; the others are used.
func TestAddressesThatAreNone(t *testing.T) {
	c := region("ecs.large")
	s := newServer(t, c)
	s.run("a", "ecs.large", nil)
	o := s.start()
	s.wantPool("a", 8)
	c.Garble(s.interfacesOf("i-a")[0].ID, "")
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 9 })
	n := s.wantPool("a", 9)
	for _, e := range n.Status.AlibabaCloud.ENIs {
		if slices.ContainsFunc(e.PrivateIPSets, func(a v2.AlibabaCloudPrivateIP) bool { return a.PrivateIPAddress == "" }) {
			t.Errorf("the status has %+v", e)
		}
	}
	o.Log().Wait(t, "the cloud shows addresses that no pod can have")
	operatortest.Eventually(t, "it is in health", func() bool {
		return strings.Contains(o.Degraded("ipam.alibabacloud"), "addresses that no pod can have")
	})
}

// ALI-17; number 16 of the contract's ipam-azure.md: surplus addresses are released after the handshake with the agent, and not the primary ones.
func TestRelease(t *testing.T) {
	c := region("ecs.large")
	s := newServer(t, c)
	s.run("a", "ecs.large", func(n *v2.CiliumNode) { n.Spec.IPAM.PreAllocate = 10 })
	s.start("--alibaba-cloud-release-excess-ips", "--excess-ip-release-delay=0")
	s.wantPool("a", 10)
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.PreAllocate = 4 })
	var marked []string
	operatortest.Eventually(t, "surplus addresses are marked", func() bool {
		marked = slices.Sorted(maps.Keys(s.nodes.Read("a").Status.IPAM.ReleaseIPs))
		return len(marked) == 6
	})
	if primary := s.interfacesOf("i-a")[0].Primary; slices.Contains(marked, primary) {
		t.Errorf("the primary address %s is released", primary)
	}
	s.nodes.Edit("a", true, func(n *v2.CiliumNode) {
		for _, a := range marked {
			n.Status.IPAM.ReleaseIPs[a] = "ready-for-release"
		}
	})
	n := s.wantPool("a", 4)
	if len(s.interfacesOf("i-a")[0].Secondary) != 3 || slices.ContainsFunc(marked, func(a string) bool { _, has := n.Spec.IPAM.Pool[a]; return has }) {
		t.Errorf("%+v", s.interfacesOf("i-a"))
	}
}

// ALI-20: a pause that Alibaba Cloud asks for is kept by all nodes, and is no failure; a node that joins costs one interface.
func TestScaleOut(t *testing.T) {
	const instances = 20
	c := region("ecs.large")
	c.Settle = 2
	var throttled, calls atomic.Int64
	c.Fault = func(string, map[string]string) (f ecstest.Fault) {
		if n := calls.Add(1); n == 40 || n == 41 {
			throttled.Add(1)
			f.Status, f.Code, f.TimeLeft = http.StatusBadRequest, "Throttling.User", 500
		}
		return f
	}
	s := newServer(t, c)
	o := s.start()
	for k := range instances {
		s.run(fmt.Sprintf("n-%02d", k), "ecs.large", nil)
	}
	for k := range instances {
		s.wantPool(fmt.Sprintf("n-%02d", k), 8)
	}
	if throttled.Load() == 0 {
		t.Error("there was no pause")
	}
	if of := c.Calls(); of["CreateNetworkInterface"] != instances || of["DeleteNetworkInterface"] != 0 {
		t.Errorf("%d instances: %v", instances, of)
	}
	if strings.Contains(o.Log().String(), "changing addresses of instance failed") {
		t.Errorf("a pause is a failure; %d pauses", throttled.Load())
	}
}
