// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

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

// No CIDR is given twice, over any history of crashes, stale caches and two
// leaders. What decides and writes here is the cell's own code, on a model of the
// rest of the world: an API server, replicas whose caches lag behind, a lease with
// the hand-over of docs/wire/ipam.clusterpool.md, requests whose answers get
// lost, and which take effect late. Every step of a history is drawn from its
// seed; requests of one replica are interleaved with all that others do. The same
// with real processes is in cmd/operator.
func TestInvariant4NoDoubleAllocationInModel(t *testing.T) {
	var total tally
	for seed := range seedtest.Seeds(t, 4000) {
		w := newWorld(seed, protocol{})
		w.run()
		if w.wrong != "" {
			for _, line := range w.log {
				t.Log(line)
			}
			t.Fatalf("SKEP_SEED=%d: %s", seed, w.wrong)
		}
		total.add(w.tally)
	}
	t.Logf("%+v", total)
	if total.Given == 0 || total.Reused == 0 || total.HandedOver == 0 || total.Crashes == 0 || total.Late == 0 || total.Fenced == 0 ||
		total.Respelt == 0 || total.Spoilt == 0 || total.Claimed == 0 || total.Oversized == 0 || total.Undecided == 0 {
		t.Errorf("the histories leave something out: %+v", total)
	}
}

// The model notices when a part of the protocol is missing. Odds are those under
// which it shows soonest; without them any history will do. What takes more than
// some thousand histories is looked for with SKEP_SOAK only.
func TestInvariant4ModelNotices(t *testing.T) {
	handOvers := odds{administer: 0.2, land: 0.02, release: 0.1, take: 0.5, lose: 0.5, busy: 0.4, lag: 0.95}
	stalls := odds{administer: 0.2, land: 0.02, lapse: 0.1, take: 0.5, lose: 0.5, busy: 0.1, lag: 0.5}
	for _, test := range []struct {
		name    string
		missing protocol
		odds    odds
		noticed uint64 // by this history
		rare    bool
	}{
		{"a term begins with what the cache has", protocol{noCatchUp: true}, odds{}, 65, false},
		{"a successor does not wait for a fenced leader", protocol{noSettling: true}, stalls, 115, false},
		{"a term gives the lease away with requests under way", protocol{noDrain: true}, handOvers, 0, true},
		{"a refusal is taken for the fate of an earlier request", protocol{refusalsSettle: true}, handOvers, 0, true},
		{"a lease that was taken unawares is taken for one that nobody else held", protocol{noAnswerForgets: true}, odds{}, 2349, false},
		{"a node that is going is taken for gone", protocol{goingIsGone: true}, odds{}, 7, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			most := uint64(20_000)
			if test.rare {
				if !seedtest.Soak() {
					t.Skip("takes minutes: set SKEP_SOAK=1")
				}
				most *= 20
			}
			for seed := range seedtest.From(test.noticed, most) {
				w := newWorld(seed, test.missing)
				if test.odds != (odds{}) {
					w.odds = test.odds
				}
				if w.run(); w.double {
					t.Logf("seed %d: %s", seed, w.wrong)
					return
				}
			}
			t.Errorf("not noticed in %d histories", most)
		})
	}
}

// protocol says what is left out of the protocol.
type protocol struct {
	noCatchUp       bool
	noSettling      bool
	noDrain         bool
	refusalsSettle  bool
	noAnswerForgets bool
	goingIsGone     bool
}

// tally counts what happened.
type tally struct {
	Given, Reused, Pending      int
	HandedOver, Crashes, Stalls int
	Late, Lost, Conflicts       int
	Fenced, Known, Unknown      int
	Respelt, Spoilt, Claimed    int
	Oversized, Undecided        int
}

