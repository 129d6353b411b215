// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// pool is a CiliumLoadBalancerIPPool.
type pool struct {
	name    string
	created slim.Time
	object  *poolObject // as last observed

	ranges    []alloc.AddressRange // of the blocks that are valid, in their order
	addresses *alloc.AddressPool[*lease]
	// selector is nil if it is not known.
	selector labels.Selector
	// problem is what is wrong with the spec, nil if it is valid.
	problem *problem
	// conflict is the message about a range that overlaps, "" if there is none.
	conflict string
	// full says for which families a search found no free address since one was released.
	full [2]bool
}

// problem is what is wrong with the spec of a pool: a reason of its condition, and a message.
type problem struct{ reason, message string }

// serves reports whether the pool allocates addresses.
func (p *pool) serves() bool { return p.isUsable() && p.conflict == "" && !p.object.Spec.Disabled }

// isUsable reports whether the spec says what the pool has. A block that is not valid keeps the others from nothing.
func (p *pool) isUsable() bool {
	return p.problem == nil || p.problem.reason == reasonInvalidBlock && len(p.ranges) > 0 && !p.object.CannotDecode(specPath)
}

// selects reports whether the selector of the pool matches a Service.
func (p *pool) selects(s *service) bool { return p.selector != nil && p.selector.Matches(s.labels()) }

// maySelect is true also if the selector is not known.
func (p *pool) maySelect(s *service) bool { return p.selector == nil || p.selector.Matches(s.labels()) }

// covers reports whether an address lies in a range of the pool.
func (p *pool) covers(a netip.Addr) bool { return p.addresses.Contains(a) }

// hasFamily reports whether the pool has a range of a family.
func (p *pool) hasFamily(f alloc.Family) bool { return p.addresses.Has(f) }

// set takes over the spec of a pool.
func (p *pool) set(o *poolObject) {
	p.object, p.created, p.problem, p.full = o, o.CreationTimestamp, nil, [2]bool{}
	p.setSelector()
	p.setRanges()
}

const (
	selectorPath = "spec.serviceSelector"
	specPath     = "spec"
	statusPath   = "status"
)

func (p *pool) setSelector() {
	p.selector = labels.Everything()
	if p.object.CannotDecode(selectorPath) {
		p.selector = nil // the problem is set by setRanges
		return
	}
	if s := p.object.Spec.ServiceSelector; s != nil {
		var err error
		if p.selector, err = s.AsSelector(); err != nil {
			p.selector, p.problem = nil, &problem{reasonInvalidSelector, err.Error()}
		}
	}
}

func (p *pool) setRanges() {
	p.ranges = nil
	if p.object.CannotDecode(specPath) {
		p.problem = &problem{reasonInvalidBlock, p.object.DecodeError().Error()}
	}
	for i, b := range p.object.Spec.Blocks {
		r, err := b.parse()
		switch {
		case err == nil:
			r.ReserveEdges = b.CIDR != "" && p.object.Spec.AllowFirstLastIPs.String() == "No"
			p.ranges = append(p.ranges, r)
		case p.problem == nil:
			p.problem = &problem{reasonInvalidBlock, fmt.Sprintf("block %d (%s): %v", i+1, b, err)}
		}
	}
	if p.addresses.Set(p.ranges...) != nil { // they overlap, which is a conflict
		_ = p.addresses.Set(without(p.ranges, nil)...)
	}
}

// without are the addresses of ranges that others do not have, as ranges that do not overlap.
func without(ranges, others []alloc.AddressRange) (rest []alloc.AddressRange) {
	var b netipx.IPSetBuilder
	for _, r := range ranges {
		b.AddRange(r.IPRange)
	}
	for _, r := range others {
		b.RemoveRange(r.IPRange)
	}
	set, err := b.IPSet()
	if err != nil { // of ranges that are valid there is none
		return nil
	}
	for _, r := range set.Ranges() {
		rest = append(rest, alloc.AddressRange{IPRange: r})
	}
	return rest
}

// sameSelector reports whether two selectors select the same. One that is not known is nil.
func sameSelector(a, b labels.Selector) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.String() == b.String()
}

// String is the block as the user wrote it.
func (b block) String() string {
	if b.CIDR != "" || b.Start == "" {
		return fmt.Sprintf("cidr %q", b.CIDR)
	}
	return fmt.Sprintf("%q to %q", b.Start, cmp.Or(b.Stop, b.Start))
}

var (
	errWholeFamily = errors.New("it is all addresses of a family")
	errReversed    = errors.New("the start is above the stop")
	errMixed       = errors.New("start and stop are of different families")
	errEmptyBlock  = errors.New("neither cidr nor start is set")
	errZone        = errors.New("an address with a zone is of one link only")
)

// parse returns the range of a block.
func (b block) parse() (alloc.AddressRange, error) {
	if b.CIDR != "" {
		return parseCIDR(b.CIDR)
	}
	if b.Start == "" {
		return alloc.AddressRange{}, errEmptyBlock
	}
	start, err := parseAddr(b.Start)
	if err != nil {
		return alloc.AddressRange{}, err
	}
	stop, err := parseAddr(cmp.Or(b.Stop, b.Start))
	if err != nil {
		return alloc.AddressRange{}, err
	}
	return newRange(start, stop)
}

