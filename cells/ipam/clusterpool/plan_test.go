// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// v4 and dual are configurations of the examples.
func v4(mask int, cidrs ...string) (Config, cluster.Config) {
	return Config{ClusterPoolIPv4CIDR: cidrs, ClusterPoolIPv4MaskSize: mask, ClusterPoolIPv6MaskSize: 112}, cluster.Config{EnableIPv4: true}
}

func dual(v4, v6 string) (Config, cluster.Config) {
	return Config{
		ClusterPoolIPv4CIDR: []string{v4}, ClusterPoolIPv4MaskSize: 24,
		ClusterPoolIPv6CIDR: []string{v6}, ClusterPoolIPv6MaskSize: 112,
	}, cluster.Config{EnableIPv4: true, EnableIPv6: true}
}

// story drives an allocator as the controller does, with nodes that store what is
// written.
type story struct {
	t      *testing.T
	alloc  *allocator
	nodes  map[string]*observed
	writes map[string]int
	clock  time.Time
}

func newStory(t *testing.T, c Config, shared cluster.Config) *story {
	t.Helper()
	a, err := newAllocator(c, shared)
	if err != nil {
		t.Fatal(err)
	}
	return &story{t: t, alloc: a, nodes: map[string]*observed{}, writes: map[string]int{}, clock: time.Unix(1e9, 0)}
}

// node creates a node, or changes its CIDRs.
func (s *story) node(name string, cidrs ...string) {
	s.clock = s.clock.Add(time.Second)
	o := s.nodes[name]
	if o == nil {
		o = &observed{Name: name, UID: fmt.Sprint("uid-", s.clock.Unix()), Created: s.clock}
		s.nodes[name] = o
	}
	o.PodCIDRs, o.Undecoded, o.Found = cidrs, "", nil
	s.apply(s.alloc.upsert(*o))
}

func (s *story) delete(name string) {
	delete(s.nodes, name)
	s.apply(s.alloc.remove(name))
}

func (s *story) markSynced() { s.apply(s.alloc.markSynced()) }

// apply writes what is desired, as often as it takes.
func (s *story) apply(names []string) {
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		o := s.nodes[name]
		d, ok := s.alloc.desired(name)
		if o == nil || !ok {
			continue
		}
		changed := false
		if d.PodCIDRs != nil && !slices.Equal(d.PodCIDRs, o.PodCIDRs) {
			o.PodCIDRs, changed = d.PodCIDRs, true
			s.writes[name]++
		}
		if d.Error != o.Error {
			o.Error, changed = d.Error, true
			s.writes[name]++
		}
		if changed {
			names = append(names, s.alloc.upsert(*o)...)
		}
	}
}

func (s *story) want(name string, cidrs ...string) {
	s.t.Helper()
	if got := s.nodes[name]; !slices.Equal(got.PodCIDRs, cidrs) || got.Error != "" {
		s.t.Errorf("node %s has %v and error %q; want %v", name, got.PodCIDRs, got.Error, cidrs)
	}
}

func (s *story) wantError(name, text string, cidrs ...string) {
	s.t.Helper()
	if got := s.nodes[name]; got.Error != text || !slices.Equal(got.PodCIDRs, cidrs) {
		s.t.Errorf("node %s has %v and error %q; want %v and %q", name, got.PodCIDRs, got.Error, cidrs, text)
	}
}

// The examples of docs/wire/ipam.clusterpool.md, by number.

func TestExample1And2CursorMovesOn(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.markSynced()
	s.node("a")
	s.node("b")
	s.want("a", "10.0.0.0/24")
	s.want("b", "10.0.1.0/24")
	s.delete("a")
	s.node("c")
	s.want("c", "10.0.2.0/24")
}

func TestExample3DualStack(t *testing.T) {
	c, shared := dual("10.0.0.0/16", "fd00::/104")
	s := newStory(t, c, shared)
	s.markSynced()
	s.node("a")
	s.node("b")
	s.want("a", "10.0.0.0/24", "fd00::/112")
	s.want("b", "10.0.1.0/24", "fd00::1:0/112")
}

