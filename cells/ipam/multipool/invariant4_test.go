// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// No CIDR is allocated to two nodes, over any history of crashes, stale caches, lost answers, two leaders, changes of
// pools, and agents that write the same CiliumNode. The cell's own code decides and writes; the API server, the agents
// and the judge are a model. Leaders follow each other by the real record of writes (leading.Tracker), in two processes:
// after a release, a crash, or a lease that was lost. Every step of a history is drawn from its seed.
func TestInvariant4NoDoubleAllocationInModel(t *testing.T) {
	total := tally{}
	for seed := range seedtest.Seeds(t, 1200) {
		w := newWorld(seed, faultless)
		if w.run(); w.wrong != "" {
			for _, line := range w.log {
				t.Log(line)
			}
			t.Fatalf("SKEP_SEED=%d: %s", seed, w.wrong)
		}
		for what, n := range w.tally {
			total[what] += n
		}
	}
	t.Log(total)
	if os.Getenv("SKEP_SEED") != "" {
		return
	}
	for _, what := range []string{
		"given", "given again", "released", "crash", "late", "lost answer", "conflict", "fenced", "taken", "spoilt",
		"shown", "clash", "pool refused", "draining", "starving", "undecidable", "recheck", "implausible", "released lease", "known", "unknown", "again", "resolved",
	} {
		if total[what] == 0 {
			t.Errorf("the histories leave something out: %s", what)
		}
	}
}

// A seed is one history.
func TestInvariant4Replays(t *testing.T) {
	for seed := range uint64(20) {
		first, second := newWorld(seed, faultless), newWorld(seed, faultless)
		first.run()
		second.run()
		if !slices.Equal(first.log, second.log) {
			t.Errorf("seed %d: two histories of %d and %d lines", seed, len(first.log), len(second.log))
		}
	}
}

// flaw is one that the model has to notice.
type flaw string

const (
	faultless flaw = ""
	hasty     flaw = "offers are taken for seen" // as in the original (MPOOL-26)
	silent    flaw = "a leader leaves nothing of what it wrote"
	rash      flaw = "an unanswered write is taken for one that was not made"
	narrow    flaw = "what nodes show of another IPAM mode is not read"
)

// The model notices an allocator that releases what it offers, and leaders that do not know what others wrote.
func TestInvariant4ModelNotices(t *testing.T) {
	for flaw, noticed := range map[flaw]uint64{hasty: 305, silent: 148, rash: 79, narrow: 0} { // by these histories
		t.Run(string(flaw), func(t *testing.T) {
			for seed := range seedtest.From(noticed, 20_000) {
				w := newWorld(seed, flaw)
				if w.run(); w.double {
					t.Logf("seed %d: %s", seed, w.wrong)
					return
				}
			}
			t.Error("not noticed")
		})
	}
}

// tally counts what happened.
type tally map[string]int

// world is the API server, its clients, and the network between them.
type world struct {
	r           *rand.Rand
	flaw        flaw
	answers     int  // one of these is lost
	late        bool // caches show no more than they have to when a term begins
	revision    uint64
	nodes       map[string]simNode
	pools       map[string]simPool
	nodeChanges []change
	poolChanges []change
	processes   [2]*process
	clock       time.Time // of the trackers
	flying      []flight
	leader, old *term
	depth       int
	quiet       bool

	tally  tally
	before map[netip.Prefix]bool // that a node was given
	byHand []netip.Prefix        // listed by hand, and at most as large as a block
	log    []string
	wrong  string
	double bool
}

type simNode struct {
	name, uid string
	revision  uint64
	created   int64
	going     bool
	allocated []ciliumio.PoolAllocation
	requested []ciliumio.PoolRequest
	err       string
	spoilt    any                   // in the place of allocated
	podCIDRs  []string              // as of another IPAM mode
	given     map[netip.Prefix]bool // by an operator, and listed ever since
}

