// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/ipam/azure/armtest"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/referencetest"
	"github.com/skep-operator/skep/runtime/cell"
)

// server is the CiliumNodes of a real API server, and Azure.
type server struct {
	t       *testing.T
	env     *operatortest.Env
	nodes   cloudtest.Nodes
	cloud   *armtest.Cloud
	network network
}

func newServer(t *testing.T, c *armtest.Cloud) *server {
	t.Helper()
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
	env.Clear(v2.CiliumNodeResource)
	return &server{t, env, cloudtest.NewNodes(t, env), c, serve(t, c)}
}

// launch leads, and does not wait for anything.
func (s *server) launch(args ...string) *operatortest.Operator {
	s.t.Helper()
	args = append([]string{"--ipam=azure", "--azure-user-assigned-identity-id=client", "--limit-ipam-api-qps=1000", "--limit-ipam-api-burst=1000"}, args...)
	return operatortest.Setup{Process: []cell.Cell{cloudipam.Cell}}.Start(s.t, newCell(func() network { return s.network }), s.env.Kubeconfig(), args...)
}

// start leads.
func (s *server) start(args ...string) *operatortest.Operator {
	s.t.Helper()
	o := s.launch(args...)
	o.Log().Wait(s.t, "caches synced, allocating addresses of the cloud")
	return o
}

// wantPool waits until a node has a number of addresses, which are its machine's.
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

// AZIPAM-E1 to E4, E6 to E8 and E10 to E12, and AZIPAM-21: a restart changes nothing.
func TestExamples(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	c.Gallery, c.PageSize = true, 2
	c.AddScaleSet("empty", 2)
	s := newServer(t, c)
	run := func(name string, m armtest.Machine, edit func(*v2.CiliumNode)) string {
		id := c.Run(m)
		s.nodes.Register(name, id, edit)
		return id
	}
	three := run("three", armtest.Machine{ScaleSet: "pool1", Name: "3", Secondary: 1}, nil)
	full := run("full", armtest.Machine{ScaleSet: "pool2", Name: "0", Secondary: 255}, nil)
	named := run("named", armtest.Machine{ScaleSet: "pool1", Name: "4", NICs: []string{"eth0", "eth1"}, Secondary: 2}, func(n *v2.CiliumNode) { n.Spec.Azure.InterfaceName = "eth1" })
	groups := run("groups", armtest.Machine{ScaleSet: "pool1", Name: "5", ApplicationGroups: []string{"/subscriptions/S1/a1"}}, nil)
	for k := range 3 {
		run(fmt.Sprintf("alone-%d", k), armtest.Machine{Name: fmt.Sprintf("VM%d", k)}, nil)
	}
	s.nodes.Register("without", "", nil)
	o := s.start()
	for _, name := range []string{"three", "named", "groups", "alone-0", "alone-1", "alone-2"} {
		s.wantPool(name, 8)
	}
	s.wantPool("full", 255)

	configs := c.Configs(three, "pool1")
	added := slices.DeleteFunc(slices.Collect(maps.Keys(configs)), func(name string) bool { return !strings.HasPrefix(name, "Cilium-") })
	if len(added) != 7 || slices.ContainsFunc(added, func(name string) bool { return !regexp.MustCompile(`^Cilium-[a-z0-9]{8}$`).MatchString(name) }) {
		t.Errorf("E1: added were %q", added)
	}
	if by := c.ChangesOf(); by[three] != 1 || by[full] != 0 {
		t.Errorf("E1, E3: the machines were changed %v", by)
	}
	if len(c.Configs(named, "eth0")) != 3 || len(c.Configs(named, "eth1")) != 7 {
		t.Errorf("E4: eth0 has %v, eth1 has %v", c.Configs(named, "eth0"), c.Configs(named, "eth1"))
	}
	for name, of := range c.Configs(groups, "pool1") {
		if len(of) != 1 || of[0] != "/subscriptions/S1/a1" {
			t.Errorf("E8: %s has the application security groups %v", name, of)
		}
	}
	operatortest.Eventually(t, "E3: the full node is at capacity", func() bool { return o.Metric("ipam_nodes", "at-capacity") == 1 })
	of := s.nodes.Read("three").Status.Azure.Interfaces[0]
	if !strings.HasPrefix(of.MAC, "00:0D:3A:") || of.CIDR != "10.240.0.0/16" || of.Gateway != "10.240.0.1" || of.GatewayIP != "10.240.0.1" || of.SecurityGroup != armtest.GroupID || len(of.Addresses) != 8 || of.State != "" {
		t.Errorf("E11, E12: the status is %+v", of)
	}
	if len(s.nodes.Read("without").Status.Azure.Interfaces) != 0 || s.nodes.Read("without").Status.IPAM.OperatorStatus.Error == "" {
		t.Errorf("AZIPAM-19: a node without instance has the status %+v", s.nodes.Read("without").Status)
	}
	if c.Removed() != 0 {
		t.Errorf("%d ipConfigurations were removed", c.Removed())
	}

	operatortest.Eventually(t, "all is idle", func() bool { return o.Metric("ipam_ips", "needed") == 0 })
	o.Stop()
	before, changes := s.versions(), c.Changes()
	o = s.start()
	operatortest.Eventually(t, "all nodes are processed again", func() bool { return o.Metric("ipam_ips", "available") == 255+6*8 })
	o.Stop()
	if after := s.versions(); !maps.Equal(before, after) || c.Changes() != changes {
		t.Errorf("AZIPAM-21: a restart wrote CiliumNodes, %v and then %v, or changed the cloud: %d", before, after, c.Changes()-changes)
	}
}

