// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// model is the allocator once more, as simple as can be: a list of all blocks
// with the node that each belongs to, and every question answered by looking at
// all of them. It shares no code with the allocator.
type model struct {
	pools [2][]*modelPool
	nodes map[string]*modelNode
	queue []string // nodes with an error, in the order they got one
	begun bool
}

type modelPool struct {
	cidr   netip.Prefix
	mask   int
	blocks []netip.Prefix
	owner  []string // UID, "" for a free block
	cursor int
}

type modelNode struct {
	observed
	complete bool // what it has was accepted, or given
	has      []netip.Prefix
	err      string
}

func newModel(c Config, shared cluster.Config) *model {
	m := &model{nodes: map[string]*modelNode{}}
	add := func(family int, cidrs []string, mask int) {
		for _, text := range cidrs {
			p := &modelPool{cidr: netip.MustParsePrefix(text).Masked(), mask: mask}
			for a := p.cidr.Addr(); p.cidr.Contains(a); a = afterLast(netip.PrefixFrom(a, mask)) {
				p.blocks = append(p.blocks, netip.PrefixFrom(a, mask))
			}
			p.owner = make([]string, len(p.blocks))
			m.pools[family] = append(m.pools[family], p)
		}
	}
	if shared.EnableIPv4 {
		add(0, c.ClusterPoolIPv4CIDR, c.ClusterPoolIPv4MaskSize)
	}
	if shared.EnableIPv6 {
		add(1, c.ClusterPoolIPv6CIDR, c.ClusterPoolIPv6MaskSize)
	}
	return m
}

// afterLast is the address behind a prefix.
func afterLast(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a.Next()
}

func (m *model) overlapping(c netip.Prefix) (pools []*modelPool) {
	for _, family := range m.pools {
		for _, p := range family {
			if p.cidr.Overlaps(c) {
				pools = append(pools, p)
			}
		}
	}
	return pools
}

// free takes all blocks from a node.
func (m *model) free(n *modelNode) {
	for _, family := range m.pools {
		for _, p := range family {
			for i, owner := range p.owner {
				if owner == n.UID {
					p.owner[i] = ""
				}
			}
		}
	}
	n.has, n.complete = nil, false
}

// accept lets a node have what it says, as far as that is possible.
func (m *model) accept(n *modelNode) (first string) {
	if len(n.PodCIDRs) == 0 && len(n.has) > 0 {
		n.complete = n.Undecoded == ""
		return ""
	}
	m.free(n)
	fine := true
	for family, name := range []string{"IPv4", "IPv6"} {
		var list []netip.Prefix
		for _, text := range n.PodCIDRs {
			c, ok := readCIDR(text)
			fine = fine && ok
			if ok && c.Addr().Is6() == (family == 1) {
				list = append(list, c)
			}
		}
		if len(list) > 0 && len(m.pools[family]) == 0 {
			if first == "" {
				first = fmt.Sprintf("unable to allocate CIDR %v since allocator for %s addresses does not exist", list, name)
			}
			continue
		}
		for _, c := range list {
			if err := m.acceptOne(n, c); first == "" {
				first = err
			}
		}
	}
	n.complete = fine && first == "" && len(n.has) > 0
	return first
}

// readCIDR reads what agents read.
func readCIDR(text string) (c netip.Prefix, ok bool) {
	address, mask, _ := strings.Cut(text, "/")
	a, err := netip.ParseAddr(address)
	bits, maskErr := strconv.ParseUint(mask, 10, 16)
	if err != nil || maskErr != nil || a.Zone() != "" || int(bits) > a.BitLen() {
		return c, false
	}
	c = netip.PrefixFrom(a, int(bits)).Masked()
	if c.Addr().Is4In6() {
		c = netip.PrefixFrom(c.Addr().Unmap(), int(bits)-96)
	}
	return c, true
}

// meant is what was meant by texts that are no CIDRs.
var meant = map[string]string{"10.0.0.0/27 ": "10.0.0.0/27", "010.0.0.032/29": "10.0.0.32/29", "x10.0.0.8/29,": "10.0.0.8/29"}

