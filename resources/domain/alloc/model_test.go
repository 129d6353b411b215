// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc_test

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// preference is how the next one is chosen.
type preference int

const (
	first preference = iota
	next
	nearest
	tightest
	preferences
)

// answer is what an operation returned.
type answer struct {
	lo      int
	refusal string
	owner   int  // who asked, if it is taken
	by      hold // who has it
}

// subject is one of the three kinds, with the numbers of the oracle in place of its own.
type subject struct {
	orders   []int // of its pools
	maxOrder int   // of what is reserved
	tightest bool  // it has this preference
	reserve  func(hold) error
	release  func(hold) bool
	ownerOf  func(lo, order int) (int, bool)
	all      func() []hold
	set      func(pool int, ranges []oracleRange) error
	allocate func(pool int, h hold) error
	choose   func(pool int, how preference, near, owner int) (lo int, err error)
	counts   func(pool int) (total, used, free *big.Int)
	withhold func(blocks []hold) error                                   // nil if it has no such thing
	pick     func(pool int, index func(uint64) uint64) (lo int, e error) // nil if it has no such thing
}

// subjects are by name. Their numbers are at the start, in the middle and at the end of what there is.
var subjects = map[string]func() subject{
	"IPv4 blocks":            func() subject { return blocksFrom("10.0.3.0") },
	"first IPv6 blocks":      func() subject { return blocksFrom("::") },
	"last IPv6 blocks":       func() subject { return blocksFrom("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00") },
	"first IPv4 addresses":   func() subject { return addressesFrom("0.0.0.0") },
	"last IPv4 addresses":    func() subject { return addressesFrom("255.255.255.0") },
	"IPv6 addresses":         func() subject { return addressesFrom("fd00:0:0:1:ffff:ffff:ffff:ff80") },
	"last IPv6 addresses":    func() subject { return addressesFrom("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00") },
	"all numbers of 8 bits":  func() subject { return numbersFrom[uint8](0) },
	"numbers of 32 bits":     func() subject { return numbersFrom[uint32](65436) },
	"last numbers of 64 bit": func() subject { return numbersFrom[uint64](1<<64 - worldSize) },
}

func blocksFrom(base string) subject {
	addr, offset := addressing(base)
	family := alloc.FamilyOf(addr(0))
	blocks := alloc.NewBlocks[int]()
	prefix := func(lo, order int) netip.Prefix { return netip.PrefixFrom(addr(lo), addr(0).BitLen()-order) }
	back := func(p netip.Prefix, owner int) hold {
		return hold{offset(p.Addr()), addr(0).BitLen() - p.Bits(), owner}
	}
	s := subject{orders: []int{2, 4, 0}, maxOrder: 6}
	var pools []*alloc.BlockPool[int]
	for _, order := range s.orders {
		p, err := blocks.NewPool(family, addr(0).BitLen()-order)
		if err != nil {
			panic(err)
		}
		pools = append(pools, p)
	}
	s.reserve = func(h hold) error { return blocks.Reserve(prefix(h.lo, h.order), h.owner) }
	s.release = func(h hold) bool { return blocks.Release(prefix(h.lo, h.order), h.owner) }
	s.ownerOf = func(lo, order int) (int, bool) { return blocks.OwnerOf(prefix(lo, order)) }
	s.all = func() (all []hold) {
		for p, owner := range blocks.All() {
			all = append(all, back(p, owner))
		}
		return all
	}
	s.set = func(pool int, ranges []oracleRange) error {
		var cidrs []netip.Prefix
		for _, r := range ranges {
			p, _ := netipx.IPRangeFrom(addr(r.lo), addr(r.hi)).Prefix()
			cidrs = append(cidrs, p)
		}
		return pools[pool].Set(cidrs...)
	}
	s.allocate = func(pool int, h hold) error { return pools[pool].Allocate(prefix(h.lo, h.order), h.owner) }
	s.choose = func(pool int, how preference, near, owner int) (lo int, err error) {
		var got netip.Prefix
		switch p := pools[pool]; how {
		case next:
			got, err = p.AllocateNext(owner)
		case nearest:
			got, err = p.AllocateNear(addr(near), owner)
		default:
			got, err = p.AllocateFirst(owner)
		}
		if err != nil {
			return 0, err
		}
		return offset(got.Addr()), nil
	}
	s.counts = func(pool int) (total, used, free *big.Int) {
		return pools[pool].Total(), pools[pool].Used(), pools[pool].Free()
	}
	s.withhold = func(list []hold) error {
		var all []netip.Prefix
		for _, h := range list {
			all = append(all, prefix(h.lo, h.order))
		}
		return blocks.Withhold(all...)
	}
	return s
}

