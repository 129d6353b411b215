// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// server is the CiliumNodes of a real API server, and a cloud.
type server struct {
	t     *testing.T
	env   *operatortest.Env
	nodes cloudtest.Nodes
	cloud *cloudtest.Cloud
}

func newServer(t *testing.T) *server {
	t.Helper()
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
	env.Clear(v2.CiliumNodeResource)
	return &server{t, env, cloudtest.NewNodes(t, env), cloudtest.NewCloud("10.0.0.0/16")}
}

// start leads.
func (s *server) start(release bool, args ...string) *operatortest.Operator {
	s.t.Helper()
	args = append([]string{"--ipam=eni", "--limit-ipam-api-qps=1000", "--limit-ipam-api-burst=1000"}, args...)
	o := operatortest.Setup{Process: []cell.Cell{cloudipam.Cell}}.Start(s.t, duty(s.cloud, release), s.env.Kubeconfig(), args...)
	o.Log().Wait(s.t, "caches synced, allocating addresses of the cloud")
	return o
}

// run starts an instance and registers its node.
func (s *server) run(name string, edit func(*v2.CiliumNode)) {
	s.t.Helper()
	s.cloud.Run("i-" + name)
	s.create(name, edit)
}

func (s *server) create(name string, edit func(*v2.CiliumNode)) {
	s.t.Helper()
	s.nodes.Register(name, "i-"+name, edit)
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

func poolOf(n *v2.CiliumNode) []string { return slices.Sorted(maps.Keys(n.Spec.IPAM.Pool)) }

// wantPool waits until a node has a number of addresses, those of the cloud.
func (s *server) wantPool(name string, count int) {
	s.t.Helper()
	var pool []string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("node %s has %q, calls: %v", name, pool, s.cloud.Calls())
		}
	}()
	operatortest.Eventually(s.t, fmt.Sprintf("node %s has %d addresses", name, count), func() bool {
		n := s.nodes.Read(name)
		pool = poolOf(n)
		owners := s.cloud.Owners()
		for _, a := range pool {
			if owners[a] != n.Spec.InstanceID {
				return false
			}
		}
		return len(pool) == count
	})
}

// writes are the mutating requests for CiliumNodes after a request.
func (s *server) writes(after int64) (all []string, last int64) {
	s.t.Helper()
	last = after
	for _, r := range s.env.Proxy.Requests(s.t, after) {
		last = r.Seq
		if r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Resource == "ciliumnodes" {
			all = append(all, strings.TrimSuffix(r.Verb+" "+r.Name+"/"+r.Subresource, "/"))
		}
	}
	return all, last
}

// CIPAM-E1, CIPAM-E2, CIPAM-E14; CIPAM-30: a call, the status, the spec, each once. A restart changes nothing.
func TestServerNodesGetAddresses(t *testing.T) {
	s := newServer(t)
	o := s.start(false)
	s.run("a", nil)
	s.wantPool("a", 8)
	n := s.nodes.Read("a")
	if eni := n.Status.ENI.ENIs["nic-1"]; len(eni.Addresses) != 8 || n.Spec.IPAM.PreAllocate != 8 || n.Status.IPAM.Used == nil {
		t.Errorf("%+v", n)
	}
	if all, _ := s.writes(0); !slices.Equal(all, []string{"update a/status", "update a"}) {
		t.Errorf("%q", all)
	}
	if calls := s.cloud.Calls(); calls[cloudtest.OpAssign] != 1 || s.cloud.Changes() != 1 {
		t.Errorf("%v", calls)
	}

	s.run("b", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 10 })
	s.wantPool("b", 10)

	operatortest.Eventually(t, "it is counted", func() bool {
		return o.Metric("ipam_nodes", "total") == 2 && o.Metric("ipam_nodes", "in-deficit") == 0 && o.Metric("ipam_ips", "available") == 18 &&
			o.Metric("ipam_ip_allocation_ops", "subnet-1") == 18 && o.Metric("ipam_needed_ips", "b") == 0
	})
	for _, duty := range []string{"ipam_deficit_resolver_", "ipam_k8s_sync_", "ipam_resync_"} {
		of := func(what string) float64 { return o.Metric(duty + what) }
		operatortest.Eventually(t, duty+"… has metrics", func() bool {
			return of("latency_seconds") >= 1 && of("duration_seconds") >= of("latency_seconds") && of("queued_total") >= of("latency_seconds") && of("folds") >= 1
		})
	}
	s.env.CheckHealthy(o)
	o.Stop()

	_, last := s.writes(0)
	changes := s.cloud.Changes()
	o = s.start(true)
	s.run("d", nil)
	s.wantPool("d", 8)
	if all, _ := s.writes(last); slices.ContainsFunc(all, func(w string) bool { return !strings.Contains(w, " d") }) || s.cloud.Changes() != changes+1 {
		t.Errorf("a restart wrote %q and made %d changes", all, s.cloud.Changes()-changes)
	}
	s.env.CheckHealthy(o)
}

