// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// hold delays the next update of a CiliumNode until the rule is removed.
func (s *server) hold() *clustertest.ActiveRule {
	return s.proxy.Rule(s.t, clustertest.Rule{Match: clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumnodes"}}, Delay: &clustertest.Delay{For: -1}, Times: 1})
}

// MPOOL-E13; MPOOL-24: what agents write in between stays, and no block is lost or allocated twice.
func TestServerConflictKeepsWhatTheAgentWrote(t *testing.T) {
	s := newServer(t)
	s.createPool("default", "10.100.0.0/16 mask 24", "")
	s.start()
	rule := s.hold()
	s.create(has("a").needs("default: 10"))
	operatortest.Eventually(t, "the write is held", func() bool { return rule.Hits(t) > 0 })
	s.setRequested("a", "default: 300")
	rule.Remove(t)
	s.want("a", "default: 10.100.0.0/24 10.100.1.0/24")
	requested, _, _ := unstructured.NestedSlice(s.get("a").Object, "spec", "ipam", "pools", "requested")
	if diff := cmp.Diff(requestedOf("default: 300"), requested); diff != "" {
		t.Error(diff)
	}
	if all, _ := s.updates(0); !slices.Contains(all, "update a: 409") {
		t.Errorf("there was no conflict: %q", all)
	}

	rule = s.hold()
	s.setRequested("a", "default: 600")
	operatortest.Eventually(t, "the write is held", func() bool { return rule.Hits(t) > 0 })
	s.setAllocated("a", "default: 10.100.1.0/24") // it releases a CIDR
	rule.Remove(t)
	s.want("a", "default: 10.100.1.0/24 10.100.2.0/24 10.100.3.0/24")
	s.create(has("b").needs("default: 1"))
	s.want("b", "default: 10.100.4.0/24")
}

// forNode matches requests of a method for a node or its subresource.
func forNode(method, path string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method == method && strings.HasSuffix(r.URL.Path, "/ciliumnodes/"+path)
	}
}

// MPOOL-24: one response that is not the API server's costs the node nothing but another attempt.
func TestServerFalsifiedResponsesAreRetried(t *testing.T) {
	s := newServer(t)
	s.createPool("default", "10.100.0.0/16 mask 24", "")
	liar := operatortest.NewInterceptor(t, clustertest.Shared(t).AdminConfig(t))
	o := s.startAs(liar.Kubeconfig)
	nodes, lies := 0, operatortest.BadResponses()
	for _, what := range slices.Sorted(maps.Keys(lies)) {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			name := fmt.Sprintf("n%03d", nodes)
			liar.Intercept(operatortest.Once(forNode(method, name), lies[what]))
			s.create(has(name).needs("default: 1"))
			s.want(name, fmt.Sprintf("default: 10.100.%d.0/24", nodes))
			if liar.Hits() != 1 {
				t.Errorf("%s: %d lies", what, liar.Hits())
			}
			nodes++
		}
	}
	operatortest.Eventually(t, "it recovers", func() bool { return o.Degraded("ipam") == "" })
}

// MPOOL-E11, MPOOL-E12; MPOOL-4: pools of the flag are created, retried, and never changed.
func TestServerCreatesPools(t *testing.T) {
	s := newServer(t)
	s.createPool("default", "10.10.0.0/16 mask 24", "")
	fails := s.proxy.Answer(t, 500, clustertest.Match{Verbs: []string{"create"}, Resources: []string{"ciliumpodippools"}})
	args := `--auto-create-cilium-pod-ip-pools={"default":"ipv4-cidrs:10.10.0.0/16;ipv4-mask-size:27","other":"ipv4-cidrs:10.20.0.0/16;ipv4-mask-size:26;ipv6-cidrs:fd00::/80;ipv6-mask-size:96","bad":"ipv4-cidrs:10.0.0.0/8"}`
	o := s.start(args)
	s.create(has("a").needs("default: 1", "other: 1 1"))
	operatortest.Eventually(t, "both are not made", func() bool { return strings.Contains(o.Degraded("ipam.multipool"), "2 failing") })
	fails.Remove(t)
	s.want("a", "default: 10.10.0.0/24", "other: 10.20.0.0/26 fd00::/96")
	operatortest.Eventually(t, "the invalid one is reported", func() bool {
		d := o.Degraded("ipam.multipool")
		return strings.Contains(d, "1 failing, bad among them") && strings.Contains(d, "maskSize")
	})
	pool, err := s.pools.Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := specOf("10.10.0.0/16 mask 24", "")
	want["allowFirstIP"], want["allowLastIP"] = false, false // the API server fills them in
	if diff := cmp.Diff(want, pool.Object["spec"]); diff != "" {
		t.Error(diff)
	}
	if _, err := s.pools.Get(t.Context(), "bad", metav1.GetOptions{}); err == nil {
		t.Error("the API server has stored a pool without a mask size")
	}
	o.Stop()
	_, last := s.updates(0)
	o = s.start(strings.Replace(args, `,"bad":"ipv4-cidrs:10.0.0.0/8"`, "", 1))
	s.create(has("b").needs("default: 1"))
	s.want("b", "default: 10.10.1.0/24")
	if all, _ := s.updates(last); !slices.Equal(all, []string{"update b: 200"}) {
		t.Errorf("a restart wrote %q", all)
	}
	if d := o.Degraded(""); d != "" {
		t.Error(d)
	}
}

