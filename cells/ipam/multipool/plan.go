// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// observed is the state of a CiliumNode, as far as the allocator needs it.
type observed struct {
	Name      string
	UID       string
	Revision  uint64
	Created   time.Time
	Deleting  bool // or not to be handled, as an annotation says
	Requested []ciliumio.PoolRequest
	Allocated []ciliumio.PoolAllocation
	IsCut     bool   // Allocated has the first of what the node lists
	Error     string // of status.ipam.operator-status

	// Elsewhere are the CIDRs that the node shows outside of Allocated, as of another IPAM mode.
	Elsewhere []netip.Prefix

	// Undecoded is why Allocated is not complete, "" if it is. Found are the CIDRs in its undecodable parts; Blind says
	// that there is a part with none.
	Undecoded string
	Found     []netip.Prefix
	Blind     bool
	// RequestUndecoded is why Requested is not complete, "" if it is.
	RequestUndecoded string
	// ErrorUndecoded says that Error cannot be decoded.
	ErrorUndecoded bool
}

// allocator allocates blocks. It is not safe for concurrent use.
//
// Before markSynced it only collects pools and nodes: a block that a node has must not be allocated to another because
// its node is not in the cache yet.
type allocator struct {
	enabled        [2]bool // by family
	byAddress      bool    // CIDRs are sorted by address, not as texts
	namesOrphans   bool    // errors name the CIDRs whose pool does not exist
	prefixesErrors bool    // errors begin with errorPrefix
	blocks         *alloc.Blocks[string]
	pools          map[string]*pool
	nodes          map[string]*node
	synced         bool
	pending        []string            // nodes that lack something, the longest waiting first
	failing        map[string]*node    // nodes with an error, or a conflict
	full           map[poolFamily]bool // pools that had no free block in the current retry
	claims         claims
	shown          *alloc.Sightings[string] // CIDRs outside of pools, by the name of their node
	touched        map[string]bool          // nodes whose errors may have changed with what others hold or show
	unmigrated     map[string]string        // why podCIDRs of nodes are no CIDRs of a pool, as they should be
	changes        uint64                   // of what pending nodes wait for
	retried        uint64                   // the value of changes at their last retry
	edits          uint64                   // of pools and of desired states
	counted        uint64                   // the value of edits at the last update of metrics
	current        k8s.Trigger              // the node that is being handled
}

// handling records which node is being handled, for the case that this panics.
func (a *allocator) handling(n *node) {
	a.current = k8s.Trigger{Kind: ciliumio.Nodes.Name(), Name: n.Name}
}

// node is a CiliumNode with the CIDRs that it holds: no two nodes hold CIDRs that overlap.
type node struct {
	observed
	listed   []entry // of Allocated
	known    bool    // all of Allocated was adopted once
	lists    map[poolCIDR]bool
	held     map[netip.Prefix]hold
	lost     []poolCIDR // held by others, after the node listed them
	refusals []refusal  // of Requested
	pending  bool
	desired  desired
}

// hold is a CIDR that a node holds. A CIDR that is offered is held as long as the node exists; one that was seen in the
// node's list is released when it vanishes from there.
type hold struct {
	poolCIDR
	seen bool
}

// poolCIDR is a CIDR listed or requested of a pool.
type poolCIDR struct {
	pool string
	cidr netip.Prefix
}

func newAllocator(shared cluster.Config) *allocator {
	return &allocator{
		enabled: [2]bool{shared.EnableIPv4, shared.EnableIPv6}, blocks: alloc.NewBlocks[string](),
		pools: map[string]*pool{}, nodes: map[string]*node{}, failing: map[string]*node{}, full: map[poolFamily]bool{}, claims: newClaims(),
		shown: alloc.NewSightings[string](), touched: map[string]bool{},
	}
}

// markSynced starts the allocation. It returns the nodes to reconcile.
//
// What nodes list comes before what others lack. It is not known who listed a CIDR first, so those come first that are
// likely to have been allocated: by their rank.
func (a *allocator) markSynced() []string {
	a.synced = true
	a.edits++
	for _, p := range a.poolsByAge() {
		a.applySpec(p)
	}
	nodes := slices.SortedFunc(maps.Values(a.nodes), oldestFirst)
	a.adoptByRank(nodes)
	for _, n := range nodes {
		a.updateClaim(n)
	}
	for _, n := range nodes {
		a.adopt(n)
	}
	names := make([]string, len(nodes))
	for i, n := range nodes {
		a.serve(n)
		names[i] = n.Name
	}
	a.retryPending()
	return a.toReconcile(names)
}