// CIPAM-E4; CIPAM-16: pods that are pending on a node get addresses, but for those of the host's network.
func TestServerPendingPods(t *testing.T) {
	s := newServer(t)
	s.cloud.PerInterface = 40
	s.env.CreateNamespace()
	name := s.env.Namespace // no other pods are bound to it
	operatortest.Eventually(t, "the namespace has its service account", func() bool {
		_, err := s.env.Core.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	for i := range 20 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i)}, Spec: corev1.PodSpec{
			NodeName: name, HostNetwork: i >= 12, Containers: []corev1.Container{{Name: "c", Image: "image"}}, ServiceAccountName: "default",
		}}
		if _, err := s.env.Core.CoreV1().Pods(s.env.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.start(false)
	s.run(name, nil)
	s.wantPool(name, 12)
}

// CIPAM-E5: nothing is changed while the cloud cannot be read; then nodes get addresses. CIPAM-13.
func TestServerCloudIsUnreachable(t *testing.T) {
	s := newServer(t)
	var broken atomic.Bool
	s.cloud.Fault = func(operation string) (f cloudtest.Fault) {
		if broken.Load() && (operation == cloudtest.OpList || operation == cloudtest.OpGet) {
			f.Refuse = errors.New("503 service unavailable")
		}
		return f
	}
	o := s.start(false)
	s.run("a", nil)
	s.wantPool("a", 8)
	broken.Store(true)
	s.run("b", nil)
	operatortest.Eventually(t, "it is degraded", func() bool { return strings.Contains(o.Degraded("ipam.memory"), "503") })
	changes := s.cloud.Changes()
	s.use("a", 8)
	operatortest.Eventually(t, "the deficit is known", func() bool { return o.Metric("ipam_needed_ips", "a") == 8 })
	if s.cloud.Changes() != changes {
		t.Error("the cloud was changed")
	}
	broken.Store(false)
	s.wantPool("b", 8)
	s.wantPool("a", 16)
	operatortest.Eventually(t, "it recovers", func() bool { return o.Degraded("ipam.memory") == "" })
}

// release waits for marks of addresses and returns them.
func (s *server) marked(name string, count int) (marked []string) {
	s.t.Helper()
	operatortest.Eventually(s.t, fmt.Sprintf("%d addresses of %s are marked", count, name), func() bool {
		marked = nil
		for a, state := range s.nodes.Read(name).Status.IPAM.ReleaseIPs {
			if state == v2.IPMarkedForRelease {
				marked = append(marked, a)
			}
		}
		return len(marked) == count
	})
	slices.Sort(marked)
	return marked
}

func (s *server) answer(name string, state v2.IPReleaseStatus, addresses ...string) {
	s.t.Helper()
	s.nodes.Edit(name, true, func(n *v2.CiliumNode) {
		for _, a := range addresses {
			n.Status.IPAM.ReleaseIPs[a] = state
		}
	})
}

