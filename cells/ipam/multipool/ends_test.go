// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// MPOOL-44: numbers 27, 28 and 29 of the contract's ipam-multi-pool.md.
func TestEndsOfCIDRs(t *testing.T) {
	both, last := ends{true, true}, ends{last: true}
	listed := []ciliumio.PoolAllocation{{Pool: "tight", CIDRs: []string{"10.50.9.0/28"}, AllowFirstIP: true, AllowLastIP: true}}
	for name, test := range map[string]struct {
		pool   string
		ends   ends
		listed []ciliumio.PoolAllocation
		needs  string
		want   int
		keeps  ends
	}{
		"27, both":         {"10.50.0.0/16 mask 28", both, nil, "tight: 16", 1, both},
		"27, the last":     {"10.50.0.0/16 mask 28", last, nil, "tight: 16", 2, last},
		"27, none":         {"10.50.0.0/16 mask 28", ends{}, nil, "tight: 14", 1, ends{}},
		"28":               {"10.50.0.0/16 mask 28", both, listed, "tight: 32", 2, both},
		"28, pool differs": {"10.50.0.0/16 mask 28", ends{}, listed, "tight: 32", 2, both},
		"28, no pool":      {"", ends{}, listed, "tight: 0", 1, both},
		"29, mask 32":      {"10.50.0.0/16 mask 32", ends{}, nil, "tight: 3", 3, ends{}},
		"29, mask 31":      {"10.50.0.0/16 mask 31", both, nil, "tight: 4", 2, both},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.markSynced()
			if s.ends = test.ends; test.pool != "" {
				s.pool("tight", test.pool, "")
			}
			s.node(has("n"))
			s.nodes["n"].Allocated = test.listed
			s.apply(s.alloc.upsert(*s.nodes["n"]))
			s.nodes["n"].Requested = requests(test.needs)
			s.apply(s.alloc.upsert(*s.nodes["n"]))
			got := s.nodes["n"].Allocated
			if len(got) != 1 || len(got[0].CIDRs) != test.want || (ends{got[0].AllowFirstIP, got[0].AllowLastIP}) != test.keeps {
				t.Errorf("it has %+v and error %q, want %d CIDRs with %+v", got, s.nodes["n"].Error, test.want, test.keeps)
			}
		})
	}
	s := newStory(t)
	s.markSynced()
	s.pool("tight", "10.50.0.0/16 mask 28", "")
	s.ends = last
	s.pool("tight", "10.50.0.0/16 mask 28", "")
	s.wantProblem("tight", `cannot change allowLastIP in existing pool "tight"`)
}

// requests are those of texts as of testNode.
func requests(text string) []ciliumio.PoolRequest {
	u := has("x").needs(text).object()
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "ipam", "pools", "requested")
	var all []ciliumio.PoolRequest
	for _, e := range list {
		of, _ := e.(map[string]any)
		r := ciliumio.PoolRequest{Pool: of["pool"].(string)}
		r.Needed.IPv4Addrs, _, _ = unstructured.NestedInt64(of, "needed", "ipv4-addrs")
		all = append(all, r)
	}
	return all
}

// MPOOL-1 and MPOOL-2, and number 40 of the contract's ipam-multi-pool.md: from 1.20 on the order is that of addresses, and no order is a difference.
func TestOrderOfCIDRs(t *testing.T) {
	s := newStory(t)
	s.alloc.byAddress = true
	s.pool("p", "10.1.0.0/16 mask 24", "fd00::/80 mask 96")
	s.node(has("a", "p: fd00::/96 10.1.2.0/24 10.1.10.0/24"))
	s.markSynced()
	s.want("a", "p: fd00::/96 10.1.2.0/24 10.1.10.0/24") // not written
	s.nodes["a"].Requested = requests("p: 600")
	s.apply(s.alloc.upsert(*s.nodes["a"]))
	if got := s.nodes["a"].Allocated; strings.Join(got[0].CIDRs, " ") != "10.1.0.0/24 10.1.2.0/24 10.1.10.0/24 fd00::/96" {
		t.Errorf("the order is %v", got)
	}
}

// MPOOL-44: fields of an element that are not known stay, and flags are those of the list.
func TestElementsKeepTheirFields(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"pool": "p", "cidrs": []any{"10.0.0.0/24"}, "allowFirstIP": true, "newer": "x"}}, "spec", "ipam", "pools", "allocated")
	if err := setAllocated(u, []ciliumio.PoolAllocation{{Pool: "p", CIDRs: []string{"10.0.1.0/24"}, AllowLastIP: true}, {Pool: "q"}}); err != nil {
		t.Fatal(err)
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "ipam", "pools", "allocated")
	p, _ := list[0].(map[string]any)
	if p["newer"] != "x" || p["allowFirstIP"] != nil || p["allowLastIP"] != true || len(list) != 2 {
		t.Errorf("%v", list)
	}
}

