// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"errors"
	"fmt"
	"iter"
	"maps"
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
	served  uint64   // changes when starved nodes were served last
}

// node is a CiliumNode with what it holds.
type node struct {
	observed
	holds []netip.Prefix // IPv4 first; no block is in the holds of two nodes
	known bool           // it holds all that it said when it was seen first, or was given
	waits bool           // it is among the starved
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
	order := slices.SortedFunc(maps.Values(a.nodes), oldestFirst)
	a.settleAll(order)
	a.serve()
	names := make([]string, len(order))
	for i, n := range order {
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
	case n != nil && n.UID != o.UID:
		return a.replace(o)
	case o.Deleting && len(o.PodCIDRs) == 0 && (n == nil || len(n.holds) == 0):
		return a.remove(o.Name) // it has nothing and needs nothing
	case n == nil:
		n = &node{}
		a.nodes[o.Name] = n
	}
	n.observed = o
	if !a.begun {
		return nil
	}
	a.settle(n)
	return append(a.serve(), o.Name)
}

// replace takes note of a node in the place of another of the same name. What it says
// it has comes before what others wait for, and what it lacks after that.
func (a *allocator) replace(o observed) []string {
	a.forget(o.Name)
	n := &node{observed: o}
	a.nodes[o.Name] = n
	if a.begun {
		a.adopt(n)
	}
	return append(a.serve(), a.upsert(o)...)
}

// remove forgets a node that is gone. It returns the nodes to look at: those that
// got what they waited for.
func (a *allocator) remove(name string) []string {
	a.forget(name)
	return a.serve()
}

// forget frees the blocks of a node.
func (a *allocator) forget(name string) {
	if n := a.nodes[name]; n != nil {
		delete(a.nodes, name)
		a.starved = without(a.starved, name)
		a.release(n.holds)
	}
}

// serve gives nodes with an error another chance if any block changed hands. It
// returns those for which that changed something. The texts of errors depend on
// nothing but who has what now, so that the next leader finds the same.
func (a *allocator) serve() []string {
	if len(a.starved) == 0 || a.changes() == a.served {
		return nil
	}
	waiting := make([]*node, len(a.starved))
	before := make([]string, len(a.starved))
	for i, name := range a.starved {
		waiting[i] = a.nodes[name]
		before[i] = waiting[i].err
	}
	for last := a.used(); ; last = a.used() {
		a.settleAll(waiting)
		if a.used() == last {
			break
		}
	}
	a.served = a.changes()
	var served []string
	for i, n := range waiting {
		if n.err != before[i] {
			served = append(served, n.Name)
		}
	}
	return served
}

// used is how many blocks somebody has.
func (a *allocator) used() (n uint64) {
	for p := range a.allPools() {
		n += p.used
	}
	return n
}

// changes is how often blocks changed hands.
func (a *allocator) changes() (n uint64) {
	for p := range a.allPools() {
		n += p.changes
	}
	return n
}

func (a *allocator) allPools() iter.Seq[*pool] {
	return slices.Values(slices.Concat(a.pools[0], a.pools[1]))
}

// desired is what a node should say; ok is false for a node that is not known,
// or is going, or while collecting.
func (a *allocator) desired(name string) (d desired, ok bool) {
	n := a.nodes[name]
	if n == nil || n.Deleting || !a.begun {
		return desired{}, false
	}
	d.Error = n.err
	if lacks := a.missing(n.PodCIDRs); n.err == "" && len(lacks) > 0 {
		d.PodCIDRs = n.withFamilies(lacks)
	}
	return d, true
}

// withFamilies is what the node says, and what it holds of other families.
func (n *node) withFamilies(lacks []int) []string {
	cidrs := parsed(n.PodCIDRs)
	texts := slices.Clone(n.PodCIDRs)
	for _, h := range n.holds {
		if slices.Contains(lacks, familyOf(h)) {
			cidrs, texts = append(cidrs, h), append(texts, h.String())
		}
	}
	var ordered []string
	for family := range familyNames {
		for i, c := range cidrs {
			if familyOf(c) == family {
				ordered = append(ordered, texts[i])
			}
		}
	}
	return ordered
}

// content reports whether a node says what it should, or is none of ours.
func (a *allocator) content(name string) bool {
	d, ok := a.desired(name)
	return !ok || d.PodCIDRs == nil && d.Error == a.nodes[name].Error
}

// outside counts nodes with a CIDR that is not of the pools.
func (a *allocator) outside() int {
	return a.failing(func(err string) bool { return strings.HasPrefix(err, errNotConfigured) })
}