// CIPAM-E6, CIPAM-E7 and CIPAM-E8; CIPAM-21 to CIPAM-27: the handshake with agents up to 1.19.
func TestServerReleasesAddresses(t *testing.T) {
	s := newServer(t)
	s.cloud.PerInterface = 50
	o := s.start(true, "--excess-ip-release-delay=0")
	s.run("a", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 40 })
	s.wantPool("a", 40)
	s.use("a", 4)
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate, n.Spec.IPAM.PreAllocate = 0, 16 })
	marked := s.marked("a", 20)

	s.answer("a", v2.IPDoNotRelease, marked[0])
	operatortest.Eventually(t, "another one is marked, or the same again", func() bool {
		return s.nodes.Read("a").Status.IPAM.ReleaseIPs[marked[0]] != v2.IPDoNotRelease
	})
	if calls := s.cloud.Calls(); calls[cloudtest.OpUnassign] != 0 || !slices.Contains(poolOf(s.nodes.Read("a")), marked[0]) {
		t.Errorf("%v", calls)
	}

	marked = s.marked("a", 20)
	s.answer("a", v2.IPReadyForRelease, marked...)
	s.wantPool("a", 20)
	if s.cloud.Calls()[cloudtest.OpUnassign] != 1 {
		t.Errorf("%v", s.cloud.Calls())
	}
	n := s.nodes.Read("a")
	for _, a := range marked {
		if n.Status.IPAM.ReleaseIPs[a] != v2.IPReleased {
			t.Errorf("%s is %q", a, n.Status.IPAM.ReleaseIPs[a])
		}
	}
	s.nodes.Edit("a", true, func(n *v2.CiliumNode) { n.Status.IPAM.ReleaseIPs = nil }) // the agent deletes what is released and not in the pool
	operatortest.Eventually(t, "it is counted", func() bool { return o.Metric("ipam_ip_release_ops", "subnet-1") == 20 })

	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.PreAllocate = 8 })
	marked = s.marked("a", 8)
	s.nodes.Edit("a", true, func(n *v2.CiliumNode) { // the agent is ready, and pods start in the same moment
		for _, a := range marked {
			n.Status.IPAM.ReleaseIPs[a] = v2.IPReadyForRelease
		}
		for _, a := range poolOf(n) {
			if n.Status.IPAM.ReleaseIPs[a] == "" {
				n.Status.IPAM.Used[a] = v2.AllocationIP{Owner: "default/" + a}
			}
		}
	})
	operatortest.Eventually(t, "nothing is released any more", func() bool { return len(s.nodes.Read("a").Status.IPAM.ReleaseIPs) == 0 })
	if calls := s.cloud.Calls(); calls[cloudtest.OpUnassign] != 1 {
		t.Errorf("%v", calls)
	}
	s.env.CheckHealthy(o)
}

// CIPAM-E9; CIPAM-29: a restart starts handshakes over.
func TestServerRestartsDuringAHandshake(t *testing.T) {
	s := newServer(t)
	s.cloud.PerInterface = 50
	o := s.start(true, "--excess-ip-release-delay=0")
	s.run("a", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 30 })
	s.wantPool("a", 30)
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 0 })
	s.marked("a", 22)
	o.Stop()
	s.start(true) // with the delay of 180 s
	operatortest.Eventually(t, "the marks are removed", func() bool { return len(s.nodes.Read("a").Status.IPAM.ReleaseIPs) == 0 })
	s.wantPool("a", 30)
}

// CIPAM-37 to CIPAM-40: agents from 1.20 request addresses of a pool, list what they use, and release CIDRs.
func TestServerAgentsWithPools(t *testing.T) {
	s := newServer(t)
	s.cloud.PerInterface = 50
	s.start(true, "--excess-ip-release-delay=0")
	request := func(n *v2.CiliumNode, count int) {
		n.Spec.IPAM.Pools.Requested = []v2.IPAMPoolRequest{{Pool: "default", Needed: v2.IPAMPoolDemand{IPv4Addrs: count}}}
	}
	s.run("a", func(n *v2.CiliumNode) { request(n, 20) })
	s.wantPool("a", 20)
	all := shown(s.nodes.Read("a"))
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) {
		request(n, 10)
		n.Spec.IPAM.Pools.Allocated = []v2.IPAMPoolAllocation{{Pool: "default", CIDRs: all[:10], AllowFirstIP: true, AllowLastIP: true}}
	})
	s.wantPool("a", 10)
	operatortest.Eventually(t, "they are unassigned", func() bool { return len(s.cloud.Owners()) == 10 })
	owners := s.cloud.Owners()
	for _, c := range all[10:] {
		if owners[strings.TrimSuffix(c, "/32")] != "" {
			t.Errorf("%s is still assigned", c)
		}
	}
	if listed := s.nodes.Read("a").Spec.IPAM.Pools.Allocated; len(listed) != 1 || !slices.Equal(listed[0].CIDRs, all[:10]) || !listed[0].AllowFirstIP {
		t.Errorf("the list of the agent is %v", listed)
	}
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { request(n, 12) })
	s.wantPool("a", 12)
}