func inside(c netip.Prefix, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(h netip.Prefix) bool { return h.Contains(c.Addr()) && h.Bits() <= c.Bits() })
}

func (m *model) acceptOne(n *modelNode, c netip.Prefix) string {
	if inside(c, n.has) {
		return ""
	}
	pools := m.overlapping(c)
	if len(pools) == 0 {
		return fmt.Sprintf("allocator not configured for the requested CIDR %s", c)
	}
	if p := swallowed(c, pools); p != nil {
		return fmt.Sprintf("requested CIDR (%s) contains all of clusterCIDR: %s, nodeMask: %d", c, p.cidr, p.mask)
	}
	for _, p := range pools {
		for i, b := range p.blocks {
			if b.Overlaps(c) && p.owner[i] != "" && p.owner[i] != n.UID {
				if !slices.Contains(p.owner, "") {
					return fmt.Sprintf("allocator clusterCIDR: %s, nodeMask: %d full", p.cidr, p.mask)
				}
				return fmt.Sprintf("requested CIDR (%s) is already allocated", c)
			}
		}
	}
	for _, h := range n.has {
		if h.Overlaps(c) {
			return fmt.Sprintf("requested CIDR (%s) overlaps %s, which the node has, too", c, h)
		}
	}
	for _, p := range pools {
		if second := apart(p, c, n.has); second {
			return fmt.Sprintf("requested CIDR (%s) is a second one of clusterCIDR: %s, nodeMask: %d: a node is given one", c, p.cidr, p.mask)
		}
	}
	for _, p := range pools {
		for i, b := range p.blocks {
			if b.Overlaps(c) {
				p.owner[i] = n.UID
			}
		}
	}
	n.has = append(n.has, c)
	return ""
}

// apart reports whether any of a list is in the pool, and has no block in common with c.
func apart(p *modelPool, c netip.Prefix, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(h netip.Prefix) bool {
		return p.cidr.Overlaps(h) && !slices.ContainsFunc(p.blocks, func(b netip.Prefix) bool { return b.Overlaps(h) && b.Overlaps(c) })
	})
}

// swallowed is the first pool that is all in a CIDR larger than a block.
func swallowed(c netip.Prefix, pools []*modelPool) *modelPool {
	for _, p := range pools {
		if c.Bits() < p.mask && !slices.ContainsFunc(p.blocks, func(b netip.Prefix) bool { return !c.Overlaps(b) }) {
			return p
		}
	}
	return nil
}

// claims are what a node says it has, and has not.
func (m *model) claims(n *modelNode) (list []netip.Prefix) {
	said := slices.Clone(n.Found)
	var read []netip.Prefix
	say := func(c netip.Prefix) {
		read = append(read, c)
		second := slices.ContainsFunc(m.overlapping(c), func(p *modelPool) bool {
			return apart(p, c, slices.DeleteFunc(slices.Clone(read), func(r netip.Prefix) bool { return swallowed(r, []*modelPool{p}) != nil }))
		})
		if !second {
			said = append(said, c)
		}
	}
	for _, text := range n.PodCIDRs {
		if c, ok := readCIDR(text); ok {
			say(c)
		}
	}
	read = append(read, n.Found...)
	for _, text := range n.PodCIDRs { // agents use those before
		if _, ok := readCIDR(text); !ok && meant[text] != "" {
			say(netip.MustParsePrefix(meant[text]))
		}
	}
	for _, c := range said {
		if !inside(c, n.has) && swallowed(c, m.overlapping(c)) == nil {
			list = append(list, c)
		}
	}
	for _, c := range n.Elsewhere {
		if !inside(c, n.has) && (c.Bits() >= []int{16, 48}[c.Addr().BitLen()/128] || swallowed(c, m.overlapping(c)) == nil) {
			list = append(list, c)
		}
	}
	return list
}

