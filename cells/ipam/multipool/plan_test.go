// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/waittest"
)

// story drives an allocator as the controller does, with nodes that store what is written.
type story struct {
	t        *testing.T
	alloc    *allocator
	nodes    map[string]*observed
	revision uint64
	ends     ends // of pools
}

func newStory(t *testing.T) *story {
	return &story{t: t, alloc: newAllocator(cluster.Config{EnableIPv4: true, EnableIPv6: true}), nodes: map[string]*observed{}}
}

// pool creates or changes a pool; cidrs are as of specOf.
func (s *story) pool(name, v4, v6 string) {
	s.t.Helper()
	s.revision++
	o := observedPool{Name: name, UID: "uid-" + name, Created: time.Unix(int64(s.revision), 0), Ends: s.ends}
	if before := s.alloc.pools[name]; before != nil {
		o.Created = before.Created
	}
	for family, text := range []string{v4, v6} {
		if text == "" {
			continue
		}
		list, mask, _ := strings.Cut(text, " mask ")
		spec := &familySpec{CIDRs: strings.Fields(list)}
		_, _ = fmt.Sscan(mask, &spec.MaskSize)
		o.Families[family] = spec
	}
	s.apply(s.alloc.setPool(o))
}

func (s *story) wantProblem(pool, text string) {
	s.t.Helper()
	if got := s.alloc.pools[pool].problem.text; got != text {
		s.t.Errorf("the problem of pool %s is %q, want %q", pool, got, text)
	}
}

// allocations are lists as of allocatedOf.
func allocations(texts []string) (list []ciliumio.PoolAllocation) {
	for _, text := range texts {
		pool, rest, _ := strings.Cut(text, ":")
		list = append(list, ciliumio.PoolAllocation{Pool: pool, CIDRs: strings.Fields(rest)})
	}
	return list
}

// node creates or changes a node.
func (s *story) node(n testNode) {
	s.revision++
	o := &observed{Name: n.name, UID: "uid-" + n.name, Revision: s.revision, Created: time.Unix(int64(s.revision), 0), Allocated: allocations(n.allocated)}
	for _, text := range n.requested {
		pool, rest, _ := strings.Cut(text, ":")
		r := ciliumio.PoolRequest{Pool: pool}
		_, _ = fmt.Sscan(rest, &r.Needed.IPv4Addrs, &r.Needed.IPv6Addrs)
		o.Requested = append(o.Requested, r)
	}
	if before := s.nodes[n.name]; before != nil {
		o.Created, o.Error = before.Created, before.Error
	}
	s.nodes[n.name] = o
	s.apply(s.alloc.upsert(*o))
}

func (s *story) markSynced() { s.apply(s.alloc.markSynced()) }

// apply writes what is desired, as often as it takes.
func (s *story) apply(names []string) {
	s.t.Helper()
	for rounds := 0; len(names) > 0; rounds++ {
		if rounds > 1000 {
			s.t.Fatalf("%v are written again and again", names)
		}
		n, o := s.alloc.nodes[names[0]], s.nodes[names[0]]
		names = names[1:]
		if n == nil || n.upToDate() {
			continue
		}
		if s.revision++; !n.desired.keep {
			o.Allocated = n.desired.Allocated
		}
		o.Error, o.Revision = n.desired.Error, s.revision
		names = append(names, s.alloc.upsert(*o)...)
	}
}

func (s *story) want(name string, allocated ...string) {
	s.t.Helper()
	s.wantError(name, "", allocated...)
}

func (s *story) wantError(name, text string, allocated ...string) {
	s.t.Helper()
	var has []string
	for _, p := range s.nodes[name].Allocated {
		has = append(has, p.Pool+": "+strings.Join(p.CIDRs, " "))
	}
	if got := s.nodes[name].Error; got != text || !slices.Equal(has, allocated) {
		s.t.Errorf("node %s has %q and error %q; want %q and %q", name, has, got, allocated, text)
	}
	successor := newStory(s.t) // MPOOL-25, MPOOL-33: it finds all right
	for _, p := range s.alloc.pools {
		successor.alloc.setPool(p.observedPool)
	}
	for _, o := range s.nodes {
		successor.alloc.upsert(*o)
	}
	for _, name := range successor.alloc.markSynced() {
		if n := successor.alloc.nodes[name]; !n.upToDate() {
			s.t.Errorf("a successor writes %s: %v, error %q", name, n.desired.Allocated, n.desired.Error)
		}
	}
}

