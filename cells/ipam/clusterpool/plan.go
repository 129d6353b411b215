// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/domain/cidr"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/printable"
)

// observed is the state of a CiliumNode, as far as the allocator needs it.
type observed struct {
	Name     string
	UID      string
	Created  time.Time
	Deleting bool // or not to be handled, as an annotation says
	PodCIDRs []string
	Error    string // of status.ipam.operator-status
	// Elsewhere are the CIDRs that the node shows outside of PodCIDRs, as of another IPAM mode.
	Elsewhere []netip.Prefix
	beyond    string // why it is not believed for others of those, "" for none

	// Undecoded is why PodCIDRs cannot be decoded, "" if they can be. Found are the CIDRs in the undecodable value.
	Undecoded string
	Found     []netip.Prefix
	// SetAside says that nothing is wrong with PodCIDRs, which Found has: the handling of the node panicked.
	SetAside bool
	// ErrorUndecoded says that Error cannot be decoded.
	ErrorUndecoded bool
}

// desired is the desired state of a CiliumNode.
type desired struct {
	// PodCIDRs are to be written, also beside an error; nil leaves those of the node.
	PodCIDRs []string
	Error    string
	reason   string // of the Event about Error
	holder   string // what it says besides, "" for nothing
}

// allocator allocates blocks. It is not safe for concurrent use.
//
// Before markSynced it only collects nodes: a block that a node has must not be allocated to another because its node is
// not in the cache yet.
type allocator struct {
	blocks    *alloc.Blocks[string] // by the name of their node
	moves     uint64                // how often a block was allocated or released
	pools     [2][]*pool            // IPv4, IPv6
	nodes     map[string]*node
	synced    bool
	pending   []string // nodes with a refusal, the longest pending first
	retriedAt uint64   // the value of changes at the last retry
	claims    claims
	// believesAll has a node have all CIDRs that it lists or shows, however many blocks these are.
	believesAll bool
	shown       *alloc.Sightings[string] // CIDRs outside of podCIDRs, by the name of their node
	// losesDuplicates reports whether the agents of a node expect that duplicates are taken out of its podCIDRs. nil: none do.
	losesDuplicates func(node string) bool
	touched         map[string]bool // nodes whose clashes may have changed with what others hold or show
	current         k8s.Trigger     // the node that is being handled
}

// handling records which node is being handled, for the case that this panics.
func (a *allocator) handling(n *node) {
	a.current = k8s.Trigger{Kind: ciliumio.Nodes.Name(), Name: n.Name}
}

// node is a CiliumNode with the CIDRs that are allocated to it.
type node struct {
	observed
	cidrs     []netip.Prefix // of PodCIDRs, those that agents can read
	invalid   []string       // of PodCIDRs, the rest
	inInvalid []netip.Prefix // CIDRs in the texts of these
	allocated []netip.Prefix // IPv4 first; no block is allocated to two nodes
	adopted   bool           // all CIDRs that it listed first are allocated to it, or it was allocated new ones
	pending   bool           // it is in allocator.pending
	refusal   refusal
}

// update replaces the observed state of a node.
func (n *node) update(o observed) {
	n.observed, n.cidrs, n.invalid, n.inInvalid = o, nil, nil, nil
	for _, text := range o.PodCIDRs {
		if c, ok := cidr.Parse(text); ok {
			n.cidrs = append(n.cidrs, c)
		} else {
			n.invalid = append(n.invalid, text)
			n.inInvalid = append(n.inInvalid, cidr.Find(text)...)
			n.inInvalid = n.inInvalid[:min(len(n.inInvalid), ciliumio.MaxCIDRs)]
		}
	}
}

func newAllocator(c Config, shared cluster.Config) (*allocator, error) {
	a := &allocator{blocks: alloc.NewBlocks[string](), nodes: map[string]*node{}, claims: newClaims(), shown: alloc.NewSightings[string](), touched: map[string]bool{}}
	a.believesAll = c.ClusterPoolBelieveAllBlocks
	var errs [2]error
	for i, f := range families(c, shared) {
		a.pools[i], errs[i] = f.pools(a.blocks)
	}
	return a, errors.Join(errs[:]...)
}

