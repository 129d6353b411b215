// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/clustertest/control"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// server is the CiliumNodes of a real API server, and a door of one's own to it.
type server struct {
	t     *testing.T
	proxy *clustertest.Proxy
	nodes dynamic.ResourceInterface
	core  kubernetes.Interface
}

func newServer(t *testing.T) *server {
	t.Helper()
	site := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
	site.Clear(v2.CiliumNodeResource)
	return &server{t, site.Proxy, site.Dynamic.Resource(v2.CiliumNodeResource), site.Core}
}

// create makes a node as an agent does.
func (s *server) create(name string, cidrs ...string) {
	s.t.Helper()
	n := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "ip": "192.0.2.1"}}},
	}}
	if len(cidrs) > 0 {
		_ = unstructured.SetNestedStringSlice(n.Object, cidrs, "spec", "ipam", "podCIDRs")
	}
	if _, err := s.nodes.Create(s.t.Context(), n, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
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

func (s *server) edit(name string, edit func(*unstructured.Unstructured)) {
	s.t.Helper()
	operatortest.Eventually(s.t, name+" is edited", func() bool {
		n := s.get(name)
		edit(n)
		_, err := s.nodes.Update(s.t.Context(), n, metav1.UpdateOptions{})
		return err == nil
	})
}

func (s *server) setCIDRs(name string, cidrs ...string) {
	s.t.Helper()
	s.edit(name, func(n *unstructured.Unstructured) {
		_ = unstructured.SetNestedStringSlice(n.Object, cidrs, "spec", "ipam", "podCIDRs")
	})
}

func (s *server) delete(name string) {
	s.t.Helper()
	if err := s.nodes.Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func says(n *unstructured.Unstructured) (cidrs []string, text string) {
	cidrs, _, _ = unstructured.NestedStringSlice(n.Object, "spec", "ipam", "podCIDRs")
	text, _, _ = unstructured.NestedString(n.Object, "status", "ipam", "operator-status", "error")
	return cidrs, text
}

// want waits until a node says this.
func (s *server) want(name string, cidrs ...string) { s.t.Helper(); s.wantError(name, "", cidrs...) }

func (s *server) wantError(name, text string, cidrs ...string) {
	s.t.Helper()
	var has []string
	var problem string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("node %s has %v and error %q", name, has, problem)
		}
	}()
	operatortest.Eventually(s.t, fmt.Sprintf("node %s has %v and error %q", name, cidrs, text), func() bool {
		has, problem = says(s.get(name))
		return slices.Equal(has, cidrs) && problem == text
	})
}