// showing is a node that shows CIDRs outside of its pools.
func (s *story) showing(name string, elsewhere ...string) {
	s.revision++
	o := s.nodes[name]
	if o == nil {
		o = &observed{Name: name, UID: "uid-" + name, Created: time.Unix(int64(s.revision), 0)}
		s.nodes[name] = o
	}
	o.Revision, o.Elsewhere = s.revision, nil
	for _, text := range elsewhere {
		o.Elsewhere = append(o.Elsewhere, netip.MustParsePrefix(text))
	}
	s.apply(s.alloc.upsert(*o))
}

// MPOOL-38, and number 37 of the contract's ipam-multi-pool.md: what nodes show of another mode is given to no node, whatever
// its size, until they do not show it any more.
func TestWhatNodesShowElsewhereIsTaken(t *testing.T) {
	for name, early := range map[string]bool{"at start": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.pool("default", "10.40.0.0/16 mask 24", "fd00::/104 mask 112")
			if !early {
				s.markSynced()
			}
			s.node(has("other").needs())
			s.showing("a", "10.40.0.0/24")
			s.showing("b", "10.40.1.128/25", "fd00::/111")
			s.showing("d", "10.40.2.0/23")
			s.showing("vast", "0.0.0.0/0")
			if early {
				s.markSynced()
			}
			s.node(has("c").needs("default: 10 10"))
			s.want("c", "default: 10.40.4.0/24 fd00::2:0/112")
			s.node(has("e").needs("default: 64000"))
			if held := s.alloc.nodes["e"].held; len(held) != 251 {
				t.Errorf("e holds %d CIDRs", len(held))
			}
			s.showing("a")
			if held := s.alloc.nodes["e"].held; len(held) != 252 {
				t.Errorf("when a shows nothing any more, e holds %d CIDRs", len(held))
			}
		})
	}
}

// MPOOL-39: what two nodes have already is told on the younger one, and taken from neither.
func TestClashesAreToldOnTheYounger(t *testing.T) {
	s := newStory(t)
	s.pool("default", "10.40.0.0/16 mask 24", "")
	s.showing("oldest", "10.40.0.0/23")
	s.node(has("holder", "default: 10.40.1.0/24"))
	s.showing("youngest", "10.40.1.0/24")
	s.markSynced()
	const (
		onHolder = "cidr 10.40.1.0/24 of pool default overlaps 10.40.0.0/23, which the older CiliumNode oldest shows outside of its pools"
		shown    = "cidr 10.40.1.0/24, which is shown outside of spec.ipam.pools, overlaps "
	)
	s.want("oldest")
	s.wantError("holder", onHolder, "default: 10.40.1.0/24")
	s.wantError("youngest", shown+"10.40.0.0/23 of the older CiliumNode oldest\n"+shown+"10.40.1.0/24 of the older CiliumNode holder")
	s.showing("oldest")
	s.want("holder", "default: 10.40.1.0/24")
	s.wantError("youngest", shown+"10.40.1.0/24 of the older CiliumNode holder")
	s.node(has("holder"))
	s.want("youngest")
	s.node(has("holder", "default: 10.40.1.0/24"))
	s.wantError("youngest", shown+"10.40.1.0/24 of the older CiliumNode holder")
	delete(s.nodes, "holder")
	s.apply(s.alloc.remove("holder"))
	s.want("youngest")
}