// CIPAM-E10; CIPAM-31: a conflict costs another attempt, and what the agent wrote stays.
func TestServerConflict(t *testing.T) {
	s := newServer(t)
	rule := s.env.Proxy.Rule(t, clustertest.Rule{Match: clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumnodes"}}, Delay: &clustertest.Delay{For: -1}, Times: 1})
	s.start(false)
	s.run("a", nil)
	operatortest.Eventually(t, "the write is held", func() bool { return rule.Hits(t) > 0 })
	s.nodes.Edit("a", true, func(n *v2.CiliumNode) {
		n.Status.IPAM.Used = map[string]v2.AllocationIP{"10.9.9.9": {Owner: "default/restored"}}
	})
	rule.Remove(t)
	s.wantPool("a", 9)
	if used := s.nodes.Read("a").Status.IPAM.Used; used["10.9.9.9"].Owner != "default/restored" {
		t.Errorf("%v", used)
	}
}

// CIPAM-E11; CIPAM-18: a node that can have no more interfaces.
func TestServerNodeIsFull(t *testing.T) {
	s := newServer(t)
	o := s.start(false)
	s.run("a", nil)
	s.wantPool("a", 8)
	for _, count := range []int{17, 26, 27} {
		s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = count })
		s.wantPool("a", count)
	}
	s.use("a", 27)
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate, n.Spec.IPAM.MaxAllocate = 0, 100 })
	operatortest.Eventually(t, "it is at its limit", func() bool { return o.Metric("ipam_nodes", "at-capacity") == 1 })
	o.Log().Wait(t, "instance is out of interfaces")
	s.env.CheckHealthy(o)
}

// CIPAM-E12, CIPAM-E13; CIPAM-34, CIPAM-41: limits, a node that is registered again, two nodes of one instance.
func TestServerNodesOfOneInstance(t *testing.T) {
	s := newServer(t)
	o := s.start(false)
	s.run("a", func(n *v2.CiliumNode) { n.Spec.IPAM.MaxAllocate = 6 })
	s.wantPool("a", 6)
	s.create("b", func(n *v2.CiliumNode) { n.Spec.InstanceID = "i-a" })
	operatortest.Eventually(t, "the younger one is refused", func() bool {
		return strings.Contains(s.nodes.Read("b").Status.IPAM.OperatorStatus.Error, "belongs to CiliumNode a")
	})
	if len(s.nodes.Read("b").Spec.IPAM.Pool) != 0 || !strings.Contains(o.Degraded("ipam.memory.nodes"), "1 CiliumNodes lack addresses, b among them") {
		t.Errorf("%v, degraded: %s", s.nodes.Read("b").Spec.IPAM.Pool, o.Degraded(""))
	}
	changes := s.cloud.Changes()
	if err := s.nodes.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.wantPool("b", 8)
	if calls := s.cloud.Calls(); calls[cloudtest.OpUnassign] != 0 || s.cloud.Changes() == changes {
		t.Errorf("%v", calls)
	}
	operatortest.Eventually(t, "it is served", func() bool {
		return s.nodes.Read("b").Status.IPAM.OperatorStatus.Error == "" && o.Degraded("ipam.memory") == ""
	})
	s.cloud.Run("i-other")
	if err := s.nodes.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.create("b", func(n *v2.CiliumNode) { n.Spec.InstanceID = "i-other" })
	s.wantPool("b", 8)
}

// CIPAM-41, K4 of the contract's tenants.md: the agent of an older node that writes the instance of another one into its CiliumNode gets nothing of that,
// now or after a restart, and the other one loses nothing.
func TestServerInstanceOfAnother(t *testing.T) {
	s := newServer(t)
	o := s.start(false)
	s.run("a", nil)
	s.wantPool("a", 8)
	time.Sleep(1100 * time.Millisecond) // times of creation are whole seconds
	s.run("b", nil)
	s.wantPool("b", 8)
	pool := s.nodes.Read("b").Spec.IPAM.Pool
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.InstanceID = "i-b" })
	isRefused := func() bool {
		return strings.Contains(s.nodes.Read("a").Status.IPAM.OperatorStatus.Error, "belongs to CiliumNode b")
	}
	operatortest.Eventually(t, "it is refused", isRefused)
	for restarts := range 2 {
		for address := range s.nodes.Read("a").Spec.IPAM.Pool {
			if _, is := pool[address]; is {
				t.Errorf("after %d restarts a has %s of b", restarts, address)
			}
		}
		most := []int{9, 17}[restarts]
		s.nodes.Edit("b", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = most })
		s.wantPool("b", most)
		if restarts == 0 {
			o.Stop()
			s.nodes.Edit("a", true, func(n *v2.CiliumNode) { n.Status.IPAM.OperatorStatus.Error = "" })
			o = s.start(false)
			operatortest.Eventually(t, "it is refused again", isRefused)
		}
	}
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.InstanceID = "i-a" })
	operatortest.Eventually(t, "its own instance is its own", func() bool { return s.nodes.Read("a").Status.IPAM.OperatorStatus.Error == "" })
}

