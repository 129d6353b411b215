// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// No address is used on two nodes, and none is released that a pod uses, over any history of crashes at every call, lost
// answers, throttling, partial success, stale caches, two leaders and agents of both protocols. The engine's own code
// decides, calls and writes; the API server, the agents and the cloud are models. A history is drawn from its seed.
// CIPAM-42.
func TestModel(t *testing.T) {
	total := tally{}
	for seed := range seedtest.Seeds(t, 300) {
		w := newWorld(seed)
		w.run()
		if w.wrong != "" {
			for _, line := range w.log[max(0, len(w.log)-200):] {
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
		cloudtest.OpAssign, cloudtest.OpAttach, cloudtest.OpUnassign, "used again by another node", "crash", "leader", "fence shut in a call", "refused", "lost", "partial",
		"lost write", "conflict", "marked", "ready", "refused by agent", "returned", "pod", "instance terminated", "agent replaced", "prefix unassigned", "converged",
	} {
		if total[what] == 0 {
			t.Errorf("the histories leave something out: %s", what)
		}
	}
}

// A seed is one history.
func TestModelReplays(t *testing.T) {
	for seed := range uint64(10) {
		first, second := newWorld(seed), newWorld(seed)
		first.run()
		second.run()
		if !slices.Equal(first.log, second.log) {
			t.Errorf("seed %d: two histories of %d and %d lines", seed, len(first.log), len(second.log))
		}
	}
}

// The model notices an agent that answers without a check.
func TestModelNotices(t *testing.T) {
	for seed := range uint64(2000) {
		w := newWorld(seed)
		w.careless = true
		if w.run(); w.wrong != "" {
			t.Logf("seed %d: %s", seed, w.wrong)
			return
		}
	}
	t.Error("not noticed")
}

type tally map[string]int

// world is a cloud, an API server, agents, and up to two operators.
type world struct {
	r        *rand.Rand
	ctx      context.Context
	stop     func()
	now      time.Time
	cloud    *cloudtest.Cloud
	nodes    map[string]*v2.CiliumNode
	agents   map[string]*agent
	revision int
	leader   *term
	old      *term
	acting   *term // in a step
	quiet    bool
	prunes   func(*v2.CiliumNode)                        // the installed definition, nil for one that has all fields
	edits    int                                         // of terms, stored or not
	edit     func(cloudipam.Provider) cloudipam.Provider // of terms, nil for that of the cloud
	provided map[string]any                              // spec.providerID by Node, or the error of its read; nil for no Nodes
	careless bool
	depth    int

	tally tally
	last  map[string]string // owners of addresses, the last ones
	log   []string
	wrong string
}

// term is an operator that leads, or has led.
type term struct {
	world *world
	name  string
	op    *cloudipam.Operator
	fence *leading.Fence
	shown map[string]int // revisions
}

// crash ends a term in the middle of a call.
type crash struct{}

func newWorld(seed uint64) *world {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 15)), now: time.Unix(1_800_000_000, 0), cloud: cloudtest.NewCloud("10.0.0.0/26"),
		nodes: map[string]*v2.CiliumNode{}, agents: map[string]*agent{}, tally: tally{}, last: map[string]string{},
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.ctx = explain.WithCause(w.ctx, &explain.Cause{Rule: "ipam.memory allocate"})
	if w.cloud.PerInterface, w.cloud.Interfaces = 6, 2; seed%3 == 0 {
		w.cloud.PerInterface, w.cloud.PrefixBits = 8, 30
	}
	w.cloud.Fault = w.fault
	for i := range 3 {
		w.register(fmt.Sprintf("n%d", i), i == 2)
	}
	return w
}

func (w *world) logf(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) chance(percent int) bool { return w.r.IntN(100) < percent }