func oldestFirst(a, b *node) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

// upsert records the state of a node. It returns the nodes to reconcile.
func (a *allocator) upsert(o observed) []string {
	n := a.nodes[o.Name]
	if n != nil && n.UID != o.UID {
		a.releaseNode(n)
		n = nil
	}
	if n == nil {
		n = &node{held: map[netip.Prefix]hold{}}
		a.nodes[o.Name] = n
	}
	a.current = k8s.Trigger{Kind: ciliumio.Nodes.Name(), Name: o.Name}
	n.update(o)
	a.show(n.Name, o.Elsewhere)
	if !a.synced {
		return nil
	}
	a.adopt(n)
	names := a.retryPending() // they began to wait before this node lacked something
	a.serve(n)
	return a.toReconcile(append(names, n.Name))
}

// update replaces the observed state of a node. An older state than the last one, as of an etcd that was restored from
// a backup, releases nothing: what is held is offered again.
func (n *node) update(o observed) {
	if o.Revision < n.Revision {
		for c, h := range n.held {
			n.held[c] = hold{h.poolCIDR, false}
		}
	}
	n.observed, n.listed, n.lists = o, entriesOf(o.Allocated), map[poolCIDR]bool{}
	for _, e := range n.listed {
		n.lists[e.poolCIDR] = e.valid
	}
}

// remove removes a deleted node. It returns the nodes to reconcile.
func (a *allocator) remove(name string) []string {
	if n := a.nodes[name]; n != nil {
		a.releaseNode(n)
	}
	return a.toReconcile(a.retryPending())
}

// releaseNode releases the blocks of a node and drops it.
func (a *allocator) releaseNode(n *node) {
	for _, h := range n.held {
		a.release(n, h)
	}
	a.edits++
	delete(a.nodes, n.Name)
	a.show(n.Name, nil)
	delete(a.failing, n.Name)
	a.setPending(n, false)
	a.claims.remove(n.Name)
}

func (a *allocator) release(n *node, h hold) {
	if a.blocks.Release(h.cidr, n.Name) {
		a.changes++
	}
	delete(n.held, h.cidr)
	a.touchShowers(h.cidr)
}

// retryPending reconciles pending nodes if anything that they wait for has changed. It returns those whose desired
// state changed. Texts depend only on who holds what, so that the next leader computes the same.
func (a *allocator) retryPending() (changed []string) {
	if !a.synced {
		return nil
	}
	for a.retried != a.changes+a.claims.changes {
		a.retried = a.changes + a.claims.changes
		clear(a.full)
		for _, name := range slices.Clone(a.pending) {
			n := a.nodes[name]
			if a.stillFull(n) {
				continue
			}
			before := n.desired
			a.adopt(n)
			if a.serve(n); !n.desired.equal(before) {
				changed = append(changed, name)
			}
		}
	}
	return changed
}

// stillFull reports whether a node lacks only blocks of pools that have none.
func (a *allocator) stillFull(n *node) bool {
	return len(n.conflicts()) == 0 && !slices.ContainsFunc(n.refusals, func(r refusal) bool {
		return r.kind != exhausted || !a.full[poolFamily{r.pool, r.family.String()}]
	})
}

func (a *allocator) setPending(n *node, pending bool) {
	switch {
	case pending && !n.pending:
		a.pending = append(a.pending, n.Name)
	case !pending && n.pending:
		a.pending = slices.DeleteFunc(a.pending, func(name string) bool { return name == n.Name })
	}
	n.pending = pending
}

// toReconcile are those of the nodes that have to be written, or that wait for something of which no change will tell.
func (a *allocator) toReconcile(names []string) []string {
	names = append(names, a.describeTouched()...)
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		n := a.nodes[name]
		return n == nil || n.upToDate() && !n.waits()
	})
}