func TestExample4And5RestartKeepsWhatNodesHave(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.node("b")
	s.node("a", "10.0.5.0/24")
	s.node("x", "10.0.0.0/24")
	s.markSynced()
	s.want("a", "10.0.5.0/24")
	s.want("b", "10.0.1.0/24")
	s.want("x", "10.0.0.0/24")
	if s.writes["a"]+s.writes["x"] != 0 {
		t.Errorf("nodes that have all they need were written: %v", s.writes)
	}
}

func TestExample6StarvedNodeIsServedOnRelease(t *testing.T) {
	c, shared := v4(25, "10.0.0.0/24")
	s := newStory(t, c, shared)
	s.markSynced()
	s.node("a")
	s.node("b")
	s.node("c")
	s.node("d")
	s.wantError("c", "allocator full")
	s.delete("a")
	s.want("c", "10.0.0.0/25")
	s.wantError("d", "allocator full")
}

func TestExample7SecondCIDR(t *testing.T) {
	c, shared := v4(25, "10.0.0.0/24", "10.1.0.0/24")
	s := newStory(t, c, shared)
	s.markSynced()
	s.node("a")
	s.node("b")
	s.node("c")
	s.want("c", "10.1.0.0/25")
}

func TestExample8And9ConfigurationIsRefused(t *testing.T) {
	v6 := func(mask int, cidr string) (Config, cluster.Config) {
		return Config{ClusterPoolIPv6CIDR: []string{cidr}, ClusterPoolIPv6MaskSize: mask, ClusterPoolIPv4MaskSize: 24}, cluster.Config{EnableIPv6: true}
	}
	for name, c := range map[string]struct {
		make func() (Config, cluster.Config)
		want string
	}{
		"later contains earlier": {func() (Config, cluster.Config) { return v4(24, "10.0.0.0/16", "10.0.0.0/8") }, "requested CIDR 10.0.0.0/8 collides with clusterCIDR: 10.0.0.0/16, nodeMask: 24"},
		"earlier contains later": {func() (Config, cluster.Config) { return v4(24, "10.0.0.0/8", "10.3.0.0/16") }, "collides"},
		"spread above 16":        {func() (Config, cluster.Config) { return v6(120, "fd00::/100") }, "node CIDR size is too big"},
		"mask above 32":          {func() (Config, cluster.Config) { return v4(33, "10.0.0.0/16") }, "between 1 and 32"},
		"mask below prefix":      {func() (Config, cluster.Config) { return v4(15, "10.0.0.0/16") }, "at least 16"},
		"no CIDR":                {func() (Config, cluster.Config) { return v4(24) }, "cluster-pool-ipv4-cidr must be provided when using ClusterPool"},
		"not a CIDR":             {func() (Config, cluster.Config) { return v4(24, "10.0.0.0") }, "invalid CIDR address: 10.0.0.0"},
		"wrong family":           {func() (Config, cluster.Config) { return v4(24, "fd00::/64") }, "CIDR is not v4 family: fd00::/64"},
		"IPv4 as IPv6":           {func() (Config, cluster.Config) { return v6(120, "::ffff:10.0.0.0/112") }, "CIDR is not v6 family: ::ffff:10.0.0.0/112"},
		"family off": {func() (Config, cluster.Config) {
			c, _ := v4(24, "10.0.0.0/16")
			return c, cluster.Config{}
		}, "cluster-pool-ipv4-cidr must not be set if IPv4 is disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := validate(c.make()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	err := validate(v4(24, "10.0.1.5/16"))
	if invalid, ok := errors.AsType[*cell.InvalidError](err); !ok || !invalid.Questionable || !strings.Contains(err.Error(), "should be 10.0.0.0/16") {
		t.Errorf("host bits are masked away, and questionable: %v", err)
	}
}

func TestExample10OutsideCIDRIsKept(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.markSynced()
	s.node("a", "172.16.0.0/24")
	s.wantError("a", "allocator not configured for the requested CIDR 172.16.0.0/24", "172.16.0.0/24")
}

func TestExample11OverlapOfOtherSizes(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.node("a", "10.0.0.0/23")
	s.markSynced()
	s.node("b")
	s.want("b", "10.0.2.0/24")
	s.node("c", "10.0.3.128/25") // takes the whole block
	s.node("d", "10.0.3.0/25")
	s.wantError("d", "requested CIDR (10.0.3.0/25) is already allocated", "10.0.3.0/25")
}

func TestExample12EditedNodeKeepsItsReservation(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.markSynced()
	s.node("a")
	s.node("a", "10.0.7.0/24")
	s.wantError("a", "node has CIDRs allocated ([10.0.0.0/24]) that conflict with requested CIDRs [10.0.7.0/24]", "10.0.7.0/24")
	s.node("x", "10.0.7.0/24")
	s.want("x", "10.0.7.0/24")
	s.node("a", "10.0.0.0/24")
	s.want("a", "10.0.0.0/24")
}

func TestExample13FamilySwitchedOn(t *testing.T) {
	c, shared := dual("10.0.0.0/16", "fd00::/104")
	s := newStory(t, c, shared)
	s.node("a", "10.0.0.0/24")
	s.markSynced()
	s.want("a", "10.0.0.0/24", "fd00::/112")
}

func TestExample15NoWriteWithoutChange(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/8")
	s := newStory(t, c, shared)
	for i := range 1000 {
		s.node(fmt.Sprint("n", i), fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
	}
	s.markSynced()
	if len(s.writes) != 0 {
		t.Errorf("%d nodes were written", len(s.writes))
	}
}

func TestClearedCIDRsComeBack(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.markSynced()
	s.node("a")
	s.node("a")
	s.want("a", "10.0.0.0/24")
}

func TestSecondFamilyFullReturnsTheFirst(t *testing.T) {
	c := Config{
		ClusterPoolIPv4CIDR: []string{"10.0.0.0/16"}, ClusterPoolIPv4MaskSize: 24,
		ClusterPoolIPv6CIDR: []string{"fd00::/111"}, ClusterPoolIPv6MaskSize: 112,
	}
	s := newStory(t, c, cluster.Config{EnableIPv4: true, EnableIPv6: true})
	s.markSynced()
	s.node("a")
	s.node("b")
	s.node("c")
	s.wantError("c", "allocator full")
	if used := s.alloc.pools[0][0].used(); used != 2 {
		t.Errorf("%d IPv4 blocks are in use, want 2", used)
	}
}

func TestOldestOfTwoKeepsTheCIDR(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.node("z-old", "10.0.1.0/24")
	s.node("a-young", "10.0.1.0/24")
	s.markSynced()
	s.want("z-old", "10.0.1.0/24")
	s.wantError("a-young", "requested CIDR (10.0.1.0/24) is already allocated", "10.0.1.0/24")
	s.delete("z-old")
	s.want("a-young", "10.0.1.0/24")
}

func TestInvalidCIDRsAreReportedAndKept(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.node("a", "10.0.0.0/24", "xyz")
	s.node("b", "fd00::/112")
	s.markSynced()
	s.wantError("a", "invalid CIDR address: xyz", "10.0.0.0/24", "xyz")
	s.wantError("b", "unable to allocate CIDR [fd00::/112] since allocator for IPv6 addresses does not exist", "fd00::/112")
	s.node("c")
	s.want("c", "10.0.1.0/24") // what a node says besides the garbage stays its own
}

func TestReplacedNodeOfTheSameName(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.markSynced()
	s.node("a")
	delete(s.nodes, "a") // deletion and creation seen as one
	s.node("a")
	s.want("a", "10.0.1.0/24")
	if used := s.alloc.pools[0][0].used(); used != 1 {
		t.Errorf("%d blocks are in use, want 1", used)
	}
}

// POOL-9 and POOL-21: what a node says it has comes before what another waits for, also
// where it is seen to be another node of its name.
func TestReplacedNodeKeepsListedCIDRs(t *testing.T) {
	c, shared := v4(25, "10.0.0.0/24")
	s := newStory(t, c, shared)
	s.markSynced()
	s.node("a")
	s.node("b")
	s.node("c")
	s.wantError("c", "allocator full")
	delete(s.nodes, "a")
	s.node("a", "10.0.0.0/25")
	s.want("a", "10.0.0.0/25")
	s.wantError("c", "allocator full")
	delete(s.nodes, "a")
	s.node("a") // this one comes after those that wait
	s.want("c", "10.0.0.0/25")
	s.wantError("a", "allocator full")
}

// POOL-13: not all that it said was its own.
func TestClearedNodeKeepsItsAllocation(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.node("a", "10.0.0.0/24", "172.16.0.0/24")
	s.markSynced()
	s.wantError("a", "allocator not configured for the requested CIDR 172.16.0.0/24", "10.0.0.0/24", "172.16.0.0/24")
	s.nodes["a"].PodCIDRs = nil
	s.node("a")
	s.want("a", "10.0.0.0/24")
}

// POOL-19: a node that is going keeps its block until it is gone, and is not
// written any more.
func TestDeletingNodeKeepsItsBlock(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/24")
	s := newStory(t, c, shared)
	s.markSynced()
	s.node("a")
	s.node("b")
	s.wantError("b", "allocator full")
	s.nodes["a"].Deleting = true
	s.node("a")
	s.want("a") // cleared, and not written back
	s.wantError("b", "allocator full")
	s.node("b")
	s.wantError("b", "allocator full")
	s.delete("a")
	s.want("b", "10.0.0.0/24")
}

// POOL-19: a node that was never given anything is given nothing when it goes.
func TestDeletingNodeIsGivenNothing(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/24")
	s := newStory(t, c, shared)
	going := &observed{Name: "a", UID: "a", Deleting: true}
	s.nodes["a"] = going
	s.apply(s.alloc.upsert(*going))
	s.markSynced()
	s.want("a")
	s.node("b")
	s.want("b", "10.0.0.0/24")
	s.node("c")
	s.wantError("c", "allocator full")
	s.nodes["c"].Deleting = true
	s.node("c")
	s.delete("b")
	if used := s.alloc.pools[0][0].used(); used != 0 {
		t.Errorf("%d blocks are in use, want none", used)
	}
}

// POOL-16: a family that is switched off does not make what nodes have of the
// other one free.
func TestFamilySwitchedOffKeepsTheOther(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/16")
	s := newStory(t, c, shared)
	s.node("a", "10.0.0.0/24", "fd00::/112")
	s.markSynced()
	s.wantError("a", "unable to allocate CIDR [fd00::/112] since allocator for IPv6 addresses does not exist", "10.0.0.0/24", "fd00::/112")
	s.node("b")
	s.want("b", "10.0.1.0/24")
	s.node("a", "10.0.0.0/24") // the user repairs it
	s.want("a", "10.0.0.0/24")
}

// POOL-21: of what is freed, nodes that say they have it come before those that
// want any, however long these wait.
func TestListedCIDRsComeBeforeNewOnes(t *testing.T) {
	c, shared := v4(25, "10.0.0.0/24")
	s := newStory(t, c, shared)
	s.node("a", "10.0.0.0/25")
	s.node("b", "10.0.0.128/25")
	s.node("wants")
	s.node("claims", "10.0.0.0/25")
	s.markSynced()
	s.wantError("claims", "allocator clusterCIDR: 10.0.0.0/24, nodeMask: 25 full", "10.0.0.0/25")
	s.delete("a")
	s.want("claims", "10.0.0.0/25")
	s.wantError("wants", "allocator full")
}

// POOL-14: another family is added to what a node says, however it says it.
func TestFamilyIsAddedToListedCIDRs(t *testing.T) {
	c, shared := dual("10.0.0.0/16", "fd00::/104")
	s := newStory(t, c, shared)
	s.node("a", "fd00::3:0/112")
	s.node("b", "10.0.5.7/24", "10.0.5.0/25")
	s.markSynced()
	s.want("a", "10.0.0.0/24", "fd00::3:0/112")
	s.want("b", "10.0.5.7/24", "10.0.5.0/25", "fd00::/112")
}

func TestNoFamilyAtAll(t *testing.T) {
	s := newStory(t, Config{}, cluster.Config{})
	s.markSynced()
	s.node("n")
	s.wantError("n", "Unable to allocate node CIDR for node n. IPAMInfo: {IPv4: [], IPv6: []}. Please check that your configuration is correct.")
}

// TestHistories runs random histories with restarts and asks what no history
// may break: no address belongs to two nodes without an error, a node keeps
// what it got, and no node goes without while a block is free.
func TestHistories(t *testing.T) {
	for seed := range seedtest.Seeds(t, 300) {
		runHistory(t, seed)
	}
}

func runHistory(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	c := Config{
		ClusterPoolIPv4CIDR: []string{"10.0.0.0/27", "10.9.0.0/28"}, ClusterPoolIPv4MaskSize: 29,
		ClusterPoolIPv6CIDR: []string{"fd00::/109"}, ClusterPoolIPv6MaskSize: 112,
	}
	shared := cluster.Config{EnableIPv4: true, EnableIPv6: true}
	s := newStory(t, c, shared)
	s.markSynced()
	given := map[string][]string{} // what nodes got, by UID
	for step := range 120 {
		name := fmt.Sprint("n", r.IntN(12))
		switch k := r.IntN(10); {
		case k < 5:
			if s.nodes[name] == nil {
				s.node(name)
			}
		case k < 8:
			s.delete(name)
		case k == 8: // the user clears the field
			if o := s.nodes[name]; o != nil {
				s.node(name)
			}
		default: // restart: a new allocator sees the nodes in any order
			next := newStory(t, c, shared)
			next.nodes, next.clock = s.nodes, s.clock
			for _, o := range s.nodes {
				next.apply(next.alloc.upsert(*o))
			}
			next.markSynced()
			if len(next.writes) > 0 && !slices.ContainsFunc(slices.Collect(maps.Values(s.nodes)), func(o *observed) bool { return o.Error != "" }) {
				t.Fatalf("seed %d step %d: a restart wrote %v", seed, step, next.writes)
			}
			s = next
		}
		judge(t, seed, step, s, given)
	}
}

// judge knows nothing of pools: it looks at addresses.
func judge(t *testing.T, seed uint64, step int, s *story, given map[string][]string) {
	t.Helper()
	owner := map[netip.Prefix]string{}
	starving := 0
	for name, o := range s.nodes {
		if o.Error != "" {
			starving++
			continue
		}
		if before := given[o.UID]; before != nil && !slices.Equal(before, o.PodCIDRs) {
			t.Fatalf("seed %d step %d: node %s had %v and now %v", seed, step, name, before, o.PodCIDRs)
		}
		given[o.UID] = o.PodCIDRs
		for _, text := range o.PodCIDRs {
			p := netip.MustParsePrefix(text)
			for other, who := range owner {
				if other.Overlaps(p) {
					t.Fatalf("seed %d step %d: %s and %s share %s", seed, step, who, name, p)
				}
			}
			owner[p] = name
		}
	}
	const blocks = 6 // 4 of the first CIDR and 2 of the second; 8 of IPv6
	if starving > 0 && len(s.nodes)-starving < blocks {
		t.Fatalf("seed %d step %d: %d nodes starve while blocks are free", seed, step, starving)
	}
}
