// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/operatortest"
)

// showing has a node show CIDRs outside of its podCIDRs.
func (s *story) showing(name string, elsewhere ...string) {
	o := s.nodes[name]
	if o == nil {
		s.node(name)
		o = s.nodes[name]
	}
	o.Elsewhere = nil
	for _, text := range elsewhere {
		o.Elsewhere = append(o.Elsewhere, netip.MustParsePrefix(text))
	}
	s.apply(s.alloc.upsert(*o))
}

// POOL-38: what nodes show of another mode is given to no other node, whatever its size, until they do not show it any more.
func TestWhatNodesShowElsewhereIsTaken(t *testing.T) {
	for name, early := range map[string]bool{"at start": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			c, shared := v4(24, "10.0.0.0/21")
			s := newStory(t, c, shared)
			if !early {
				s.markSynced()
			}
			s.node("a", "10.0.7.0/24")
			s.showing("a", "10.0.0.0/24", "10.0.1.64/28", "10.0.2.0/23", "0.0.0.0/0")
			if early {
				s.markSynced()
			}
			s.want("a", "10.0.7.0/24")
			s.gives("10.0.4.0/24", "10.0.5.0/24", "10.0.6.0/24")
			const named = "CiliumNode a: it shows 3 CIDRs outside of spec.ipam.podCIDRs, first 10.0.0.0/24, which are given to no other node, and none is free"
			s.showing("a", "10.0.0.0/24", "10.0.1.64/28", "10.0.2.0/23")
			if text := describe(s.alloc.claims.problems(true)); !strings.HasPrefix(text, named) {
				t.Errorf("health says %q", text)
			}
			s.showing("a", "10.0.0.0/24", "10.0.2.0/23")
			s.want("new-3", "10.0.1.0/24")
		})
	}
}

// POOL-38; number 4.3 of the contract's tenants.md is of the same kind: a node that shows all blocks of a cluster CIDR is believed for some of them.
func TestNodesCannotShowAllBlocks(t *testing.T) {
	var all []string
	for i := range 16 {
		all = append(all, fmt.Sprintf("10.0.%d.0/24", i), fmt.Sprintf("10.0.%d.0/28", i))
	}
	for name, shown := range map[string][]string{"one by one": all, "as one": {"10.0.0.0/20"}, "as more": {"10.0.0.0/16"}, "in halves": {"10.0.0.0/21", "10.0.8.0/21"}} {
		t.Run(name, func(t *testing.T) {
			c, shared := v4(24, "10.0.0.0/20")
			s := newStory(t, c, shared)
			s.showing("a", shown...)
			s.markSynced()
			for i := range 7 {
				s.node(fmt.Sprint("new-", i))
				if got := s.nodes[fmt.Sprint("new-", i)]; len(got.PodCIDRs) != 1 || got.Error != "" || netip.MustParsePrefix("10.0.0.0/21").Overlaps(netip.MustParsePrefix(got.PodCIDRs[0])) {
					t.Errorf("node %d has %v and error %q", i, got.PodCIDRs, got.Error)
				}
			}
			if text := describe(s.alloc.claims.problems(false)); !strings.HasPrefix(text, "CiliumNode a: ") || !strings.Contains(text, "is beyond the 8 blocks") {
				t.Errorf("health says %q", text)
			}
		})
	}
}