type simPool struct {
	name, uid string
	revision  uint64
	created   int64
	cidrs     []string
	mask      int64
}

// change is an object as of a revision; deleted if it has neither.
type change struct {
	revision uint64
	name     string
	node     *simNode
	pool     *simPool
}

func (c change) exists() bool { return c.node != nil || c.pool != nil }

// flight is a request that the server has not processed.
type flight struct {
	from  *term
	base  simNode
	write func(*simNode)
}

func newWorld(seed uint64, flaw flaw) *world {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 11)), flaw: flaw, nodes: map[string]simNode{}, pools: map[string]simPool{},
		tally: tally{}, before: map[netip.Prefix]bool{}, clock: time.Unix(0, 0), answers: 8,
	}
	if flaw == rash { // so that it matters before long
		w.answers, w.late = 2, true
	}
	for i := range w.processes {
		w.processes[i] = w.newProcess()
	}
	return w
}

// process is one of two that lead in turn. It keeps what it knows of writes until it crashes.
type process struct{ tracker *leading.Tracker }

func (w *world) newProcess() *process {
	p := &process{leading.NewTracker()}
	p.tracker.Now = func() time.Time { return w.clock }
	return p
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func (w *world) logf(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d: ", w.revision)+fmt.Sprintf(format, args...))
}

func (w *world) run() {
	w.editPools()
	for range 250 {
		if w.step(); w.wrong != "" {
			return
		}
	}
	w.finish()
}

// step lets one thing happen.
func (w *world) step() {
	switch k := w.r.IntN(100); {
	case k < 15:
		w.administer()
	case k < 17:
		w.editPools()
	case k < 22 && len(w.flying) > 0:
		w.land(w.r.IntN(len(w.flying)), w.r.IntN(3) > 0)
	case k < 24 && w.depth == 0 || w.leader == nil && w.depth == 0:
		w.changeLeader()
	case k < 28 && w.old != nil:
		w.old.work()
	case w.leader != nil:
		w.leader.work()
	}
}

// administer does what agents, users and the garbage collector do.
func (w *world) administer() {
	name := fmt.Sprint("n", w.r.IntN(6))
	n, exists := w.nodes[name]
	if !exists {
		n = simNode{name: name, uid: fmt.Sprint("uid-", w.revision+1), created: int64(w.revision)}
		n.requested = w.request()
		w.store(n, "is created")
		return
	}
	switch k := w.r.IntN(40); {
	case k < 3:
		w.revision++
		delete(w.nodes, name)
		w.nodeChanges = append(w.nodeChanges, change{revision: w.revision, name: name})
		w.logf("%s is deleted", name)
	case k < 4:
		n.going = true
		w.store(n, "is being deleted")
	case k < 16:
		n.requested = w.request()
		w.store(n, "requests other numbers")
	case k < 28:
		w.release(n)
	case k < 30:
		w.spoil(n)
	case k < 34:
		w.mangle(n)
	case k < 37:
		w.showPodCIDRs(n)
	default:
		w.store(n, "is touched")
	}
}

func (w *world) request() []ciliumio.PoolRequest {
	var list []ciliumio.PoolRequest
	for range w.r.IntN(3) {
		list = append(list, ciliumio.PoolRequest{Pool: pick(w.r, "a", "b", "c"), Needed: ciliumio.PoolDemand{
			IPv4Addrs: pick[int64](w.r, 0, 1, 2, 3, 5, -4, 1<<62), IPv6Addrs: pick[int64](w.r, 0, 0, 3)}})
	}
	return list
}

// release is what an agent does with a CIDR that it does not need.
func (w *world) release(n simNode) {
	if n.spoilt != nil || len(n.allocated) == 0 {
		return
	}
	i := w.r.IntN(len(n.allocated))
	p := n.allocated[i]
	if len(p.CIDRs) == 0 {
		return
	}
	j := w.r.IntN(len(p.CIDRs))
	w.tally["released"]++
	n.allocated = slices.Clone(n.allocated)
	n.allocated[i] = ciliumio.PoolAllocation{Pool: p.Pool, CIDRs: slices.Delete(slices.Clone(p.CIDRs), j, j+1)}
	w.store(n, "releases "+p.CIDRs[j])
}

func (w *world) spoil(n simNode) {
	if n.spoilt != nil {
		n.spoilt = nil
		w.store(n, "is repaired")
		return
	}
	w.tally["spoilt"]++
	text, _ := json.Marshal(n.allocated)
	n.spoilt = pick[any](w.r, int64(7), string(text), []any{map[string]any{"pool": "a", "cidrs": string(text)}}, []any{int64(7)})
	w.store(n, "cannot be decoded")
}

// mangle is what users do by hand.
func (w *world) mangle(n simNode) {
	if n.spoilt != nil {
		return
	}
	c := pick(w.r, "10.0.0.0/30", "10.0.0.4/30", "10.0.0.6/30", "10.0.0.8/31", "10.0.1.0/29", "10.0.1.8/31", "fd00::/127", "10.0.0.0/024", "192.0.2.0/30", "0.0.0.0/0", "x")
	pool := pick(w.r, "a", "b", "c", "d")
	if c == "0.0.0.0/0" {
		w.tally["implausible"]++
	}
	if prefix, err := netip.ParsePrefix(c); err == nil && prefix.Bits() >= 30 {
		w.byHand = append(w.byHand, prefix)
	}
	n.allocated = append(slices.Clone(n.allocated), ciliumio.PoolAllocation{Pool: pool, CIDRs: []string{c}})
	w.store(n, "lists "+c+" of "+pool)
}

// showPodCIDRs is what an agent, or an operator before, leaves of another IPAM mode.
func (w *world) showPodCIDRs(n simNode) {
	n.podCIDRs = pick(w.r, nil, []string{"10.0.0.4/30"}, []string{"10.0.0.0/29", "fd00::/127"}, []string{"10.0.1.2/31"}, []string{"10.0.1.0/28"}, []string{"0.0.0.0/0"}, []string{"x 10.0.0.8/30"})
	w.tally["shown"]++
	w.store(n, fmt.Sprintf("shows %v elsewhere", n.podCIDRs))
}

// shows reports whether an agent may use a part of a CIDR in another IPAM mode.
func (n *simNode) shows(c netip.Prefix) bool {
	return slices.ContainsFunc(n.podCIDRs, func(text string) bool {
		p, err := netip.ParsePrefix(strings.TrimPrefix(text, "x "))
		return err == nil && p.Bits() > 0 && p.Overlaps(c)
	})
}

// editPools replaces or deletes a pool.
func (w *world) editPools() {
	name := pick(w.r, "a", "b", "c")
	p, exists := w.pools[name]
	w.revision++
	if exists && w.r.IntN(4) == 0 {
		delete(w.pools, name)
		w.poolChanges = append(w.poolChanges, change{revision: w.revision, name: name})
		w.logf("pool %s is deleted", name)
		return
	}
	if !exists {
		p = simPool{name: name, uid: fmt.Sprint("uid-", w.revision), created: int64(w.revision)}
	}
	p.revision, p.mask = w.revision, pick[int64](w.r, 30, 30, 30, 31)
	p.cidrs = pick(w.r, []string{"10.0.0.0/28"}, []string{"10.0.0.0/29", "10.0.1.0/29"}, []string{"10.0.1.0/28"}, []string{"10.0.0.8/29"}, []string{"10.0.0.0/30"}, []string{"10.0.2.0/24", "10.0.2.0/28"}, []string{"0.0.0.0/0"})
	w.pools[name] = p
	w.poolChanges = append(w.poolChanges, change{revision: w.revision, name: name, pool: &p})
	w.logf("pool %s is %v mask %d", name, p.cidrs, p.mask)
}

// store writes a node and judges.
func (w *world) store(n simNode, how string) simNode {
	w.revision++
	n.revision = w.revision
	now := map[netip.Prefix]bool{}
	for c := range n.listed() {
		if n.given[c] {
			now[c] = true
		}
	}
	n.given = now
	w.nodes[n.name] = n
	w.nodeChanges = append(w.nodeChanges, change{revision: w.revision, name: n.name, node: &n})
	w.logf("%s (%s) %s: %v %v requests %v, error %q", n.name, n.uid, how, n.allocated, n.spoilt, n.requested, n.err)
	return n
}

// listed are the CIDRs that agents use of a list: those that can be read and believed. What is spoilt is used as it was.
func (n simNode) listed() map[netip.Prefix]bool {
	set := map[netip.Prefix]bool{}
	for _, p := range n.allocated {
		for _, text := range p.CIDRs {
			if c, err := netip.ParsePrefix(strings.ReplaceAll(text, "/0", "/")); err == nil && c.Bits() > 0 {
				set[c.Masked()] = true
			}
		}
	}
	return set
}

// judge looks at what an operator gave.
func (w *world) judge(before, after simNode) simNode {
	given := maps.Clone(before.given)
	if given == nil {
		given = map[netip.Prefix]bool{}
	}
	for c := range after.listed() {
		if before.listed()[c] {
			continue
		}
		given[c] = true
		w.tally["given"]++
		if w.before[c] {
			w.tally["given again"]++
		}
		w.before[c] = true
		for name, other := range w.nodes {
			for has := range other.given {
				if name != after.name && has.Overlaps(c) {
					w.double, w.wrong = true, fmt.Sprintf("%s is given %s, and %s was given %s", after.name, c, name, has)
				}
			}
		}
	}
	for c := range before.given {
		if !after.listed()[c] && before.spoilt == nil {
			w.judgeTaken(after.name, c)
		}
	}
	after.given = given
	return after
}

// judgeTaken looks at a CIDR that was given to a node, and that an operator takes off its list: not for one that another
// node lists by hand and that is larger than any block.
func (w *world) judgeTaken(name string, c netip.Prefix) {
	if slices.ContainsFunc(w.byHand, c.Overlaps) { // as large as a block: it is not known which of them was first
		return
	}
	for other, o := range w.nodes {
		for d := range o.listed() {
			if other != name && d.Overlaps(c) && !o.given[d] {
				w.wrong = fmt.Sprintf("%s loses %s, which was given to it, as %s lists %s by hand", name, c, other, d)
			}
		}
	}
}

// land decides what becomes of a request.
func (w *world) land(i int, arrives bool) {
	f := w.flying[i]
	w.flying = slices.Delete(w.flying, i, i+1)
	if n := w.nodes[f.base.name]; arrives && n.revision == f.base.revision {
		w.tally["late"]++
		after := n
		f.write(&after)
		w.store(w.judge(n, after), "is written late")
	}
}

// changeLeader ends the term: in order, by a crash, or by the loss of the lease, which its leader may not notice. Its requests
// are decided before the next one starts, in either process.
func (w *world) changeLeader() {
	for len(w.flying) > 0 {
		w.land(0, w.r.IntN(2) == 0)
	}
	w.clock = w.clock.Add(time.Hour) // nothing is on its way any more
	w.old = nil
	next, before := w.r.IntN(2), &leading.WriteProgress{}
	if last := w.leader; last != nil {
		last.fenced = true
		switch same, end := next == last.process, w.r.IntN(3); {
		case end == 0 || w.flaw == rash:
			before = w.handOver(w.processes[last.process].tracker)
		case end == 1:
			w.tally["crash"]++
			w.processes[last.process] = w.newProcess()
		default:
			w.tally["lost lease"]++
			if same {
				w.tally["again"]++
				before = nil
			}
			w.old = last
		}
		if w.flaw == silent {
			before = &leading.WriteProgress{Complete: true}
		}
	}
	w.processes[next].tracker.Begin(before)
	w.leader = newTerm(w, next)
	w.logf("process %d starts with nodes at %d and pools at %d", next, w.leader.nodes.at, w.leader.pools.at)
}

// handOver is what a leader leaves that ends in order.
func (w *world) handOver(t *leading.Tracker) *leading.WriteProgress {
	w.tally["released lease"]++
	t.Drain(context.Background(), slog.New(slog.DiscardHandler), w.read)
	written := t.WriteProgress()
	return &written
}

var errNotRead = errors.New("not read")

// read reads the outcome of a write.
func (w *world) read(_ context.Context, o leading.Object) (revision uint64, exists bool, err error) {
	if !w.quiet && w.r.IntN(3) == 0 {
		return 0, false, errNotRead
	}
	w.tally["resolved"]++
	n, exists := w.nodes[o.Name]
	if w.flaw == rash {
		return 0, false, nil
	}
	return n.revision, exists, nil
}

// predecessor is the revision that a leader's cache of nodes has to show: that of all writes of leaders before it, or that of
// the server where that is not known.
func (w *world) predecessor(t *leading.Tracker) uint64 {
	h := leading.NewHandover(t, w.read)
	for {
		revision, known, err := h.PredecessorRevision(context.Background(), v2.CiliumNodeResource)
		switch {
		case err != nil: // it is called again
		case known:
			w.tally["known"]++
			return min(revision, w.revision)
		default:
			w.tally["unknown"]++
			newest := uint64(0)
			for _, n := range w.nodes {
				newest = max(newest, n.revision)
			}
			h.RecordSynced(v2.CiliumNodeResource, newest)
			return w.revision
		}
	}
}

// term is a leader's. What it does, it does with the cell's code.
type term struct {
	*world
	*controller
	process      int
	fenced       bool
	synced       bool
	writing      bool
	nodes, pools *cache
	queue        []string
}

// cache is a stream of changes up to a revision.
type cache struct {
	changes  *[]change
	at       uint64 // revision
	next     int    // in changes
	pending  map[string]change
	received map[string]change // what was delivered, and exists
}

func newCache(changes *[]change, at uint64) *cache {
	c := &cache{changes: changes, pending: map[string]change{}, received: map[string]change{}}
	c.advance(at)
	return c
}

// advance shows the changes up to a revision, the newest of each name.
func (c *cache) advance(at uint64) {
	for c.at = at; c.next < len(*c.changes) && (*c.changes)[c.next].revision <= at; c.next++ {
		ch := (*c.changes)[c.next]
		c.pending[ch.name] = ch
	}
}

// pop is a pending change, ok if there is one.
func (c *cache) pop(r *rand.Rand) (ch change, ok bool) {
	for len(c.pending) > 0 {
		name := pick(r, slices.Sorted(maps.Keys(c.pending))...)
		ch = c.pending[name]
		delete(c.pending, name)
		_, known := c.received[name]
		if delete(c.received, name); ch.exists() {
			c.received[name] = ch
		}
		if known || ch.exists() {
			return ch, true
		}
	}
	return ch, false
}

func newTerm(w *world, process int) *term {
	written := w.predecessor(w.processes[process].tracker)
	shown := written + w.r.Uint64N(w.revision-written+1)
	if w.late {
		shown = written
	}
	t := &term{
		world: w, process: process,
		nodes: newCache(&w.nodeChanges, shown), pools: newCache(&w.poolChanges, w.r.Uint64N(w.revision+1)),
	}
	t.controller = newController(params{
		Shared: cluster.Config{EnableIPv4: true}, Client: client{term: t}, Metrics: newMetrics(metrics.Factory{}),
		Health: health.NewTree().Reporter("test"), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	t.undecodable = func() []slim.Key { return nil }
	return t
}

// work is a step of a leader: its cache moves on, a change is delivered, or a node is written.
func (t *term) work() {
	switch k := t.r.IntN(10); {
	case t.writing:
	case k < 2:
		t.nodes.advance(min(t.revision, t.nodes.at+1+t.r.Uint64N(5)))
	case k < 3:
		t.pools.advance(min(t.revision, t.pools.at+1+t.r.Uint64N(20)))
	case k < 5 && len(t.queue) > 0:
		t.writeNext()
	default:
		t.deliver()
	}
}

// deliver delivers a change, or Synced after the first ones.
func (t *term) deliver() (delivered bool) {
	first, second := t.deliverNode, t.deliverPool
	if t.r.IntN(2) == 0 {
		first, second = second, first
	}
	switch {
	case first() || second():
	case !t.synced:
		t.synced = true
		t.watched(func() { t.add(t.Synced(context.Background())) })
	default:
		return false
	}
	return true
}

func (t *term) deliverNode() bool {
	c, ok := t.nodes.pop(t.r)
	if !ok {
		return false
	}
	ch := stream.Change[ciliumio.Node]{Kind: stream.Delete, Key: slim.Key{Name: c.name}}
	if c.exists() {
		seen := *c.node
		if t.flaw == narrow {
			seen.podCIDRs = nil
		}
		ch.Kind, ch.Object = stream.Upsert, seen.decoded()
	}
	t.watched(func() { t.add(t.nodeChanged(ch)) })
	return true
}

func (t *term) deliverPool() bool {
	c, ok := t.pools.pop(t.r)
	if !ok {
		return false
	}
	ch := stream.Change[podIPPool]{Kind: stream.Delete, Key: slim.Key{Name: c.name}}
	if c.exists() {
		ch.Kind, ch.Object = stream.Upsert, c.pool.decoded()
	}
	t.watched(func() { t.add(t.poolChanged(ch)) })
	return true
}

// watched judges what is allocated while f runs: nothing that another node was seen to list.
func (t *term) watched(f func()) {
	before := map[poolCIDR]string{}
	for name, n := range t.alloc.nodes {
		for _, h := range n.held {
			before[h.poolCIDR] = name
		}
	}
	f()
	for name, n := range t.alloc.nodes {
		for c, h := range n.held {
			if !h.seen && t.flaw == hasty {
				n.held[c] = hold{h.poolCIDR, true}
			}
			if before[h.poolCIDR] == name || h.seen {
				continue
			}
			for other, o := range t.nodes.received {
				if other != name && o.node.shows(h.cidr) {
					t.double, t.wrong = true, fmt.Sprintf("%s is offered %s, and %s shows %v", name, h.cidr, other, o.node.podCIDRs)
				}
				for c := range o.node.listed() {
					if other != name && o.node.spoilt == nil && c.Overlaps(h.cidr) && !slices.ContainsFunc(t.alloc.nodes[other].conflicts(), func(l poolCIDR) bool { return l.cidr == c }) {
						t.wrong = fmt.Sprintf("%s is offered %s, and %s lists %s", name, h.cidr, other, c)
					}
				}
			}
		}
	}
	for _, n := range t.alloc.nodes {
		t.tally["taken"] += len(n.lost)
		t.tally["clash"] += strings.Count(n.desired.Error, "of the older CiliumNode") + strings.Count(n.desired.Error, "shows outside of its pools")
		for _, r := range n.refusals {
			t.tally[map[kind]string{exhausted: "starving", noPool: "no pool", absurd: "absurd", undecidable: "undecidable"}[r.kind]]++
		}
	}
	for _, p := range t.alloc.pools {
		if p.problem.text != "" {
			t.tally["pool refused"]++
		}
	}
	t.tally["draining"] += len(t.alloc.draining())
}

func (t *term) add(keys []slim.Key) {
	for _, key := range keys {
		if !slices.Contains(t.queue, key.Name) {
			t.queue = append(t.queue, key.Name)
		}
	}
}

func (t *term) writeNext() {
	i := t.r.IntN(len(t.queue))
	name := t.queue[i]
	t.queue = slices.Delete(t.queue, i, i+1)
	t.writing = true
	result, err := t.Reconcile(context.Background(), slim.Key{Name: name})
	t.writing = false
	if err != nil || result.RequeueAfter > 0 {
		t.tally["recheck"]++
		if !t.quiet || err != nil {
			t.add([]slim.Key{{Name: name}})
		}
	}
}

// finish lets one leader work undisturbed, and looks at what it leaves: no CIDR on two nodes, no node that lacks what is
// free, and a successor that writes nothing.
func (w *world) finish() {
	w.quiet = true
	w.settle()
	if w.wrong != "" {
		return
	}
	first := w.revision
	w.settle()
	switch {
	case w.wrong != "":
	case w.revision != first:
		w.wrong = "a successor writes to a converged cluster"
	default:
		w.judgeAll()
	}
}

func (w *world) settle() {
	w.changeLeader()
	t := w.leader
	for range 2000 {
		t.nodes.advance(t.revision)
		t.pools.advance(t.revision)
		if !t.deliver() && len(t.queue) == 0 {
			return
		}
		if len(t.queue) > 0 {
			t.writeNext()
		}
		if w.wrong != "" {
			return
		}
	}
	w.wrong = "it does not come to an end"
}

func (w *world) judgeAll() {
	for name, n := range w.nodes {
		for other, o := range w.nodes {
			for c := range n.listed() {
				for d := range o.listed() {
					if name < other && c.Overlaps(d) && !n.going && !o.going && n.spoilt == nil && o.spoilt == nil {
						w.wrong = fmt.Sprintf("%s lists %s, and %s lists %s", name, c, other, d)
					}
				}
			}
		}
		if strings.Contains(n.err, "pool empty") && !n.going {
			w.judgePending(n)
		}
	}
}

// judgePending looks for a block that a pending node could have.
func (w *world) judgePending(n simNode) {
	for _, p := range w.leader.alloc.pools {
		if !strings.Contains(n.err, fmt.Sprintf("from pool %q: pool empty", p.Name)) || p.blocks[0] == nil {
			continue
		}
		for _, c := range p.blocks[0].CIDRs() {
			for a := c.Addr(); c.Contains(a); a = a.Next() {
				block := netip.PrefixFrom(a, p.blocks[0].Bits())
				if block.Masked() == block && !w.isUsed(block) {
					w.wrong = fmt.Sprintf("%s is pending, and %s of pool %s is free", n.name, block, p.Name)
				}
			}
		}
	}
}

func (w *world) isUsed(block netip.Prefix) bool {
	for _, n := range w.nodes {
		all := fmt.Sprint(n.spoilt, n.err, n.podCIDRs)
		for c := range n.listed() {
			if c.Overlaps(block) {
				return true
			}
		}
		for _, c := range slices.Concat(w.leader.alloc.claims.byNode[n.name]) {
			if c.Overlaps(block) && strings.Contains(all, c.String()) {
				return true
			}
		}
	}
	return false
}

var nodeCodec = sync.OnceValues(slim.JSON[ciliumio.Node])

func (n *simNode) decoded() *ciliumio.Node {
	d := &ciliumio.Node{}
	codec, err := nodeCodec()
	text, textErr := json.Marshal(n.encoded().Object)
	if err := errors.Join(err, textErr, codec.DecodeJSON(text, d)); err != nil {
		panic(err)
	}
	return d
}

func (p *simPool) decoded() *podIPPool {
	d := &podIPPool{}
	d.Name, d.UID, d.ResourceVersion = p.name, slim.ParseUID(p.uid), slim.Revision(p.revision)
	d.Spec.IPv4 = &familySpec{CIDRs: p.cidrs, MaskSize: p.mask}
	return d
}

func (n *simNode) encoded() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(n.name)
	u.SetUID(types.UID(n.uid))
	u.SetResourceVersion(strconv.FormatUint(n.revision, 10))
	u.SetCreationTimestamp(metav1.Unix(n.created, 0))
	if n.going {
		now := metav1.Unix(n.created+1, 0)
		u.SetDeletionTimestamp(&now)
	}
	_ = setAllocated(u, n.allocated)
	if len(n.podCIDRs) > 0 {
		_ = unstructured.SetNestedStringSlice(u.Object, n.podCIDRs, "spec", "ipam", "podCIDRs")
	}
	if n.spoilt != nil {
		_ = unstructured.SetNestedField(u.Object, n.spoilt, "spec", "ipam", "pools", "allocated")
	}
	var requested []any
	for _, r := range n.requested {
		requested = append(requested, map[string]any{"pool": r.Pool, "needed": map[string]any{"ipv4-addrs": r.Needed.IPv4Addrs, "ipv6-addrs": r.Needed.IPv6Addrs}})
	}
	_ = unstructured.SetNestedSlice(u.Object, requested, "spec", "ipam", "pools", "requested")
	_ = setError(u, n.err)
	return u
}

// client is the way of a term to the server: between any two of its requests anything may happen.
type client struct {
	k8s.Client
	term *term
}

var errNoAnswer = errors.New("no answer")

func (c client) Modify(_ context.Context, ref k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	t := c.term
	for range 3 {
		t.meanwhile()
		base, exists := t.world.nodes[ref.Name]
		if !exists {
			return nil, false, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
		}
		changed := base.encoded()
		if err := edit(changed); err != nil {
			return nil, false, err
		}
		err := t.put(base, ref.Subresource, difference(changed, ref.Subresource))
		if apierrors.IsConflict(err) {
			continue
		}
		return changed, err == nil, err
	}
	return nil, false, apierrors.NewConflict(v2.CiliumNodeResource.GroupResource(), ref.Name, nil)
}

// difference is what an edit changed, in the part of the object that it may.
func difference(u *unstructured.Unstructured, subresource string) func(*simNode) {
	list, err := allocatedIn(u)
	text, _, _ := unstructured.NestedString(u.Object, "status", "ipam", "operator-status", "error")
	return func(n *simNode) {
		if subresource == "status" {
			n.err = text
		} else if err == nil {
			n.allocated = list
		}
	}
}

// meanwhile lets others act.
func (w *world) meanwhile() {
	if w.quiet || w.depth > 1 {
		return
	}
	w.depth++
	for range w.r.IntN(4) {
		if w.wrong == "" {
			w.step()
		}
	}
	w.depth--
}

// put sends a write, and records it as the client does. The fence is checked when it is sent.
func (t *term) put(base simNode, subresource string, write func(*simNode)) error {
	w := t.world
	t.meanwhile()
	if t.fenced {
		w.tally["fenced"]++
		return leading.ErrFenced
	}
	tracker, object := w.processes[t.process].tracker, leading.Object{Resource: v2.CiliumNodeResource, Name: base.name, Subresource: subresource}
	earlier := tracker.Sent(object)
	if !w.quiet && w.r.IntN(w.answers) == 0 { // no answer; it may take effect, now or later
		w.tally["lost answer"]++
		w.flying = append(w.flying, flight{t, base, write})
		if w.r.IntN(3) == 0 {
			w.land(len(w.flying)-1, true)
		}
		tracker.MarkUnanswered(object)
		return errNoAnswer
	}
	n, exists := w.nodes[base.name]
	if !exists || n.uid != base.uid || n.revision != base.revision {
		w.tally["conflict"]++
		tracker.Refused(object, earlier)
		return apierrors.NewConflict(v2.CiliumNodeResource.GroupResource(), base.name, nil)
	}
	after := n
	write(&after)
	tracker.Stored(object, w.store(w.judge(n, after), "is written").revision)
	return nil
}