func (t *tally) add(o tally) {
	t.Given, t.Reused, t.Pending = t.Given+o.Given, t.Reused+o.Reused, t.Pending+o.Pending
	t.HandedOver, t.Crashes, t.Stalls = t.HandedOver+o.HandedOver, t.Crashes+o.Crashes, t.Stalls+o.Stalls
	t.Late, t.Lost, t.Conflicts = t.Late+o.Late, t.Lost+o.Lost, t.Conflicts+o.Conflicts
	t.Fenced, t.Known, t.Unknown = t.Fenced+o.Fenced, t.Known+o.Known, t.Unknown+o.Unknown
	t.Respelt, t.Spoilt, t.Claimed = t.Respelt+o.Respelt, t.Spoilt+o.Spoilt, t.Claimed+o.Claimed
	t.Oversized, t.Undecided = t.Oversized+o.Oversized, t.Undecided+o.Undecided
}

// world is the API server, its clients, and the network between them.
type world struct {
	protocol
	r      *rand.Rand
	config Config

	revision uint64
	nodes    map[string]simNode
	changes  []change // all since the beginning, revision 1 first
	lease    lease
	flying   []*flight // requests that will take effect, or will not

	replicas []*replica
	odds     odds
	depth    int  // of requests within requests
	quiet    bool // nothing happens besides
	byHand   bool // the user has edited a node
	tally    tally
	before   map[string]bool // blocks that a node has had
	log      []string
	wrong    string
	double   bool // what is wrong is that
}

// odds are how likely things are in a history, from 0 to 1: histories in which
// some of them hardly ever happen reach what the average one does not.
type odds struct{ administer, land, crash, lapse, release, take, lose, busy, lag float64 }

func drawOdds(r *rand.Rand) odds {
	return odds{
		administer: pick(r, 0.05, 0.2, 0.4), land: pick(r, 0.02, 0.1),
		crash: pick(r, 0, 0.003, 0.02), lapse: pick(r, 0, 0.01, 0.05), release: pick(r, 0, 0.02, 0.1),
		take: pick(r, 0.1, 0.5), lose: pick(r, 0, 0.1, 0.4), busy: pick(r, 0, 0.1, 0.4), lag: pick(r, 0, 0.5, 0.95),
	}
}

// chance is true with that probability.
func (w *world) chance(p float64) bool { return w.r.Float64() < p }

type simNode struct {
	name, uid string
	revision  uint64
	created   int64
	going     bool
	cidrs     []string
	err       string
	spoilt    any            // in the place of cidrs, and not to be decoded
	given     []netip.Prefix // by an operator, and not changed since by another writer
	chosen    []netip.Prefix // by hand, at any time: it gets back what it had
	says      []netip.Prefix // for its agent to use, unless it is too much to be believed
}

// change is a node as of a revision; gone if it has no name.
type change struct {
	name string
	node simNode
}

type lease struct {
	holder      int // index of a replica, or -1
	transitions int
	lapsed      bool // may be taken although it is held
	will        *will
}

const nobody = -1

// will is what a leader that releases leaves to the next.
type will struct {
	transitions int
	known       bool
	revision    uint64
}

// flight is a request that the server has not looked at.
type flight struct {
	from  *replica
	base  simNode // as the sender read it
	write func(*simNode)
}

func newWorld(seed uint64, p protocol) *world {
	r := rand.New(rand.NewPCG(seed, 5))
	c, _ := v4(30, "10.0.0.0/28") // four blocks
	if r.IntN(2) == 0 {
		c, _ = v4(30, "10.0.0.0/29", "10.0.0.8/29")
	}
	w := &world{protocol: p, r: r, config: c, nodes: map[string]simNode{}, before: map[string]bool{}, lease: lease{holder: nobody}, odds: drawOdds(r)}
	for i := range 2 + r.IntN(2) {
		w.replicas = append(w.replicas, &replica{world: w, id: i})
	}
	return w
}

func (w *world) logf(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d: ", w.revision)+fmt.Sprintf(format, args...))
}

func (w *world) run() {
	for range 250 {
		if w.step(); w.wrong != "" {
			return
		}
	}
	w.finish()
}

// step lets one thing happen.
func (w *world) step() {
	switch {
	case w.chance(w.odds.administer):
		w.administer()
	case len(w.flying) > 0 && w.chance(w.odds.land):
		w.land(w.r.IntN(len(w.flying)), w.r.IntN(4) > 0)
	default:
		w.replicas[w.r.IntN(len(w.replicas))].step()
	}
}

