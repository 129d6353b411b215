// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
)

// observed is what is known of a CiliumNode.
type observed struct {
	Name     string
	UID      string
	Created  time.Time
	Deleting bool
	PodCIDRs []string
	Error    string // as written on the node
}

// desired is what a CiliumNode should say.
type desired struct {
	// PodCIDRs are to be written, or nil: what the node has stays.
	PodCIDRs []string
	Error    string
}

// allocator gives out blocks. It is not safe for concurrent use.
//
// Before begin it only collects: a block that some node has must not be given
// to another because its node was not seen yet.
type allocator struct {
	pools   [2][]*pool // IPv4, IPv6
	nodes   map[string]*node
	begun   bool
	starved []string // nodes with an error, the one that waits longest first
}

// node is a CiliumNode with what it holds.
type node struct {
	observed
	holds []netip.Prefix // IPv4 first; none: it waits, or has an error
	err   string
}

func newAllocator(c Config, shared cluster.Config) (*allocator, error) {
	a := &allocator{nodes: map[string]*node{}}
	var errs [2]error
	for i, f := range families(c, shared) {
		a.pools[i], errs[i] = f.pools()
	}
	return a, errors.Join(errs[:]...)
}

// begin ends collecting. It returns the nodes to look at: all.
func (a *allocator) begin() []string {
	a.begun = true
	order := make([]*node, 0, len(a.nodes))
	for _, n := range a.nodes {
		order = append(order, n)
	}
	slices.SortFunc(order, oldestFirst)
	for _, n := range order { // what nodes have comes before what they want
		if len(n.PodCIDRs) > 0 {
			n.err = a.adopt(n)
		}
	}
	names := make([]string, len(order))
	for i, n := range order {
		a.settle(n)
		names[i] = n.Name
	}
	return names
}

func oldestFirst(a, b *node) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// upsert takes note of a node as it is now. It returns the nodes to look at.
func (a *allocator) upsert(o observed) []string {
	n := a.nodes[o.Name]
	switch {
	case o.Deleting:
		return a.remove(o.Name)
	case n != nil && n.UID != o.UID: // another node of the same name
		names := a.remove(o.Name)
		return append(names, a.upsert(o)...)
	case n == nil:
		n = &node{observed: o}
		a.nodes[o.Name] = n
	default:
		n.observed = o
	}
	if !a.begun {
		return nil
	}
	a.settle(n)
	return []string{o.Name}
}

// remove forgets a node and frees its blocks. It returns the nodes to look at:
// those that got what they waited for.
func (a *allocator) remove(name string) []string {
	n := a.nodes[name]
	if n == nil {
		return nil
	}
	delete(a.nodes, name)
	a.starved = slices.DeleteFunc(a.starved, func(s string) bool { return s == name })
	if len(n.holds) == 0 {
		return nil
	}
	a.release(n.holds)
	var served []string
	for _, waiting := range slices.Clone(a.starved) {
		w := a.nodes[waiting]
		before := w.err
		a.settle(w)
		if w.err != before {
			served = append(served, waiting)
		}
	}
	return served
}

// desired is what a node should say; ok is false for a node that is not known,
// or while collecting.
func (a *allocator) desired(name string) (d desired, ok bool) {
	n := a.nodes[name]
	if n == nil || !a.begun {
		return desired{}, false
	}
	d.Error = n.err
	if n.err == "" {
		if texts := prefixTexts(n.holds); !a.within(n.PodCIDRs, n.holds) || len(a.missing(n.PodCIDRs)) > 0 {
			d.PodCIDRs = texts
		}
	}
	return d, true
}

// content reports whether a node says what it should, or is none of ours.
func (a *allocator) content(name string) bool {
	d, ok := a.desired(name)
	return !ok || d.PodCIDRs == nil && d.Error == a.nodes[name].Error
}

// outside counts nodes whose CIDRs are not of the pools.
func (a *allocator) outside() int {
	n := 0
	for _, node := range a.nodes {
		if strings.HasPrefix(node.err, errNotConfigured) {
			n++
		}
	}
	return n
}

const errNotConfigured = "allocator not configured for the requested CIDR "

// settle brings what a node holds in line with what it says, and gives it what
// it lacks.
func (a *allocator) settle(n *node) {
	n.err = a.trySettle(n)
	waits := slices.Contains(a.starved, n.Name)
	switch {
	case n.err != "" && !waits:
		a.starved = append(a.starved, n.Name)
	case n.err == "" && waits:
		a.starved = slices.DeleteFunc(a.starved, func(s string) bool { return s == n.Name })
	}
}