// Bad input of a node is reported on it, and affects no other node.
func TestBadInputOfNodes(t *testing.T) {
	const refused = `failed to allocate ipv4 address for node "bad" from pool "default": `
	for name, test := range map[string]struct {
		bad   testNode
		error string
		want  []string
		other string // what a node is given that comes after it; "" for the first block
	}{
		"MPOOL-7: unmasked":                  {has("bad", "default: 10.100.0.5/24 10.100.1.0/024"), "", []string{"default: 10.100.0.0/24 10.100.1.0/24"}, "10.100.2.0/24"},
		"MPOOL-8: the same pool twice":       {has("bad", "default: 10.100.0.0/24", "default: 10.100.1.0/24 10.100.0.0/24"), "", []string{"default: 10.100.0.0/24 10.100.1.0/24"}, "10.100.2.0/24"},
		"MPOOL-18: requested twice":          {has("bad").needs("default: 10", "default: 300", "default: 20"), "", []string{"default: 10.100.0.0/24 10.100.1.0/24"}, "10.100.2.0/24"},
		"MPOOL-14: negative":                 {has("bad").needs("default: -5 -9223372036854775808"), "", nil, ""},
		"MPOOL-19: absurd":                   {has("bad").needs("default: 9223372036854775807"), refused + "9223372036854775807 addresses are more than 4096 blocks: correct spec.ipam.pools.requested", nil, ""},
		"MPOOL-6: outside of every pool":     {has("bad", "default: 192.0.2.0/24"), "unable to reuse from pool default: cidr 192.0.2.0/24 is not part of the requested pool", []string{"default: 192.0.2.0/24"}, ""},
		"MPOOL-6: no such pool":              {has("bad", "x: 10.100.0.0/24"), "cannot reuse from non-existing pool: x", []string{"x: 10.100.0.0/24"}, "10.100.1.0/24"},
		"MPOOL-10: overlap":                  {has("bad", "default: 10.100.0.0/24 10.100.0.0/25"), "unable to reuse from pool default: cidr 10.100.0.0/25 overlaps 10.100.0.0/24, which the node has, too", []string{"default: 10.100.0.0/24 10.100.0.0/25"}, "10.100.1.0/24"},
		"MPOOL-10: in two pools":             {has("bad", "default: 10.100.0.0/24", "x: 10.100.0.0/24"), "unable to reuse from pool x: cidr 10.100.0.0/24 overlaps 10.100.0.0/24, which the node has, too", []string{"default: 10.100.0.0/24", "x: 10.100.0.0/24"}, "10.100.1.0/24"},
		"MPOOL-11: no CIDR":                  {has("bad", "default: xyz"), `failed to parse CIDR of pool "default": invalid CIDR address: xyz`, []string{"default: xyz"}, ""},
		"MPOOL-11: almost a CIDR":            {has("bad", "default: 010.100.0.0/24"), `failed to parse CIDR of pool "default": invalid CIDR address: 010.100.0.0/24`, []string{"default: 010.100.0.0/24"}, "10.100.1.0/24"},
		"MPOOL-12: everything":               {has("bad", "default: 0.0.0.0/0"), "unable to reuse from pool default: cidr 0.0.0.0/0 is not part of the requested pool", []string{"default: 0.0.0.0/0"}, ""},
		"MPOOL-9: all of a pool with others": {has("bad", "default: 10.200.0.0/16"), "unable to reuse from pool default: cidr 10.200.0.0/16 has already been allocated", nil, ""},
		"a pool without a name":              {has("bad").needs(": 10"), `failed to allocate ipv4 address for node "bad" from pool "": cannot allocate from non-existing pool: `, nil, ""},
	} {
		for _, order := range []string{"at start", "later"} {
			t.Run(name+", "+order, func(t *testing.T) {
				s := newStory(t)
				s.pool("default", default4, "")
				if order == "later" {
					s.node(has("good", "default: 10.200.7.0/24"))
					s.markSynced()
					s.node(test.bad)
				} else {
					s.node(test.bad)
					s.node(has("good", "default: 10.200.7.0/24"))
					s.markSynced()
				}
				s.want("good", "default: 10.200.7.0/24")
				s.wantError("bad", test.error, test.want...)
				s.node(has("next").needs("default: 1"))
				if test.other == "" {
					test.other = "10.100.0.0/24"
				}
				s.want("next", "default: "+test.other)
			})
		}
	}
}