// AZIPAM-E9, AZIPAM-16 and AZIPAM-E5: a change that fails leaves the CiliumNode alone, and is made again; what has failed
// half-way is not used.
func TestFailures(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	c.Stale = 3
	var puts atomic.Int64
	c.Fault = func(operation string) (f armtest.Fault) {
		if operation == armtest.OpUpdateMachine {
			switch puts.Add(1) {
			case 1:
				f.Status, f.Code = http.StatusConflict, "OperationNotAllowed"
			case 2:
				f.Fail = true
			}
		}
		return f
	}
	s := newServer(t, c)
	s.nodes.Register("a", c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3"}), nil)
	o := s.start()
	o.Log().Wait(t, "changing addresses of instance failed, retrying")
	if n := s.nodes.Read("a"); len(n.Spec.IPAM.Pool) != 0 {
		t.Errorf("the pool is %v after a change that failed", n.Spec.IPAM.Pool)
	}
	n := s.wantPool("a", 8)
	states := map[string]int{}
	for _, a := range n.Status.Azure.Interfaces[0].Addresses {
		states[a.State]++
	}
	if states["succeeded"] != 8 || states["failed"] != 4 || len(states) != 2 {
		t.Errorf("the states are %v", states)
	}
	operatortest.Eventually(t, "failed addresses are reported", func() bool { return strings.Contains(o.Degraded("ipam.azure"), "were not provisioned") })
}

// AZIPAM-1 to AZIPAM-4: instance metadata and tokens that are away are waited for, and reported; then all is served.
func TestOutages(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	c.SetMetadata(false)
	s := newServer(t, c)
	s.nodes.Register("a", c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3"}), nil)
	o := s.launch("--azure-user-assigned-identity-id=another") // tokens of a client are kept for the process
	operatortest.Eventually(t, "missing metadata is reported", func() bool { return strings.Contains(o.Degraded("ipam.azure"), "503") })
	c.SetTokens(false)
	c.SetMetadata(true)
	operatortest.Eventually(t, "the credential is named", func() bool {
		return strings.Contains(o.Degraded("ipam.azure"), "the managed identity another (--azure-user-assigned-identity-id)")
	})
	c.SetTokens(true)
	s.wantPool("a", 8)
	operatortest.Eventually(t, "health is good again", func() bool { return o.Degraded("ipam.azure") == "" })
}

// AZIPAM-13, AZIPAM-20: a subnet that is full, or gone, is in the status of the CiliumNode.
func TestSubnetsThatAreFull(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/28") // 11 addresses
	s := newServer(t, c)
	s.nodes.Register("a", c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3"}), nil)
	b := c.Run(armtest.Machine{ScaleSet: "pool1", Name: "4"})
	s.start()
	s.wantPool("a", 8)
	s.nodes.Register("b", b, nil)
	s.wantPool("b", 1)
	operatortest.Eventually(t, "the reason is in the status", func() bool {
		return strings.Contains(s.nodes.Read("b").Status.IPAM.OperatorStatus.Error, "is full")
	})
}

// AZIPAM-22: a pause that Azure asks for is kept by all nodes, and AZIPAM-23: a scale set grows with at most two changes per
// machine.
func TestScaleOut(t *testing.T) {
	const machines = 40
	c := armtest.NewCloud("10.240.0.0/16")
	c.PageSize, c.Settle = 10, 3
	var throttled, calls atomic.Int64
	c.Fault = func(operation string) (f armtest.Fault) {
		if n := calls.Add(1); n == 60 || n == 61 {
			throttled.Add(1)
			f.Status, f.Code, f.RetryAfter = http.StatusTooManyRequests, "TooManyRequests", 1
		}
		return f
	}
	s := newServer(t, c)
	o := s.start()
	for k := range machines {
		s.nodes.Register(fmt.Sprintf("n-%02d", k), c.Run(armtest.Machine{ScaleSet: "pool1", Name: fmt.Sprint(k)}), nil)
	}
	for k := range machines {
		s.wantPool(fmt.Sprintf("n-%02d", k), 8)
	}
	for id, n := range c.ChangesOf() {
		if n > 2 {
			t.Errorf("%s was changed %d times", id, n)
		}
	}
	if throttled.Load() == 0 || strings.Contains(o.Log().String(), "changing addresses of instance failed") {
		t.Errorf("a pause is a failure; %d pauses", throttled.Load())
	}
	t.Logf("%d machines, calls: %v", machines, c.Calls())
}

// AZIPAM-E13, AZIPAM-7 and K8S-17; numbers 16 and 18 of the contract's ipam-azure.md, and 50 of its ipam-cloud.md: where the definition lacks GatewayIP, as that of 1.20, the rest of the status is stored, the pool
// follows in the same pass, and nothing is written again. A restart writes nothing.
func TestDefinitionWithoutGatewayIP(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	s := newServer(t, c)
	s.defineAs("1.20")
	s.nodes.Register("a", c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3", Secondary: 8}), nil)
	o := s.start()
	of := s.wantPool("a", 8).Status.Azure.Interfaces[0]
	if of.GatewayIP != "" || of.Gateway != "10.240.0.1" || of.CIDR != "10.240.0.0/16" || len(of.Addresses) != 8 || of.Addresses[0].Subnet != armtest.SubnetID ||
		of.IP != "10.240.0.4" || of.Subnet != (v2.AzureSubnet{ID: armtest.SubnetID, CIDR: "10.240.0.0/16"}) {
		t.Errorf("the status is %+v", of)
	}
	each := []string{"update a/status", "update a"}
	writes, reads, last := s.requests(0)
	if !slices.Equal(writes, each) || strings.Contains(o.Log().String(), "does not show the change") {
		t.Errorf("the writes are %q", writes)
	}
	if reads < 2 { // the list of documents, and the document; on a slow machine the list is read again
		t.Errorf("%d requests for the definition", reads)
	}
	// Each of these is seen, and has the node processed again.
	for k := range 5 {
		s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = k })
	}
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 10 })
	s.wantPool("a", 10)
	if writes, _, last = s.requests(last); !slices.Equal(writes, each) {
		t.Errorf("then the writes are %q", writes)
	}
	s.env.CheckHealthy(o)
	o.Stop()
	o = s.start()
	o.Log().Wait(t, "the installed definition lacks a field")
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 12 })
	s.wantPool("a", 12)
	if writes, reads, _ = s.requests(last); !slices.Equal(writes, each) || reads < 2 {
		t.Errorf("after a restart and a change the writes are %q, with %d requests for the definition", writes, reads)
	}
}