// register creates an instance and its CiliumNode.
func (w *world) register(name string, pools bool) {
	w.cloud.Run("i-" + name)
	w.revision++
	n := &v2.CiliumNode{
		TypeMeta: metav1.TypeMeta{APIVersion: "cilium.io/v2", Kind: "CiliumNode"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", w.revision)), ResourceVersion: fmt.Sprint(w.revision), CreationTimestamp: metav1.NewTime(w.now),
		},
	}
	n.Spec.InstanceID = "i-" + name
	n.Spec.IPAM.PreAllocate = 1 + w.r.IntN(4)
	w.nodes[name] = n
	w.agents[name] = &agent{world: w, name: name, pools: pools, inUse: map[string]bool{}, seen: n.DeepCopy()}
}

func (w *world) run() {
	defer w.stop()
	w.lead()
	for range 300 {
		if w.step(); w.wrong != "" {
			return
		}
	}
	w.converge()
}

// step lets one thing happen.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.r.IntN(2000)) * time.Millisecond)
	names := slices.Sorted(maps.Keys(w.agents))
	switch k := w.r.IntN(100); {
	case k < 45:
		w.agents[names[w.r.IntN(len(names))]].step()
	case k < 48 && w.depth == 0:
		w.replaceLeader()
	case k < 50 && w.depth == 0:
		w.administer(names[w.r.IntN(len(names))])
	case k < 58 && w.old != nil && w.depth == 0:
		w.old.step()
	case w.leader != nil && w.depth == 0:
		w.leader.step()
	}
	w.check()
}

// meanwhile lets agents act, while an operator is in a call.
func (w *world) meanwhile() {
	if w.quiet || w.depth > 0 {
		return
	}
	w.depth++
	defer func() { w.depth-- }()
	for range w.r.IntN(3) {
		w.step()
	}
}

// administer edits a node, or terminates its instance and registers it again.
func (w *world) administer(name string) {
	n := w.nodes[name]
	if w.chance(70) {
		n.Spec.IPAM.PreAllocate, n.Spec.IPAM.MinAllocate = 1+w.r.IntN(4), w.r.IntN(7)
		w.stored(n)
		return
	}
	if w.chance(40) {
		w.agents[name].replace()
		return
	}
	w.tally["instance terminated"]++
	w.cloud.Terminate("i-" + name)
	delete(w.nodes, name)
	w.logf("%s is terminated", name)
	if w.leader != nil && w.chance(50) { // or the deletion is not noticed
		w.leader.op.Hide(name)
		w.leader.reconcile(name)
	}
	w.register(name, w.chance(40))
}

func (w *world) stored(n *v2.CiliumNode) {
	w.revision++
	n.ResourceVersion = fmt.Sprint(w.revision)
	w.nodes[n.Name] = n
}

// lead starts an operator.
func (w *world) lead() {
	t := &term{world: w, name: fmt.Sprintf("term %d", w.tally["leader"]), fence: leading.Unfenced(), shown: map[string]int{}}
	w.tally["leader"]++
	log := slog.New(slog.DiscardHandler)
	door := outside.New(outside.Scope{
		Module: cell.ModuleInfo{ID: "ipam.memory", Term: "leader"}, Log: log, Health: health.NewTree().Reporter("ipam.memory"), Fence: t.fence, Book: explain.NewHistory(),
	}, "ec2", outside.Limits{QPS: 1e9, Burst: 1e9})
	config := cloudipam.Config{ParallelAllocWorkers: 1, ReleaseExcessIPs: true}
	provider := cloudtest.NewProvider(w.cloud, door)
	if w.edit != nil {
		provider = w.edit(provider)
	}
	op, err := cloudipam.NewOperator(w.ctx, provider, client{term: t}, config, func() time.Time { return w.now })
	if err != nil {
		w.wrong = err.Error()
		return
	}
	t.op = op
	w.leader = t
	for name := range w.nodes { // what the predecessor wrote is shown before the first read
		t.show(name)
	}
	w.logf("%s begins", t.name)
	t.guard(func() {
		for t.op.ReadAll(w.ctx) != nil {
			w.logf("the first read failed")
		}
	})
}