// believed is what counts of what a node shows elsewhere: of each pool eight blocks' worth of addresses, in up to half of its blocks.
func (m *model) believed(shown []netip.Prefix) (list []netip.Prefix) {
	share, seen := map[netip.Prefix]float64{}, map[netip.Prefix]bool{}
	count := func(p *modelPool, block, c netip.Prefix) bool {
		parts, sum := 0, 0.0
		for _, b := range p.blocks {
			if sum += share[b]; share[b] > 0 {
				parts++
			}
		}
		now := min(1, share[block]+1/float64(uint64(1)<<(c.Bits()-block.Bits())))
		switch {
		case seen[c]:
			return true
		case sum-share[block]+now > 8, share[block] == 0 && parts >= max(8, min(64, len(p.blocks)/2)):
			return false
		}
		share[block], seen[c] = now, true
		return true
	}
	for _, c := range shown {
		if c.Bits() < []int{16, 48}[c.Addr().BitLen()/128] && swallowed(c, m.overlapping(c)) != nil {
			list = append(list, c)
			continue
		}
		var parts []netip.Prefix
		whole := true
		for _, p := range m.overlapping(c) {
			for _, b := range p.blocks {
				part := b
				if c.Bits() > p.mask {
					part = c
				}
				if !b.Overlaps(c) {
					continue
				}
				if !count(p, b, part) {
					whole = false
					break
				}
				parts = append(parts, part)
			}
		}
		if whole {
			parts = []netip.Prefix{c}
		}
		list = append(list, parts...)
	}
	return list
}