// administer does what users, agents and the garbage collector do.
func (w *world) administer() {
	name := fmt.Sprint("n", w.r.IntN(7))
	n, there := w.nodes[name]
	switch k := w.r.IntN(14); {
	case !there:
		w.store(simNode{name: name, uid: fmt.Sprint("uid-", w.revision+1), created: int64(w.revision)}, "is created")
	case k < 4:
		w.remove(name)
	case k == 4:
		n.going = true
		w.store(n, "is going")
	case k == 5:
		n.cidrs, n.spoilt, n.given, n.says = nil, nil, nil, nil
		w.store(n, "is cleared")
	case k == 6 && !slices.Contains(n.cidrs, "xyz"):
		n.cidrs = append(slices.Clone(n.cidrs), "xyz")
		w.store(n, "gets garbage")
	case k > 10:
		w.mangle(n)
	default:
		w.store(n, "is touched")
	}
}

// mangle does what people, and other versions of definitions, do to podCIDRs.
func (w *world) mangle(n simNode) {
	w.byHand = true
	block := fmt.Sprintf("10.0.0.%d", 4*w.r.IntN(4))
	switch k := w.r.IntN(5); {
	case k == 0 && len(n.cidrs) > 0: // its agent reads the same
		w.tally.Respelt++
		n.cidrs = slices.Clone(n.cidrs)
		for i, text := range n.cidrs {
			if c, ok := readCIDR(text); ok {
				n.cidrs[i] = pick(w.r, fmt.Sprintf("%s/%03d", c.Addr(), c.Bits()), fmt.Sprintf("::ffff:%s/%d", c.Addr(), c.Bits()+96))
			}
		}
		w.store(n, "says the same in other words")
	case k == 1 && n.spoilt == nil:
		w.tally.Spoilt++
		n.spoilt = pick[any](w.r, int64(7), strings.Join(n.cidrs, " "), append([]any{int64(7)}, anyOf(n.cidrs)...))
		w.store(n, fmt.Sprintf("cannot be decoded: %v", n.spoilt))
	case k == 2:
		w.tally.Oversized++
		n.cidrs, n.spoilt, n.given = []string{pick(w.r, "10.0.0.0/28", "0.0.0.0/0")}, nil, nil
		n.says = nil
		w.store(n, "says too much")
	case k == 3:
		w.tally.Claimed++
		n.cidrs, n.spoilt = []string{block + pick(w.r, "/29", "/30", "/31", "/030")}, nil
		n.given, n.says = nil, readAll(n.cidrs)
		n.chosen = append(slices.Clone(n.chosen), n.says...)
		if p := w.config.ClusterPoolIPv4CIDR; len(p) > 1 && n.says[0].Bits() == 29 {
			n.says = nil // as large as a pool
		}
		w.store(n, "says something else")
	default: // as it was, or as its agent has it
		n.spoilt = nil
		w.store(n, "is repaired")
	}
}

func anyOf(texts []string) (list []any) {
	for _, text := range texts {
		list = append(list, text)
	}
	return list
}

func readAll(texts []string) (list []netip.Prefix) {
	for _, text := range texts {
		if c, ok := readCIDR(text); ok {
			list = append(list, c)
		}
	}
	return list
}

// store writes a node and judges.
func (w *world) store(n simNode, how string) simNode {
	w.revision++
	n.revision = w.revision
	before := w.nodes[n.name]
	w.nodes[n.name] = n
	w.changes = append(w.changes, change{n.name, n})
	says := any(n.cidrs)
	if n.spoilt != nil {
		says = n.spoilt
	}
	w.logf("%s (%s) %s: %v %q", n.name, n.uid, how, says, n.err)
	if len(n.given) > 0 && !slices.Equal(n.given, before.given) {
		w.judge(n)
	}
	return n
}

// judge looks at what was given to a node.
func (w *world) judge(given simNode) {
	for name, n := range w.nodes {
		for _, had := range n.given {
			again := within(given.given, given.chosen)
			if name != given.name && !again && slices.ContainsFunc(given.given, had.Overlaps) {
				w.double, w.wrong = true, fmt.Sprintf("%s is given %s, and %s was given %s", given.name, given.cidrs, name, had)
			}
		}
	}
}

