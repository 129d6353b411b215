// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/printable"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// What nodes say, however they say it, is not given to others, and takes nothing
// from them. The stories begin with a cluster of 1,024 addresses, four blocks of
// 256.
func four(t *testing.T) *story {
	t.Helper()
	c, shared := v4(24, "10.0.0.0/22")
	return newStory(t, c, shared)
}

// gives creates nodes until no block is left, and checks what they were given.
func (s *story) gives(cidrs ...string) {
	s.t.Helper()
	for i := 0; ; i++ {
		name := fmt.Sprint("new-", i)
		s.node(name)
		if s.nodes[name].Error == "allocator full" && i == len(cidrs) {
			return
		}
		if i >= len(cidrs) {
			s.t.Errorf("%s is given %v and error %q; want none", name, s.nodes[name].PodCIDRs, s.nodes[name].Error)
			return
		}
		s.want(name, cidrs[i])
	}
}

// POOL-33: one object does not take the whole pool.
func TestOversizedClaimTakesNothing(t *testing.T) {
	for claim, canonical := range map[string]string{
		"0.0.0.0/0": "0.0.0.0/0", "10.0.0.0/8": "10.0.0.0/8", "10.0.0.0/22": "10.0.0.0/22", "10.0.3.255/22": "10.0.0.0/22", "::ffff:0.0.0.0/96": "0.0.0.0/0",
	} {
		t.Run(claim, func(t *testing.T) {
			const why = " contains all of clusterCIDR: 10.0.0.0/22, nodeMask: 24"
			s := four(t)
			s.node("oldest", claim)
			s.node("valid", "10.0.1.0/24")
			s.node("none")
			s.markSynced()
			s.wantError("oldest", "requested CIDR ("+canonical+")"+why, claim)
			s.want("valid", "10.0.1.0/24")
			s.want("none", "10.0.0.0/24")
			if text := describe(s.alloc.claims.problems(false)); !strings.HasPrefix(text, "CiliumNode oldest: ") || !strings.HasSuffix(text, why) {
				t.Errorf("health says %q", text)
			}
			s.node("later", claim) // and while it runs
			s.wantError("later", "requested CIDR ("+canonical+")"+why, claim)
			s.node("valid", claim)
			s.wantError("valid", "node has CIDRs allocated ([10.0.1.0/24]) that conflict with requested CIDRs ["+canonical+"]", claim)
			s.gives("10.0.2.0/24", "10.0.3.0/24")
		})
	}
	// A pool of one block is not larger than a block.
	c, shared := v4(24, "10.0.0.0/24")
	s := newStory(t, c, shared)
	s.node("a", "10.0.0.0/24")
	s.node("b", "10.0.0.0/23")
	s.markSynced()
	s.want("a", "10.0.0.0/24")
	s.wantError("b", "requested CIDR (10.0.0.0/23) contains all of clusterCIDR: 10.0.0.0/24, nodeMask: 24", "10.0.0.0/23")
}

// POOL-41; number 4.3 of the contract's tenants.md: also in a text that is no CIDR a node can have been given one block of a pool, and health names it.
func TestBlocksInOneText(t *testing.T) {
	for first, want := range map[string][]string{
		"10.0.0.0/24":  {"10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"},
		"10.0.0.0/24 ": {"10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"},
		"nonsense":     {"10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24"},
	} {
		t.Run(first, func(t *testing.T) {
			s := four(t)
			s.node("oldest", first, "10.0.1.0/24 10.0.2.0/24 10.0.3.0/24")
			s.markSynced()
			s.gives(want...)
			if text := describe(s.alloc.claims.problems(false)); !strings.HasPrefix(text, "CiliumNode oldest: ") || !strings.Contains(text, "is a second one of") {
				t.Errorf("health says %q", text)
			}
		})
	}
}

// POOL-4: what agents can read is read; the CIDR is written as the node says it.
func TestSpellings(t *testing.T) {
	for text, block := range map[string]string{
		"::ffff:10.0.1.0/120": "10.0.1.0/24", "10.0.1.0/024": "10.0.1.0/24", "10.0.1.7/24": "10.0.1.0/24", "10.0.1.0/0000025": "10.0.1.0/24",
	} {
		t.Run(text, func(t *testing.T) {
			s := four(t)
			s.node("a", text)
			s.markSynced()
			s.want("a", text)
			s.gives("10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24")
			s.node("b", block)
			s.wantError("b", "allocator clusterCIDR: 10.0.0.0/22, nodeMask: 24 full", block)
		})
	}
}