// duplicates counts nodes with a CIDR of which another node holds something.
func (a *allocator) duplicates() int {
	return a.failing(func(err string) bool {
		return strings.HasSuffix(err, errTaken) || strings.HasPrefix(err, errPoolFull)
	})
}

func (a *allocator) failing(how func(string) bool) int {
	n := 0
	for _, name := range a.starved {
		if how(a.nodes[name].err) {
			n++
		}
	}
	return n
}

const (
	errNotConfigured = "allocator not configured for the requested CIDR "
	errTaken         = " is already allocated"
	errPoolFull      = "allocator clusterCIDR: "
	errFull          = "allocator full"
)

// eventReason is what the Event about an error is called.
func eventReason(err string) string {
	if err == errFull || strings.HasPrefix(err, errPoolFull) {
		return "PodCIDRPoolExhausted"
	}
	return "PodCIDRRefused"
}

// settleAll settles nodes in this order. What any of them has comes before what
// another one wants.
func (a *allocator) settleAll(nodes []*node) {
	for _, n := range nodes {
		if !n.known {
			a.adopt(n)
		}
	}
	for _, n := range nodes {
		a.settle(n)
	}
}

// settle brings what a node holds in line with what it says, and gives it what
// it lacks.
func (a *allocator) settle(n *node) {
	n.err = a.trySettle(n)
	switch waits := n.err != ""; {
	case waits && !n.waits:
		a.starved = append(a.starved, n.Name)
	case !waits && n.waits:
		a.starved = without(a.starved, n.Name)
	}
	n.waits = n.err != ""
}

func (a *allocator) trySettle(n *node) string {
	if !n.known {
		if err := a.adopt(n); err != "" {
			return err
		}
	}
	if len(n.PodCIDRs) > 0 && !within(n.PodCIDRs, n.holds) {
		return fmt.Sprintf("node has CIDRs allocated (%s) that conflict with requested CIDRs %s", prefixTexts(n.holds), n.PodCIDRs)
	}
	if n.Deleting {
		return ""
	}
	return a.complete(n)
}

// adopt reserves what a node says it has, as far as no other node holds it; also
// where that is not all of it: what was given once is not given to another as
// long as somebody says to have it. The error is the first one. A node that says
// nothing any more keeps what it holds.
func (a *allocator) adopt(n *node) string {
	if len(n.PodCIDRs) == 0 && len(n.holds) > 0 {
		n.known = true
		return ""
	}
	a.release(n.holds)
	n.holds = nil
	var first string
	for _, text := range n.PodCIDRs {
		c, err := netip.ParsePrefix(text)
		failure := ""
		switch {
		case err != nil:
			failure = "invalid CIDR address: " + text
		case within([]string{text}, n.holds): // said twice
		default:
			if failure = a.occupy(c.Masked()); failure == "" {
				n.holds = append(n.holds, c.Masked())
			}
		}
		if first == "" {
			first = failure
		}
	}
	n.holds = sorted(n.holds)
	n.known = first == "" && len(n.holds) > 0
	return first
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
			return fmt.Sprintf("allocator %s full", p) // errPoolFull
		}
		if p.taken(c) {
			return fmt.Sprintf("requested CIDR (%s)", c) + errTaken
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
	var from []*pool
	for _, family := range lacks {
		i := slices.IndexFunc(a.pools[family], func(p *pool) bool { return !p.full() })
		if i < 0 {
			return errFull
		}
		from = append(from, a.pools[family][i])
	}
	for _, p := range from {
		n.holds = append(n.holds, p.next())
	}
	n.holds = sorted(n.holds)
	n.known = true
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
func within(texts []string, holds []netip.Prefix) bool {
	for _, text := range texts {
		c, err := netip.ParsePrefix(text)
		if err != nil || !slices.ContainsFunc(holds, func(h netip.Prefix) bool { return h.Bits() <= c.Bits() && h.Overlaps(c) }) {
			return false
		}
	}
	return len(texts) > 0
}

// missing are the families that texts have no CIDR of although there are pools.
func (a *allocator) missing(texts []string) []int { return a.missingFamilies(parsed(texts)) }

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

// parsed are those of the texts that are CIDRs.
func parsed(texts []string) []netip.Prefix {
	var cidrs []netip.Prefix
	for _, text := range texts {
		if c, err := netip.ParsePrefix(text); err == nil {
			cidrs = append(cidrs, c)
		}
	}
	return cidrs
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return n == name })
}

func prefixTexts(cidrs []netip.Prefix) []string {
	texts := make([]string, len(cidrs))
	for i, c := range cidrs {
		texts[i] = c.String()
	}
	return texts
}