func (w *world) remove(name string) {
	w.revision++
	delete(w.nodes, name)
	w.changes = append(w.changes, change{name: name})
	w.logf("%s is gone", name)
}

// land decides what becomes of a request.
func (w *world) land(i int, arrives bool) {
	f := w.flying[i]
	w.flying = slices.Delete(w.flying, i, i+1)
	if !arrives {
		return
	}
	if n := w.nodes[f.base.name]; n.revision == f.base.revision {
		w.tally.Late++
		f.write(&n)
		w.store(n, fmt.Sprintf("is written late by %d", f.from.id))
	}
}

// landAll decides what becomes of all requests of a replica.
func (w *world) landAll(r *replica) {
	for i := len(w.flying) - 1; i >= 0; i-- {
		if w.flying[i].from == r {
			w.land(i, w.r.IntN(2) == 0)
		}
	}
}

// finish lets one replica lead undisturbed, and looks at what it leaves.
func (w *world) finish() {
	for _, r := range w.replicas {
		if r.term == nil {
			continue
		}
		w.landAll(r)
		r.crash()
	}
	w.lease.lapsed, w.quiet = true, true
	r := w.replicas[0]
	for r.term == nil {
		r.take()
	}
	for r.at < w.revision || r.busy() {
		if r.work(); w.wrong != "" {
			return
		}
	}
	free := uint64(0)
	for p := range r.term.Alloc.allPools() {
		free += p.free()
	}
	for name, n := range w.nodes {
		undecided := strings.HasPrefix(n.err, "waiting: ")
		switch {
		case n.going || n.spoilt != nil:
		case undecided:
			w.tally.Undecided++
			if !slices.ContainsFunc(slices.Collect(maps.Values(w.nodes)), func(other simNode) bool { return other.spoilt != nil }) {
				w.wrong = fmt.Sprintf("%s waits for nothing: %q", name, n.err)
			}
		case len(n.cidrs) == 0 && n.err != "allocator full":
			w.wrong = fmt.Sprintf("%s has no CIDR and error %q", name, n.err)
		case len(n.cidrs) == 0 && free > 0:
			w.wrong = fmt.Sprintf("%s starves while blocks are free", name)
		case len(n.cidrs) == 1 && n.err != "" && n.cidrs[0] != "xyz" && !w.byHand:
			w.wrong = fmt.Sprintf("%s has %v and error %q", name, n.cidrs, n.err)
		}
	}
}

// replica is a process of the operator.
type replica struct {
	*world
	id int

	at     uint64 // revision that its cache shows
	ledger ledger
	term   *term
	past   int // transitions of the lease when it led last
}

// ledger is the model's of what the process knows of earlier writes.
type ledger struct {
	known    bool
	revision uint64
	open     map[string]bool
}

// term is a leader's, from catching up to its end. What it does, it does with the
// cell's code.
type term struct {
	*replica
	*controller
	caughtUp  bool
	begun     bool
	fenced    bool
	dead      bool
	writing   bool
	delivered map[string]simNode
	queue     []string
}

// step is one of what may happen to a replica.
func (r *replica) step() {
	switch {
	case r.depth == 0 && r.chance(r.odds.crash):
		r.crash()
	case r.holds() && r.chance(r.odds.lapse): // it stalls, or is unreachable
		r.tally.Stalls++
		r.logf("%d lapses", r.id)
		r.lease.lapsed = true
	case r.holds() && !r.term.writing && r.chance(r.odds.release):
		r.release()
	case r.term != nil && r.term.fenced && !r.term.writing && r.chance(0.1):
		r.term.dead, r.term = true, nil // it has noticed
	case r.term == nil && r.chance(r.odds.take):
		r.take()
	default:
		r.work()
	}
}

func (r *replica) holds() bool { return r.term != nil && r.lease.holder == r.id && !r.term.fenced }

// crash ends the process, and starts it anew, with a cache that may be old.
func (r *replica) crash() {
	r.logf("%d crashes", r.id)
	r.tally.Crashes++
	if r.term != nil {
		r.term.dead, r.term = true, nil
	}
	if r.lease.holder == r.id {
		r.lease.lapsed = true
	}
	r.at = r.revision - min(r.revision, r.r.Uint64N(20))
	r.ledger, r.past = ledger{}, 0
}