func parseCIDR(text string) (alloc.AddressRange, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return alloc.AddressRange{}, errors.New("it is no CIDR")
	}
	if a := prefix.Addr(); a.Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
	}
	r := netipx.RangeOfPrefix(prefix.Masked())
	return newRange(r.From(), r.To())
}

func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return a, fmt.Errorf("%q is no IP address", text)
	case a.Zone() != "":
		return a, errZone
	}
	return a.Unmap(), nil
}

func newRange(start, stop netip.Addr) (alloc.AddressRange, error) {
	r := netipx.IPRangeFrom(start, stop)
	switch {
	case start.BitLen() != stop.BitLen():
		return alloc.AddressRange{}, errMixed
	case !r.IsValid():
		return alloc.AddressRange{}, errReversed
	}
	if whole, ok := r.Prefix(); ok && whole.Bits() == 0 {
		return alloc.AddressRange{}, errWholeFamily
	}
	return alloc.AddressRange{IPRange: r}, nil
}

// olderPool is the order in which pools win a conflict. Of two that were created in one second, the one that is marked already
// stays so.
func olderPool(a, b *pool) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.marked(), b.marked()), cmp.Compare(a.name, b.name))
}

// marked is 1 for a pool whose status shows a conflict, and 0 for others.
func (p *pool) marked() int {
	if slices.ContainsFunc(p.object.conditions(), func(c condition) bool { return c.Type.String() == conditionConflict && c.Status.String() == "True" }) {
		return 1
	}
	return 0
}

// findConflicts returns the message for each pool that overlaps itself or an older one. Pools that are not usable serve
// nothing, and conflict with none.
func findConflicts(pools []*pool) map[*pool]string {
	conflicts := map[*pool]string{}
	var older []*pool
	for _, p := range slices.SortedFunc(slices.Values(pools), olderPool) {
		if !p.isUsable() {
			continue
		}
		if text := p.overlap(older); text != "" {
			conflicts[p] = text
		}
		older = append(older, p)
	}
	return conflicts
}

// overlap returns the message about the first range of the pool that overlaps another of the pool, or one of an older pool.
func (p *pool) overlap(older []*pool) string {
	if i := firstOverlap(p.ranges); i >= 0 {
		return conflictMessage(p.ranges[i], firstOf(p.ranges[i+1:], p.ranges[i]), p.name)
	}
	for _, o := range older {
		covered := newCovered(o.ranges)
		for _, own := range p.ranges {
			if covered.overlaps(own) {
				return conflictMessage(own, firstOf(o.ranges, own), o.name)
			}
		}
	}
	return ""
}

// firstOf is the first of ranges that overlaps another one; there is one.
func firstOf(ranges []alloc.AddressRange, with alloc.AddressRange) alloc.AddressRange {
	return ranges[slices.IndexFunc(ranges, func(r alloc.AddressRange) bool { return r.Overlaps(with.IPRange) })]
}

// firstOverlap is the index of the first range that overlaps a later one, -1 if none does. A pool may have as many blocks as an object
// holds: each is compared with its neighbours in the order of addresses alone.
func firstOverlap(ranges []alloc.AddressRange) int {
	order := make([]int, len(ranges))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return ranges[a].From().Compare(ranges[b].From()) })
	first, furthest := -1, -1 // furthest is that of those before which ends last
	for _, i := range order {
		if furthest >= 0 && ranges[i].Overlaps(ranges[furthest].IPRange) {
			for _, found := range []int{i, furthest} {
				if first < 0 || found < first {
					first = found
				}
			}
		}
		if furthest < 0 || ranges[furthest].To().Less(ranges[i].To()) {
			furthest = i
		}
	}
	return first
}

// covered finds ranges that overlap some of many.
type covered struct {
	from []netip.Addr // in their order
	last []netip.Addr // the end of that range, or of one before, whichever is the last
}

func newCovered(ranges []alloc.AddressRange) (c covered) {
	for _, r := range slices.SortedFunc(slices.Values(ranges), func(a, b alloc.AddressRange) int { return a.From().Compare(b.From()) }) {
		last := r.To()
		if n := len(c.last); n > 0 && last.Less(c.last[n-1]) {
			last = c.last[n-1]
		}
		c.from, c.last = append(c.from, r.From()), append(c.last, last)
	}
	return c
}

func (c covered) overlaps(r alloc.AddressRange) bool {
	n, found := slices.BinarySearchFunc(c.from, r.To(), netip.Addr.Compare)
	if found {
		return true
	}
	return n > 0 && !c.last[n-1].Less(r.From())
}

func conflictMessage(own, other alloc.AddressRange, name string) string {
	return fmt.Sprintf("Pool conflicts since range '%s - %s' overlaps range '%s - %s' from IP Pool '%s'", own.From(), own.To(), other.From(), other.To(), name)
}

// sameSpec reports whether two states of a pool differ in nothing that allocation depends on.
func sameSpec(a, b *poolObject) bool {
	return a.Generation == b.Generation && a.Generation > 0 && a.UID == b.UID
}
