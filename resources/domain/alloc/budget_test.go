// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"

	"github.com/skep-operator/skep/resources/domain/alloc"
)

// What is free takes no memory: a pool of all addresses takes as much as one of four.
func TestMemoryOfPools(t *testing.T) {
	bytes := func(cidr string) uint64 {
		return memory(func() any {
			pools := make([]*alloc.AddressPool[string], 1000)
			for i := range pools {
				addresses := alloc.NewAddresses[string]()
				pools[i] = addresses.NewPool()
				if err := pools[i].Set(ranges(cidr)...); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if _, err := pools[i].AllocateTightest(alloc.IPv6, "a"); err != nil {
						t.Fatal(err)
					}
				}
			}
			return pools
		}) / 1000
	}
	small := bytes("ff::/126")
	for _, cidr := range []string{"ff::/48", "::/0"} {
		if large := bytes(cidr); large > small+small/4 {
			t.Errorf("a pool of %s takes %d bytes, one of four addresses %d", cidr, large, small)
		}
	}
}

// What is held takes at most 224 bytes each, wherever it is.
func TestMemoryOfHolds(t *testing.T) {
	const holds, budget = 10_000, 224
	for name, next := range map[string]func(*rand.Rand, *alloc.AddressPool[string]) error{
		"one after the other": func(_ *rand.Rand, p *alloc.AddressPool[string]) error {
			_, err := p.AllocateTightest(alloc.IPv6, "a")
			return err
		},
		"random": func(r *rand.Rand, p *alloc.AddressPool[string]) error { return p.Allocate(randomAddr(r), "a") },
	} {
		t.Run(name, func(t *testing.T) {
			got := memory(func() any {
				addresses, r := alloc.NewAddresses[string](), rand.New(rand.NewPCG(1, 1))
				pool := addresses.NewPool()
				_ = pool.Set(ranges("ff::/48")...)
				for range holds {
					if err := next(r, pool); err != nil {
						t.Fatal(err)
					}
				}
				return addresses
			}) / holds
			if t.Logf("%d bytes for each", got); got > budget {
				t.Errorf("each takes %d bytes, at most %d are allowed", got, budget)
			}
		})
	}
}

// memory is the size of what a function makes.
func memory(of func() any) uint64 {
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	made := of()
	after := live()
	runtime.KeepAlive(made)
	return max(after, before) - before
}

// randomAddr is an address of ff::/48.
func randomAddr(r *rand.Rand) netip.Addr {
	bytes := netip.MustParseAddr("ff::").As16()
	for i := 6; i < 16; i++ {
		bytes[i] = byte(r.Uint32())
	}
	return netip.AddrFrom16(bytes)
}

// An allocation makes what it keeps and nothing else, a release and a question nothing.
func TestAllocations(t *testing.T) {
	blocks := alloc.NewBlocks[string]()
	pool := blockPool(t, blocks, alloc.IPv4, 24, "10.0.0.0/8")
	for range 1000 {
		_, _ = pool.AllocateNext("a")
	}
	addresses := alloc.NewAddresses[string]()
	addressPool := addresses.NewPool()
	_ = addressPool.Set(ranges("10.0.0.0/8")...)
	probe := netip.MustParsePrefix("10.0.3.0/24")
	for what, c := range map[string]struct {
		most float64
		do   func()
	}{
		"AllocateNext":     {3, func() { _, _ = pool.AllocateNext("a") }},
		"AllocateTightest": {3, func() { _, _ = addressPool.AllocateTightest(alloc.IPv4, "a") }},
		"Release and Reserve": {3, func() {
			blocks.Release(probe, "a")
			_ = blocks.Reserve(probe, "a")
		}},
		"OwnerOf": {0, func() { blocks.OwnerOf(probe) }},
	} {
		if got := testing.AllocsPerRun(1000, c.do); got > c.most {
			t.Errorf("%s makes %v allocations, at most %v are allowed", what, got, c.most)
		}
	}
}

// Each with 1,000 and with 100,000 held ones: the time grows with the logarithm.
func BenchmarkAllocate(b *testing.B) {
	for _, holds := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("blocks/%d", holds), func(b *testing.B) {
			blocks := alloc.NewBlocks[string]()
			pool, _ := blocks.NewPool(alloc.IPv4, 32)
			_ = pool.Set(prefixes("10.0.0.0/8")...)
			for range holds {
				_, _ = pool.AllocateNext("a")
			}
			b.ReportAllocs()
			for b.Loop() {
				block, err := pool.AllocateNext("a")
				if err != nil {
					b.Fatal(err)
				}
				blocks.Release(block, "a")
			}
		})
		b.Run(fmt.Sprintf("addresses/%d", holds), func(b *testing.B) {
			addresses, r := alloc.NewAddresses[string](), rand.New(rand.NewPCG(1, 1))
			pool := addresses.NewPool()
			_ = pool.Set(ranges("ff::/48")...)
			for range holds {
				_ = addresses.Reserve(randomAddr(r), "a")
			}
			b.ReportAllocs()
			for b.Loop() {
				a, err := pool.AllocateTightest(alloc.IPv6, "a")
				if err != nil {
					b.Fatal(err)
				}
				addresses.Release(a, "a")
			}
		})
		b.Run(fmt.Sprintf("numbers/%d", holds), func(b *testing.B) {
			numbers, r := alloc.NewNumbers[uint32, string](), rand.New(rand.NewPCG(1, 1))
			pool := numbers.NewPool()
			_ = pool.Set(alloc.NumberRange[uint32]{First: 256, Last: 1 << 24})
			for range holds {
				n, _ := pool.Pick(r.Uint64N)
				_ = numbers.Reserve(n, "a")
			}
			b.ReportAllocs()
			for b.Loop() {
				n, err := pool.Pick(r.Uint64N)
				if err != nil {
					b.Fatal(err)
				}
				_ = pool.Allocate(n, "a")
				numbers.Release(n, "a")
			}
		})
	}
}
