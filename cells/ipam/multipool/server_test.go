// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/resources/api"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// ours is the mode of the cell.
const ours = "--ipam=multi-pool"

// server is the CiliumNodes and CiliumPodIPPools of a real API server, and a proxy of the test's own before it.
type server struct {
	t     *testing.T
	proxy *clustertest.Proxy
	nodes dynamic.ResourceInterface
	pools dynamic.ResourceInterface
	core  kubernetes.Interface
}

func newServer(t *testing.T) *server {
	t.Helper()
	defineMutableMasks(t)
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode", "CiliumPodIPPool")
	env.Clear(v2.CiliumNodeResource, podIPPools.Resource())
	return &server{t, env.Proxy, env.Dynamic.Resource(v2.CiliumNodeResource), env.Dynamic.Resource(podIPPools.Resource()), env.Core}
}

// defineMutableMasks defines CiliumPodIPPool as it is up to 1.19: from 1.20 on the API server itself refuses another mask size.
func defineMutableMasks(t *testing.T) {
	t.Helper()
	admin := clustertest.Shared(t).AdminConfig(t)
	definitions, err := apiextensionsclient.NewForConfigAndClient(admin, operatortest.HTTPClient(t, admin))
	if err != nil {
		t.Fatal(err)
	}
	kind, _ := api.KindNamed("CiliumPodIPPool")
	edition := release.Newest().Edition()
	edition.FixMaskSize = false
	crd, err := kind.CRD(edition)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := definitions.CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// start leads.
func (s *server) start(args ...string) *operatortest.Operator {
	s.t.Helper()
	return s.startAs(s.proxy.Kubeconfig(), args...)
}

func (s *server) startAs(kubeconfig string, args ...string) *operatortest.Operator {
	s.t.Helper()
	o := operatortest.Start(s.t, Cell, kubeconfig, append([]string{ours}, args...)...)
	o.Log().Wait(s.t, "caches synced, allocating CIDRs of pools")
	return o
}

// allocatedOf is a list of CIDRs from texts "pool: CIDR CIDR".
func allocatedOf(texts ...string) (list []any) {
	for _, text := range texts {
		pool, rest, _ := strings.Cut(text, ":")
		var cidrs []any
		for _, c := range strings.Fields(rest) {
			cidrs = append(cidrs, c)
		}
		list = append(list, map[string]any{"pool": pool, "cidrs": cidrs})
	}
	return list
}

// requestedOf is a list of requests from texts "pool: 10 20", for 10 IPv4 and 20 IPv6 addresses.
func requestedOf(texts ...string) (list []any) {
	for _, text := range texts {
		pool, rest, _ := strings.Cut(text, ":")
		needed := map[string]any{}
		var v4, v6 int64
		_, _ = fmt.Sscan(rest, &v4, &v6)
		if v4 != 0 {
			needed["ipv4-addrs"] = v4
		}
		if v6 != 0 {
			needed["ipv6-addrs"] = v6
		}
		list = append(list, map[string]any{"pool": pool, "needed": needed})
	}
	return list
}

// testNode is a CiliumNode as an agent writes it.
type testNode struct {
	name      string
	allocated []string
	requested []string
}

func has(name string, allocated ...string) testNode {
	return testNode{name: name, allocated: allocated}
}

func (n testNode) needs(requested ...string) testNode {
	n.requested = requested
	return n
}

func (n testNode) object() *unstructured.Unstructured {
	pools := map[string]any{}
	if len(n.allocated) > 0 {
		pools["allocated"] = allocatedOf(n.allocated...)
	}
	if len(n.requested) > 0 {
		pools["requested"] = requestedOf(n.requested...)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": n.name},
		"spec": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "ip": "192.0.2.1"}}, "ipam": map[string]any{"pools": pools}},
	}}
}