// MPOOL-28: bad input of a pool is reported on it; its last spec stays, and no other pool is affected.
func TestBadInputOfPools(t *testing.T) {
	for problem, spec := range map[string][2]string{
		"invalid CIDR address: x":                                                      {"10.0.0.0/16 x mask 24", ""},
		"CIDR is not v4 family: fd00::/80":                                             {"fd00::/80 mask 24", ""},
		"CIDR is not v6 family: 10.0.0.0/16":                                           {"", "10.0.0.0/16 mask 24"},
		"CIDR 0.0.0.0/0 is all IPv4 addresses":                                         {"0.0.0.0/0 mask 24", ""},
		"CIDR ::/0 is all IPv6 addresses":                                              {"", "::/0 mask 96"},
		"IPv4 mask size 8 must be at least 16: a block fits into 10.0.0.0/16":          {"10.0.0.0/16 mask 8", ""},
		"IPv4 mask size 0 must be between 1 and 32":                                    {"10.0.0.0/16 mask 0", ""},
		"IPv4 mask size 33 must be between 1 and 32":                                   {"10.0.0.0/16 mask 33", ""},
		"IPv6 mask size 129 must be between 1 and 128":                                 {"", "fd00::/80 mask 129"},
		"requested CIDR 10.0.0.0/8 collides with 10.0.0.0/16":                          {"10.0.0.0/16 10.0.0.0/8 mask 24", ""},
		`requested CIDR 10.100.128.0/17 collides with 10.100.0.0/16 of pool "default"`: {"10.100.128.0/17 mask 24", ""},
	} {
		t.Run(problem, func(t *testing.T) {
			s := newStory(t)
			s.pool("default", default4, "")
			s.pool("bad", spec[0], spec[1])
			s.markSynced()
			s.wantProblem("bad", problem)
			s.node(has("a").needs("default: 1"))
			s.want("a", "default: 10.100.0.0/24")
			s.node(has("b").needs("bad: 1"))
			s.wantError("b", `failed to allocate ipv4 address for node "b" from pool "bad": cannot allocate from non-existing pool: bad`)

			s.pool("bad", "10.1.0.0/16 mask 24", "fd00::/80 mask 96")
			s.wantProblem("bad", "")
			s.want("b", "bad: 10.1.0.0/24")
			s.pool("bad", spec[0], spec[1]) // as a change: the last spec stays
			if text := s.alloc.pools["bad"].problem.text; text != problem && !strings.HasPrefix(text, "cannot change") {
				t.Errorf("the problem is %q, want %q", text, problem)
			}
			s.node(has("c").needs("bad: 1"))
			if got := s.nodes["c"].Allocated; len(got) != 1 || got[0].CIDRs[0] != "10.1.1.0/24" {
				t.Errorf("after the change: %v", got)
			}
		})
	}
}

// MPOOL-28, MPOOL-29 and MPOOL-16: pools grow, shrink, and come again.
func TestPoolsChange(t *testing.T) {
	s := newStory(t)
	s.pool("p", "10.0.0.0/30 mask 31", "")
	s.markSynced()
	s.node(has("a").needs("p: 5 1"))
	const empty = `failed to allocate %s address for node "a" from pool "p": pool empty`
	s.wantError("a", fmt.Sprintf(empty, "ipv4")+"\n"+fmt.Sprintf(empty, "ipv6"), "p: 10.0.0.0/31 10.0.0.2/31")
	s.pool("p", "9.0.0.0/30 10.0.0.0/30 mask 31", "fd00::/80 mask 96")
	s.want("a", "p: 10.0.0.0/31 10.0.0.2/31 9.0.0.0/31 fd00::/96")
	s.pool("p", "9.0.0.0/30 mask 31", "")
	const outside = "unable to reuse from pool p: cidr %s is not part of the requested pool"
	s.wantError("a", fmt.Sprintf(outside, "10.0.0.0/31")+"\n"+fmt.Sprintf(outside, "10.0.0.2/31")+"\n"+fmt.Sprintf(outside, "fd00::/96"),
		"p: 10.0.0.0/31 10.0.0.2/31 9.0.0.0/31 fd00::/96")
	s.pool("q", "10.0.0.0/29 mask 30", "") // has a range that drains
	s.node(has("b").needs("q: 1"))
	s.want("b", "q: 10.0.0.4/30")
	s.node(has("a", "p: 10.0.0.2/31 9.0.0.0/31").needs())
	s.node(has("c").needs("q: 1"))
	s.wantError("c", `failed to allocate ipv4 address for node "c" from pool "q": pool empty`)
	s.node(has("a", "p: 9.0.0.0/31").needs())
	s.want("a", "p: 9.0.0.0/31")
	s.want("c", "q: 10.0.0.0/30") // woken by the release
}

