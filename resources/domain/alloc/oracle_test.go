// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc_test

import "slices"

// worldSize is how many numbers the oracle has.
const worldSize = 256

// oracle is the promises of the package in their simplest form: an entry for each number, and searches one by one.
type oracle struct {
	held     [worldSize]*hold
	withheld [worldSize]bool
	pools    []*oraclePool
}

// hold is an aligned block that is held.
type hold struct{ lo, order, owner int }

func (h hold) hi() int { return h.lo + 1<<h.order - 1 }

type oraclePool struct {
	order  int // of blocks
	ranges []oracleRange
}

type oracleRange struct {
	lo, hi int
	edges  bool
	cursor int
}

// usable is the numbers of a range that are allocated.
func (r oracleRange) usable(n int) bool {
	if r.edges && r.hi-r.lo >= 2 && (n == r.lo || n == r.hi) {
		return false
	}
	return r.lo <= n && n <= r.hi
}

func (o *oracle) reserve(h hold) answer {
	for n := h.lo; n <= h.hi(); n++ {
		switch by := o.held[n]; {
		case by == nil:
		case *by == h:
			return answer{}
		default:
			return answer{refusal: "taken", owner: h.owner, by: *by}
		}
	}
	for n := h.lo; n <= h.hi(); n++ {
		o.held[n] = &h
	}
	return answer{}
}

func (o *oracle) release(h hold) bool {
	if by := o.held[h.lo]; by == nil || *by != h {
		return false
	}
	for n := h.lo; n <= h.hi(); n++ {
		o.held[n] = nil
	}
	return true
}

func (o *oracle) all() (all []hold) {
	for n, h := range o.held {
		if h != nil && h.lo == n {
			all = append(all, *h)
		}
	}
	return all
}

// set replaces the ranges of a pool.
func (o *oracle) set(pool int, ranges []oracleRange) answer {
	p := o.pools[pool]
	same := func(r oracleRange) func(oracleRange) bool {
		return func(s oracleRange) bool { return r.lo == s.lo && r.hi == s.hi }
	}
	var after []oracleRange
	for _, before := range p.ranges {
		if i := slices.IndexFunc(ranges, same(before)); i >= 0 {
			before.edges = ranges[i].edges
			after = append(after, before)
		}
	}
	for _, r := range ranges {
		if r.cursor = r.lo; !slices.ContainsFunc(after, same(r)) {
			after = append(after, r)
		}
	}
	for i, r := range after {
		for _, s := range after[:i] {
			if r.lo <= s.hi && s.lo <= r.hi {
				return answer{refusal: "overlap"}
			}
		}
	}
	p.ranges = after
	return answer{}
}

// isFree reports whether the block of a pool at lo can be allocated from a range.
func (o *oracle) isFree(p *oraclePool, r oracleRange, lo int) bool {
	for n := lo; n < lo+1<<p.order; n++ {
		if !r.usable(n) || o.held[n] != nil || o.withheld[n] {
			return false
		}
	}
	return lo%(1<<p.order) == 0
}

func (o *oracle) freeOf(p *oraclePool, r oracleRange) (free []int) {
	for lo := r.lo; lo <= r.hi; lo++ {
		if o.isFree(p, r, lo) {
			free = append(free, lo)
		}
	}
	return free
}

// allocate allocates the block at lo, of any order.
func (o *oracle) allocate(pool int, h hold) answer {
	i := slices.IndexFunc(o.pools[pool].ranges, func(r oracleRange) bool { return r.lo <= h.lo && h.hi() <= r.hi })
	if i < 0 {
		return answer{refusal: "out of range"}
	}
	usable := true
	for n := h.lo; n <= h.hi(); n++ {
		if by := o.held[n]; by != nil {
			return answer{refusal: "taken", owner: h.owner, by: *by}
		}
		usable = usable && o.pools[pool].ranges[i].usable(n) && !o.withheld[n]
	}
	if !usable {
		return answer{refusal: "withheld"}
	}
	return o.reserve(h)
}

// choose allocates a block of a pool.
func (o *oracle) choose(pool int, how preference, near, owner int) answer {
	p := o.pools[pool]
	if len(p.ranges) == 0 {
		return answer{refusal: "no range"}
	}
	found := -1
	for i := range p.ranges {
		r := &p.ranges[i]
		free := o.freeOf(p, *r)
		switch {
		case len(free) == 0 || found >= 0 && how != nearest:
		case how == first:
			found = free[0]
		case how == tightest:
			found = tightestOf(free)
		case how == nearest:
			for _, lo := range free {
				if near := near >> p.order << p.order; found < 0 || distance(lo, near) < distance(found, near) || distance(lo, near) == distance(found, near) && lo < found {
					found = lo
				}
			}
		case how == next:
			found = free[0]
			if i := slices.IndexFunc(free, func(lo int) bool { return lo >= r.cursor }); i >= 0 {
				found = free[i]
			}
			if r.cursor = found + 1<<p.order; r.cursor > r.hi {
				r.cursor = r.lo
			}
		}
	}
	if found < 0 {
		return answer{refusal: "full"}
	}
	o.reserve(hold{found, p.order, owner})
	return answer{lo: found}
}

// tightestOf is the first number of the shortest run.
func tightestOf(free []int) int {
	best, size := 0, worldSize+1
	for i := 0; i < len(free); {
		end := i + 1
		for end < len(free) && free[end] == free[end-1]+1 {
			end++
		}
		if end-i < size {
			best, size = free[i], end-i
		}
		i = end
	}
	return best
}

func distance(a, b int) int { return max(a-b, b-a) }

// counts are the total and the free blocks of a pool.
func (o *oracle) counts(pool int) (total, free int) {
	p := o.pools[pool]
	for _, r := range p.ranges {
		total += (r.hi - r.lo + 1) >> p.order
		free += len(o.freeOf(p, r))
	}
	return total, free
}

// pick is the index-th free number of a pool.
func (o *oracle) pick(pool int, index func(of int) int) answer {
	p := o.pools[pool]
	if len(p.ranges) == 0 {
		return answer{refusal: "no range"}
	}
	var free []int
	for _, r := range p.ranges {
		free = append(free, o.freeOf(p, r)...)
	}
	if len(free) == 0 {
		return answer{refusal: "full"}
	}
	return answer{lo: free[index(len(free))]}
}
