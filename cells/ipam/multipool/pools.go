// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/domain/cidr"
)

// observedPool is the state of a CiliumPodIPPool. A family that it does not have is nil.
type observedPool struct {
	Name      string
	UID       string
	Created   time.Time
	Families  [2]*familySpec
	Ends      ends
	Undecoded string // why Families is not complete, "" if it is
}

// pool is a CiliumPodIPPool, and the spec that is in effect: the last one without a problem.
type pool struct {
	observedPool
	blocks  [2]*alloc.BlockPool[string] // nil: it has no CIDR of this family
	ends    ends                        // in effect
	listed  []netip.Prefix              // the CIDRs of the object, in effect or not
	problem poolProblem                 // why the object is not in effect
}

// poolProblem is why a spec is not in effect. The zero poolProblem is none.
type poolProblem struct {
	text     string
	overlaps bool // with another pool
}

// inEffect reports whether the pool has any spec that is in effect.
func (p *pool) inEffect() bool { return p.blocks[alloc.IPv4] != nil || p.blocks[alloc.IPv6] != nil }

// exists reports whether CIDRs can be part of the pool.
func (p *pool) exists() bool { return p.inEffect() || len(p.listed) > 0 }

// contains reports whether a CIDR is part of the pool, of its object or of the spec in effect: nodes must not be reported
// for a mistake in the object.
func (p *pool) contains(c netip.Prefix) bool {
	b := p.blocks[alloc.FamilyOf(c.Addr())]
	return b != nil && b.Contains(c) || slices.ContainsFunc(p.listed, func(of netip.Prefix) bool { return cidr.Contains(of, c) })
}

// couldAllocate reports whether a CIDR is part of the pool and at most a block.
func (p *pool) couldAllocate(c netip.Prefix) bool {
	b := p.blocks[alloc.FamilyOf(c.Addr())]
	return b != nil && c.Bits() >= b.Bits() && b.Contains(c)
}

// setPool records the state of a pool. It returns the nodes to reconcile.
func (a *allocator) setPool(o observedPool) []string {
	p := a.pools[o.Name]
	if p == nil || p.UID != o.UID {
		p = &pool{}
		a.pools[o.Name] = p
	}
	p.observedPool = o
	p.listed = p.parsable()
	if !a.synced {
		return nil
	}
	a.applySpec(p)
	return a.poolsChanged(o.Name)
}

// removePool removes a deleted pool. What nodes hold of it stays held. It returns the nodes to reconcile.
func (a *allocator) removePool(name string) []string {
	delete(a.pools, name)
	if !a.synced {
		return nil
	}
	return a.poolsChanged(name)
}

// poolsChanged retries pools with a problem, which may have ended, and reconciles the nodes that use a pool that changed.
func (a *allocator) poolsChanged(names ...string) []string {
	for again := true; again; {
		again = false
		for _, p := range a.poolsByAge() {
			if p.problem.overlaps && !slices.Contains(names, p.Name) {
				if a.applySpec(p); !p.problem.overlaps {
					names, again = append(names, p.Name), true
				}
			}
		}
	}
	a.changes++
	a.edits++
	users := slices.DeleteFunc(slices.SortedFunc(maps.Values(a.nodes), oldestFirst), func(n *node) bool {
		return !a.dropImplausible(n) && !n.usesAny(names)
	})
	for _, n := range users { // before anything is allocated
		a.adopt(n)
	}
	changed := a.retryPending()
	for _, n := range users {
		a.serve(n)
		changed = append(changed, n.Name)
	}
	return a.toReconcile(append(changed, a.retryPending()...))
}

func (n *node) usesAny(pools []string) bool {
	for _, h := range n.held {
		if slices.Contains(pools, h.pool) {
			return true
		}
	}
	for _, e := range n.listed {
		if slices.Contains(pools, e.pool) {
			return true
		}
	}
	for _, r := range n.Requested {
		if slices.Contains(pools, r.Pool) {
			return true
		}
	}
	return false
}

// poolsByAge are the pools, the oldest first. Of two that overlap the older one is in effect after a restart.
func (a *allocator) poolsByAge() []*pool {
	return slices.SortedFunc(maps.Values(a.pools), func(p, q *pool) int {
		return cmp.Or(p.Created.Compare(q.Created), cmp.Compare(p.Name, q.Name))
	})
}