func (s *server) create(nodes ...testNode) {
	s.t.Helper()
	for _, n := range nodes {
		if _, err := s.nodes.Create(s.t.Context(), n.object(), metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *server) get(name string) *unstructured.Unstructured {
	s.t.Helper()
	n, err := s.nodes.Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func edit(s *server, of dynamic.ResourceInterface, name string, change func(*unstructured.Unstructured)) {
	s.t.Helper()
	operatortest.Eventually(s.t, name+" is edited", func() bool {
		u, err := of.Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		change(u)
		_, err = of.Update(s.t.Context(), u, metav1.UpdateOptions{})
		return err == nil
	})
}

// setAllocated is what an agent does that releases CIDRs.
func (s *server) setAllocated(name string, allocated ...string) {
	s.t.Helper()
	edit(s, s.nodes, name, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedSlice(u.Object, allocatedOf(allocated...), "spec", "ipam", "pools", "allocated")
	})
}

func (s *server) setRequested(name string, requested ...string) {
	s.t.Helper()
	edit(s, s.nodes, name, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedSlice(u.Object, requestedOf(requested...), "spec", "ipam", "pools", "requested")
	})
}

func (s *server) delete(of dynamic.ResourceInterface, name string) {
	s.t.Helper()
	if err := of.Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// specOf is the spec of a pool: "CIDR CIDR/24", with the mask size after the last CIDR, of each family.
func specOf(v4, v6 string) map[string]any {
	spec := map[string]any{}
	for family, text := range map[string]string{"ipv4": v4, "ipv6": v6} {
		if text == "" {
			continue
		}
		list, mask, _ := strings.Cut(text, " mask ")
		var cidrs []any
		for _, c := range strings.Fields(list) {
			cidrs = append(cidrs, c)
		}
		var size int64
		_, _ = fmt.Sscan(mask, &size)
		spec[family] = map[string]any{"cidrs": cidrs, "maskSize": size}
	}
	return spec
}

func (s *server) createPool(name, v4, v6 string) {
	s.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2alpha1", "kind": "CiliumPodIPPool", "metadata": map[string]any{"name": name}, "spec": specOf(v4, v6),
	}}
	if _, err := s.pools.Create(s.t.Context(), u, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) setPool(name, v4, v6 string) {
	s.t.Helper()
	edit(s, s.pools, name, func(u *unstructured.Unstructured) { u.Object["spec"] = specOf(v4, v6) })
}

// textsOf is what a node has, as texts "pool: CIDR CIDR".
func textsOf(u *unstructured.Unstructured) (allocated []string, text string) {
	list, _ := allocatedIn(u)
	for _, p := range list {
		allocated = append(allocated, p.Pool+": "+strings.Join(p.CIDRs, " "))
	}
	text, _, _ = unstructured.NestedString(u.Object, "status", "ipam", "operator-status", "error")
	return allocated, strings.TrimPrefix(text, errorPrefix) // TestPrefixOfErrors is about that
}

func (s *server) want(name string, allocated ...string) {
	s.t.Helper()
	s.wantError(name, "", allocated...)
}

func (s *server) wantError(name, text string, allocated ...string) {
	s.t.Helper()
	var has []string
	var problem string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("node %s has %q and error %q", name, has, problem)
		}
	}()
	operatortest.Eventually(s.t, fmt.Sprintf("node %s has %q and error %q", name, allocated, text), func() bool {
		has, problem = textsOf(s.get(name))
		return slices.Equal(has, allocated) && problem == text
	})
}

// updates are the successful writes of the cell, as "update a" or "update a/status", after a request.
func (s *server) updates(after int64) (all []string, last int64) {
	s.t.Helper()
	last = after
	for _, r := range s.proxy.Answered(s.t, after) {
		last = r.Seq
		if r.Verb != "update" && r.Verb != "create" || r.Resource != "ciliumnodes" && r.Resource != "ciliumpodippools" {
			continue
		}
		text := r.Verb + " " + r.Name
		if r.Subresource != "" {
			text += "/" + r.Subresource
		}
		all = append(all, fmt.Sprintf("%s: %d", text, r.Status))
	}
	return all, last
}

// The pool of the examples.
const (
	default4 = "10.100.0.0/16 10.200.0.0/16 mask 24"
	default6 = "fd00:100::/80 fc00:100::/80 mask 96"
)