// CIPAM-41: an agent that shows all that another node shows, and names its instance, gets none of its addresses where Nodes have provider IDs.
func TestServerInstanceOfAnotherByProviderID(t *testing.T) {
	s := newServer(t)
	for _, name := range []string{"a", "b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "aws:///zone-a/i-" + name}}
		if _, err := s.env.Core.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.env.Core.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	o := s.start(false)
	s.create("a", func(n *v2.CiliumNode) { n.Spec.InstanceID = "" }) // the older one
	s.run("b", nil)
	s.wantPool("b", 8)
	o.Stop()
	b := s.nodes.Read("b")
	s.nodes.Edit("a", true, func(n *v2.CiliumNode) { n.Status = b.Status })
	s.nodes.Edit("a", false, func(n *v2.CiliumNode) { n.Spec.InstanceID, n.Spec.IPAM = b.Spec.InstanceID, b.Spec.IPAM })
	o = s.start(false)
	operatortest.Eventually(t, "it is refused", func() bool {
		return strings.Contains(s.nodes.Read("a").Status.IPAM.OperatorStatus.Error, "belongs to CiliumNode b")
	})
	s.nodes.Edit("b", false, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 9 })
	s.wantPool("b", 9)
	if o.Degraded("ipam.memory.undeclared") != "" || len(s.nodes.Read("a").Spec.IPAM.Pool) != 8 {
		t.Errorf("%v, degraded: %s", s.nodes.Read("a").Spec.IPAM.Pool, o.Degraded(""))
	}
}

// CIPAM-33: an instance that the cloud does not have costs nothing but a report; a terminated one keeps what it has.
func TestServerInstanceDoesNotExist(t *testing.T) {
	s := newServer(t)
	o := s.start(false)
	s.create("a", nil)
	s.create("b", func(n *v2.CiliumNode) { n.Spec.InstanceID = "" })
	operatortest.Eventually(t, "it is degraded", func() bool {
		return strings.Contains(o.Degraded("ipam.memory.nodes"), "2 CiliumNodes lack addresses, a among them: Instance not found!") && o.Metric("ipam_nodes_without_instance") == 2
	})
	s.nodes.Edit("b", false, func(n *v2.CiliumNode) { n.Spec.InstanceID = "i-b"; s.cloud.Run("i-b") })
	s.wantPool("b", 8)
	if calls := s.cloud.Calls(); s.cloud.Changes() != 1 {
		t.Errorf("%v", calls)
	}
}

// The responses that no API server gives cost nothing but another attempt.
func TestServerFalsifiedResponses(t *testing.T) {
	s := newServer(t)
	liar := operatortest.NewInterceptor(t, clustertest.Shared(t).AdminConfig(t))
	operatortest.Setup{Process: []cell.Cell{cloudipam.Cell}}.Start(t, duty(s.cloud, false), liar.Kubeconfig, "--ipam=eni", "--limit-ipam-api-qps=1000", "--limit-ipam-api-burst=1000").
		Log().Wait(t, "caches synced, allocating addresses of the cloud")
	lies, number := operatortest.BadResponses(), 0
	for _, what := range slices.Sorted(maps.Keys(lies)) {
		name := fmt.Sprintf("n%02d", number)
		number++
		liar.Intercept(operatortest.Once(func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/ciliumnodes/"+name)
		}, lies[what]))
		s.run(name, nil)
		s.wantPool(name, 8)
		if liar.Hits() != 1 {
			t.Errorf("%s: %d lies", what, liar.Hits())
		}
	}
}

// Number 49 of the contract's ipam-cloud.md; CIPAM-45: a node with the annotation is left alone, until it has it no more.
func TestServerIgnoredNode(t *testing.T) {
	s := newServer(t)
	s.run("ign", func(n *v2.CiliumNode) { n.Annotations = map[string]string{"ipam.cilium.io/ignore": "True"} })
	s.run("other", nil)
	s.start(false)
	s.wantPool("other", 8)
	all, _ := s.writes(0)
	if slices.ContainsFunc(all, func(write string) bool { return strings.Contains(write, "ign") }) {
		t.Errorf("it was written: %q", all)
	}
	if calls := s.cloud.Calls(); calls[cloudtest.OpAssign] != 1 || s.cloud.Changes() != 1 {
		t.Errorf("the cloud was called for it: %v", calls)
	}
	s.nodes.Edit("ign", false, func(n *v2.CiliumNode) { n.Annotations = nil })
	s.wantPool("ign", 8)
}