// POOL-38: what pods of a node have that comes back from multi-pool with small blocks, far apart, is given to no other node. What a node withholds so is bounded, too.
func TestScatteredPartsOfBlocks(t *testing.T) {
	parts := func(n, bits int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("10.0.%d.128/%d", i, bits))
		}
		return list
	}
	for name, test := range map[string]struct {
		cluster string
		shown   []string
		first   string // that is given
		beyond  string
	}{
		"nine":                     {"10.0.0.0/16", parts(9, 27), "10.0.9.0/24", ""},
		"eight blocks' worth":      {"10.0.0.0/16", parts(64, 27), "10.0.64.0/24", ""},
		"more":                     {"10.0.0.0/16", parts(65, 27), "10.0.64.0/24", "CIDR 10.0.64.128/27, which"},
		"of large ones":            {"10.0.0.0/16", parts(17, 25), "10.0.16.0/24", "CIDR 10.0.16.128/25, which"},
		"small ones":               {"10.0.0.0/16", parts(65, 28), "10.0.64.0/24", "CIDR 10.0.64.128/28, which"},
		"twice":                    {"10.0.0.0/16", slices.Concat(parts(64, 27), parts(64, 27)), "10.0.64.0/24", ""},
		"in half of the blocks":    {"10.0.0.0/19", parts(16, 28), "10.0.16.0/24", ""},
		"in more than half":        {"10.0.0.0/19", parts(32, 28), "10.0.16.0/24", "CIDR 10.0.16.128/28, which"},
		"the end of a larger CIDR": {"10.0.0.0/16", append(parts(8, 25), "10.0.128.0/21"), "10.0.128.0/24", "CIDR 10.0.128.0/21, which"},
	} {
		t.Run(name, func(t *testing.T) {
			c, shared := v4(24, test.cluster)
			s := newStory(t, c, shared)
			s.showing("a", test.shown...)
			s.markSynced()
			s.want("a", test.first)
			if text := s.alloc.claims.problems(false)["a"]; !strings.HasPrefix(text, test.beyond) || (text == "") != (test.beyond == "") {
				t.Errorf("health says %q", text)
			}
		})
	}
	// Of a CIDR that is too large, the first blocks are believed.
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.showing("a", "10.0.2.0/23", "10.0.16.0/20")
	s.markSynced()
	var kept []string
	for _, c := range s.alloc.nodes["a"].Elsewhere {
		kept = append(kept, strings.TrimPrefix(c.String(), "10.0."))
	}
	if got := strings.Join(kept, " "); got != "2.0/23 16.0/24 17.0/24 18.0/24 19.0/24 20.0/24 21.0/24" {
		t.Errorf("a shows %s", got)
	}
}

// POOL-39: a node that comes from another mode without podCIDRs has a block of those that it shows; the others stay taken.
func TestNodesComeBackToWhatTheyHad(t *testing.T) {
	c, shared := dual("10.0.0.0/21", "fd00::/109")
	s := newStory(t, c, shared)
	s.node("new")
	s.node("a")
	s.showing("a", "10.0.5.0/24", "fd00::3:0/112", "10.0.0.0/24")
	s.node("b")
	s.showing("b", "10.0.1.0/25", "10.0.5.0/24") // the latter is claimed by two
	s.markSynced()
	s.want("new", "10.0.2.0/24", "fd00::/112")
	s.want("a", "10.0.0.0/24", "fd00::3:0/112")
	if got := s.nodes["b"]; !slices.Equal(got.PodCIDRs, []string{"10.0.3.0/24", "fd00::1:0/112"}) || got.Error != "CIDR 10.0.5.0/24 overlaps 10.0.5.0/24, which the older CiliumNode a has, too" {
		t.Errorf("b has %v and error %q", got.PodCIDRs, got.Error)
	}
}

// POOL-40: what two nodes have already is told on the younger one, and taken from neither.
func TestClashesAreToldOnTheYounger(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/21")
	s := newStory(t, c, shared)
	s.node("oldest", "10.0.0.0/24")
	s.showing("oldest", "10.0.2.0/23")
	s.node("younger", "10.0.3.0/24")
	s.showing("youngest", "10.0.0.0/25")
	s.markSynced()
	s.want("oldest", "10.0.0.0/24")
	s.wantError("younger", "CIDR 10.0.3.0/24 overlaps 10.0.2.0/23, which the older CiliumNode oldest has, too", "10.0.3.0/24")
	s.wantError("youngest", "CIDR 10.0.0.0/25 overlaps 10.0.0.0/24, which the older CiliumNode oldest has, too", "10.0.1.0/24")
	s.showing("oldest")
	s.want("younger", "10.0.3.0/24")
	s.delete("oldest")
	s.want("youngest", "10.0.1.0/24")
}

