// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc_test

import (
	"errors"
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/skep-operator/skep/resources/domain/alloc"
)

func ExampleBlocks() {
	blocks := alloc.NewBlocks[string]()
	pool, _ := blocks.NewPool(alloc.IPv4, 24)
	_ = pool.Set(netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("10.1.0.0/16"))

	_ = blocks.Reserve(netip.MustParsePrefix("10.0.0.0/23"), "node-1")
	block, _ := pool.AllocateNext("node-2")
	fmt.Println(block, pool.Used(), "of", pool.Total())

	err := blocks.Reserve(netip.MustParsePrefix("10.0.2.128/25"), "node-3")
	var taken *alloc.TakenError[netip.Prefix, string]
	fmt.Println(errors.As(err, &taken), taken.By, "-", err)
	// Output:
	// 10.0.2.0/24 3 of 512
	// true node-2 - 10.0.2.128/25 for node-3: 10.0.2.0/24 is held by node-2
}

func ExampleAddresses() {
	addresses := alloc.NewAddresses[string]()
	pool := addresses.NewPool()
	_ = pool.Set(
		alloc.AddressRange{IPRange: netipx.RangeOfPrefix(netip.MustParsePrefix("10.0.10.16/30")), ReserveEdges: true},
		alloc.AddressRange{IPRange: netipx.RangeOfPrefix(netip.MustParsePrefix("ff::/48"))})

	fmt.Println(pool.Allocate(netip.MustParseAddr("10.0.10.16"), "a"))
	v4, _ := pool.AllocateTightest(alloc.IPv4, "a")
	v6, _ := pool.AllocateTightest(alloc.IPv6, "a")
	fmt.Println(v4, v6, pool.Used(), "of", pool.Total())
	// Output:
	// address 10.0.10.16: not to be allocated: it is the first or last of 10.0.10.16-10.0.10.19
	// 10.0.10.17 ff:: 4 of 1208925819614629174706180
}

func ExampleNumbers() {
	numbers := alloc.NewNumbers[uint32, string]()
	pool := numbers.NewPool()
	_ = pool.Set(alloc.NumberRange[uint32]{First: 256, Last: 65535})

	n, _ := pool.AllocateFirst("a")
	fmt.Println(n, numbers.Reserve(n, "b"))
	// Output:
	// 256 256 for b: 256 is held by a
}