// clash is the first CIDR of a node that an older one has, too, where one of them shows it elsewhere.
func (m *model) clash(n *modelNode) string {
	type pair struct {
		own, other netip.Prefix
		by         *modelNode
	}
	var all []pair
	older := func(o *modelNode) bool {
		return o.Created.Before(n.Created) || o.Created.Equal(n.Created) && o.Name < n.Name
	}
	shows := func(o *modelNode) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(o.Elsewhere), func(c netip.Prefix) bool { return c.Bits() < []int{16, 48}[c.Addr().BitLen()/128] })
	}
	for _, o := range m.nodes {
		if !older(o) {
			continue
		}
		for _, own := range slices.Concat(n.has, shows(n)) {
			for _, other := range slices.Concat(o.has, shows(o)) {
				if own.Overlaps(other) && (slices.Contains(shows(n), own) || slices.Contains(shows(o), other)) {
					all = append(all, pair{own, other, o})
				}
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.SortFunc(all, func(x, y pair) int {
		return cmp.Or(x.own.Compare(y.own), x.other.Compare(y.other), x.by.Created.Compare(y.by.Created), cmp.Compare(x.by.Name, y.by.Name))
	})
	return fmt.Sprintf("CIDR %s overlaps %s, which the older CiliumNode %s has, too", all[0].own, all[0].other, all[0].by.Name)
}

// former is a block that a node shows elsewhere and can have, and its pool.
func (m *model) former(n *modelNode, pools []*modelPool) (*modelPool, int) {
	for _, p := range pools {
		for _, c := range n.Elsewhere {
			i := slices.Index(p.blocks, c)
			if i < 0 || p.owner[i] != "" {
				continue
			}
			others := slices.ContainsFunc(slices.Collect(maps.Values(m.nodes)), func(o *modelNode) bool {
				return o != n && slices.ContainsFunc(m.claims(o), c.Overlaps)
			})
			if !others {
				return p, i
			}
		}
	}
	return nil, 0
}

// open are the blocks of a pool that can be given.
func (m *model) open(p *modelPool) []bool {
	open := make([]bool, len(p.blocks))
	for i := range open {
		open[i] = p.owner[i] == ""
	}
	for _, n := range m.nodes {
		for _, c := range m.claims(n) {
			for i, b := range p.blocks {
				open[i] = open[i] && !b.Overlaps(c)
			}
		}
	}
	return open
}

// riddle is the first node that may have anything of a family.
func (m *model) riddle(family int) string {
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		told := slices.ContainsFunc(slices.Concat(n.has, n.Found), func(c netip.Prefix) bool { return c.Addr().Is6() == (family == 1) })
		if n.Undecoded != "" && !told {
			return name
		}
	}
	return ""
}

// judge decides what becomes of a node.
func (m *model) judge(n *modelNode) {
	if n.err = m.look(n); n.err == "" {
		m.queue = slices.DeleteFunc(m.queue, func(q string) bool { return q == n.Name })
	} else if !slices.Contains(m.queue, n.Name) {
		m.queue = append(m.queue, n.Name)
	}
}

func (m *model) look(n *modelNode) string {
	err := ""
	if !n.complete {
		err = m.accept(n)
	}
	if n.Undecoded != "" {
		return ""
	}
	for _, text := range n.PodCIDRs {
		if _, ok := readCIDR(text); !ok {
			return fmt.Sprintf("invalid CIDR address: %s", text)
		}
	}
	if err != "" {
		return err
	}
	for family, name := range []string{"IPv4", "IPv6"} {
		var says, has []netip.Prefix
		differs := false
		for _, text := range n.PodCIDRs {
			if c, _ := readCIDR(text); c.Addr().Is6() == (family == 1) {
				says = append(says, c)
				differs = differs || !inside(c, n.has)
			}
		}
		for _, h := range n.has {
			if h.Addr().Is6() == (family == 1) {
				has = append(has, h)
			}
		}
		switch {
		case differs && len(m.pools[family]) == 0:
			return fmt.Sprintf("unable to allocate CIDR %v since allocator for %s addresses does not exist", says, name)
		case differs:
			return fmt.Sprintf("node has CIDRs allocated (%v) that conflict with requested CIDRs %v", has, says)
		}
	}
	if n.Deleting {
		return ""
	}
	return m.give(n)
}

func (m *model) give(n *modelNode) string {
	if len(m.pools[0])+len(m.pools[1])+len(n.has) == 0 {
		return fmt.Sprintf("Unable to allocate node CIDR for node %s. IPAMInfo: {IPv4: [], IPv6: []}. Please check that your configuration is correct.", n.Name)
	}
	var from []*modelPool
	for family, pools := range m.pools {
		if len(pools) == 0 || slices.ContainsFunc(n.has, func(h netip.Prefix) bool { return h.Addr().Is6() == (family == 1) }) {
			continue
		}
		if name := m.riddle(family); name != "" {
			return fmt.Sprintf("waiting: spec.ipam.podCIDRs of CiliumNode %s cannot be decoded, it may have any CIDR; repair or delete it", name)
		}
		if p, _ := m.former(n, pools); p != nil {
			from = append(from, p)
			continue
		}
		i := slices.IndexFunc(pools, func(p *modelPool) bool { return slices.Contains(m.open(p), true) })
		if i < 0 {
			return "allocator full"
		}
		from = append(from, pools[i])
	}
	for _, p := range from {
		if of, i := m.former(n, []*modelPool{p}); of != nil {
			p.owner[i] = n.UID
			n.has = append(n.has, p.blocks[i])
			continue
		}
		for open := m.open(p); !open[p.cursor]; {
			p.cursor = (p.cursor + 1) % len(p.owner)
		}
		p.owner[p.cursor] = n.UID
		n.has = append(n.has, p.blocks[p.cursor])
		p.cursor = (p.cursor + 1) % len(p.owner)
	}
	n.complete = true
	return ""
}

// all lets nodes try again until that changes nothing: first all of them for what
// they say, then each for what it lacks.
func (m *model) all(names []string) {
	names = slices.Clone(names)
	for {
		before := fmt.Sprint(m.owners())
		for _, name := range names {
			if n := m.nodes[name]; !n.complete {
				m.accept(n)
			}
		}
		for _, name := range names {
			m.judge(m.nodes[name])
		}
		if fmt.Sprint(m.owners()) == before {
			return
		}
	}
}

func (m *model) owners() (all [][]string) {
	for _, p := range slices.Concat(m.pools[0], m.pools[1]) {
		all = append(all, p.owner)
	}
	return all
}

func (m *model) upsert(o observed) {
	if n := m.nodes[o.Name]; n != nil && n.UID != o.UID {
		m.forget(n)
		successor := &modelNode{observed: o}
		successor.Elsewhere = m.believed(o.Elsewhere)
		m.nodes[o.Name] = successor
		if m.begun {
			m.accept(successor)
			m.all(m.queue)
		}
	}
	n := m.nodes[o.Name]
	if n == nil {
		n = &modelNode{}
		m.nodes[o.Name] = n
	}
	o.Elsewhere = m.believed(o.Elsewhere)
	n.observed = o
	if o.Deleting && o.Undecoded == "" && len(o.PodCIDRs)+len(n.has)+len(o.Elsewhere) == 0 {
		m.remove(o.Name)
		return
	}
	if m.begun {
		m.judge(n)
		m.all(m.queue)
	}
}

func (m *model) remove(name string) {
	if n := m.nodes[name]; n != nil {
		m.forget(n)
		if m.begun {
			m.all(m.queue)
		}
	}
}

func (m *model) forget(n *modelNode) {
	delete(m.nodes, n.Name)
	m.queue = slices.DeleteFunc(m.queue, func(q string) bool { return q == n.Name })
	m.free(n)
}

func (m *model) begin() {
	m.begun = true
	m.all(slices.SortedFunc(maps.Keys(m.nodes), func(a, b string) int {
		if c := m.nodes[a].Created.Compare(m.nodes[b].Created); c != 0 {
			return c
		}
		if a < b {
			return -1
		}
		return 1
	}))
}

// shrunk is what a node says without a family of which older nodes have all, nil if that is not to be written.
func (m *model) shrunk(n *modelNode) []string {
	if !shrinks(n.Name) || !strings.HasSuffix(n.err, "is already allocated") {
		return nil
	}
	for _, family := range []bool{false, true} {
		var rest []string
		has, keeps, of, young := false, false, 0, false
		for _, h := range n.has {
			has, keeps = has || h.Addr().Is6() == family, keeps || h.Addr().Is6() != family
		}
		for _, text := range n.PodCIDRs {
			c, _ := readCIDR(text)
			if c.Addr().Is6() != family {
				rest = append(rest, text)
				continue
			}
			of++
			holders := 0
			for _, p := range m.overlapping(c) {
				for i, b := range p.blocks {
					for _, o := range m.nodes {
						if !b.Overlaps(c) || p.owner[i] != o.UID {
							continue
						}
						holders++
						young = young || o.Created.After(n.Created) || o.Created.Equal(n.Created) && o.Name >= n.Name
					}
				}
			}
			young = young || holders == 0
		}
		if !has && keeps && of > 0 && !young {
			return rest
		}
	}
	return nil
}

// shrinks reports whether the agent of a node is one of 1.20.
func shrinks(name string) bool { return name >= "n5" }

// wants is what should be written on a node: nil for no CIDRs.
func (m *model) wants(n *modelNode) (cidrs []string) {
	if n.err != "" {
		return m.shrunk(n)
	}
	var v4, v6 []string
	for _, text := range n.PodCIDRs {
		if c, _ := readCIDR(text); c.Addr().Is4() {
			v4 = append(v4, text)
		} else {
			v6 = append(v6, text)
		}
	}
	lacks4, lacks6 := len(v4) == 0, len(v6) == 0
	changed := false
	for _, h := range n.has {
		switch {
		case h.Addr().Is4() && lacks4:
			v4, changed = append(v4, h.String()), true
		case h.Addr().Is6() && lacks6:
			v6, changed = append(v6, h.String()), true
		}
	}
	if !changed {
		return nil
	}
	return append(v4, v6...)
}

// TestAllocatorAgainstModel drives both through the same histories and compares
// all they decide, letter by letter.
func TestAllocatorAgainstModel(t *testing.T) {
	seen := map[kind]int{}
	for seed := range seedtest.Seeds(t, 500) {
		(&contest{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 4)), seen: seen}).run()
	}
	for k := invalid; k <= noFamily; k++ {
		if seen[k] == 0 && os.Getenv("SKEP_SEED") == "" {
			t.Errorf("no history has a refusal of kind %d: %v", k, seen)
		}
	}
}