// replaceLeader has a crash, or the loss of the lease: the old leader continues behind its fence.
func (w *world) replaceLeader() {
	if w.leader == nil {
		w.lead()
		return
	}
	w.leader.fence.Close()
	if w.chance(60) {
		w.old = w.leader
	}
	w.lead()
}

// fault is called by the cloud, with its lock held.
func (w *world) fault(operation string) (f cloudtest.Fault) {
	if w.quiet {
		return f
	}
	changes := operation != cloudtest.OpList && operation != cloudtest.OpGet
	switch k := w.r.IntN(100); {
	case k < 4:
		f.Refuse = errors.New("500")
		w.tally["refused"]++
	case k < 7:
		f.Refuse = cloudtest.Throttled(time.Nanosecond)
	case k < 12 && changes:
		f.Lose = errors.New("the connection was reset")
		w.tally["lost"]++
		if f.Partial = w.chance(50); f.Partial {
			w.tally["partial"]++
		}
	case k < 15:
		w.tally["crash"]++
		w.logf("crash before %s", operation)
		panic(crash{})
	case k < 17 && changes:
		w.tally["fence shut in a call"]++
		w.acting.fence.Close()
	}
	if f.Refuse == nil {
		w.tally[operation]++
		if operation == cloudtest.OpUnassign && w.cloud.PrefixBits > 0 {
			w.tally["prefix unassigned"]++
		}
	}
	w.logf("  %s %+v", operation, f)
	return f
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
		w.logf("WRONG: %s", w.wrong)
	}
}

// check holds the invariants.
func (w *world) check() {
	owners := w.cloud.Owners()
	for _, name := range slices.Sorted(maps.Keys(w.agents)) {
		a := w.agents[name]
		for _, ip := range slices.Sorted(maps.Keys(a.inUse)) {
			if owners[ip] != "i-"+name {
				w.fail("a pod on %s uses %s, which is of %q", name, ip, owners[ip])
			}
		}
		for _, ip := range a.usable(w.nodes[name]) {
			if owners[ip] != "i-"+name {
				w.fail("%s may use %s, which is of %q", name, ip, owners[ip])
			}
		}
	}
	for ip, owner := range owners {
		if was := w.last[ip]; was != "" && was != owner {
			w.tally["used again by another node"]++
		}
		w.last[ip] = owner
	}
}

// converge ends all faults: every node then has what it needs, and nothing is written any more.
func (w *world) converge() {
	w.quiet, w.old = true, nil
	if w.leader == nil || w.leader.fence.Check() != nil {
		w.lead()
	}
	changes, revision := -1, -1
	for range 60 {
		w.now = w.now.Add(10 * time.Minute)
		w.leader.guard(func() { _ = w.leader.op.ReadAll(w.ctx) })
		for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
			w.agents[name].sync()
			w.agents[name].report()
			w.agents[name].sync()
			w.leader.show(name)
			w.leader.reconcile(name)
			w.leader.guard(func() { _ = w.leader.op.ReadWanted(w.ctx) })
			w.leader.show(name)
			w.leader.reconcile(name)
		}
		if w.check(); w.wrong != "" {
			return
		}
		if changes == w.cloud.Changes() && revision == w.revision {
			w.tally["converged"]++
			w.satisfied()
			return
		}
		changes, revision = w.cloud.Changes(), w.revision
	}
	w.fail("it does not converge: %d changes, revision %d", changes, revision)
}

// satisfied checks that every node has what it lacks, unless it can have no more.
func (w *world) satisfied() {
	owners := map[string]int{}
	for _, of := range w.cloud.Owners() {
		owners[of]++
	}
	for name, n := range w.nodes {
		has, used := len(w.agents[name].usable(n)), len(w.agents[name].inUse)
		if lacks := max(n.Spec.IPAM.PreAllocate-(has-used), n.Spec.IPAM.MinAllocate-owners["i-"+name]); lacks > 0 && owners["i-"+name] < 12 {
			w.fail("%s lacks %d addresses: it has %d, uses %d, the cloud has %d: %+v", name, lacks, has, used, owners["i-"+name], n.Spec.IPAM)
		}
	}
}