// MPOOL-E1 to MPOOL-E5, and a restart, which writes nothing (MPOOL-33).
func TestServerServesNodes(t *testing.T) {
	s := newServer(t)
	s.createPool("default", default4, default6)
	s.create(
		has("node2").needs("default: 10 10"),
		has("node1", "default: fd00:100:0:0:0:10::/96 10.100.20.0/24 10.100.10.0/24").needs("default: 10 10"),
	)
	o := s.start()
	s.want("node1", "default: 10.100.10.0/24 10.100.20.0/24 fd00:100::10:0:0/96")
	s.want("node2", "default: 10.100.0.0/24 fd00:100::/96")

	const taken = "unable to reuse from pool default: cidr 10.100.10.0/24 has already been allocated"
	s.create(has("node3", "default: 10.100.10.0/24"))
	s.wantError("node3", taken)
	operatortest.Eventually(t, "the conflict is counted", func() bool { return o.Metric("ipam_pool_conflicts", "default") == 1 })
	operatortest.Eventually(t, "the Event names the holder (K4 of the contract's tenants.md)", func() bool {
		return slices.ContainsFunc(o.Book.For("CiliumNode", "", "node3").Events, func(e explain.Event) bool {
			return strings.Contains(e.Message, "CiliumNode node1 has 10.100.10.0/24: ")
		})
	})
	o.Stop()
	_, last := s.updates(0)
	o = s.start()
	if all, _ := s.updates(last); len(all) != 0 {
		t.Errorf("a restart wrote %q", all)
	}

	s.setAllocated("node1", "default: 10.100.20.0/24 fd00:100::10:0:0/96")
	s.want("node3", "default: 10.100.10.0/24")

	s.setRequested("node1", "default: 300 10")
	s.want("node1", "default: 10.100.1.0/24 10.100.20.0/24 fd00:100::10:0:0/96")
	if addresses, _, _ := unstructured.NestedSlice(s.get("node1").Object, "spec", "addresses"); len(addresses) != 1 {
		t.Errorf("what the agent wrote is gone: %v", s.get("node1"))
	}
	o.Stop()
	_, last = s.updates(last)
	s.start()
	s.create(has("node4").needs("default: 1"))
	s.want("node4", "default: 10.100.2.0/24")
	if all, _ := s.updates(last); !slices.Equal(all, []string{"update node4: 200"}) {
		t.Errorf("after a restart: %q", all)
	}
}

// MPOOL-E6, MPOOL-E7, MPOOL-E8 and MPOOL-E14.
func TestServerPoolsOfOtherShapes(t *testing.T) {
	s := newServer(t)
	s.createPool("ipv4-only", "10.0.0.0/16 mask 24", "")
	s.createPool("tiny", "10.1.0.0/30 mask 32", "")
	o := s.start()
	const refused = `failed to allocate %s address for node %q from pool %q: %s`
	s.create(
		has("a").needs("no-exist: 10"),
		has("b").needs("ipv4-only: 10 10"),
		has("c").needs("tiny: 1"),
	)
	s.wantError("a", fmt.Sprintf(refused, "ipv4", "a", "no-exist", "cannot allocate from non-existing pool: no-exist"))
	s.wantError("b", fmt.Sprintf(refused, "ipv6", "b", "ipv4-only", "pool empty"), "ipv4-only: 10.0.0.0/24")
	s.want("c", "tiny: 10.1.0.0/32")
	operatortest.Eventually(t, "starved nodes are counted", func() bool {
		return o.Metric("ipam_pool_nodes_starved", "IPv6", "ipv4-only") == 1 && o.Metric("ipam_pool_nodes_starved", "IPv4", "other") == 1 &&
			o.Metric("ipam_pool_blocks", "IPv4", "ipv4-only", "used") == 1 && o.Metric("ipam_pool_blocks", "IPv4", "ipv4-only", "free") == 255
	})
	s.createPool("no-exist", "10.2.0.0/16 mask 24", "")
	s.want("a", "no-exist: 10.2.0.0/24")
	s.create(has("d").needs("no-exist: 254"), has("e").needs("no-exist: 255"))
	s.want("d", "no-exist: 10.2.1.0/24")
	s.want("e", "no-exist: 10.2.2.0/24 10.2.3.0/24")
	s.setPool("ipv4-only", "10.0.0.0/16 mask 24", "fd00::/80 mask 96") // a family is added
	s.want("b", "ipv4-only: 10.0.0.0/24 fd00::/96")
}