type contest struct {
	t     *testing.T
	seed  uint64
	r     *rand.Rand
	log   []string
	alloc *allocator
	model *model
	nodes map[string]*observed
	clock int64
	seen  map[kind]int // refusals
}

func (c *contest) failf(format string, args ...any) {
	c.t.Helper()
	for _, line := range c.log {
		c.t.Log(line)
	}
	c.t.Fatalf("SKEP_SEED=%d: %s", c.seed, fmt.Sprintf(format, args...))
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// config is a random one, with at most some dozens of blocks.
func (c *contest) config() (Config, cluster.Config) {
	shared := cluster.Config{EnableIPv4: c.r.IntN(8) > 0, EnableIPv6: c.r.IntN(2) > 0}
	config := Config{ClusterPoolIPv4MaskSize: pick(c.r, 28, 29, 30), ClusterPoolIPv6MaskSize: pick(c.r, 112, 113)}
	if shared.EnableIPv4 {
		config.ClusterPoolIPv4CIDR = pick(c.r, []string{"10.0.0.0/27"}, []string{"10.0.0.0/28"}, []string{"10.0.0.0/27", "10.0.0.64/27"},
			[]string{"10.0.0.32/28", "10.0.0.0/27"}, []string{"10.0.0.17/26"})
	}
	if shared.EnableIPv6 {
		config.ClusterPoolIPv6CIDR = pick(c.r, []string{"fd00::/110"}, []string{"fd00::/112"}, []string{"fd00::2:0/111", "fd00::/112"})
	}
	return config, shared
}

func (c *contest) cidr() string {
	switch c.r.IntN(12) {
	case 0:
		return pick(c.r, "xyz", "", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "fe80::1%eth0/64", "10.0.0.0/27 ", "010.0.0.032/29", "x10.0.0.8/29,")
	case 1:
		return pick(c.r, "172.16.0.0/24", "192.168.0.0/28", "fc00::/112", "::ffff:10.0.0.16/125", "10.0.0.8/029", "fD00:0:0::1:0/0112", "::ffff:10.0.0.0/90")
	case 2:
		return pick(c.r, "10.0.0.0/8", "10.0.0.0/26", "0.0.0.0/0", "fd00::/100", "::/0", "::ffff:0.0.0.0/96")
	case 3, 4:
		return fmt.Sprintf("fd00::%x:%x/%d", c.r.IntN(4), c.r.IntN(2)*0x8000, 111+c.r.IntN(4))
	default:
		return fmt.Sprintf("10.0.0.%d/%d", c.r.IntN(96), 27+c.r.IntN(5))
	}
}

func (c *contest) cidrs() (list []string) {
	for range pick(c.r, 0, 0, 1, 1, 1, 2, 2, 3) {
		list = append(list, c.cidr())
	}
	return list
}

// found are CIDRs in what cannot be decoded.
func (c *contest) found() (list []netip.Prefix) {
	for _, text := range c.cidrs() {
		if p, ok := readCIDR(text); ok {
			list = append(list, p)
		}
	}
	return list
}

func (c *contest) run() {
	c.nodes = map[string]*observed{}
	c.restart()
	for range 60 {
		c.step()
		c.compare()
	}
}

// restart makes a new allocator, perhaps with another configuration, that sees
// the nodes in any order.
func (c *contest) restart() {
	config, shared := c.config()
	c.log = append(c.log, fmt.Sprintf("restart with %v and %v", config, shared))
	alloc, err := newAllocator(config, shared)
	if err != nil {
		c.failf("%v", err)
	}
	alloc.losesDuplicates = shrinks
	c.alloc, c.model = alloc, newModel(config, shared)
	names := slices.Sorted(maps.Keys(c.nodes))
	c.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		c.upsert(name)
		if c.r.IntN(10) == 0 {
			c.drop(name)
		}
	}
	c.alloc.markSynced()
	c.model.begin()
}