// applySpec puts the object of a pool into effect, as a whole or not at all.
func (a *allocator) applySpec(p *pool) {
	next, problem := a.checkSpec(p)
	p.problem = problem
	if problem.text != "" {
		return
	}
	p.ends = p.Ends
	for family, b := range next {
		if b != nil && p.blocks[family] != nil {
			_ = p.blocks[family].Set(b.CIDRs()...) // as checked; it keeps the place in each CIDR
			continue
		}
		p.blocks[family] = b
	}
}

// checkSpec returns what the object of a pool says, or why it cannot be in effect.
func (a *allocator) checkSpec(p *pool) (next [2]*alloc.BlockPool[string], problem poolProblem) {
	if p.Undecoded != "" {
		return next, poolProblem{text: p.Undecoded}
	}
	if changed := p.ends.changed(p.Ends); changed != "" && p.inEffect() {
		return next, poolProblem{text: fmt.Sprintf("cannot change %s in existing pool %q", changed, p.Name)}
	}
	for family, spec := range p.Families {
		if spec == nil || len(spec.CIDRs) == 0 {
			continue
		}
		b, err := a.checkFamily(p, alloc.Family(family), *spec)
		if err != nil {
			return next, poolProblem{text: err.Error()}
		}
		if text := a.overlapOf(p, b); text != "" {
			return next, poolProblem{text: text, overlaps: true}
		}
		next[family] = b
	}
	return next, poolProblem{}
}

func (a *allocator) checkFamily(p *pool, family alloc.Family, spec familySpec) (*alloc.BlockPool[string], error) {
	bits := []int64{32, 128}[family]
	if spec.MaskSize < 1 || spec.MaskSize > bits {
		return nil, fmt.Errorf("%s mask size %d must be between 1 and %d", family, spec.MaskSize, bits)
	}
	if now := p.blocks[family]; now != nil && int64(now.Bits()) != spec.MaskSize {
		return nil, fmt.Errorf("cannot change %s mask size in existing pool %q", family, p.Name)
	}
	var cidrs []netip.Prefix
	for _, text := range spec.CIDRs {
		c, ok := cidr.Parse(text)
		switch {
		case !ok:
			return nil, fmt.Errorf("invalid CIDR address: %s", text)
		case alloc.FamilyOf(c.Addr()) != family:
			return nil, fmt.Errorf("CIDR is not v%s family: %s", family.String()[3:], text)
		case c.Bits() == 0:
			return nil, fmt.Errorf("CIDR %s is all %s addresses", c, family)
		case int64(c.Bits()) > spec.MaskSize:
			return nil, fmt.Errorf("%s mask size %d must be at least %d: a block fits into %s", family, spec.MaskSize, c.Bits(), c)
		}
		cidrs = append(cidrs, c)
	}
	b, err := a.blocks.NewPool(family, int(spec.MaskSize))
	if err != nil {
		return nil, err
	}
	err = b.Set(cidrs...)
	if overlap := new(alloc.OverlapError[netip.Prefix]); errors.As(err, &overlap) {
		return nil, fmt.Errorf("requested CIDR %s collides with %s", overlap.Range, overlap.With)
	}
	return b, err
}

// overlapOf says which other pool in effect has a part of this one, "" if none has.
func (a *allocator) overlapOf(p *pool, b *alloc.BlockPool[string]) string {
	for _, other := range a.poolsByAge() {
		if q := other.blocks[b.Family()]; other != p && q != nil {
			if own, its, overlaps := b.Overlap(q); overlaps {
				return fmt.Sprintf("requested CIDR %s collides with %s of pool %q", own, its, other.Name)
			}
		}
	}
	return ""
}

// parsable are the CIDRs of the object that can be parsed and are not too large to be believed.
func (p *pool) parsable() (cidrs []netip.Prefix) {
	for _, spec := range p.Families {
		if spec == nil {
			continue
		}
		for _, text := range spec.CIDRs {
			if c, ok := cidr.Parse(text); ok && c.Bits() > 0 {
				cidrs = append(cidrs, c)
			}
		}
	}
	return cidrs
}