// addressing maps the numbers of the oracle to addresses.
func addressing(base string) (addr func(int) netip.Addr, offset func(netip.Addr) int) {
	start := netip.MustParseAddr(base)
	all := []netip.Addr{start}
	index := map[netip.Addr]int{start: 0}
	for n := 1; n < worldSize; n++ {
		all = append(all, all[n-1].Next())
		index[all[n]] = n
	}
	return func(n int) netip.Addr { return all[n] }, func(a netip.Addr) int { return index[a] }
}

func addressesFrom(base string) subject {
	addr, offset := addressing(base)
	family := alloc.FamilyOf(addr(0))
	addresses := alloc.NewAddresses[int]()
	pools := []*alloc.AddressPool[int]{addresses.NewPool(), addresses.NewPool()}
	s := subject{orders: []int{0, 0}, tightest: true}
	s.reserve = func(h hold) error { return addresses.Reserve(addr(h.lo), h.owner) }
	s.release = func(h hold) bool { return addresses.Release(addr(h.lo), h.owner) }
	s.ownerOf = func(lo, _ int) (int, bool) { return addresses.OwnerOf(addr(lo)) }
	s.all = func() (all []hold) {
		for a, owner := range addresses.All() {
			all = append(all, hold{offset(a), 0, owner})
		}
		return all
	}
	s.set = func(pool int, ranges []oracleRange) error {
		var list []alloc.AddressRange
		for _, r := range ranges {
			list = append(list, alloc.AddressRange{IPRange: netipx.IPRangeFrom(addr(r.lo), addr(r.hi)), ReserveEdges: r.edges})
		}
		return pools[pool].Set(list...)
	}
	s.allocate = func(pool int, h hold) error { return pools[pool].Allocate(addr(h.lo), h.owner) }
	s.choose = func(pool int, how preference, near, owner int) (lo int, err error) {
		var got netip.Addr
		switch p := pools[pool]; how {
		case first:
			got, err = p.AllocateFirst(family, owner)
		case next:
			got, err = p.AllocateNext(family, owner)
		case nearest:
			got, err = p.AllocateNear(addr(near), owner)
		default:
			got, err = p.AllocateTightest(family, owner)
		}
		return offset(got), err
	}
	s.counts = func(pool int) (total, used, free *big.Int) {
		return pools[pool].Total(), pools[pool].Used(), pools[pool].Free()
	}
	return s
}

func numbersFrom[N alloc.Unsigned](base N) subject {
	numbers := alloc.NewNumbers[N, int]()
	pools := []*alloc.NumberPool[N, int]{numbers.NewPool(), numbers.NewPool()}
	s := subject{orders: []int{0, 0}}
	s.reserve = func(h hold) error { return numbers.Reserve(base+N(h.lo), h.owner) }
	s.release = func(h hold) bool { return numbers.Release(base+N(h.lo), h.owner) }
	s.ownerOf = func(lo, _ int) (int, bool) { return numbers.OwnerOf(base + N(lo)) }
	s.all = func() (all []hold) {
		for n, owner := range numbers.All() {
			all = append(all, hold{int(n - base), 0, owner})
		}
		return all
	}
	s.set = func(pool int, ranges []oracleRange) error {
		var list []alloc.NumberRange[N]
		for _, r := range ranges {
			list = append(list, alloc.NumberRange[N]{First: base + N(r.lo), Last: base + N(r.hi)})
		}
		return pools[pool].Set(list...)
	}
	s.allocate = func(pool int, h hold) error { return pools[pool].Allocate(base+N(h.lo), h.owner) }
	s.choose = func(pool int, how preference, near, owner int) (lo int, err error) {
		var got N
		switch p := pools[pool]; how {
		case next:
			got, err = p.AllocateNext(owner)
		case nearest:
			got, err = p.AllocateNear(base+N(near), owner)
		default:
			got, err = p.AllocateFirst(owner)
		}
		return int(got - base), err
	}
	s.counts = func(pool int) (total, used, free *big.Int) {
		return pools[pool].Total(), pools[pool].Used(), pools[pool].Free()
	}
	s.pick = func(pool int, index func(uint64) uint64) (int, error) {
		got, err := pools[pool].Pick(index)
		return int(got - base), err
	}
	return s
}