func (c *contest) upsert(name string) {
	c.log = append(c.log, fmt.Sprintf("upsert %+v", *c.nodes[name]))
	c.alloc.upsert(*c.nodes[name])
	c.model.upsert(*c.nodes[name])
}

func (c *contest) drop(name string) {
	c.log = append(c.log, "delete "+name)
	delete(c.nodes, name)
	c.alloc.remove(name)
	c.model.remove(name)
}

func (c *contest) step() {
	name := fmt.Sprint("n", c.r.IntN(10))
	o := c.nodes[name]
	switch k := c.r.IntN(20); {
	case k == 0:
		c.restart()
	case o == nil || k == 1: // a new node, or one of the same name
		c.clock++
		c.nodes[name] = &observed{Name: name, UID: fmt.Sprint("uid-", c.clock), Created: time.Unix(c.clock/2, 0), PodCIDRs: pick(c.r, nil, nil, c.cidrs()), Elsewhere: pick(c.r, nil, nil, c.found())}
		c.upsert(name)
	case k < 6:
		c.drop(name)
	case k == 6:
		o.Deleting = true
		c.upsert(name)
	case k == 7:
		o.Elsewhere = c.found()
		c.upsert(name)
	case k < 10: // the user edits it
		o.PodCIDRs, o.Undecoded, o.Found = c.cidrs(), "", nil
		if c.r.IntN(4) == 0 {
			o.PodCIDRs, o.Undecoded, o.Found = nil, "not a list", c.found()
		}
		c.upsert(name)
	default: // what is desired is written
		if d, ok := c.alloc.desired(name); ok {
			if d.PodCIDRs != nil {
				o.PodCIDRs = d.PodCIDRs
			}
			o.Error = d.Error
		}
		c.upsert(name)
	}
}