// take takes the lease if that is free.
func (r *replica) take() {
	l := &r.lease
	mine := l.holder == r.id
	if l.holder != nobody && !l.lapsed && !mine {
		return
	}
	released := l.holder == nobody
	if !mine {
		r.fence(l.holder)
		l.transitions++
	}
	l.holder, l.lapsed = r.id, false
	if !mine && r.r.IntN(8) == 0 {
		r.logf("%d leads and does not know", r.id)
		return
	}
	known := r.inherit(mine, released)
	r.past = l.transitions
	r.logf("%d leads (transition %d), known: %v up to %d, cache at %d", r.id, l.transitions, known, r.ledger.revision, r.at)
	r.enter()
}

// fence shuts out who held the lease. Where the successor waits, nothing of it
// takes effect later.
func (r *replica) fence(holder int) {
	if holder == nobody {
		return
	}
	old := r.replicas[holder]
	if old.term != nil {
		old.term.fenced = true
	}
	if !r.noSettling {
		r.landAll(old)
	}
}

// inherit is what the process knows of writes when it takes the lease.
func (r *replica) inherit(mine, released bool) bool {
	switch t := r.lease.will; {
	case mine && (r.past == r.lease.transitions || r.noAnswerForgets):
		// No other replica has led.
	case released && t != nil && t.transitions == r.lease.transitions-1:
		r.ledger.known = t.known
		r.ledger.revision = max(r.ledger.revision, t.revision)
	default:
		r.ledger.known = false
	}
	// Its own requests of earlier terms are over: it waits for that.
	r.landAll(r)
	if len(r.ledger.open) > 0 {
		r.ledger.known, r.ledger.open = false, nil
	}
	return r.ledger.known
}

// release ends the term in order.
func (r *replica) release() {
	t := r.term
	if !r.noDrain {
		r.landAll(r)
	}
	t.dead, r.term = true, nil
	r.tally.HandedOver++
	r.lease.will = &will{r.lease.transitions, r.ledger.known && len(r.ledger.open) == 0, r.ledger.revision}
	r.lease.holder, r.lease.lapsed = nobody, false
	r.logf("%d releases, and leaves %+v", r.id, *r.lease.will)
}

// enter makes the values of a term.
func (r *replica) enter() {
	alloc, err := newAllocator(r.config, cluster.Config{EnableIPv4: true})
	if err != nil {
		panic(err)
	}
	t := &term{replica: r, delivered: map[string]simNode{}}
	t.controller = &controller{unstored: map[string]bool{}, params: params{
		Alloc: alloc, Client: client{Term: t}, Metrics: newMetrics(metrics.Factory{}), Health: health.NewTree().Reporter("test"),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}}
	r.term = t
}

// busy reports whether a leader has something to do, its cache aside.
func (r *replica) busy() bool {
	t := r.term
	return !t.begun || len(t.queue) > 0 || len(t.undelivered()) > 0
}

// work is a step of a replica that nothing happens to.
func (r *replica) work() {
	t := r.term
	switch k := r.r.IntN(3); {
	case k == 0 && t != nil && !t.quiet && r.chance(r.odds.lag), t == nil && r.chance(r.odds.lag): // a slow cache
	case t == nil || k == 0 && t.caughtUp:
		r.at = min(r.revision, r.at+1+r.r.Uint64N(3))
	case t.writing:
	case !t.caughtUp:
		t.catchUp()
	case k == 1 && len(t.queue) > 0:
		t.writeNext()
	default:
		t.deliver()
	}
}

// catchUp is stream.AwaitPredecessor.
func (t *term) catchUp() {
	r := t.replica
	switch {
	case t.noCatchUp:
	case r.ledger.known:
		t.tally.Known++
		r.at = max(r.at, r.ledger.revision)
	default:
		t.tally.Unknown++
		r.at = r.revision
		r.ledger.known, r.ledger.revision = true, r.at
	}
	t.caughtUp = true
}