// guard runs a step of a term, which may crash.
func (t *term) guard(f func()) {
	w := t.world
	w.acting = t
	defer func() {
		w.acting = nil
		v := recover()
		if v == nil {
			return
		}
		if _, is := v.(crash); !is {
			panic(v)
		}
		t.fence.Close()
		if w.depth = 0; w.old == t {
			w.old = nil
		} else {
			w.leader = nil
		}
	}()
	f()
}

func (t *term) step() {
	w := t.world
	names := slices.Sorted(maps.Keys(w.nodes))
	name := names[w.r.IntN(len(names))]
	switch k := w.r.IntN(10); {
	case k < 3:
		t.show(name)
	case k < 4:
		t.guard(func() { _ = t.op.ReadAll(w.ctx) })
	case k < 6:
		t.guard(func() { _ = t.op.ReadWanted(w.ctx) })
	default:
		t.reconcile(name)
	}
}

// show has the cache show the newest state of a node.
func (t *term) show(name string) {
	if n := t.world.nodes[name]; n != nil {
		if err := t.op.Show(n); err != nil {
			t.world.fail("%v", err)
		}
	}
}

func (t *term) reconcile(name string) {
	t.guard(func() {
		err := t.op.Reconcile(t.world.ctx, name)
		t.world.logf("%s reconciles %s: %v", t.name, name, err)
	})
}

// client is a term's way to the API server.
type client struct {
	k8s.Client
	term *term
}

func (c client) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	w := c.term.world
	if ref.Resource.Resource == "nodes" {
		return w.node(ref)
	}
	w.meanwhile()
	n := w.nodes[ref.Name]
	if n == nil || ref.UID != "" && n.UID != ref.UID {
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n.DeepCopy())
	w.meanwhile()
	return &unstructured.Unstructured{Object: content}, err
}

var errNoAnswer = errors.New("no answer")

func (c client) Modify(ctx context.Context, ref k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	w := c.term.world
	w.edits++
	for range 3 {
		u, err := c.Get(ctx, ref)
		if err != nil {
			return nil, false, err
		}
		if err := edit(u); err != nil {
			return nil, false, err
		}
		base := u.GetResourceVersion()
		w.meanwhile()
		if err := c.term.fence.Check(); err != nil {
			return nil, false, err
		}
		if !w.quiet && w.chance(3) {
			w.tally["crash"]++
			w.logf("crash before a write of %s", ref.Name)
			panic(crash{})
		}
		n := w.nodes[ref.Name]
		if n == nil || n.ResourceVersion != base {
			w.tally["conflict"]++
			continue
		}
		changed := &v2.CiliumNode{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, changed); err != nil {
			return nil, false, err
		}
		next := n.DeepCopy()
		if ref.Subresource == "status" {
			next.Status = changed.Status
		} else {
			next.Spec = changed.Spec
		}
		if w.prunes != nil {
			if w.prunes(next); equality.Semantic.DeepEqual(n, next) {
				return u, false, nil
			}
		}
		w.stored(next)
		w.logf("  %s writes %s/%s: pool %v, allocated %v, release %v", c.term.name, ref.Name, ref.Subresource, slices.Sorted(maps.Keys(next.Spec.IPAM.Pool)), next.Spec.IPAM.Pools.Allocated, next.Status.IPAM.ReleaseIPs)
		if !w.quiet && w.chance(4) {
			w.tally["lost write"]++
			return nil, false, errNoAnswer
		}
		return u, true, nil
	}
	return nil, false, apierrors.NewConflict(ref.Resource.GroupResource(), ref.Name, nil)
}