// MPOOL-4: nodes are not told that a pool does not exist while it is created, also by a slow API server.
func TestServerCreatesPoolsBeforeNodesAreWritten(t *testing.T) {
	s := newServer(t)
	s.create(has("a", "auto: 10.30.1.0/24"), has("b").needs("auto: 1"))
	s.proxy.Rule(t, clustertest.Rule{Match: clustertest.Match{Verbs: []string{"create"}, Resources: []string{"ciliumpodippools"}}, Delay: &clustertest.Delay{For: 300 * time.Millisecond}})
	s.start(`--auto-create-cilium-pod-ip-pools={"auto":"ipv4-cidrs:10.30.0.0/16;ipv4-mask-size:24"}`)
	s.want("b", "auto: 10.30.0.0/24")
	if all, _ := s.updates(0); !slices.Equal(all, []string{"create : 201", "update b: 200"}) {
		t.Errorf("the writes are %q", all)
	}
}

// MPOOL-31: a pool that overlaps another one is refused until that changes; it is reported on the pool.
func TestServerOverlappingPools(t *testing.T) {
	s := newServer(t)
	o := s.start()
	s.createPool("first", "10.0.0.0/16 mask 24", "")
	s.create(has("a").needs("first: 1"))
	s.want("a", "first: 10.0.0.0/24")
	s.createPool("second", "10.1.0.0/16 10.0.0.0/8 mask 24", "")
	s.createPool("third", "10.0.128.0/17 mask 24", "")
	s.create(has("b").needs("third: 1"))
	s.wantError("b", `failed to allocate ipv4 address for node "b" from pool "third": cannot allocate from non-existing pool: third`)
	const text = `requested CIDR 10.0.128.0/17 collides with 10.0.0.0/16 of pool "first"`
	s.wantEvent("third", "PoolOverlaps", text)
	s.wantEvent("second", "PoolInvalid", "requested CIDR 10.0.0.0/8 collides with 10.1.0.0/16")
	operatortest.Eventually(t, "it is counted", func() bool {
		return o.Metric("ipam_pool_conflicts", "third") == 1 && o.Metric("ipam_pool_conflicts", "first") == 0 && strings.Contains(o.Degraded("ipam.multipool.pools"), "1 more")
	})
	s.setPool("first", "10.0.0.0/17 mask 24", "")
	s.want("b", "third: 10.0.128.0/24")
	s.setPool("first", "10.2.0.0/16 mask 24", "")
	s.wantError("a", "unable to reuse from pool first: cidr 10.0.0.0/24 is not part of the requested pool", "first: 10.0.0.0/24")
}

// wantEvent waits for an Event about a pool.
func (s *server) wantEvent(pool, reason, text string) {
	s.t.Helper()
	operatortest.Eventually(s.t, "there is an Event "+reason, func() bool {
		list, err := s.core.CoreV1().Events("default").List(s.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=CiliumPodIPPool,involvedObject.name=" + pool})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return true
			}
		}
		return false
	})
}

// MPOOL-37: an agent that releases what it has been allocated, and requests it again, has it again at once, however often.
func TestReleasesAreNoContention(t *testing.T) {
	s := newServer(t)
	s.createPool("default", "10.100.0.0/16 mask 24", "")
	o := s.start()
	s.create(has("busy").needs("default: 300"))
	for i := range 8 {
		s.want("busy", fmt.Sprintf("default: 10.100.%d.0/24 10.100.%d.0/24", i, i+1))
		s.setRequested("busy", "default: 1")
		s.setAllocated("busy", fmt.Sprintf("default: 10.100.%d.0/24", i+1))
		s.setRequested("busy", "default: 300")
	}
	if d := o.Degraded("ipam.multipool"); d != "" {
		t.Error(d)
	}
}

// K8S-9: another writer that undoes what is written is named, and is not fought with at full speed.
func TestContentionOverANode(t *testing.T) {
	s := newServer(t)
	s.createPool("default", "10.100.0.0/16 mask 24", "")
	o := s.start()
	_, before := s.updates(0)
	other := operatortest.Revert(t, s.nodes, func(ctx context.Context, u *unstructured.Unstructured) bool {
		if _, text := textsOf(u); text == "" {
			return false
		}
		_ = setError(u, "")
		_, err := s.nodes.UpdateStatus(ctx, u, metav1.UpdateOptions{})
		return err == nil
	})
	s.create(has("fought").needs("no-exist: 1"))
	operatortest.Eventually(t, "it is named", func() bool {
		return other.Reverted() >= 5 && strings.Contains(o.Degraded("ipam.multipool.contention"), "ciliumnodes.cilium.io fought")
	})
	if all, _ := s.updates(before); len(all) > 20 {
		t.Errorf("%d writes", len(all))
	}
	other.Stop()
	operatortest.Eventually(t, "it is written in the end", func() bool {
		_, text := textsOf(s.get("fought"))
		return text != ""
	})
}