// POOL-42: numbers 31 and 32 of the contract's ipam-cluster-pool.md.
func TestDuplicateOfOneFamily(t *testing.T) {
	const taken = "requested CIDR (10.60.0.0/24) is already allocated"
	for name, test := range map[string]struct {
		early, loses bool
		d2           []string
		want         []string
		error        string
	}{
		"1.20":            {false, true, []string{"10.60.0.0/24", "fd00::1:0/112"}, []string{"10.60.1.0/24", "fd00::1:0/112"}, ""},
		"1.20, at start":  {true, true, []string{"10.60.0.0/24", "fd00::1:0/112"}, []string{"10.60.1.0/24", "fd00::1:0/112"}, ""},
		"up to 1.19":      {false, false, []string{"10.60.0.0/24", "fd00::1:0/112"}, []string{"10.60.0.0/24", "fd00::1:0/112"}, taken},
		"IPv4 alone":      {false, true, []string{"10.60.0.0/24"}, []string{"10.60.0.0/24"}, taken},
		"both duplicates": {false, true, []string{"10.60.0.0/24", "fd00::/112"}, []string{"10.60.0.0/24", "fd00::/112"}, taken},
		"of IPv6":         {false, true, []string{"10.60.7.0/24", "fd00::/112"}, []string{"10.60.7.0/24", "fd00::1:0/112"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, shared := dual("10.60.0.0/16", "fd00::/96")
			s := newStory(t, c, shared)
			s.alloc.losesDuplicates = func(string) bool { return test.loses }
			if !test.early {
				s.markSynced()
			}
			s.node("d1", "10.60.0.0/24", "fd00::/112")
			s.node("d2", test.d2...)
			if test.early {
				s.markSynced()
			}
			s.wantError("d2", test.error, test.want...)
			s.want("d1", "10.60.0.0/24", "fd00::/112")
			if s.writes["d1"] > 0 {
				t.Error("d1 is written")
			}
		})
	}
	// The older one never loses a CIDR, though the younger one was first.
	c, shared := dual("10.60.0.0/16", "fd00::/96")
	s := newStory(t, c, shared)
	s.alloc.losesDuplicates = func(string) bool { return true }
	s.markSynced()
	s.node("first", "10.60.0.0/24", "fd00::/112")
	s.nodes["older"] = &observed{Name: "older", UID: "older", Created: s.clock.Add(-time.Hour), PodCIDRs: []string{"10.60.0.0/24", "fd00::1:0/112"}}
	s.apply(s.alloc.upsert(*s.nodes["older"]))
	s.wantError("older", taken, "10.60.0.0/24", "fd00::1:0/112")
}

// POOL-43: numbers 33, 34 and 35 of the contract's ipam-cluster-pool.md.
func TestServerIgnoredNodes(t *testing.T) {
	s := newServer(t)
	annotate := func(name, value string) {
		s.edit(name, func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{"ipam.cilium.io/ignore": value})
		})
	}
	s.create("ign")
	s.create("has", "10.40.1.0/24")
	annotate("ign", "TRUE")
	annotate("has", "true")
	o := s.start(24, "10.40.0.0/16")
	s.create("w1")
	s.want("w1", "10.40.0.0/24")
	annotate("w1", "true")
	s.create("w2")
	s.want("w2", "10.40.2.0/24")
	s.want("ign")
	all, _ := s.requests(0)
	for _, request := range all {
		if strings.HasPrefix(request, "update ign") || strings.HasPrefix(request, "update has") {
			t.Error(request)
		}
	}
	if n := strings.Count(strings.Join(all, " "), "update w1: 200"); n != 1 {
		t.Errorf("w1 is written %d times", n)
	}
	s.edit("ign", func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
	s.want("ign", "10.40.3.0/24")
	used := func() float64 { return o.Metric("ipam_cluster_pool_blocks", "10.40.0.0/16", "IPv4", "used") }
	operatortest.Eventually(t, "five nodes have blocks", func() bool { return used() == 4 })
	s.delete("w1")
	operatortest.Eventually(t, "the block of w1 is free", func() bool { return used() == 3 })
}