// cache is what the replica's stream shows.
func (r *replica) cache() map[string]simNode {
	nodes := map[string]simNode{}
	for _, c := range r.changes[:r.at] {
		if c.node.name == "" {
			delete(nodes, c.name)
		} else {
			nodes[c.name] = c.node
		}
	}
	return nodes
}

// undelivered are the keys that differ from what was delivered.
func (t *term) undelivered() (names []string) {
	cache := t.cache()
	for name, n := range cache {
		if t.delivered[name].revision != n.revision {
			names = append(names, name)
		}
	}
	for name := range t.delivered {
		if _, there := cache[name]; !there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// deliver hands the cell an event, Sync when it has seen all.
func (t *term) deliver() {
	names := t.undelivered()
	switch {
	case len(names) > 0:
		name := pick(t.r, names...)
		n, there := t.cache()[name]
		e := stream.Change[ciliumio.Node]{Kind: stream.Upsert, Key: slim.Key{Name: name}, Object: n.decoded()}
		if t.delivered[name] = n; !there {
			e.Kind = stream.Delete
			delete(t.delivered, name)
		}
		if t.goingIsGone && n.going {
			e.Kind = stream.Delete
		}
		t.watch(func() { t.add(t.controller.handleChange(e)) })
	case !t.begun:
		t.begun = true
		t.watch(func() { t.add(t.handleSynced()) })
	}
}

// watch looks at what is given out while f runs: nothing that a node was seen to say.
func (t *term) watch(f func()) {
	held := map[string][]netip.Prefix{}
	for name, n := range t.Alloc.nodes {
		held[name] = slices.Clone(n.allocated)
	}
	f()
	for name, n := range t.Alloc.nodes {
		for _, block := range n.allocated {
			if slices.Contains(held[name], block) || withinOne(block, n.cidrs) {
				continue
			}
			for other, o := range t.delivered {
				if other != name && o.spoilt == nil && slices.ContainsFunc(o.says, block.Overlaps) {
					t.double, t.wrong = true, fmt.Sprintf("%s is given %s, and %s says %v", name, block, other, o.cidrs)
				}
			}
		}
	}
}

func (t *term) add(names []string) {
	for _, n := range names {
		if !slices.Contains(t.queue, n) {
			t.queue = append(t.queue, n)
		}
	}
}

func (t *term) writeNext() {
	i := t.r.IntN(len(t.queue))
	name := t.queue[i]
	t.queue = slices.Delete(t.queue, i, i+1)
	t.writing = true
	err := t.writeNode(context.Background(), name)
	t.writing = false
	if err != nil {
		t.add([]string{name})
	}
}

func (n simNode) decoded() *ciliumio.Node {
	d := &ciliumio.Node{}
	d.Name, d.UID, d.ResourceVersion = n.name, slim.ParseUID(n.uid), slim.Revision(n.revision)
	d.CreationTimestamp = slim.MakeTime(time.Unix(n.created, 0))
	if n.going {
		d.DeletionTimestamp = slim.MakeTime(time.Unix(n.created+1, 0))
	}
	d.Spec.IPAM.PodCIDRs, d.Status.IPAM.OperatorStatus.Error = n.cidrs, n.err
	if n.spoilt != nil {
		return n.decodedInParts()
	}
	return d
}

var nodeCodec = sync.OnceValues(slim.JSON[ciliumio.Node])

func (n simNode) decodedInParts() *ciliumio.Node {
	d := &ciliumio.Node{}
	codec, err := nodeCodec()
	text, textErr := json.Marshal(n.encoded().Object)
	if err := errors.Join(err, textErr, codec.DecodeJSON(text, d)); err != nil {
		panic(err)
	}
	return d
}

// client is the way of a term to the server: between any two of its requests, and
// while they are under way, anything may happen.
type client struct {
	k8s.Client
	Term *term
}

var errNoAnswer = errors.New("no answer")

func (c client) Modify(_ context.Context, ref k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	t := c.Term
	for range 3 {
		t.meanwhile()
		base, there := t.nodes[ref.Name]
		if !there {
			return nil, false, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
		}
		changed := base.encoded()
		if err := edit(changed); err != nil {
			return nil, false, err
		}
		write, any := difference(base, changed, ref.Subresource)
		if !any {
			return changed, false, nil
		}
		stored, err := t.put(base, write)
		if apierrors.IsConflict(err) {
			continue
		}
		return stored, err == nil, err
	}
	return nil, false, apierrors.NewConflict(v2.CiliumNodeResource.GroupResource(), ref.Name, nil)
}

// meanwhile lets others act.
func (w *world) meanwhile() {
	if w.quiet || w.depth > 2 {
		return
	}
	w.depth++
	for range w.r.IntN(6) {
		if w.wrong == "" {
			w.step()
		}
	}
	w.depth--
}

// put sends a write. The fence is looked at when it is sent.
func (t *term) put(base simNode, write func(*simNode)) (*unstructured.Unstructured, error) {
	w, r := t.world, t.replica
	t.meanwhile()
	switch {
	case t.fenced || t.dead:
		w.tally.Fenced++
		return nil, leading.ErrFenced
	case w.chance(w.odds.busy): // the server is too busy
		r.ledger.refuse(base.name, w.refusalsSettle)
		return nil, apierrors.NewTooManyRequests("busy", 1)
	case w.chance(w.odds.lose): // no answer; it may take effect, now or later
		w.tally.Lost++
		r.ledger.sent(base.name)
		w.flying = append(w.flying, &flight{r, base, write})
		if w.r.IntN(3) == 0 {
			w.land(len(w.flying)-1, true)
		}
		return nil, errNoAnswer
	}
	n, there := w.nodes[base.name]
	if !there || n.uid != base.uid || n.revision != base.revision {
		w.tally.Conflicts++
		r.ledger.refuse(base.name, w.refusalsSettle)
		return nil, apierrors.NewConflict(v2.CiliumNodeResource.GroupResource(), base.name, nil)
	}
	write(&n)
	w.count(base, n)
	n = w.store(n, fmt.Sprintf("is written by %d", r.id))
	delete(r.ledger.open, n.name)
	r.ledger.revision = max(r.ledger.revision, n.revision)
	return n.encoded(), nil
}

func (w *world) count(before, after simNode) {
	if after.err != "" && before.err == "" {
		w.tally.Pending++
	}
	if len(before.cidrs) == 0 && len(after.cidrs) > 0 {
		w.tally.Given++
		if w.before[after.cidrs[0]] {
			w.tally.Reused++
		}
		w.before[after.cidrs[0]] = true
	}
}

func (l *ledger) sent(name string) {
	if l.open == nil {
		l.open = map[string]bool{}
	}
	l.open[name] = true
}

// refuse is a request that did nothing. It says nothing of an earlier one.
func (l *ledger) refuse(name string, settles bool) {
	if settles {
		delete(l.open, name)
	}
}

func (n simNode) encoded() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(n.name)
	u.SetUID(types.UID(n.uid))
	u.SetResourceVersion(strconv.FormatUint(n.revision, 10))
	if n.going {
		u.Object["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	}
	u.SetCreationTimestamp(metav1.Unix(n.created, 0))
	switch {
	case n.spoilt != nil:
		_ = unstructured.SetNestedField(u.Object, n.spoilt, "spec", "ipam", "podCIDRs")
	case len(n.cidrs) > 0:
		_ = unstructured.SetNestedStringSlice(u.Object, n.cidrs, "spec", "ipam", "podCIDRs")
	}
	_ = setError(u, n.err)
	return u
}

// difference is what an edit changed, in the part of the object that it may.
func difference(base simNode, u *unstructured.Unstructured, subresource string) (write func(*simNode), any bool) {
	cidrs, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "ipam", "podCIDRs")
	text, _, _ := unstructured.NestedString(u.Object, "status", "ipam", "operator-status", "error")
	if subresource == "status" {
		return func(n *simNode) { n.err = text }, text != base.err
	}
	return func(n *simNode) { n.cidrs, n.given, n.says = cidrs, readAll(cidrs), readAll(cidrs) }, base.spoilt == nil && !slices.Equal(cidrs, base.cidrs)
}