// Numbers 30, 31, 33 and 35 of the contract's ipam-multi-pool.md; MPOOL-44 and MPOOL-45 on a server.
func TestServerEndsOrphansAndIgnoredNodes(t *testing.T) {
	s := newServer(t)
	ignored := has("ignored").needs("tight: 5").object()
	ignored.SetAnnotations(map[string]string{"ipam.cilium.io/ignore": "True"})
	if _, err := s.nodes.Create(t.Context(), ignored, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	args := "--auto-create-cilium-pod-ip-pools=tight=ipv4-cidrs:10.50.0.0/16;ipv4-mask-size:28;allow-first-ip:true;allow-last-ip:true"
	s.create(has("n").needs("tight: 16"))
	o := s.start(args)
	s.want("n", "tight: 10.50.0.0/28")
	flags := func() (first, last any) {
		list, _, _ := unstructured.NestedSlice(s.get("n").Object, "spec", "ipam", "pools", "allocated")
		of, _ := list[0].(map[string]any)
		return of["allowFirstIP"], of["allowLastIP"]
	}
	if first, last := flags(); first != true || last != true {
		t.Errorf("the flags are %v and %v", first, last)
	}
	o.Stop()
	s.delete(s.pools, "tight")
	s.setRequested("n")
	o = s.start()
	const orphan = "unable to find pool tight, prefix 10.50.0.0/28 is still allocated to the node but is marked as orphan"
	s.wantError("n", orphan, "tight: 10.50.0.0/28")
	if first, last := flags(); first != true || last != true {
		t.Errorf("without the pool the flags are %v and %v", first, last)
	}
	s.createPool("q", "10.50.0.0/16 mask 28", "") // number 33: what n lists is not given away
	s.create(has("m").needs("q: 5"))
	s.want("m", "q: 10.50.0.16/28")
	all, _ := s.updates(0)
	for _, u := range all {
		if strings.Contains(u, "ignored") {
			t.Errorf("the ignored node is written: %s", u)
		}
	}
	edit(s, s.nodes, "ignored", func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{"ipam.cilium.io/ignore": "yes"})
		_ = unstructured.SetNestedSlice(u.Object, requestedOf("q: 5"), "spec", "ipam", "pools", "requested")
	})
	s.want("ignored", "q: 10.50.0.32/28")
	s.setAllocated("n")
	s.want("n")
	operatortest.Eventually(t, "it is counted", func() bool { return o.Metric("ipam_pool_blocks", "IPv4", "q", "used") == 2 })
}

// Numbers 32, 34 and 41 of the contract's ipam-multi-pool.md; MPOOL-6, MPOOL-29 and MPOOL-30: a term begins where nodes list CIDRs of a
// pool that is gone, and of one that has others now.
func TestServerListsOfEarlierPools(t *testing.T) {
	s := newServer(t)
	s.create(has("n1", "p: 10.1.0.0/24"), has("n2", "moved: 10.100.4.0/24"))
	s.createPool("moved", "10.200.0.0/16 mask 24", "")
	s.start()
	s.wantError("n1", "unable to find pool p, prefix 10.1.0.0/24 is still allocated to the node but is marked as orphan", "p: 10.1.0.0/24")
	const outside = "unable to reuse from pool moved: cidr 10.100.4.0/24 is not part of the requested pool"
	s.wantError("n2", outside, "moved: 10.100.4.0/24")
	s.setRequested("n2", "moved: 300")
	s.wantError("n2", outside, "moved: 10.100.4.0/24 10.200.0.0/24")

	s.createPool("p", "10.1.0.0/16 mask 24", "") // number 32: n1 has again what it had
	s.want("n1", "p: 10.1.0.0/24")
	s.create(has("m").needs("p: 5"))
	s.want("m", "p: 10.1.1.0/24")

	edit(s, s.pools, "p", func(u *unstructured.Unstructured) { // number 41: selectors are for agents
		_ = unstructured.SetNestedStringMap(u.Object, map[string]string{"app": "web"}, "spec", "podSelector", "matchLabels")
	})
	s.create(has("o").needs("p: 5"))
	s.want("o", "p: 10.1.2.0/24")
}