// AZIPAM-7; number 17 of the contract's ipam-azure.md: the definition of 1.19 has both names of the gateway, and neither ip nor subnet. Nothing
// is written again.
func TestDefinitionWithGatewayIP(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	s := newServer(t, c)
	s.defineAs("1.19")
	s.nodes.Register("a", c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3", Secondary: 8}), nil)
	o := s.start()
	of := s.wantPool("a", 8).Status.Azure.Interfaces[0]
	if of.GatewayIP != "10.240.0.1" || of.Gateway != "10.240.0.1" || of.CIDR != "10.240.0.0/16" || of.IP != "" || of.Subnet != (v2.AzureSubnet{}) {
		t.Errorf("the status is %+v", of)
	}
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 10 })
	s.wantPool("a", 10)
	if writes, _, _ := s.requests(0); len(writes) != 4 || strings.Contains(o.Log().String(), "does not show the change") {
		t.Errorf("the writes are %q", writes)
	}
	s.env.CheckHealthy(o)
}

// AZIPAM-25; number 21 of the contract's ipam-azure.md: an identity that may neither list virtual networks nor read subnets publishes the
// addresses that there are, and says once what it lacks. When it may, all is served.
func TestSubnetsThatMayNotBeRead(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	var allowed atomic.Bool
	c.Forbidden = func(operation, _ string) bool {
		return !allowed.Load() && (operation == armtest.OpNetworks || operation == armtest.OpSubnet)
	}
	s := newServer(t, c)
	s.nodes.Register("a", c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3", Secondary: 3}), nil)
	o := s.start()
	if of := s.wantPool("a", 3).Status.Azure.Interfaces[0]; of.CIDR != "" || of.Gateway != "" || of.Subnet.ID != armtest.SubnetID || len(of.Addresses) != 3 {
		t.Errorf("the status is %+v", of)
	}
	operatortest.Eventually(t, "the permission is named in health and in the status", func() bool {
		return strings.Contains(o.Degraded("ipam.azure.subnets"), "Microsoft.Network/virtualNetworks/subnets/read") &&
			strings.Contains(s.nodes.Read("a").Status.IPAM.OperatorStatus.Error, "Microsoft.Network/virtualNetworks/subnets/read")
	})
	o.Stop()
	if n := strings.Count(o.Log().String(), "subnets cannot be read"); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
	allowed.Store(true)
	o = s.start()
	if of := s.wantPool("a", 8).Status.Azure.Interfaces[0]; of.CIDR != "10.240.0.0/16" {
		t.Errorf("the status is %+v", of)
	}
	operatortest.Eventually(t, "health is good again", func() bool { return o.Degraded("ipam.azure") == "" })
}

// defineAs has the definition of CiliumNodes be that of a release.
func (s *server) defineAs(release string) {
	s.t.Helper()
	definitions := operatortest.NewDefinitions(s.t, clustertest.Shared(s.t))
	name := v2.CiliumNodeResource.GroupResource().String()
	text := referencetest.Definitions(s.t, release)[name]
	definitions.Delete(name)
	s.t.Cleanup(func() { definitions.Delete(name) }) // the next test has ours
	definitions.Apply(text)
	definitions.AwaitPublished(v2.SchemeGroupVersion.String(), "GatewayIP", strings.Contains(string(text), "GatewayIP"))
}

// requests are the writes of CiliumNodes after a request, and how many have asked for a definition.
func (s *server) requests(after int64) (writes []string, reads int, last int64) {
	s.t.Helper()
	last = after
	for _, r := range s.env.Proxy.Requests(s.t, after) {
		last = r.Seq
		switch {
		case strings.HasPrefix(r.Path, "/openapi/"):
			reads++
		case r.Resource == "ciliumnodes" && r.Name != "" && r.Verb != "get":
			writes = append(writes, strings.TrimSuffix(r.Verb+" "+r.Name+"/"+r.Subresource, "/"))
		}
	}
	return writes, reads, last
}