func (a *allocator) trySettle(n *node) string {
	if len(n.holds) == 0 && len(n.PodCIDRs) > 0 {
		if err := a.adopt(n); err != "" {
			return err
		}
	}
	if len(n.PodCIDRs) > 0 && !a.within(n.PodCIDRs, n.holds) {
		return fmt.Sprintf("node has CIDRs allocated (%s) that conflict with requested CIDRs %s", prefixTexts(n.holds), n.PodCIDRs)
	}
	return a.complete(n)
}

// adopt reserves what a node that holds nothing says it has.
func (a *allocator) adopt(n *node) string {
	if len(n.holds) > 0 {
		return ""
	}
	var cidrs []netip.Prefix
	for _, text := range n.PodCIDRs {
		c, err := netip.ParsePrefix(text)
		if err != nil {
			return "invalid CIDR address: " + text
		}
		cidrs = append(cidrs, c.Masked())
	}
	for i, c := range cidrs {
		if err := a.occupy(c); err != "" {
			a.release(cidrs[:i])
			return err
		}
	}
	n.holds = sorted(cidrs)
	return ""
}

// occupy reserves a CIDR that is in use already.
func (a *allocator) occupy(c netip.Prefix) string {
	pools := a.pools[familyOf(c)]
	if len(pools) == 0 {
		return fmt.Sprintf("unable to allocate CIDR [%s] since allocator for %s addresses does not exist", c, familyNames[familyOf(c)])
	}
	var touched []*pool
	for _, p := range pools {
		if !p.prefix.Overlaps(c) {
			continue
		}
		if p.full() {
			return fmt.Sprintf("allocator %s full", p)
		}
		if p.taken(c) {
			return fmt.Sprintf("requested CIDR (%s) is already allocated", c)
		}
		touched = append(touched, p)
	}
	if len(touched) == 0 {
		return errNotConfigured + c.String()
	}
	for _, p := range touched {
		p.occupy(c)
	}
	return ""
}

// complete gives a node a block of each family that it lacks: all or none.
func (a *allocator) complete(n *node) string {
	lacks := a.missingFamilies(n.holds)
	if len(n.holds) == 0 && len(lacks) == 0 {
		return fmt.Sprintf("Unable to allocate node CIDR for node %s. IPAMInfo: {IPv4: [], IPv6: []}. Please check that your configuration is correct.", n.Name)
	}
	var given []netip.Prefix
	for _, family := range lacks {
		i := slices.IndexFunc(a.pools[family], func(p *pool) bool { return !p.full() })
		if i < 0 {
			a.release(given)
			return "allocator full"
		}
		given = append(given, a.pools[family][i].next())
	}
	n.holds = sorted(append(n.holds, given...))
	return ""
}

func (a *allocator) release(cidrs []netip.Prefix) {
	for _, c := range cidrs {
		for _, p := range a.pools[familyOf(c)] {
			if p.prefix.Overlaps(c) {
				p.release(c)
			}
		}
	}
}

// within reports whether each of the texts is a CIDR inside one that is held,
// and there is one.
func (a *allocator) within(texts []string, holds []netip.Prefix) bool {
	for _, text := range texts {
		c, err := netip.ParsePrefix(text)
		if err != nil || !slices.ContainsFunc(holds, func(h netip.Prefix) bool { return h.Bits() <= c.Bits() && h.Overlaps(c) }) {
			return false
		}
	}
	return len(texts) > 0
}

// missing are the families that texts have no CIDR of although there are pools.
func (a *allocator) missing(texts []string) []int {
	var cidrs []netip.Prefix
	for _, text := range texts {
		if c, err := netip.ParsePrefix(text); err == nil {
			cidrs = append(cidrs, c)
		}
	}
	return a.missingFamilies(cidrs)
}

func (a *allocator) missingFamilies(cidrs []netip.Prefix) []int {
	var missing []int
	for family, pools := range a.pools {
		has := slices.ContainsFunc(cidrs, func(c netip.Prefix) bool { return familyOf(c) == family })
		if len(pools) > 0 && !has {
			missing = append(missing, family)
		}
	}
	return missing
}

var familyNames = [2]string{"IPv4", "IPv6"}

func familyOf(c netip.Prefix) int {
	if c.Addr().Is4() {
		return 0
	}
	return 1
}

// sorted puts IPv4 before IPv6 and keeps the order otherwise.
func sorted(cidrs []netip.Prefix) []netip.Prefix {
	slices.SortStableFunc(cidrs, func(a, b netip.Prefix) int { return familyOf(a) - familyOf(b) })
	return cidrs
}

func prefixTexts(cidrs []netip.Prefix) []string {
	texts := make([]string, len(cidrs))
	for i, c := range cidrs {
		texts[i] = c.String()
	}
	return texts
}