// markSynced starts the allocation. It returns all nodes.
func (a *allocator) markSynced() []string {
	a.synced = true
	order := slices.SortedFunc(maps.Values(a.nodes), oldestFirst)
	a.reconcileAll(order)
	a.retryPending()
	clear(a.touched) // all are returned
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

// upsert records the state of a node. It returns the nodes to reconcile.
func (a *allocator) upsert(o observed) []string {
	o = a.believe(o)
	n := a.nodes[o.Name]
	switch {
	case n != nil && n.UID != o.UID:
		return a.replace(o)
	case o.Deleting && len(o.PodCIDRs) == 0 && len(o.Elsewhere) == 0 && o.Undecoded == "" && (n == nil || len(n.allocated) == 0):
		return a.remove(o.Name) // nothing is allocated to it, and nothing will be
	case n == nil:
		n = &node{observed: o}
		a.nodes[o.Name] = n
	}
	a.handling(n)
	n.update(o)
	a.show(n.Name, o.Elsewhere)
	if !a.synced {
		return nil
	}
	a.reconcileNode(n)
	return append(append(a.retryPending(), o.Name), a.popTouched()...)
}

// replace records a node that was recreated with the same name. CIDRs that it lists are reserved before pending nodes are
// retried, and missing ones are allocated after that.
func (a *allocator) replace(o observed) []string {
	a.releaseNode(o.Name)
	n := &node{}
	n.update(o)
	a.nodes[o.Name] = n
	a.show(n.Name, o.Elsewhere)
	if a.synced {
		a.adopt(n)
		a.claims.update(a, n)
	}
	return append(a.retryPending(), a.upsert(o)...)
}

// remove removes a deleted node. It returns the pending nodes for which that changed something.
func (a *allocator) remove(name string) []string {
	a.releaseNode(name)
	return append(a.retryPending(), a.popTouched()...)
}

// releaseNode releases the blocks of a node and drops it.
func (a *allocator) releaseNode(name string) {
	if n := a.nodes[name]; n != nil {
		delete(a.nodes, name)
		a.pending = without(a.pending, name)
		a.release(n)
		a.claims.remove(name)
		a.show(name, nil)
	}
}

// retryPending reconciles pending nodes if any block was allocated or released since the last time. It returns those
// whose refusal changed. Error texts depend only on the current allocations, so that the next leader computes the same.
func (a *allocator) retryPending() []string {
	if len(a.pending) == 0 || a.changes() == a.retriedAt {
		return nil
	}
	pending := make([]*node, len(a.pending))
	before := make([]refusal, len(a.pending))
	for i, name := range a.pending {
		pending[i] = a.nodes[name]
		before[i] = pending[i].refusal
	}
	for last := a.used(); ; last = a.used() {
		a.reconcileAll(pending)
		if a.used() == last {
			break
		}
	}
	a.retriedAt = a.changes()
	var changed []string
	for i, n := range pending {
		if n.refusal != before[i] {
			changed = append(changed, n.Name)
		}
	}
	return changed
}

// used is the number of allocated blocks.
func (a *allocator) used() (n uint64) {
	for p := range a.allPools() {
		n += p.used()
	}
	return n
}

// changes counts allocations, releases and changes of claims.
func (a *allocator) changes() uint64 { return a.claims.changes + a.moves }

func (a *allocator) allPools() iter.Seq[*pool] {
	return slices.Values(slices.Concat(a.pools[0], a.pools[1]))
}

// desired returns the desired state of a node. ok is false before markSynced, and for a node that does not exist, is
// terminating, or whose podCIDRs cannot be decoded.
func (a *allocator) desired(name string) (d desired, ok bool) {
	n := a.nodes[name]
	if n == nil || n.Deleting || n.Undecoded != "" || !a.synced {
		return desired{}, false
	}
	r := n.refusal
	if r.kind == 0 {
		r = a.clashOf(n)
		if missing := a.missing(n.cidrs); len(missing) > 0 {
			d.PodCIDRs = n.withFamilies(missing)
		}
	} else {
		d.PodCIDRs = a.withoutDuplicates(n)
	}
	if d.Error = printable.Line(r.text); d.Error != "" {
		d.reason, d.holder = r.eventReason(), r.holder
	}
	return d, true
}

// withFamilies are the CIDRs that the node lists, and its allocated CIDRs of these families.
func (n *node) withFamilies(missing []int) []string {
	cidrs, texts := slices.Clone(n.cidrs), slices.Clone(n.PodCIDRs) // there are no invalid ones
	for _, c := range n.allocated {
		if slices.Contains(missing, familyOf(c)) {
			cidrs, texts = append(cidrs, c), append(texts, c.String())
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

// upToDate reports whether a node has its desired state, or has none.
func (a *allocator) upToDate(name string) bool {
	d, ok := a.desired(name)
	n := a.nodes[name]
	return !ok || d.PodCIDRs == nil && (d.Error == n.Error || n.ErrorUndecoded)
}

// countRefused counts the nodes with a refusal of one of these kinds.
func (a *allocator) countRefused(kinds ...kind) (n int) {
	for _, name := range a.pending {
		if slices.Contains(kinds, a.nodes[name].refusal.kind) {
			n++
		}
	}
	return n
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return n == name })
}