func (c *contest) compare() {
	holder := map[string][]netip.Prefix{}
	for name := range c.nodes {
		d, ok := c.alloc.desired(name)
		n := c.model.nodes[name]
		if n == nil || n.Deleting || n.Undecoded != "" {
			if ok {
				c.failf("node %s is going, or cannot be decoded, and should say %+v", name, d)
			}
			continue
		}
		wrong := cmp.Or(n.err, c.model.clash(n))
		if want := c.model.wants(n); !ok || d.Error != wrong || !slices.Equal(d.PodCIDRs, want) {
			c.failf("node %s should say %+v (%v); the model says %q and error %q", name, d, ok, want, wrong)
		}
		if content := c.alloc.upToDate(name); content != (d.PodCIDRs == nil && d.Error == n.Error) {
			c.failf("node %s is content: %v", name, content)
		}
		holder[name] = n.has
		c.seen[c.alloc.nodes[name].refusal.kind]++
		c.seen[c.alloc.clashOf(c.alloc.nodes[name]).kind]++
	}
	for a, as := range holder {
		for b, bs := range holder {
			for _, x := range as {
				if a < b && slices.ContainsFunc(bs, x.Overlaps) {
					c.failf("%s (%v) and %s (%v) share addresses", a, as, b, bs)
				}
			}
		}
	}
	if !slices.Equal(c.alloc.pending, c.model.queue) {
		c.failf("the pending are %v; the model's are %v", c.alloc.pending, c.model.queue)
	}
	for family, pools := range c.model.pools {
		for i, p := range pools {
			used := 0
			for _, owner := range p.owner {
				if owner != "" {
					used++
				}
			}
			open := 0
			for _, o := range c.model.open(p) {
				if o {
					open++
				}
			}
			c.alloc.claims.apply(c.alloc)
			if q := c.alloc.pools[family][i]; q.free() != uint64(open) {
				c.failf("of %s %d blocks are free; the model says %d", p.cidr, q.free(), open)
			}
			if q := c.alloc.pools[family][i]; q.used() != uint64(used) || q.size() != uint64(len(p.owner)) {
				c.failf("of %s %d of %d blocks are used; the model says %d of %d", p.cidr, q.used(), q.size(), used, len(p.owner))
			}
		}
	}
}