// MPOOL-26: what was offered is not released by a state that does not show it; what was seen is.
func TestOffersAreNotReleased(t *testing.T) {
	s := newStory(t)
	s.pool("p", "10.0.0.0/30 mask 31", "")
	s.markSynced()
	a := observed{Name: "a", UID: "1", Revision: 10, Requested: []ciliumio.PoolRequest{{Pool: "p", Needed: ciliumio.PoolDemand{IPv4Addrs: 4}}}}
	s.alloc.upsert(a)
	a.Revision, a.Requested = 11, nil // an event from before the write arrives
	s.alloc.upsert(a)
	b := observed{Name: "b", UID: "2", Revision: 12, Requested: []ciliumio.PoolRequest{{Pool: "p", Needed: ciliumio.PoolDemand{IPv4Addrs: 1}}}}
	s.alloc.upsert(b)
	if held := len(s.alloc.nodes["b"].held); held != 0 {
		t.Fatalf("b holds %d CIDRs that are offered to a", held)
	}
	a.Revision, a.Allocated = 13, allocations([]string{"p: 10.0.0.0/31 10.0.0.2/31"})
	s.alloc.upsert(a)
	a.Revision, a.Allocated = 5, nil // MPOOL-27: etcd was restored
	s.alloc.upsert(a)
	if n := s.alloc.nodes["a"]; len(n.held) != 2 || n.upToDate() {
		t.Errorf("after a rollback a holds %v, and is up to date: %t", n.held, n.upToDate())
	}
	a.Revision, a.Allocated = 6, allocations([]string{"p: 10.0.0.0/31 10.0.0.2/31"})
	s.alloc.upsert(a)
	a.Revision, a.Allocated = 7, allocations([]string{"p: 10.0.0.0/31"})
	if names := s.alloc.upsert(a); !slices.Equal(names, []string{"b"}) || len(s.alloc.nodes["b"].held) != 1 {
		t.Errorf("to reconcile: %v; b holds %v", names, s.alloc.nodes["b"].held)
	}
}

// MPOOL-13: a node that is being deleted holds what it has; one that is created again is another.
func TestNodesThatGo(t *testing.T) {
	s := newStory(t)
	s.pool("p", "10.0.0.0/31 mask 31", "")
	s.markSynced()
	s.node(has("a").needs("p: 1"))
	s.want("a", "p: 10.0.0.0/31")
	s.nodes["a"].Deleting = true
	s.apply(s.alloc.upsert(*s.nodes["a"]))
	s.node(has("b").needs("p: 1"))
	s.wantError("b", `failed to allocate ipv4 address for node "b" from pool "p": pool empty`)
	s.nodes["a"].UID, s.nodes["a"].Deleting, s.nodes["a"].Allocated, s.nodes["a"].Requested = "other", false, nil, nil
	s.apply(s.alloc.upsert(*s.nodes["a"]))
	s.want("b", "p: 10.0.0.0/31")
	delete(s.nodes, "b")
	s.node(has("c").needs("p: 1"))
	s.apply(s.alloc.remove("b"))
	s.want("c", "p: 10.0.0.0/31")
}

// MPOOL-15: IPv6 blocks are larger than 64 bits can count.
func TestUsableAddresses(t *testing.T) {
	for hostBits, want := range map[int]int64{0: 1, 1: 2, 2: 2, 8: 254, 32: 4294967294, 62: 1<<62 - 2, 63: 1<<63 - 1, 120: 1<<63 - 1} {
		if got := (ends{}).usable(hostBits); got != want {
			t.Errorf("%d host bits: %d, want %d", hostBits, got, want)
		}
	}
}

// decoded is a CiliumNode as a stream decodes it.
func decoded(t *testing.T, name, rest string) observed {
	t.Helper()
	codec, err := slim.JSON[ciliumio.Node]()
	if err != nil {
		t.Fatal(err)
	}
	n := &ciliumio.Node{}
	text := fmt.Sprintf(`{"metadata":{"name":%q,"uid":"uid-of-%s","resourceVersion":"7","creationTimestamp":"2026-01-02T03:04:05Z"},%s}`, name, name, rest)
	if err := codec.DecodeJSON([]byte(text), n); err != nil {
		t.Fatal(err)
	}
	return newObserved(n)
}