// requests are those of the cell for single nodes, as "update a" or "update a/status", since the
// request numbered after.
func (s *server) requests(after int64) (all []string, last int64) {
	s.t.Helper()
	last = after
	for _, r := range s.proxy.Answered(s.t, after) {
		last = r.Seq
		if r.Resource != "ciliumnodes" || r.Name == "" {
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

// start leads, with pools for IPv4 of blocks of this size, or as args say.
func (s *server) start(mask int, cidrs string, args ...string) *operatortest.Operator {
	s.t.Helper()
	return s.startAs(s.proxy.Kubeconfig(), append([]string{
		"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=" + cidrs, fmt.Sprint("--cluster-pool-ipv4-mask-size=", mask),
	}, args...)...)
}

func (s *server) startAs(kubeconfig string, args ...string) *operatortest.Operator {
	s.t.Helper()
	o := operatortest.Start(s.t, Cell, kubeconfig, append([]string{ours}, args...)...)
	o.Log().Wait(s.t, "caches synced, allocating pod CIDRs")
	return o
}

// ours is the mode of the cell.
const ours = "--ipam=cluster-pool"

// values are those of the cell's metrics.
func values(o *operatortest.Operator) map[string]float64 {
	const prefix = "ipam_cluster_pool_"
	values := map[string]float64{}
	for _, m := range o.Samples(prefix) {
		var labels []string
		for _, l := range m.Labels {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		values[strings.TrimPrefix(m.Name, prefix)+"{"+strings.Join(labels, ",")+"}"] = m.Value
	}
	return values
}

// POOL-E1, POOL-E2 and POOL-E12; POOL-13 and POOL-16.
func TestServerAllocatesBlocksInOrder(t *testing.T) {
	s := newServer(t)
	o := s.start(24, "10.0.0.0/16")
	s.create("a")
	s.want("a", "10.0.0.0/24")
	s.create("b")
	s.want("b", "10.0.1.0/24")
	s.delete("a")
	s.create("c")
	s.want("c", "10.0.2.0/24")

	s.setCIDRs("b", "10.0.7.0/24")
	s.wantError("b", "node has CIDRs allocated ([10.0.1.0/24]) that conflict with requested CIDRs [10.0.7.0/24]", "10.0.7.0/24")
	s.create("d", "10.0.1.0/24") // stays reserved
	s.wantError("d", "requested CIDR (10.0.1.0/24) is already allocated", "10.0.1.0/24")
	operatortest.Eventually(t, "the Event names the holder (K4 of the contract's tenants.md)", func() bool {
		return slices.ContainsFunc(o.Book.For("CiliumNode", "", "d").Events, func(e explain.Event) bool { return strings.HasSuffix(e.Message, ": CiliumNode b has 10.0.1.0/24") })
	})
	s.create("e", "10.0.7.0/24") // is not reserved
	s.create("last")
	s.want("last", "10.0.3.0/24")
	s.want("e", "10.0.7.0/24")
	s.setCIDRs("b")
	s.want("b", "10.0.1.0/24")
	if ip, _, _ := unstructured.NestedSlice(s.get("b").Object, "spec", "addresses"); len(ip) != 1 {
		t.Errorf("what the agent wrote is gone: %v", s.get("b"))
	}
	of := func(what string) float64 { return o.Metric("ipam_k8s_sync_" + what) }
	operatortest.Eventually(t, "metrics of 1.19 have the writes of six nodes", func() bool {
		return of("latency_seconds") >= 6 && of("duration_seconds") >= of("latency_seconds") && of("queued_total") >= of("latency_seconds") && of("folds") >= 1
	})
}

// POOL-E3 and POOL-E13, and a second family that is full.
func TestServerAllocatesBothFamilies(t *testing.T) {
	s := newServer(t)
	s.create("old", "10.0.0.0/24")
	s.startAs(s.proxy.Kubeconfig(), "--cluster-pool-ipv4-cidr=10.0.0.0/16", "--cluster-pool-ipv6-cidr=fd00::/111")
	s.want("old", "10.0.0.0/24", "fd00::/112")
	s.create("new")
	s.want("new", "10.0.1.0/24", "fd00::1:0/112")
	s.create("none")
	s.wantError("none", "allocator full")
	s.delete("old")
	s.want("none", "10.0.2.0/24", "fd00::/112")
}

// POOL-E4, POOL-E5, POOL-E10, POOL-E11 and POOL-E15; POOL-7 to POOL-10 and POOL-18.
func TestServerRestartKeepsAll(t *testing.T) {
	s := newServer(t)
	s.create("b")
	s.create("a", "10.0.5.0/24")
	s.create("x", "10.0.0.0/24")
	s.create("wide", "10.0.2.0/23")
	s.create("foreign", "172.16.0.0/24")
	for i := range 40 {
		s.create(fmt.Sprint("n", i), fmt.Sprintf("10.0.%d.0/24", 100+i))
	}
	o := s.start(24, "10.0.0.0/16")
	s.want("b", "10.0.1.0/24")
	s.wantError("foreign", "allocator not configured for the requested CIDR 172.16.0.0/24", "172.16.0.0/24")
	s.create("c")
	s.want("c", "10.0.4.0/24")
	all, last := s.requests(0)
	slices.Sort(all)
	all = slices.Compact(all) // an event that comes while a write is under way costs a second look
	want := []string{"get b: 200", "get c: 200", "get foreign: 200", "update b: 200", "update c: 200", "update foreign/status: 200"}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	o.Stop()

	s.start(24, "10.0.0.0/16")
	s.create("d")
	s.want("d", "10.0.6.0/24")
	if all, _ = s.requests(last); !slices.Equal(slices.Compact(all), []string{"get d: 200", "update d: 200"}) {
		t.Errorf("a restart asked for %v", all)
	}
}

// POOL-E6; POOL-19, POOL-26, POOL-27 and POOL-28, and the metrics.
func TestServerServesTheStarved(t *testing.T) {
	s := newServer(t)
	o := s.start(25, "10.0.0.0/24")
	s.create("a")
	s.want("a", "10.0.0.0/25")
	s.create("b")
	s.want("b", "10.0.0.128/25")
	s.create("c")
	s.wantError("c", "allocator full")
	s.create("d")
	s.wantError("d", "allocator full")
	s.create("twice", "10.0.0.0/26")
	s.wantError("twice", "allocator clusterCIDR: 10.0.0.0/24, nodeMask: 25 full", "10.0.0.0/26")
	s.create("foreign", "172.16.0.0/24")
	s.wantError("foreign", "allocator not configured for the requested CIDR 172.16.0.0/24", "172.16.0.0/24")
	want := map[string]float64{
		"blocks{cidr=10.0.0.0/24,family=IPv4,state=used}": 2, "blocks{cidr=10.0.0.0/24,family=IPv4,state=free}": 0,
		"nodes{state=allocated}": 2, "nodes{state=error}": 4, "nodes{state=waiting}": 0, "nodes{state=unstored}": 0,
		"writes_total{result=success,verb=update}": 6, "outside_nodes{}": 1, "duplicate_nodes{}": 1,
	}
	operatortest.Eventually(t, "the metrics are up to date", func() bool { return cmp.Equal(want, values(o)) })

	_, last := s.requests(0)
	s.delete("twice")
	s.delete("a")
	s.want("c", "10.0.0.0/25")
	s.wantError("d", "allocator full")
	all, _ := s.requests(last)
	updates := slices.DeleteFunc(slices.Clone(all), func(r string) bool { return strings.HasPrefix(r, "get c") })
	if want := []string{"update c: 200", "update c/status: 200"}; !slices.Equal(updates, want) {
		t.Errorf("what became of nodes that are gone was asked for: %v", all)
	}
}

// POOL-E7; the list is written as in a ConfigMap.
func TestSecondCIDRFromTheEnvironment(t *testing.T) {
	for _, text := range []string{"10.0.0.0/24 10.1.0.0/24", "10.0.0.0/24,10.1.0.0/24"} {
		environ := map[string]string{"CILIUM_CLUSTER_POOL_IPV4_CIDR": text, "CILIUM_ENABLE_IPV6": "false", "CILIUM_K8S_API_SERVER": "http://127.0.0.1:1"}
		h := hive.New("operator", cell.Set(append(slices.Clone(operatortest.Resources), Cell)...), hive.LogTo(io.Discard), hive.EnvPrefix("CILIUM_"),
			hive.Environ(func(name string) (string, bool) { v, ok := environ[name]; return v, ok }))
		if err := h.Build(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// POOL-E8 and POOL-E9: a replica that could not lead does not start.
func TestBadConfigurationIsRefusedAtStart(t *testing.T) {
	for want, args := range map[string][]string{
		"requested CIDR 10.0.0.0/8 collides with clusterCIDR: 10.0.0.0/16, nodeMask: 24": {"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/16,10.0.0.0/8"},
		"node CIDR size is too big":                                      {"--enable-ipv4=false", "--cluster-pool-ipv6-cidr=fd00::/100", "--cluster-pool-ipv6-mask-size=120"},
		"cluster-pool-ipv4-cidr must be provided when using ClusterPool": {"--enable-ipv6=false"},
	} {
		if _, err := operatortest.New(t, Cell, "/nonexistent", append(args, ours)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}

// POOL-E14; POOL-24: what others write in between is kept.
func TestServerConflictKeepsWhatTheAgentWrote(t *testing.T) {
	s := newServer(t)
	s.start(24, "10.0.0.0/16")
	rule := s.proxy.Rule(t, clustertest.Rule{Match: clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumnodes"}}, Delay: &clustertest.Delay{For: -1}, Times: 1})
	s.create("a")
	operatortest.Eventually(t, "the write is held", func() bool { return rule.Hits(t) > 0 })
	s.edit("a", func(n *unstructured.Unstructured) {
		_ = unstructured.SetNestedSlice(n.Object, []any{map[string]any{"type": "InternalIP", "ip": "192.0.2.77"}}, "spec", "addresses")
	})
	rule.Remove(t)
	s.want("a", "10.0.0.0/24")
	addresses, _, _ := unstructured.NestedSlice(s.get("a").Object, "spec", "addresses")
	if diff := cmp.Diff([]any{map[string]any{"type": "InternalIP", "ip": "192.0.2.77"}}, addresses); diff != "" {
		t.Error(diff)
	}
	all, _ := s.requests(0)
	updates := slices.DeleteFunc(slices.Clone(all), func(r string) bool { return r == "get a: 200" })
	if want := []string{"update a: 409", "update a: 200"}; !slices.Equal(updates, want) {
		t.Errorf("requests were %v, not %v and reads", all, want)
	}
}

// POOL-24: a node that was edited meanwhile is not overwritten.
func TestServerNeverRewritesANode(t *testing.T) {
	s := newServer(t)
	s.start(24, "10.0.0.0/16")
	rule := s.proxy.Rule(t, clustertest.Rule{Match: clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumnodes"}}, Delay: &clustertest.Delay{For: -1}, Times: 1})
	s.create("a")
	operatortest.Eventually(t, "the write is held", func() bool { return rule.Hits(t) > 0 })
	s.setCIDRs("a", "10.0.9.0/24")
	rule.Remove(t)
	s.wantError("a", "node has CIDRs allocated ([10.0.0.0/24]) that conflict with requested CIDRs [10.0.9.0/24]", "10.0.9.0/24")
}

// POOL-19 and POOL-20: a node with a finalizer keeps what it has until it is gone.
func TestServerTerminatingNodeKeepsItsBlock(t *testing.T) {
	s := newServer(t)
	s.start(24, "10.0.0.0/24")
	s.create("a")
	s.want("a", "10.0.0.0/24")
	s.edit("a", func(n *unstructured.Unstructured) { n.SetFinalizers([]string{"skep.dev/test"}) })
	s.delete("a")
	s.create("b")
	s.wantError("b", "allocator full")
	s.edit("a", func(n *unstructured.Unstructured) { n.SetFinalizers(nil) })
	s.want("b", "10.0.0.0/24")
}

// Number 36 of the contract's ipam-cluster-pool.md: bad input of a node is reported on it, and affects no other node. No definition of ours
// refuses it (CRD-22).
func TestServerBadInput(t *testing.T) {
	s := newServer(t)
	s.create("garbage", "10.0.0.0/24", "xyz")
	s.create("twice", "10.0.0.0/25")
	s.create("six", "fd00::/112")
	s.create("itself", "10.0.3.0/24", "10.0.3.0/24")
	s.start(24, "10.0.0.0/16")
	s.wantError("garbage", "invalid CIDR address: xyz", "10.0.0.0/24", "xyz")
	s.wantError("twice", "requested CIDR (10.0.0.0/25) is already allocated", "10.0.0.0/25")
	s.wantError("six", "unable to allocate CIDR [fd00::/112] since allocator for IPv6 addresses does not exist", "fd00::/112")
	s.want("itself", "10.0.3.0/24", "10.0.3.0/24")
	s.create("a")
	s.want("a", "10.0.1.0/24")
	s.delete("garbage")
	s.want("twice", "10.0.0.0/25")
	s.setCIDRs("six")
	s.want("six", "10.0.2.0/24")
}

// lax makes the definition one that lets fields have any type, until the test ends.
func (s *server) lax(site *operatortest.Env) {
	s.t.Helper()
	definitions := site.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	edit := func(ctx context.Context, change func(version map[string]any)) {
		s.t.Helper()
		crd, err := definitions.Get(ctx, "ciliumnodes.cilium.io", metav1.GetOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		change(versions[0].(map[string]any))
		_ = unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
		if _, err := definitions.Update(ctx, crd, metav1.UpdateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
	var strict any
	edit(s.t.Context(), func(version map[string]any) {
		strict = version["schema"]
		version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	})
	s.t.Cleanup(func() {
		edit(context.WithoutCancel(s.t.Context()), func(version map[string]any) { version["schema"] = strict })
	})
}

// POOL-36 and POOL-37, on a server that takes any type.
func TestServerUndecodableNodes(t *testing.T) {
	site := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
	site.Clear(v2.CiliumNodeResource)
	s := &server{t, site.Proxy, site.Dynamic.Resource(v2.CiliumNodeResource), site.Core}
	s.lax(site)
	bad := func(name string, spec map[string]any) {
		t.Helper()
		operatortest.Eventually(t, name+" is taken", func() bool {
			_, err := s.nodes.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": name}, "spec": spec,
			}}, metav1.CreateOptions{})
			return err == nil
		})
	}
	bad("a", map[string]any{"ipam": map[string]any{"podCIDRs": "10.0.0.0/24"}})
	bad("b", map[string]any{"ipam": map[string]any{"podCIDRs": []any{"10.0.1.0/24"}}, "encryption": map[string]any{"key": "seven"}})
	o := s.start(24, "10.0.0.0/22")
	s.create("c")
	s.want("c", "10.0.2.0/24")
	bad("d", map[string]any{"ipam": map[string]any{"podCIDRs": int64(7)}})
	operatortest.Eventually(t, "d is named", func() bool {
		return strings.Contains(o.Degraded(""), "CiliumNode d: cannot decode spec.ipam.podCIDRs") || strings.Contains(o.Degraded(""), "and 1 more")
	})
	s.create("e")
	s.wantError("e", "waiting: spec.ipam.podCIDRs of CiliumNode d cannot be decoded, it may have any CIDR; repair or delete it")
	s.edit("c", func(n *unstructured.Unstructured) { // it keeps what it has
		_ = unstructured.SetNestedField(n.Object, true, "spec", "ipam", "podCIDRs")
	})
	s.delete("d")
	s.want("e", "10.0.3.0/24")
	all, _ := s.requests(0)
	for _, r := range all {
		if name := strings.Fields(strings.TrimSuffix(r, ": 200"))[1]; strings.HasPrefix(r, "update ") && !strings.HasPrefix(name, "c") && !strings.HasPrefix(name, "e") {
			t.Errorf("it asked for %q", r)
		}
	}
}

// POOL-24: failures are tried again, by themselves.
func TestServerFailuresAreRetried(t *testing.T) {
	s := newServer(t)
	o := s.start(24, "10.0.0.0/16")
	s.proxy.Rule(t, clustertest.Rule{Match: clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumnodes"}}, Status: &clustertest.Status{Code: 500}, Times: 2})
	s.proxy.Rule(t, clustertest.Rule{Match: clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumnodes"}}, LoseAnswer: &clustertest.LoseAnswer{Connection: true}, Times: 1, Skip: 2})
	for i := range 4 {
		s.create(fmt.Sprint("n", i))
	}
	operatortest.Eventually(t, "all have a block", func() bool {
		owners := map[string]bool{}
		for i := range 4 {
			if cidrs, text := says(s.get(fmt.Sprint("n", i))); len(cidrs) == 1 && text == "" {
				owners[cidrs[0]] = true
			}
		}
		return len(owners) == 4
	})
	if values(o)["writes_total{result=fail,verb=update}"] < 2 {
		t.Errorf("failures are not counted: %v", values(o))
	}
}

// POOL-24: a read that shows another object is not the last word.
func TestServerReadOfAnotherObject(t *testing.T) {
	s := newServer(t)
	s.start(24, "10.0.0.0/16")
	s.proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"get"}, Resources: []string{"ciliumnodes"}}, Times: 2,
		Spoil: &clustertest.Spoil{Answers: []control.SpoiltAnswer{control.SpoilOtherUID}},
	})
	s.create("a")
	s.want("a", "10.0.0.0/24")
}

// A write that is under way when the term ends is answered before that, so that
// the next leader knows how far this one wrote (POOL-29).
func TestServerTermEndsWithAnswers(t *testing.T) {
	s := newServer(t)
	o := s.start(24, "10.0.0.0/16")
	rule := s.proxy.Rule(t, clustertest.Rule{Match: clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumnodes"}}, Delay: &clustertest.Delay{For: 300 * time.Millisecond}, Times: 1})
	s.create("a")
	operatortest.Eventually(t, "the write is held", func() bool { return rule.Hits(t) > 0 })
	o.Stop()
	s.want("a", "10.0.0.0/24")
	written := o.Handover()
	revision, err := slim.ParseRevision(s.get("a").GetResourceVersion())
	if got := written.Revisions["ciliumnodes.cilium.io"]; err != nil || got != uint64(revision) {
		t.Errorf("the next leader is told %v, not %d (%v)", written, revision, err)
	}
}

// Number 37 of the contract's ipam-cluster-pool.md; POOL-29: a term ends while 20 nodes wait to be written. The next one writes the rest, and
// no block is given twice.
func TestServerTermEndsAmongManyWrites(t *testing.T) {
	s := newServer(t)
	slow := clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumnodes"}}
	s.proxy.Rule(t, clustertest.Rule{Match: slow, Delay: &clustertest.Delay{For: 50 * time.Millisecond}})
	o := s.start(24, "10.0.0.0/16")
	for i := range 20 {
		s.create(fmt.Sprint("n", i))
	}
	operatortest.Eventually(t, "some are written", func() bool { all, _ := s.requests(0); return len(all) > 3 })
	o.Stop()
	s.start(24, "10.0.0.0/16")
	blocks := map[string]bool{}
	for i := range 20 {
		name := fmt.Sprint("n", i)
		operatortest.Eventually(t, name+" has one block", func() bool {
			cidrs, text := says(s.get(name))
			if len(cidrs) != 1 || text != "" {
				return false
			}
			blocks[cidrs[0]] = true
			return true
		})
	}
	if len(blocks) != 20 {
		t.Errorf("20 nodes have the blocks %v", slices.Sorted(maps.Keys(blocks)))
	}
}

// Permissions: the rules that the cell declares are enough.
func TestServerWithLeastRole(t *testing.T) {
	s := newServer(t)
	o, err := operatortest.New(t, Cell, s.proxy.Kubeconfig(), ours, "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/23")
	if err != nil {
		t.Fatal(err)
	}
	operatortest.Allow(t, s.core, "pool-operator", k8s.LeastRole("clusterpool-test", o.Graph(), false).Rules...)
	s.startAs(s.proxy.UserKubeconfig(t, "pool-operator"), "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/24")
	s.create("a")
	s.want("a", "10.0.0.0/24")
	s.create("b")
	s.wantError("b", "allocator full")
	s.delete("a")
	s.want("b", "10.0.0.0/24")
	for _, r := range s.proxy.Requests(t, 0) {
		if r.Status == http.StatusForbidden {
			t.Errorf("%s %s is forbidden", r.Method, r.Path)
		}
	}
}