// POOL-34: what no agent can read frees nothing: neither what the node had before,
// nor what was meant by it, as far as that can be guessed.
func TestInvalidCIDRsReleaseNothing(t *testing.T) {
	for _, text := range []string{"010.0.1.0/24", " 10.0.1.0/24", "10.0.1.0/24\n", "cidr=10.0.1.0/24;", "10.0.1.0/24,10.0.1.0/25"} {
		t.Run(text, func(t *testing.T) {
			s := four(t)
			s.node("a", text)
			s.markSynced()
			s.wantError("a", "invalid CIDR address: "+printable.Line(text), text) // K6 of the contract's tenants.md
			s.gives("10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24")
		})
	}
	s := four(t)
	s.markSynced()
	s.node("a")
	s.node("a", "xyz")
	s.wantError("a", "invalid CIDR address: xyz", "xyz")
	s.gives("10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24")
}

// POOL-34: the part of a refused claim that no other node holds stays reserved for it,
// at start and later.
func TestPartialOverlapStaysReserved(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprint("running ", running), func(t *testing.T) {
			s := four(t)
			if running {
				s.markSynced()
			}
			s.node("a", "10.0.0.0/24")
			s.node("b", "10.0.0.0/23")
			if !running {
				s.markSynced()
			}
			s.want("a", "10.0.0.0/24")
			s.wantError("b", "requested CIDR (10.0.0.0/23) is already allocated", "10.0.0.0/23")
			s.gives("10.0.2.0/24", "10.0.3.0/24")
			// It does not keep a node from it that says to have it, too.
			s.node("d", "10.0.1.0/24")
			s.want("d", "10.0.1.0/24")
			s.delete("d")
			s.delete("a") // now b has all of it
			s.want("b", "10.0.0.0/23")
			s.delete("b")
			s.want("new-2", "10.0.0.0/24")
		})
	}
}

// POOL-17: the same of a claim that is refused since the node has another CIDR.
func TestChangedClaimStaysReserved(t *testing.T) {
	s := four(t)
	s.markSynced()
	s.node("a")
	s.node("a", "10.0.2.0/24")
	s.wantError("a", "node has CIDRs allocated ([10.0.0.0/24]) that conflict with requested CIDRs [10.0.2.0/24]", "10.0.2.0/24")
	s.gives("10.0.1.0/24", "10.0.3.0/24")
}

// POOL-35: a node whose own entries overlap is told so; entries in one block are fine.
func TestOwnEntriesOverlap(t *testing.T) {
	s := four(t)
	s.node("a", "10.0.0.0/24", "10.0.0.0/23")
	s.node("b", "10.0.2.0/25", "10.0.2.128/25")
	s.node("c", "10.0.3.0/24", "10.0.3.0/25", "10.0.3.0/24")
	s.markSynced()
	s.wantError("a", "requested CIDR (10.0.0.0/23) overlaps 10.0.0.0/24, which the node has, too", "10.0.0.0/24", "10.0.0.0/23")
	s.want("b", "10.0.2.0/25", "10.0.2.128/25")
	s.want("c", "10.0.3.0/24", "10.0.3.0/25", "10.0.3.0/24")
	s.gives()
	s.delete("b")
	s.want("new-0", "10.0.2.0/24")
	if used := s.alloc.pools[0][0].used(); used != 3 { // a's first, c's, new-0's
		t.Errorf("%d blocks are in use", used)
	}
}

// What a node says comes back bounded.
func TestTextsAreBounded(t *testing.T) {
	s := four(t)
	long := strings.Repeat("10.0.0.0/24 ", 25_000)
	var many []string
	for i := range 10_000 {
		many = append(many, fmt.Sprintf("172.%d.%d.0/24", i/256, i%256))
	}
	s.markSynced()
	s.node("a")
	s.node("long", long)
	s.node("a", many...)
	for name, prefix := range map[string]string{
		"long": "invalid CIDR address: 10.0.0.0/24 10.0.", "a": "node has CIDRs allocated ([10.0.0.0/24]) that conflict with requested CIDRs [172.0.0.0/24 172.0.1.0/24",
	} {
		if text := s.nodes[name].Error; len(text) > 1100 || !strings.HasPrefix(text, prefix) {
			t.Errorf("%s: %d bytes: %.100s", name, len(text), text)
		}
	}
}