// MPOOL-34 and MPOOL-36.
func TestUndecodableNodes(t *testing.T) {
	const waits, free, other = "waits", "10.0.0.0/30", "10.0.0.4/30"
	for spec, next := range map[string]string{
		`"spec":{"ipam":{"pools":{"allocated":7}}}`:                                                                 waits,
		`"spec":{"ipam":{"pools":{"allocated":"10.0.0.0/30"}}}`:                                                     other,
		`"spec":{"ipam":{"pools":{"allocated":[{"pool":"p","cidrs":"10.0.0.0/30"}]}}}`:                              other,
		`"spec":{"ipam":{"pools":{"allocated":[{"pool":"p","cidrs":["10.0.0.0/30",7]}]}}}`:                          other,
		`"spec":{"ipam":{"pools":{"allocated":[{"pool":"p","cidrs":["10.0.0.0/30"]},7]}}}`:                          waits,
		`"spec":{"ipam":{"pools":{"allocated":[{"pool":7,"cidrs":["10.0.0.0/30"]}]}}}`:                              other,
		`"spec":{"ipam":{"pools":"none"}}`:                                                                          waits,
		`"spec":7`:                                                                                                  waits,
		`"spec":{"ipam":{"pools":{"requested":7}}}`:                                                                 free,
		`"spec":{"ipam":{"pools":{"requested":[{"pool":"p","needed":{"ipv4-addrs":9223372036854775808}}]}}}`:        free,
		`"spec":{"ipam":{"podCIDRs":7}},"status":{"ipam":{"operator-status":{"error":7}}}`:                          free,
		`"spec":{"ipam":{"pools":{"allocated":[{"pool":"p","cidrs":["10.0.0.0/30"]}]},"podCIDRs":7},"addresses":7}`: other,
	} {
		t.Run(spec, func(t *testing.T) {
			s := newStory(t)
			s.pool("p", "10.0.0.0/29 mask 30", "")
			bad := decoded(t, "bad", spec)
			s.nodes["bad"] = &bad
			s.alloc.upsert(bad)
			s.markSynced()
			if bad := s.nodes["bad"]; !strings.Contains(spec, "podCIDRs") && !strings.Contains(bad.Error, "cannot decode spec") {
				t.Errorf("the error is %q", bad.Error)
			}
			s.node(has("next").needs("p: 1"))
			if next == waits {
				s.wantError("next", `failed to allocate ipv4 address for node "next" from pool "p": waiting: spec.ipam.pools.allocated of CiliumNode bad cannot be decoded, it may have any CIDR; repair or delete it`)
			} else {
				s.want("next", "p: "+next)
			}
			delete(s.nodes, "bad")
			s.apply(s.alloc.remove("bad"))
			if next == waits {
				s.want("next", "p: 10.0.0.0/30")
			}
			if problems := s.alloc.claims.allProblems(); len(problems) > 0 {
				t.Errorf("problems remain: %v", problems)
			}
		})
	}
}

// MPOOL-34: what was known stays held.
func TestUndecodableLater(t *testing.T) {
	s := newStory(t)
	s.pool("p", "10.0.0.0/29 mask 30", "")
	s.markSynced()
	s.node(has("bad", "p: 10.0.0.0/30"))
	bad := decoded(t, "bad", `"spec":{"ipam":{"pools":{"allocated":7}}}`)
	bad.UID, bad.Revision = s.nodes["bad"].UID, 100
	s.nodes["bad"] = &bad
	s.apply(s.alloc.upsert(bad))
	s.node(has("next").needs("p: 3"))
	n := s.alloc.nodes["next"]
	if _, ok := n.held[netip.MustParsePrefix("10.0.0.4/30")]; !ok || len(n.held) != 1 {
		t.Errorf("next holds %v", n.held)
	}
	s.alloc.claims.setUndecoded([]string{""})
	s.node(has("later").needs("p: 1"))
	if text := s.nodes["later"].Error; !strings.HasSuffix(text, "waiting: a CiliumNode cannot be decoded that does not say its name; it may have any CIDR") {
		t.Errorf("the error is %q", text)
	}
}

