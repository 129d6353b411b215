// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc_test

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/skep-operator/skep/resources/domain/alloc"
)

// list is what an iterator yields, as "10.0.0.0/24=a 10.0.2.0/24=b".
func list[K, V any](all iter.Seq2[K, V]) string {
	var texts []string
	for k, v := range all {
		texts = append(texts, fmt.Sprintf("%v=%v", k, v))
	}
	return strings.Join(texts, " ")
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func ranges(texts ...string) (all []alloc.AddressRange) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, alloc.AddressRange{IPRange: netipx.RangeOfPrefix(p)})
		} else {
			all = append(all, alloc.AddressRange{IPRange: netipx.MustParseIPRange(text)})
		}
	}
	return all
}

func expect(t *testing.T, what string, got any, want string) {
	t.Helper()
	if text := fmt.Sprint(got); text != want {
		t.Errorf("%s is %s, want %s", what, text, want)
	}
}

func blockPool(t *testing.T, blocks *alloc.Blocks[string], f alloc.Family, bits int, cidrs ...string) *alloc.BlockPool[string] {
	t.Helper()
	pool, err := blocks.NewPool(f, bits)
	if err == nil {
		err = pool.Set(prefixes(cidrs...)...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func TestBlocks(t *testing.T) {
	blocks := alloc.NewBlocks[string]()
	v4 := blockPool(t, blocks, alloc.IPv4, 24, "10.0.0.0/22", "10.8.0.0/23")
	v6 := blockPool(t, blocks, alloc.IPv6, 112, "fd00::/104")
	allocate := func(p *alloc.BlockPool[string]) string {
		block, err := p.AllocateNext("new")
		return fmt.Sprint(block, err)
	}

	expect(t, "a smaller one", blocks.Reserve(netip.MustParsePrefix("10.0.1.7/25"), "small"), "<nil>")
	expect(t, "a larger one", blocks.Reserve(netip.MustParsePrefix("10.0.2.0/23"), "large"), "<nil>")
	expect(t, "the same again", blocks.Reserve(netip.MustParsePrefix("10.0.2.0/23"), "large"), "<nil>")
	expect(t, "one outside", blocks.Reserve(netip.MustParsePrefix("172.16.0.0/12"), "far"), "<nil>")
	expect(t, "one that overlaps two", blocks.Reserve(netip.MustParsePrefix("10.0.0.0/22"), "late"),
		"10.0.0.0/22 for late: 10.0.1.0/25 is held by small")
	expect(t, "another one of the same owner", blocks.Reserve(netip.MustParsePrefix("10.0.2.0/24"), "large"),
		"10.0.2.0/24 for large: 10.0.2.0/23 is held by large")
	expect(t, "all", list(blocks.All()), "10.0.1.0/25=small 10.0.2.0/23=large 172.16.0.0/12=far")
	expect(t, "those that overlap", list(blocks.Overlapping(netip.MustParsePrefix("10.0.0.0/23"))), "10.0.1.0/25=small")
	expect(t, "counts", []any{v4.Total(), v4.Used(), v4.Free(), blocks.Len()}, "[6 3 3 3]")

	for _, want := range []string{"10.0.0.0/24 <nil>", "10.8.0.0/24 <nil>", "10.8.1.0/24 <nil>", "invalid Prefix the pool is full"} {
		expect(t, "the next", allocate(v4), want)
	}
	expect(t, "the next IPv6", allocate(v6)+allocate(v6), "fd00::/112 <nil>fd00::1:0/112 <nil>")
	expect(t, "those of the pool", list(v4.All()), "10.0.0.0/24=new 10.0.1.0/25=small 10.0.2.0/23=large 10.8.0.0/24=new 10.8.1.0/24=new")
	expect(t, "release by another", blocks.Release(netip.MustParsePrefix("10.0.2.0/23"), "new"), "false")
	expect(t, "release of a part", blocks.Release(netip.MustParsePrefix("10.0.2.0/24"), "large"), "false")
	expect(t, "release", blocks.Release(netip.MustParsePrefix("10.0.2.0/23"), "large"), "true")
	expect(t, "the one after the cursor", allocate(v4), "10.0.2.0/24 <nil>")
}

// A CIDR that is dropped from a pool drains: what is held of it stays held, and is released as usual.
func TestDraining(t *testing.T) {
	blocks := alloc.NewBlocks[string]()
	pool := blockPool(t, blocks, alloc.IPv4, 24, "10.1.0.0/23", "10.0.0.0/23")
	held, _ := pool.AllocateNext("a")
	if err := pool.Set(prefixes("10.2.0.0/23", "10.0.0.0/23", "10.2.0.0/23")...); err != nil {
		t.Fatal(err)
	}
	expect(t, "the order", pool.CIDRs(), "[10.0.0.0/23 10.2.0.0/23]")
	expect(t, "the one held", list(blocks.All()), "10.1.0.0/24=a")
	expect(t, "whether it is contained", pool.Contains(held), "false")
	other := blockPool(t, blocks, alloc.IPv4, 24, "10.1.0.0/23")
	next, err := other.AllocateFirst("b")
	expect(t, "the first of a pool with the same CIDR", []any{next, err}, "[10.1.1.0/24 <nil>]")
	expect(t, "release", blocks.Release(held, "a"), "true")
	next, err = other.AllocateFirst("b")
	expect(t, "the first after that", []any{next, err}, "[10.1.0.0/24 <nil>]")
	expect(t, "a full pool", pool.Set(), "<nil>")
	_, err = pool.AllocateFirst("c")
	expect(t, "a pool without ranges", err, alloc.ErrNoRange.Error())
}

func TestWithheldBlocks(t *testing.T) {
	blocks := alloc.NewBlocks[string]()
	pool := blockPool(t, blocks, alloc.IPv4, 24, "10.0.0.0/21")
	if err := blocks.Withhold(prefixes("10.0.0.0/25", "10.0.0.128/26", "10.0.2.0/23", "10.0.3.0/24", "192.168.0.0/16", "fd00::/8")...); err != nil {
		t.Fatal(err)
	}
	expect(t, "counts", []any{pool.Used(), pool.Free()}, "[3 5]")
	expect(t, "one that is withheld", errors.Is(pool.Allocate(netip.MustParsePrefix("10.0.3.0/24"), "a"), alloc.ErrWithheld), "true")
	expect(t, "its owner", blocks.Reserve(netip.MustParsePrefix("10.0.3.0/24"), "a"), "<nil>")
	expect(t, "counts with an owner", []any{pool.Held(), pool.Used(), pool.Free()}, "[1 3 5]")
	for _, want := range []string{"10.0.1.0/24", "10.0.4.0/24"} {
		block, _ := pool.AllocateFirst("b")
		expect(t, "the first", block, want)
	}
	if err := blocks.Withhold(); err != nil {
		t.Fatal(err)
	}
	block, _ := pool.AllocateFirst("b")
	expect(t, "the first, with none withheld", block, "10.0.0.0/24")
}

func TestAddresses(t *testing.T) {
	addresses := alloc.NewAddresses[string]()
	pool := addresses.NewPool()
	if err := pool.Set(ranges("10.0.0.8/29", "10.0.9.5-10.0.9.6", "fd00::-fd00::1")...); err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr
	expect(t, "a range of both families", pool.Has(alloc.IPv4) && pool.Has(alloc.IPv6), "true")
	expect(t, "mapped", addresses.Reserve(addr("::ffff:10.0.0.9"), "a"), "<nil>")
	expect(t, "another owner", addresses.Reserve(addr("10.0.0.9"), "b"), "10.0.0.9 for b: 10.0.0.9 is held by a")
	expect(t, "one that is taken", pool.Allocate(addr("10.0.0.9"), "a"), "10.0.0.9 for a: 10.0.0.9 is held by a")
	expect(t, "one outside", pool.Allocate(addr("10.0.1.0"), "a"), "address 10.0.1.0: not in a range of the pool")
	for _, want := range []string{"10.0.0.8", "10.0.0.10"} { // the hole first
		a, _ := pool.AllocateTightest(alloc.IPv4, "t")
		expect(t, "the tightest", a, want)
	}
	a, err := pool.AllocateNear(addr("10.0.8.0"), "n")
	expect(t, "the nearest", []any{a, err}, "[10.0.9.5 <nil>]")
	a, err = pool.AllocateNear(addr("10.0.0.11"), "n")
	expect(t, "the nearest", []any{a, err}, "[10.0.0.11 <nil>]")
	for _, want := range []string{"fd00::1 <nil>", "fd00:: <nil>", "invalid IP the pool is full"} {
		a, err = pool.AllocateNear(addr("fd00::1"), "n")
		expect(t, "the nearest IPv6", fmt.Sprint(a, " ", err), want)
	}
	expect(t, "all", list(addresses.All()), "10.0.0.8=t 10.0.0.9=a 10.0.0.10=t 10.0.0.11=n 10.0.9.5=n fd00::=n fd00::1=n")
	expect(t, "those of a range", list(addresses.Within(netipx.MustParseIPRange("10.0.0.10-10.0.9.5"))), "10.0.0.10=t 10.0.0.11=n 10.0.9.5=n")
	expect(t, "counts", []any{pool.Total(), pool.Used(), pool.Free(), addresses.Len()}, "[12 7 5 7]")
	if err := pool.Set(ranges("10.0.0.10-10.0.0.11")...); err != nil {
		t.Fatal(err)
	}
	expect(t, "those of the pool", list(pool.All()), "10.0.0.10=t 10.0.0.11=n")
	expect(t, "counts", []any{pool.Total(), pool.Used(), pool.Free(), addresses.Len()}, "[2 2 0 7]")
	expect(t, "release of a mapped one", addresses.Release(addr("::ffff:10.0.0.9"), "a"), "true")
}

// Reserved edges are not allocated, count as used, and stay with an owner that has one.
func TestReservedEdges(t *testing.T) {
	addresses := alloc.NewAddresses[string]()
	pool := addresses.NewPool()
	set := func(reserve bool, texts ...string) {
		t.Helper()
		list := ranges(texts...)
		for i := range list {
			list[i].ReserveEdges = reserve
		}
		if err := pool.Set(list...); err != nil {
			t.Fatal(err)
		}
	}
	set(false, "10.0.0.0/30")
	edge, _ := pool.AllocateFirst(alloc.IPv4, "a")
	set(true, "10.0.0.0/30")
	expect(t, "the owner of the edge", list(addresses.All()), "10.0.0.0=a")
	expect(t, "counts", []any{pool.Total(), pool.Used(), pool.Free()}, "[4 2 2]")
	expect(t, "the range", []any{pool.Ranges(), pool.Ranges()[0].ReserveEdges}, "[[10.0.0.0-10.0.0.3] true]")
	for _, want := range []string{"10.0.0.1 <nil>", "10.0.0.2 <nil>", "invalid IP the pool is full"} {
		a, err := pool.AllocateNext(alloc.IPv4, "b")
		expect(t, "the next", fmt.Sprint(a, " ", err), want)
	}
	addresses.Release(edge, "a")
	expect(t, "used with the edge free", pool.Used(), "4")
	expect(t, "the edge again", pool.Allocate(edge, "c"), "address 10.0.0.0: not to be allocated: it is the first or last of 10.0.0.0-10.0.0.3")
	set(false, "10.0.0.0/30")
	expect(t, "the edge, not reserved any more", pool.Allocate(edge, "c"), "<nil>")
	set(true, "10.0.1.0/31", "10.0.2.0/32", "0.0.0.0-0.0.0.2")
	expect(t, "free with ranges of one, two and three", pool.Free(), "4")
}

func TestNumbers(t *testing.T) {
	numbers := alloc.NewNumbers[uint32, string]()
	pool := numbers.NewPool()
	set := func(r ...alloc.NumberRange[uint32]) error { return pool.Set(r...) }
	expect(t, "ranges", set(alloc.NumberRange[uint32]{10, 12}, alloc.NumberRange[uint32]{1, 2}), "<nil>")
	expect(t, "ranges that overlap", set(alloc.NumberRange[uint32]{10, 12}, alloc.NumberRange[uint32]{5, 10}), "5-10 overlaps 10-12")
	expect(t, "a reversed range", set(alloc.NumberRange[uint32]{2, 1}), "range 2-1: invalid: it is reversed")
	expect(t, "the ranges", pool.Ranges(), "[10-12 1-2]")
	expect(t, "one", numbers.Reserve(11, "a"), "<nil>")
	expect(t, "another owner", numbers.Reserve(11, "b"), "11 for b: 11 is held by a")
	expect(t, "one outside", pool.Allocate(13, "b"), "number 13: not in a range of the pool")
	for index, want := range []uint32{10, 12, 1, 2} {
		n, err := pool.Pick(func(of uint64) uint64 {
			expect(t, "the number of free ones", of, "4")
			return uint64(index)
		})
		expect(t, "the one of an index", []any{n, err}, fmt.Sprintf("[%d <nil>]", want))
	}
	_, err := pool.Pick(func(of uint64) uint64 { return of })
	expect(t, "an index that is too large", err, "index 4 of 4 free numbers: invalid")
	n, err := pool.AllocateNear(3, "c")
	expect(t, "the nearest", []any{n, err}, "[2 <nil>]")
	expect(t, "counts", []any{pool.Total(), pool.Used(), pool.Free(), numbers.Len()}, "[5 2 3 2]")

	wide := alloc.NewNumbers[uint64, string]()
	all := wide.NewPool()
	_ = all.Set(alloc.NumberRange[uint64]{0, math.MaxUint64})
	last, err := all.Pick(func(of uint64) uint64 { return of })
	expect(t, "the last of all", []any{last, err, all.Total()}, "[18446744073709551615 <nil> 18446744073709551616]")
}

// Pools of everything: nothing overflows, and counts are exact.
func TestAllAddresses(t *testing.T) {
	addresses := alloc.NewAddresses[string]()
	pool := addresses.NewPool()
	if err := pool.Set(ranges("0.0.0.0/0", "::/0")...); err != nil {
		t.Fatal(err)
	}
	expect(t, "the total", pool.Total(), "340282366920938463463374607436063178752") // 2^128 + 2^32
	for _, text := range []string{"255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"} {
		expect(t, text, pool.Allocate(netip.MustParseAddr(text), "a"), "<nil>")
	}
	expect(t, "the number of free ones", pool.Free(), "340282366920938463463374607436063178749")
	a, err := pool.AllocateTightest(alloc.IPv6, "b")
	expect(t, "the tightest", []any{a, err}, "[::1 <nil>]")

	blocks := alloc.NewBlocks[string]()
	half := blockPool(t, blocks, alloc.IPv6, 1, "::/0")
	whole := blockPool(t, blocks, alloc.IPv6, 0, "::/0")
	single := blockPool(t, blocks, alloc.IPv6, 128, "::/0")
	expect(t, "half of all", half.Allocate(netip.MustParsePrefix("8000::/1"), "a"), "<nil>")
	_, err = whole.AllocateFirst("b")
	expect(t, "the whole", []any{err, whole.Used()}, "[the pool is full 1]")
	b, err := half.AllocateNext("a")
	expect(t, "the other half", []any{b, err, single.Used(), single.Free(), half.Free()}, "[::/1 <nil> 340282366920938463463374607431768211456 0 0]")
	blocks.Release(netip.MustParsePrefix("8000::/1"), "a")
	blocks.Release(netip.MustParsePrefix("::/1"), "a")
	b, err = whole.AllocateFirst("a")
	expect(t, "the whole", []any{b, err, whole.Used(), half.Used(), single.Used(), single.Total()},
		"[::/0 <nil> 1 2 340282366920938463463374607431768211456 340282366920938463463374607431768211456]")
}

// A block at either end of the numbers of which a part is held.
func TestEnds(t *testing.T) {
	for held, cidr := range map[string]string{
		"::1/128": "::/124",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/128": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124",
	} {
		blocks := alloc.NewBlocks[string]()
		pool := blockPool(t, blocks, alloc.IPv6, 124, cidr)
		expect(t, held, blocks.Reserve(netip.MustParsePrefix(held), "a"), "<nil>")
		_, err := pool.AllocateFirst("b")
		expect(t, "the first of "+cidr, err, alloc.ErrFull.Error())
		_, err = pool.AllocateNear(netip.MustParsePrefix(cidr).Addr(), "b")
		expect(t, "the nearest of "+cidr, err, alloc.ErrFull.Error())
		expect(t, "the use of "+cidr, pool.Used(), "1")
	}
}

func TestOverlapOfPools(t *testing.T) {
	blocks := alloc.NewBlocks[string]()
	a, b := blockPool(t, blocks, alloc.IPv4, 24, "10.0.0.0/16", "10.2.0.0/16"), blockPool(t, blocks, alloc.IPv4, 26, "10.2.128.0/17")
	own, other, ok := a.Overlap(b)
	expect(t, "the overlap", []any{own, other, ok}, "[10.2.0.0/16 10.2.128.0/17 true]")
	_, _, ok = a.Overlap(blockPool(t, blocks, alloc.IPv6, 64, "::/0"))
	expect(t, "an overlap of families", ok, "false")

	addresses := alloc.NewAddresses[string]()
	p, q := addresses.NewPool(), addresses.NewPool()
	_, _ = p.Set(ranges("10.0.10.0/24", "ff::/48")...), q.Set(ranges("10.0.11.0-10.0.11.9", "ff::7-ff::7")...)
	from, to, ok := p.Overlap(q)
	expect(t, "the overlap", []any{from, to, ok}, "[ff::-ff::ffff:ffff:ffff:ffff:ffff ff::7-ff::7 true]")
}

// What is not valid is refused and changes nothing.
func TestInvalid(t *testing.T) {
	blocks, addresses := alloc.NewBlocks[string](), alloc.NewAddresses[string]()
	v4, pool := blockPool(t, blocks, alloc.IPv4, 24, "10.0.0.0/16"), addresses.NewPool()
	mapped := netip.MustParsePrefix("::ffff:10.0.0.0/120")
	_, tooLong := blocks.NewPool(alloc.IPv4, 33)
	_, negative := blocks.NewPool(alloc.IPv6, -1)
	_, nearFamily := v4.AllocateNear(netip.MustParseAddr("fd00::"), "a")
	_, nearNone := pool.AllocateNear(netip.Addr{}, "a")
	for what, err := range map[string]error{
		"blocks of 33 bits":       tooLong,
		"blocks of -1 bits":       negative,
		"no block":                blocks.Reserve(netip.Prefix{}, "a"),
		"a mapped block":          blocks.Reserve(mapped, "a"),
		"to withhold no block":    blocks.Withhold(netip.Prefix{}),
		"to allocate no block":    v4.Allocate(netip.Prefix{}, "a"),
		"a CIDR of IPv6":          v4.Set(prefixes("10.0.0.0/16", "fd00::/16")...),
		"a CIDR below a block":    v4.Set(prefixes("10.0.0.0/25")...),
		"no CIDR":                 v4.Set(netip.Prefix{}),
		"near another family":     nearFamily,
		"no address":              addresses.Reserve(netip.Addr{}, "a"),
		"near no address":         nearNone,
		"a reversed range":        pool.Set(alloc.AddressRange{IPRange: netipx.IPRangeFrom(netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1"))}),
		"a range of two families": pool.Set(alloc.AddressRange{IPRange: netipx.IPRangeFrom(netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::"))}),
		"no range":                pool.Set(alloc.AddressRange{}),
	} {
		if !errors.Is(err, alloc.ErrInvalid) {
			t.Errorf("%s: %v, want %v", what, err, alloc.ErrInvalid)
		}
	}
	expect(t, "an overlap", v4.Set(prefixes("10.0.0.0/16", "10.0.128.0/17")...), "10.0.128.0/17 overlaps 10.0.0.0/16")
	expect(t, "an overlap", pool.Set(ranges("10.0.0.0/16", "10.0.128.0-10.1.0.0")...), "10.0.128.0-10.1.0.0 overlaps 10.0.0.0-10.0.255.255")
	expect(t, "an address that is none", errors.Is(pool.Allocate(netip.Addr{}, "a"), alloc.ErrOutOfRange), "true")
	_, owned := addresses.OwnerOf(netip.Addr{})
	_, ownedBlock := blocks.OwnerOf(mapped)
	expect(t, "ownership", []any{owned, ownedBlock, addresses.Release(netip.Addr{}, ""), blocks.Release(mapped, "")}, "[false false false false]")
	expect(t, "what is changed", []any{v4.CIDRs(), pool.Ranges(), blocks.Len(), addresses.Len()}, "[[10.0.0.0/16] [] 0 0]")
}

func TestBlockOf(t *testing.T) {
	blocks := alloc.NewBlocks[string]()
	pool := blockPool(t, blocks, alloc.IPv4, 24)
	for of, want := range map[string]string{"10.0.1.128/25": "10.0.1.0/24", "10.0.1.0/24": "10.0.1.0/24", "10.0.1.0/23": "10.0.0.0/23"} {
		expect(t, "the block of "+of, pool.BlockOf(netip.MustParsePrefix(of)), want)
	}
	expect(t, "the pool", []any{pool.Family(), pool.Bits(), pool.Total()}, "[IPv4 24 0]")
}