// POOL-38, POOL-39 and POOL-42 on a server: a cluster comes back from multi-pool, with agents of 1.20.
func TestServerComesBackFromMultiPool(t *testing.T) {
	s := newServer(t)
	for i, cidrs := range [][]any{{"10.60.5.0/24", "10.60.6.0/24"}, {"10.60.0.0/24"}} {
		name := []string{"a", "b"}[i]
		s.create(name)
		s.edit(name, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"pool": "default", "cidrs": cidrs}}, "spec", "ipam", "pools", "allocated")
		})
	}
	s.create("new")
	s.startAs(s.proxy.Kubeconfig(), "--cluster-pool-ipv4-cidr=10.60.0.0/16", "--cluster-pool-ipv6-cidr=fd00::/96")
	s.want("a", "10.60.5.0/24", "fd00::/112")
	s.want("b", "10.60.0.0/24", "fd00::1:0/112")
	s.want("new", "10.60.1.0/24", "fd00::2:0/112")
	s.create("d2", "10.60.0.0/24", "fd00::9:0/112") // number 31 of the contract's ipam-cluster-pool.md
	s.want("d2", "10.60.2.0/24", "fd00::9:0/112")
	if list, _, _ := unstructured.NestedSlice(s.get("a").Object, "spec", "ipam", "pools", "allocated"); len(list) != 1 {
		t.Errorf("the pools of a are %v", list)
	}
}

// POOL-41, and number 4.3 of the contract's tenants.md: a node that lists all blocks is believed for one; others are served, and it is named.
func TestOneBlockOfEachPoolIsBelieved(t *testing.T) {
	var all []string
	for i := range 16 {
		all = append(all, fmt.Sprintf("10.0.%d.0/24", i))
	}
	const second = "requested CIDR (10.0.1.0/24) is a second one of clusterCIDR: 10.0.0.0/20, nodeMask: 24: a node is given one"
	for name, early := range map[string]bool{"at start": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			c, shared := v4(24, "10.0.0.0/20")
			s := newStory(t, c, shared)
			if !early {
				s.markSynced()
			}
			s.node("greedy", all...)
			if early {
				s.markSynced()
			}
			s.wantError("greedy", second, all...)
			s.node("n2")
			s.want("n2", "10.0.1.0/24")
			if text := describe(s.alloc.claims.problems(false)); !strings.HasPrefix(text, "CiliumNode greedy: requested CIDR (10.0.15.0/24) is a second one of") {
				t.Errorf("health says %q", text)
			}
			s.node("n2", all...) // a known node takes no more by that
			s.gives(all[2:]...)
		})
	}
}

// POOL-41, POOL-38; number 4.3 of the contract's tenants.md: with --cluster-pool-believe-all-blocks a node has all blocks that it lists, as in the original, and what it
// shows elsewhere is given to no other node, either.
func TestAllBlocksAreBelieved(t *testing.T) {
	var all []string
	for i := range 16 {
		all = append(all, fmt.Sprintf("10.0.%d.0/24", i))
	}
	for name, early := range map[string]bool{"at start": true, "later": false} {
		for where, lists := range map[string][]string{"listed": all, "shown": all[:1]} {
			t.Run(where+" "+name, func(t *testing.T) {
				c, shared := v4(24, "10.0.0.0/20")
				c.ClusterPoolBelieveAllBlocks = true
				s := newStory(t, c, shared)
				if !early {
					s.markSynced()
				}
				s.node("greedy", lists...)
				s.showing("greedy", all[len(lists):]...)
				s.node("n2")
				if early {
					s.markSynced()
				}
				s.want("greedy", lists...)
				s.wantError("n2", "allocator full")
				if problems := s.alloc.claims.problems(false); len(problems) > 0 {
					t.Errorf("health says %v", problems)
				}
				s.delete("greedy")
				s.want("n2", all[0])
			})
		}
	}
}