// The texts of refusals, of several of which one is written.
func TestTextsOfRefusals(t *testing.T) {
	on := func(v4, v6 bool) (Config, cluster.Config) {
		c, shared := dual("10.0.0.0/22", "fd00::/110")
		if shared.EnableIPv4 = v4; !v4 {
			c.ClusterPoolIPv4CIDR = nil
		}
		if shared.EnableIPv6 = v6; !v6 {
			c.ClusterPoolIPv6CIDR = nil
		}
		return c, shared
	}
	both := []string{"10.0.0.0/24", "fd00::/112"}
	for name, test := range map[string]struct {
		v4, v6 bool
		before []string // what the node has when it is seen first, if that is not what it says
		says   []string
		want   string
	}{
		"only the family that conflicts": {true, true, both, []string{"10.0.0.0/24", "fd00::1:0/112"}, "node has CIDRs allocated ([fd00::/112]) that conflict with requested CIDRs [fd00::1:0/112]"},
		"canonical CIDRs":                {true, true, both, []string{"10.0.1.7/024", "FD00:0::/112"}, "node has CIDRs allocated ([10.0.0.0/24]) that conflict with requested CIDRs [10.0.1.0/24]"},
		"all CIDRs of the family":        {true, true, both, []string{"10.0.1.0/24", "fd00::/112", "10.0.2.0/24"}, "node has CIDRs allocated ([10.0.0.0/24]) that conflict with requested CIDRs [10.0.1.0/24 10.0.2.0/24]"},
		"IPv4 before IPv6":               {true, true, both, []string{"fd00::1:0/112", "10.0.1.0/24"}, "node has CIDRs allocated ([10.0.0.0/24]) that conflict with requested CIDRs [10.0.1.0/24]"},
		"garbage later":                  {true, true, both, []string{"10.0.1.0/24", "xyz"}, "invalid CIDR address: xyz"},
		"garbage first":                  {true, true, nil, []string{"10.0.3.0/24", "172.16.0.0/24", "xyz", "abc"}, "invalid CIDR address: xyz"},
		"a family that is off":           {true, false, nil, []string{"fd00::7/112", "10.0.3.0/24", "fd00::1:0/112"}, "unable to allocate CIDR [fd00::/112 fd00::1:0/112] since allocator for IPv6 addresses does not exist"},
		"IPv4 that is off":               {false, true, nil, []string{"fd00::/112", "10.0.3.0/24"}, "unable to allocate CIDR [10.0.3.0/24] since allocator for IPv4 addresses does not exist"},
		"a family that is off, later":    {true, false, []string{"10.0.0.0/24"}, []string{"10.0.0.0/24", "fd00::/112"}, "unable to allocate CIDR [fd00::/112] since allocator for IPv6 addresses does not exist"},
		"IPv4 first":                     {true, true, nil, []string{"fc00::/112", "172.16.0.0/24"}, "allocator not configured for the requested CIDR 172.16.0.0/24"},
		"the first of a family":          {true, true, nil, []string{"172.16.0.0/24", "10.0.3.0/24", "192.168.0.0/24"}, "allocator not configured for the requested CIDR 172.16.0.0/24"},
		"taken, in canonical form":       {true, true, nil, []string{"::ffff:10.0.2.7/120"}, "requested CIDR (10.0.2.0/24) is already allocated"},
		"foreign, in canonical form":     {true, true, nil, []string{"172.16.0.9/0024"}, "allocator not configured for the requested CIDR 172.16.0.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			c, shared := on(test.v4, test.v6)
			s := newStory(t, c, shared)
			s.markSynced()
			if test.v4 && test.v6 {
				s.node("other", "10.0.2.0/24", "fd00::2:0/112")
			}
			if test.before != nil {
				s.node("n", test.before...)
				s.want("n", test.before...)
			}
			s.node("n", test.says...)
			s.wantError("n", test.want, test.says...)
		})
	}
}

// POOL-41: whether a node lists a block apart from another one is decided without a look at all of them.
func TestListedBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(seedtest.Seed(t), 6))
	block := func() netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(8)) << 5, 0}), 16+r.IntN(8)).Masked()
	}
	for range 20_000 {
		var all []netip.Prefix
		var l listedBlocks
		for range 1 + r.IntN(6) {
			c := block()
			want := slices.ContainsFunc(all, func(b netip.Prefix) bool { return !b.Overlaps(c) })
			if got := l.hasApart(c); got != want {
				t.Fatalf("%s beside %v: %t, want %t", c, all, got, want)
			}
			all, l = append(all, c), l.with(c)
		}
	}
}