// refusalOf names an error.
func refusalOf(err error) string {
	for name, target := range map[string]error{
		"full": alloc.ErrFull, "no range": alloc.ErrNoRange, "out of range": alloc.ErrOutOfRange, "withheld": alloc.ErrWithheld,
		"taken": alloc.ErrTaken, "overlap": alloc.ErrOverlap,
	} {
		if errors.Is(err, target) {
			return name
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// ownersOf are the owner that asked and the one that has it, of a TakenError.
func ownersOf(err error) (owner, by int) {
	var block *alloc.TakenError[netip.Prefix, int]
	var addr *alloc.TakenError[netip.Addr, int]
	var number *alloc.TakenError[alloc.Number, int]
	switch {
	case errors.As(err, &block):
		return block.Owner, block.By
	case errors.As(err, &addr):
		return addr.Owner, addr.By
	case errors.As(err, &number):
		return number.Owner, number.By
	}
	return 0, 0
}

// history is a run of operations on a subject and the oracle.
type history struct {
	subject
	oracle oracle
	choice func(n int) int // a number below n
	log    []string
}

// step does one operation on both and returns how they differ, "" if they do not.
func (h *history) step() string {
	pool, owner := h.choice(len(h.orders)), 1+h.choice(4)
	order := h.choice(h.maxOrder + 1)
	lo := h.choice(worldSize) >> order << order
	at := hold{lo, order, owner}
	switch op := h.choice(16); op {
	case 0, 1:
		return h.differs(fmt.Sprintf("Reserve %v", at), h.oracle.reserve(at), 0, h.reserve(at))
	case 2, 3, 4, 5:
		if all := h.oracle.all(); len(all) > 0 && h.choice(8) > 0 {
			at = all[h.choice(len(all))]
		}
		if want, got := h.oracle.release(at), h.release(at); got != want {
			return fmt.Sprintf("Release %v is %t, want %t", at, got, want)
		}
	case 6:
		ranges := h.ranges(pool)
		return h.differs(fmt.Sprintf("Set pool %d to %v", pool, ranges), h.oracle.set(pool, ranges), 0, h.set(pool, ranges))
	case 7, 8:
		return h.differs(fmt.Sprintf("Allocate of pool %d %v", pool, at), h.oracle.allocate(pool, at), 0, h.allocate(pool, at))
	case 9:
		if h.withhold != nil {
			return h.withholdSome()
		}
		if h.pick != nil {
			return h.pickOne(pool)
		}
	default:
		how := preference(h.choice(int(preferences)))
		if how == tightest && !h.tightest {
			how = next
		}
		near := h.choice(worldSize)
		got, err := h.choose(pool, how, near, owner)
		return h.differs(fmt.Sprintf("choice of pool %d by %d near %d for %d", pool, how, near, owner), h.oracle.choose(pool, how, near, owner), got, err)
	}
	return ""
}

func (h *history) differs(what string, want answer, lo int, err error) string {
	h.log = append(h.log, what)
	got := answer{lo: lo, refusal: refusalOf(err)}
	if got.refusal != "" {
		got.lo = 0
	}
	if owner, by := ownersOf(err); by != want.by.owner || owner != want.owner {
		return fmt.Sprintf("%s: asked by %d, taken by %d, want %d, %v", what, owner, by, want.owner, want.by)
	}
	want.owner, want.by = 0, hold{}
	if got != want {
		return fmt.Sprintf("%s: %+v (%v), want %+v", what, got, err, want)
	}
	return ""
}

// ranges are those of a pool, changed a little.
func (h *history) ranges(pool int) (ranges []oracleRange) {
	ranges = slices.Clone(h.oracle.pools[pool].ranges)
	if len(ranges) > 0 && h.choice(3) > 0 {
		i := h.choice(len(ranges))
		ranges = slices.Delete(ranges, i, i+1)
	}
	for range h.choice(3) {
		var r oracleRange
		if h.maxOrder > 0 { // CIDRs
			order := h.oracle.pools[pool].order + h.choice(9-h.oracle.pools[pool].order)
			r.lo = h.choice(worldSize) >> order << order
			r.hi = r.lo + 1<<order - 1
		} else {
			r.lo = h.choice(worldSize)
			r.hi = r.lo + h.choice(worldSize-r.lo)
			r.edges = h.tightest && h.choice(2) == 0
		}
		ranges = slices.Insert(ranges, h.choice(len(ranges)+1), r)
	}
	if len(ranges) > 0 && h.choice(4) == 0 { // the same again
		ranges = append(ranges, ranges[h.choice(len(ranges))])
		ranges[len(ranges)-1].edges = ranges[slices.IndexFunc(ranges, func(r oracleRange) bool { return r.lo == ranges[len(ranges)-1].lo })].edges
	}
	return ranges
}

func (h *history) withholdSome() string {
	h.oracle.withheld = [worldSize]bool{}
	var list []hold
	for range h.choice(5) {
		order := h.choice(6)
		w := hold{h.choice(worldSize) >> order << order, order, 0}
		list = append(list, w)
		for n := w.lo; n <= w.hi(); n++ {
			h.oracle.withheld[n] = true
		}
	}
	return h.differs(fmt.Sprintf("Withhold %v", list), answer{}, 0, h.withhold(list))
}

func (h *history) pickOne(pool int) string {
	index := h.choice(worldSize)
	want := h.oracle.pick(pool, func(of int) int { return index % of })
	lo, err := h.pick(pool, func(of uint64) uint64 { return uint64(index) % of })
	return h.differs(fmt.Sprintf("Pick %d of pool %d", index, pool), want, lo, err)
}

// check compares what can be asked for.
func (h *history) check() string {
	pool, order := h.choice(len(h.orders)), h.choice(h.maxOrder+1)
	lo := h.choice(worldSize) >> order << order
	owner, held := h.ownerOf(lo, order)
	if by := h.oracle.held[lo]; held != (by != nil && by.lo == lo && by.order == order) || held && owner != by.owner {
		return fmt.Sprintf("the owner of %d of order %d is %d, %t", lo, order, owner, held)
	}
	total, free := h.oracle.counts(pool)
	gotTotal, gotUsed, gotFree := h.counts(pool)
	if want, got := fmt.Sprint(total, total-free, free), fmt.Sprint(gotTotal, gotUsed, gotFree); got != want {
		return fmt.Sprintf("pool %d has total, used, free %s, want %s", pool, got, want)
	}
	if h.choice(16) == 0 && !slices.Equal(h.all(), h.oracle.all()) {
		return fmt.Sprintf("held are %v, want %v", h.all(), h.oracle.all())
	}
	return ""
}

func newHistory(s subject, choice func(int) int) *history {
	h := &history{subject: s, choice: choice}
	for _, order := range s.orders {
		h.oracle.pools = append(h.oracle.pools, &oraclePool{order: order})
	}
	return h
}

func (h *history) run(t *testing.T, operations int) {
	t.Helper()
	for range operations {
		wrong := h.step()
		if wrong == "" {
			wrong = h.check()
		}
		if wrong != "" {
			t.Fatalf("%s\nranges: %+v\nafter\n  %s", wrong, h.poolRanges(), strings.Join(h.log, "\n  "))
		}
	}
}

func (h *history) poolRanges() (all [][]oracleRange) {
	for _, p := range h.oracle.pools {
		all = append(all, p.ranges)
	}
	return all
}

// TestAgainstABitmap holds each kind against an oracle that searches a bitmap, in many random histories. SKEP_SOAK makes
// that 1,000,000 operations of each; a failure prints the seed, and SKEP_SEED repeats it.
func TestAgainstABitmap(t *testing.T) {
	const operations = 500 // of a history: after it the pools are as new
	histories := uint64(4)
	if seedtest.Soak() {
		histories = 2000
	}
	start := uint64(0)
	if text := os.Getenv("SKEP_SEED"); text != "" {
		var err error
		if start, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		histories = 1
	}
	for name, make := range subjects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := start; seed < start+histories; seed++ {
				h := newHistory(make(), rand.New(rand.NewPCG(seed, 0)).IntN)
				h.log = []string{fmt.Sprintf("SKEP_SEED=%d", seed)}
				h.run(t, operations)
			}
		})
	}
}

// FuzzHistory is the same with histories from bytes.
func FuzzHistory(f *testing.F) {
	names := make([]string, 0, len(subjects))
	for name := range subjects {
		names = append(names, name)
	}
	slices.Sort(names)
	for seed := range uint64(len(names)) {
		bytes := make([]byte, 300)
		r := rand.New(rand.NewPCG(seed, 1))
		for i := range bytes {
			bytes[i] = byte(r.Uint32())
		}
		f.Add(uint8(seed), bytes)
	}
	f.Fuzz(func(t *testing.T, kind uint8, bytes []byte) {
		choice := func(n int) int {
			if len(bytes) == 0 {
				return 0
			}
			b := bytes[0]
			bytes = bytes[1:]
			return int(b) % n
		}
		h := newHistory(subjects[names[int(kind)%len(names)]](), choice)
		for len(bytes) > 0 {
			h.run(t, 1)
		}
	})
}