// MPOOL-E9 and MPOOL-E10.
func TestServerPoolsAreChanged(t *testing.T) {
	s := newServer(t)
	s.createPool("default", default4, "")
	o := s.start()
	s.create(has("node2").needs("default: 10"))
	s.want("node2", "default: 10.100.0.0/24")
	s.setPool("default", "10.100.0.0/16 10.200.0.0/16 mask 25", "")
	operatortest.Eventually(t, "it is degraded", func() bool {
		return strings.Contains(o.Degraded("ipam.multipool.pools"), `CiliumPodIPPool default: cannot change IPv4 mask size in existing pool "default"`)
	})
	s.create(has("x").needs("default: 1"))
	s.want("x", "default: 10.100.1.0/24")
	s.setPool("default", default4, "")
	operatortest.Eventually(t, "it recovers", func() bool { return o.Degraded("ipam") == "" })

	s.setPool("default", "10.200.0.0/16 mask 24", "")
	s.wantError("node2", "unable to reuse from pool default: cidr 10.100.0.0/24 is not part of the requested pool", "default: 10.100.0.0/24")
	operatortest.Eventually(t, "it is counted", func() bool { return o.Metric("ipam_pool_blocks", "IPv4", "default", "draining") == 2 })
	s.create(has("y").needs("default: 1"))
	s.want("y", "default: 10.200.0.0/24")
	o.Stop()
	o = s.start()                                      // it survives a restart
	s.createPool("again", "10.100.0.0/16 mask 24", "") // the range comes back in another pool
	s.create(has("z").needs("again: 300"))
	s.want("z", "again: 10.100.2.0/24 10.100.3.0/24")
	s.setRequested("node2")
	s.setAllocated("node2") // its agent has drained it
	s.want("node2")

	s.delete(s.pools, "default")
	const orphan = "unable to find pool default, prefix 10.100.1.0/24 is still allocated to the node but is marked as orphan"
	s.wantError("x", orphan, "default: 10.100.1.0/24")
	s.setRequested("x", "default: 300")
	s.wantError("x", orphan+"\n"+
		`failed to allocate ipv4 address for node "x" from pool "default": cannot allocate from non-existing pool: default`, "default: 10.100.1.0/24")
	s.createPool("default", "10.200.0.0/16 mask 24", "")
	s.want("y", "default: 10.200.0.0/24")
	s.wantError("x", "unable to reuse from pool default: cidr 10.100.1.0/24 is not part of the requested pool", "default: 10.100.1.0/24 10.200.1.0/24")
	if d := o.Degraded(""); d != "" {
		t.Error(d)
	}
}

// MPOOL-21, MPOOL-33: a term that is entered again writes nothing, and goes on where the last one ended.
func TestServerReentersItsTerm(t *testing.T) {
	s := newServer(t)
	s.createPool("default", "10.100.0.0/16 mask 24", "")
	o := s.start()
	s.create(has("a").needs("default: 1"), has("b", "x: 10.9.0.0/24"))
	s.want("a", "default: 10.100.0.0/24")
	s.wantError("b", "unable to find pool x, prefix 10.9.0.0/24 is still allocated to the node but is marked as orphan", "x: 10.9.0.0/24")
	_, last := s.updates(0)
	o.ReenterTerm()
	s.create(has("c").needs("default: 1"))
	s.want("c", "default: 10.100.1.0/24")
	if all, _ := s.updates(last); !slices.Equal(all, []string{"update c: 200"}) {
		t.Errorf("after the term was entered again: %q", all)
	}
	operatortest.Eventually(t, "the metrics are those of the new term", func() bool {
		return o.Metric("ipam_pool_blocks", "IPv4", "default", "used") == 2 && o.Metric("ipam_pool_blocks", "IPv4", "other", "draining") == 1
	})
	if d := o.Degraded(""); d != "" {
		t.Error(d)
	}
}

// MPOOL-48: of a list of more CIDRs than a node can have the first count; it is written as others are.
func TestServerListsOfManyCIDRs(t *testing.T) {
	s := newServer(t)
	s.createPool("default", default4, "")
	s.create(has("aa", "default: 10.100.0.0/24"))
	s.start()
	s.want("aa", "default: 10.100.0.0/24")
	many := []string{"10.100.0.0/24"} // that of the other node
	for i := range 5000 {
		many = append(many, fmt.Sprintf("192.0.%d.%d/32", i>>8, i&0xff))
	}
	s.create(has("bb", "x: "+strings.Join(many, " ")))
	operatortest.Eventually(t, "it has the first of them without that of the other node", func() bool {
		list, err := allocatedIn(s.get("bb"))
		return err == nil && len(list) == 1 && len(list[0].CIDRs) == ciliumio.MaxCIDRs-1 && !slices.Contains(list[0].CIDRs, many[0])
	})
	s.create(has("cc").needs("default: 10"))
	s.want("cc", "default: 10.100.1.0/24")
}