// MPOOL-25: texts are bounded.
func TestTextsAreBounded(t *testing.T) {
	s := newStory(t)
	s.markSynced()
	var lists []string
	for i := range 100 {
		lists = append(lists, fmt.Sprintf("p%03d%s: 10.0.%d.0/24", i, strings.Repeat("x", 1000), i))
	}
	s.node(has("a", lists...))
	if text := s.nodes["a"].Error; len(text) > 17*600 || strings.Count(text, "\n") != 16 || !strings.HasSuffix(text, "\nand more") {
		t.Errorf("%d bytes, %d lines, ends with %q", len(text), strings.Count(text, "\n"), text[len(text)-20:])
	}
}

// A list as long as an object can have is adopted at once, and not in the square of its length.
func TestLongLists(t *testing.T) {
	s := newStory(t)
	s.pool("p", "10.0.0.0/8 mask 28", "")
	s.markSynced()
	var b strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&b, " 10.%d.%d.%d/28", i>>12, i>>4&255, i&15<<4)
	}
	meter := waittest.StartMeter()
	defer meter.Stop()
	s.node(has("a", "p:"+b.String()))
	for range 3 {
		s.apply(s.alloc.upsert(*s.nodes["a"]))
	}
	if took := meter.Elapsed(); len(s.alloc.nodes["a"].held) != 30_000 || took > 20*time.Second {
		t.Errorf("%d are held after %v", len(s.alloc.nodes["a"].held), took)
	} else {
		t.Log(took)
	}
}

// MPOOL-9: when a term begins, a CIDR that is as large as a block of a pool that was moved comes before a larger one that an
// older node lists by hand; of CIDRs of no pool the smaller one comes first. The rest of the larger one is not allocated,
// unless it contains a whole CIDR of a pool.
func TestWhatMayHaveBeenAllocatedIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		pool, byHand, given, next string
	}{
		"a pool that was moved":   {"10.1.0.0/16 mask 24", "default: 10.100.0.0/22", "default: 10.100.0.0/24", "10.1.0.0/24"},
		"a pool that is gone":     {"10.1.0.0/16 mask 24", "x: 10.100.0.0/22", "y: 10.100.0.0/24", "10.1.0.0/24"},
		"the rest is a pool's":    {"10.100.2.0/23 10.1.0.0/16 mask 24", "default: 10.100.1.0/22", "x: 10.100.0.0/24", "10.100.2.0/24"},
		"the rest is of a pool's": {"10.100.0.0/16 mask 24", "default: 10.100.0.0/22", "default: 10.100.0.0/24", "10.100.4.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.pool("default", test.pool, "")
			s.node(has("by-hand", test.byHand)) // is the older one
			s.node(has("given", test.given))
			s.markSynced()
			if got := s.nodes["given"].Allocated; len(got) != 1 || got[0].CIDRs[0] != "10.100.0.0/24" {
				t.Errorf("what was allocated is lost: %v", got)
			}
			if got := s.nodes["by-hand"]; len(got.Allocated) > 0 || !strings.Contains(got.Error, "has already been allocated") {
				t.Errorf("the other one has %v and error %q", got.Allocated, got.Error)
			}
			s.node(has("next").needs("default: 1"))
			s.want("next", "default: "+test.next)
		})
	}
}

// MPOOL-47: what a node has lost is known from its status, with or without the prefix of 1.20.
func TestPrefixOfErrors(t *testing.T) {
	first, second := poolCIDR{"a", netip.MustParsePrefix("10.0.0.0/24")}, poolCIDR{"b", netip.MustParsePrefix("10.0.1.0/24")}
	text := textTaken(first) + "\n" + textTaken(second)
	for _, text := range []string{text, errorPrefix + text} {
		if got := lostIn(text); !slices.Equal(got, []poolCIDR{first, second}) {
			t.Errorf("%q: %v", text, got)
		}
	}
	for prefixed, begin := range map[bool]string{true: errorPrefix + "failed to allocate", false: "failed to allocate"} {
		s := newStory(t)
		s.alloc.prefixesErrors = prefixed
		s.markSynced()
		s.node(testNode{name: "n1", requested: []string{"none: 16 0"}})
		if got := s.nodes["n1"].Error; !strings.HasPrefix(got, begin) {
			t.Errorf("with a prefix %v: %q", prefixed, got)
		}
	}
}
