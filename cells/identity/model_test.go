// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/agents"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/domain/labels"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// No number means two sets of labels, and no set gets two numbers from leaders
// that know of each other's, over any history. What decides and writes here is
// the cell's own code, on a model of the rest of the world: an API server,
// replicas whose views lag behind, agents, garbage collection, deletions by hand,
// requests whose answers get lost and which take effect late. Every step of a
// history is drawn from its seed; what several workers of a replica do is
// interleaved with all that others do. The clock is the bubble's.
//
// What is taken for granted: endpoints are seen at once; nothing of a leader takes
// effect after its successor has begun (invariant 2); and agents, who draw from
// 65,000 numbers and not from ten, do not hit one that was another's and that the
// leader, who has not seen that, is about to make again.
func TestModel(t *testing.T) {
	var total tally
	for seed := range seedtest.Seeds(t, 1000) {
		w := newModel(seed, guards{})
		synctest.Test(t, func(*testing.T) { w.run() })
		if w.wrong != "" {
			for _, line := range w.log {
				t.Log(line)
			}
			t.Fatalf("SKEP_SEED=%d: %s", seed, w.wrong)
		}
		total.add(w.tally)
	}
	t.Logf("%+v", total)
	for _, n := range []int{total.Made, total.Adopted, total.Again, total.Reused, total.Terms, total.Late, total.Taken, total.Fenced, total.Starved, total.Ghosts, total.Edited, total.Mutated, total.Restored, total.Refused} {
		if n == 0 {
			t.Errorf("the histories leave something out: %+v", total)
		}
	}
}

// The model notices when a guard is missing.
func TestModelNotices(t *testing.T) {
	for name, test := range map[string]struct {
		missing guards
		noticed uint64 // by this history
	}{
		"a term begins with what the view has":               {guards{noCatchUp: true}, 3},
		"a term makes identities before all views are there": {guards{noSync: true}, 1},
		"numbers do not rest":                                {guards{noRest: true}, 2},
		"what endpoints have does not count":                 {guards{noCarried: true}, 76},
		"what exists is taken for one's own":                 {guards{noCompare: true}, 35},
		"what was made is believed to be there":              {guards{noConfirm: true}, 129},
		"an edit is taken for another object":                {guards{noUID: true}, 61},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range seedtest.From(test.noticed, 3000) {
				w := newModel(seed, test.missing)
				synctest.Test(t, func(*testing.T) { w.run() })
				if w.wrong != "" {
					t.Logf("seed %d: %s", seed, w.wrong)
					return
				}
			}
			t.Error("not noticed in 3000 histories")
		})
	}
}

// guards says what is left out of the protocol.
type guards struct {
	noCatchUp, noSync, noRest, noCarried, noCompare, noConfirm, noUID bool
}

// tally counts what happened.
type tally struct {
	Made, Adopted, Again, Reused, Terms, Late, Taken, Fenced, Starved, Ghosts, Edited, Mutated, Restored, Refused int
}

func (t *tally) add(o tally) {
	t.Made, t.Adopted, t.Again, t.Reused, t.Terms = t.Made+o.Made, t.Adopted+o.Adopted, t.Again+o.Again, t.Reused+o.Reused, t.Terms+o.Terms
	t.Edited, t.Mutated, t.Restored, t.Refused = t.Edited+o.Edited, t.Mutated+o.Mutated, t.Restored+o.Restored, t.Refused+o.Refused
	t.Late, t.Taken, t.Fenced, t.Starved, t.Ghosts = t.Late+o.Late, t.Taken+o.Taken, t.Fenced+o.Fenced, t.Starved+o.Starved, t.Ghosts+o.Ghosts
}

// thing is an object of any kind as of a revision; gone if content is nil.
type thing struct {
	kind, name string
	revision   slim.Revision
	content    any // *slim.Pod, *slim.Namespace or *ciliumio.Identity
}

// carrier is an endpoint.
type carrier struct {
	number identity.Number
	labels slim.Labels
	since  slim.Revision
	misled bool // the identity showed labels that it was not given
}

// model is the API server, its clients, and the network between them.
type model struct {
	guards
	r     *rand.Rand
	keeps *filters
	kept  func(source, key string) bool // by agents of the newest release

	changes   []thing // all since the beginning, revision 1 first
	now       map[string]thing
	endpoints map[string]carrier // by pod
	byLeaders map[identity.Number]bool
	given     map[slim.UID]slim.Labels          // as created, by any writer
	had       map[slim.UID]map[slim.Labels]bool // all that were seen
	replicas  []*replica
	leader    *replica
	flying    []func(arrives bool)

	agentsMake bool   // as in the mode both
	edits      bool   // by hand
	mutates    string // what the API server's admission adds labels to: create, or both that and update
	lag, lose  float64
	depth      int
	quiet      bool
	tally      tally
	ever       map[identity.Number]slim.Labels
	log        []string
	wrong      string
}

// smallest is the range of the model: small, so that numbers meet.
var smallest = identity.Range{Min: 256, Max: 265}

func newModel(seed uint64, g guards) *model {
	r := rand.New(rand.NewPCG(seed, 7))
	w := &model{
		guards: g, r: r, keeps: makeFilters(nil, nil), now: map[string]thing{}, endpoints: map[string]carrier{},
		byLeaders: map[identity.Number]bool{}, ever: map[identity.Number]slim.Labels{}, agentsMake: r.IntN(3) == 0,
		given: map[slim.UID]slim.Labels{}, had: map[slim.UID]map[slim.Labels]bool{}, edits: r.IntN(3) == 0, mutates: []string{"", "", "", "create", "create update"}[r.IntN(5)],
		lag: []float64{0, 0.5, 0.9}[r.IntN(3)], lose: []float64{0, 0.1, 0.4}[r.IntN(3)],
	}
	w.kept = memoize(w.keeps.all[w.keeps.of[release.Newest()]].Keeps)
	for range 2 {
		w.replicas = append(w.replicas, &replica{model: w, id: len(w.replicas)})
	}
	return w
}

func (w *model) logf(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d: ", len(w.changes))+fmt.Sprintf(format, args...))
}

func (w *model) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
		w.logf("WRONG: %s", w.wrong)
	}
}

func (w *model) chance(p float64) bool { return w.r.Float64() < p }

func (w *model) run() {
	w.namespace("n", "a")
	for range 200 {
		if w.step(); w.wrong != "" {
			return
		}
	}
	w.finish()
}

// step lets one thing happen.
func (w *model) step() {
	switch k := w.r.IntN(20); {
	case k < 5:
		w.administer()
	case k < 7:
		w.agent()
	case k == 7:
		time.Sleep(time.Duration(w.r.IntN(4)) * time.Minute)
	case k == 8 && len(w.flying) > 0:
		w.land(w.r.IntN(2) == 0)
	case k == 9 && w.r.IntN(8) == 0:
		w.take(w.replicas[w.r.IntN(2)])
	case w.leader != nil:
		w.leader.step()
	default:
		w.take(w.replicas[w.r.IntN(2)])
	}
}

// store writes an object, or takes it away.
func (w *model) store(kind, name string, content any) slim.Revision {
	revision := slim.Revision(len(w.changes) + 1)
	switch o := content.(type) {
	case *slim.Pod:
		o.ResourceVersion = revision
	case *slim.Namespace:
		o.ResourceVersion = revision
	case *ciliumio.Identity:
		o.ResourceVersion = revision
		if w.had[o.UID] == nil {
			w.had[o.UID] = map[slim.Labels]bool{}
		}
		w.had[o.UID][o.SecurityLabels], w.had[o.UID][w.given[o.UID]] = true, true
		w.mislead(o)
	}
	c := thing{kind, name, revision, content}
	w.changes = append(w.changes, c)
	if content == nil {
		delete(w.now, kind+name)
	} else {
		w.now[kind+name] = c
	}
	return revision
}

func (w *model) namespace(name, team string) {
	n := &slim.Namespace{}
	n.Name, n.Labels = name, slim.MakeLabels(pairs{"team": team})
	w.store("namespace", name, n)
	w.logf("namespace %s has team %s", name, team)
}

// administer does what users do.
func (w *model) administer() {
	switch k := w.r.IntN(13); {
	case k == 12:
		if w.edits {
			w.edit(smallest.Min + identity.Number(w.r.IntN(smallest.Size())))
		}
	case k == 0:
		w.namespace(pick(w.r, "n", "m"), pick(w.r, "a", "b"))
	case k == 1:
		name := smallest.Min + identity.Number(w.r.IntN(smallest.Size()))
		w.deleteIdentity(name, "by hand")
	case k == 2:
		w.collect()
	case k < 6:
		if name := w.anyPod(); name != "" {
			w.store("pod", name, nil)
			w.logf("pod %s is gone", name)
		}
	default:
		namespace := pick(w.r, "n", "n", "m")
		if _, there := w.now["namespace"+namespace]; !there {
			return
		}
		p := &slim.Pod{}
		p.Name, p.Namespace = fmt.Sprint("p", w.r.IntN(6)), slim.MakeString(namespace)
		p.Labels = slim.MakeLabels(pairs{"app": pick(w.r, "x", "y", "z"), "pod-template-hash": pick(w.r, "1", "2")})
		w.store("pod", namespace+"/"+p.Name, p)
		w.logf("pod %s has %s", p.Key(), p.Labels)
	}
}

// mislead notes which endpoints have an identity that shows other labels than those that it was given: a leader that sees only
// these believes them.
func (w *model) mislead(o *ciliumio.Identity) {
	if o.SecurityLabels == w.given[o.UID] {
		return
	}
	for pod, e := range w.endpoints {
		if e.number.String() == o.Name {
			e.misled = true
			w.endpoints[pod] = e
		}
	}
}

// edit changes security-labels of an identity by hand, and nothing else.
func (w *model) edit(n identity.Number) {
	old := w.identity(n)
	if old == nil {
		return
	}
	to := old.SecurityLabels.Map()
	to["k8s:app"] = pick(w.r, "x", "y", "z", "evil")
	i := *old
	if i.SecurityLabels = slim.MakeLabels(to); i.SecurityLabels == old.SecurityLabels {
		return
	}
	w.store("identity", i.Name, &i)
	w.tally.Edited++
	w.logf("identity %d is edited: %s", n, i.SecurityLabels)
}

// mutated is what the API server stores of labels that are sent.
func (w *model) mutated(verb string, of slim.Labels) slim.Labels {
	if w.quiet || !strings.Contains(w.mutates, verb) || w.r.IntN(4) == 0 {
		return of
	}
	w.tally.Mutated++
	all := of.Map()
	all["k8s:injected"] = "yes"
	return slim.MakeLabels(all)
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func (w *model) anyPod() string {
	var names []string
	for _, o := range w.now {
		if o.kind == "pod" {
			names = append(names, o.name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return ""
	}
	return pick(w.r, names...)
}

func (w *model) deleteIdentity(n identity.Number, how string) {
	if _, there := w.now["identity"+n.String()]; there {
		w.store("identity", n.String(), nil)
		w.logf("identity %d is deleted %s", n, how)
		delete(w.byLeaders, n)
	}
}

// collect deletes unused identities.
func (w *model) collect() {
	for n := smallest.Min; n <= smallest.Max; n++ {
		if o := w.identity(n); o != nil && !w.carried(n) && !slices.Contains(w.inUse(), o.SecurityLabels) {
			w.deleteIdentity(n, "as garbage")
			return
		}
	}
}

func (w *model) identity(n identity.Number) *ciliumio.Identity {
	o, _ := w.now["identity"+n.String()].content.(*ciliumio.Identity)
	return o
}

func (w *model) carried(n identity.Number) bool {
	for _, c := range w.endpoints {
		if c.number == n {
			return true
		}
	}
	return false
}

// labelsOf are the labels of the identity of a pod as it is now.
func (w *model) labelsOf(p *slim.Pod) slim.Labels {
	n := w.now["namespace"+p.Namespace.String()].content.(*slim.Namespace)
	return slim.MakeLabels(labels.Pod{
		Cluster: "c", Namespace: n.Name, NamespaceLabels: n.Labels.All(), Labels: p.Labels.All(),
	}.Identity(w.kept))
}

// inUse are the sets that pods have.
func (w *model) inUse() (all []slim.Labels) {
	for _, o := range w.now {
		if p, ok := o.content.(*slim.Pod); ok && !slices.Contains(all, w.labelsOf(p)) {
			all = append(all, w.labelsOf(p))
		}
	}
	return all
}

// agent lets an agent take note of a pod, make an identity, or forget an endpoint.
func (w *model) agent() {
	name := w.anyPod()
	if gone := slices.Sorted(maps.Keys(w.endpoints)); len(gone) > 0 && w.r.IntN(3) == 0 {
		name = pick(w.r, gone...)
	}
	o, there := w.now["pod"+name]
	if !there {
		delete(w.endpoints, name)
		return
	}
	of := w.labelsOf(o.content.(*slim.Pod))
	for n := smallest.Min; n <= smallest.Max; n++ {
		if i := w.identity(n); i != nil && i.SecurityLabels == of {
			w.endpoints[name] = carrier{n, of, slim.Revision(len(w.changes)), w.given[i.UID] != of}
			w.logf("the endpoint of %s has %d", name, n)
			return
		}
	}
	if n := smallest.Min + identity.Number(w.r.IntN(smallest.Size())); w.agentsMake && w.identity(n) == nil && !w.carried(n) && w.ever[n] == (slim.Labels{}) {
		w.storeIdentity(n, of, of)
		w.logf("an agent makes %d: %s", n, of)
	}
}

// storeIdentity makes an identity that is given labels, and stored with others if
// the API server changes them.
func (w *model) storeIdentity(n identity.Number, of, stored slim.Labels) *ciliumio.Identity {
	i := &ciliumio.Identity{SecurityLabels: stored}
	i.Name, i.CreationTimestamp = n.String(), slim.MakeTime(time.Now())
	i.UID = slim.ParseUID(fmt.Sprint("uid-", len(w.changes)))
	w.given[i.UID] = of
	w.store("identity", i.Name, i)
	if w.ever[n] != (slim.Labels{}) {
		w.tally.Reused++
	}
	w.ever[n] = of
	return i
}

// land decides what becomes of a request that has got no answer.
func (w *model) land(arrives bool) {
	i := w.r.IntN(len(w.flying))
	f := w.flying[i]
	w.flying = slices.Delete(w.flying, i, i+1)
	f(arrives)
}

func (w *model) landAll() {
	for len(w.flying) > 0 {
		w.land(w.r.IntN(2) == 0)
	}
}

// take lets a replica lead. Of the one before nothing takes effect any more.
func (w *model) take(r *replica) {
	if w.leader != nil {
		w.leader.term.over = true
	}
	w.landAll()
	if w.r.IntN(2) == 0 {
		r.at = slim.Revision(w.r.IntN(len(w.changes) + 1)) // it has started anew
	}
	w.leader, r.term = r, nil
	w.tally.Terms++
	if !w.noCatchUp {
		r.at = slim.Revision(len(w.changes))
	}
	r.enter()
	w.logf("%d leads, its view is at %d", r.id, r.at)
}

// finish lets one replica lead undisturbed, and looks at what it leaves.
func (w *model) finish() {
	w.lose = 0
	w.landAll()
	if w.leader == nil || w.r.IntN(2) == 0 {
		w.take(w.replicas[0])
	}
	w.quiet = true
	w.settle()
	w.endpoints = map[string]carrier{}
	for range 3 {
		for range smallest.Size() {
			w.collect()
		}
		w.settle()
		time.Sleep(quarantinePeriod)
		w.settle()
	}
	for _, o := range w.now {
		if p, ok := o.content.(*slim.Pod); ok && w.wrong == "" {
			n, exists := w.leader.term.ForPod(podName(p.Namespace.String(), p.Name))
			if has := w.identity(n); !exists || has == nil || has.SecurityLabels != w.labelsOf(p) {
				w.fail("%s has %d (%t), which is %v", p.Key(), n, exists, has)
			}
		}
	}
	bearers := 0
	for n := smallest.Min; n <= smallest.Max; n++ {
		if w.leader.term.Wanted(n) {
			bearers++
		} else {
			w.deleteIdentity(n, "for nobody bears it")
		}
	}
	w.settle()
	left := 0
	for n := smallest.Min; n <= smallest.Max; n++ {
		if w.identity(n) != nil {
			left++
		}
	}
	if sets := len(w.inUse()); w.wrong == "" && (sets != left || sets != bearers) {
		w.fail("%d sets of labels are in use, %d identities are left, %d are born", sets, left, bearers)
	}
}

// settle lets the leader do all there is to do.
func (w *model) settle() {
	w.rest()
	w.leader.term.tick()
	w.rest()
}

func (w *model) rest() {
	for range 5000 {
		if w.wrong != "" || !w.leader.busy() {
			return
		}
		w.leader.step()
	}
	w.fail("%d never comes to rest", w.leader.id)
}

// replica is a process of the operator.
type replica struct {
	*model
	id   int
	at   slim.Revision // that its view shows
	term *term

	shown   map[string]thing // the view, as of
	shownAt slim.Revision
}

// term is a leader's. What it does, it does with the cell's code.
type term struct {
	*replica
	*controller
	over      bool
	begun     bool
	entered   slim.Revision
	delivered map[string]thing
	queue     []slim.Labels
	looking   map[slim.Labels]bool
	gone      map[identity.Number]vanished // as this term has seen it
	mine      map[slim.UID]mine
}

// mine is an identity that a term has made, and had the answer.
type mine struct {
	number identity.Number
	of     slim.Labels
}

type vanished struct {
	at  time.Time
	uid slim.UID
}

func (r *replica) enter() {
	t := &term{replica: r, delivered: map[string]thing{}, looking: map[slim.Labels]bool{}, gone: map[identity.Number]vanished{}, mine: map[slim.UID]mine{}, entered: slim.Revision(len(r.changes))}
	t.controller = &controller{
		params: params{Client: client{term: t}, Permissions: &k8s.Permissions{}, Metrics: newMetrics(metrics.Factory{}), Health: health.NewTree().Reporter("identity"), Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
		table:  newTable("c", smallest, r.keeps, agents.NewFleet(release.Configured{}), r.r.IntN),
		synced: make(chan struct{}),
	}
	t.table.inUseByEndpoint = func(n identity.Number) bool { return !r.noCarried && r.carried(n) }
	t.table.endpointsWith = func(n identity.Number) iter.Seq[slim.Key] {
		return func(yield func(slim.Key) bool) {
			for pod, c := range r.endpoints {
				namespace, name, _ := strings.Cut(pod, "/")
				if c.number == n && !r.noCarried && !yield(slim.Key{Namespace: namespace, Name: name}) {
					return
				}
			}
		}
	}
	t.controller.enqueue = func(of slim.Labels, _ ...k8s.Trigger) {
		if !slices.Contains(t.queue, of) {
			t.queue = append(t.queue, of)
		}
	}
	r.term = t
}

// busy reports whether a leader has something to do.
func (r *replica) busy() bool {
	return r.at < slim.Revision(len(r.changes)) || !r.term.begun || len(r.term.queue) > 0 || len(r.term.undelivered()) > 0
}

func (r *replica) step() {
	t := r.term
	switch k := r.r.IntN(8); {
	case k < 2 && !r.quiet && r.chance(r.lag):
	case k < 2:
		r.at = min(slim.Revision(len(r.changes)), r.at+1+slim.Revision(r.r.IntN(3)))
	case k < 5:
		t.deliver()
	case k == 5 && r.r.IntN(4) == 0:
		t.tick()
	default:
		t.lookNext()
	}
	t.check()
}

// view is what a stream shows at a revision.
func (r *replica) view() map[string]thing {
	if r.shown == nil || r.shownAt > r.at {
		r.shown, r.shownAt = map[string]thing{}, 0
	}
	for _, c := range r.changes[r.shownAt:r.at] {
		if c.content == nil {
			delete(r.shown, c.kind+c.name)
		} else {
			r.shown[c.kind+c.name] = c
		}
	}
	r.shownAt = r.at
	return r.shown
}

func (t *term) undelivered() (keys []string) {
	view := t.view()
	for key, o := range view {
		if t.delivered[key].revision != o.revision {
			keys = append(keys, key)
		}
	}
	for key := range t.delivered {
		if _, there := view[key]; !there {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// deliver hands the cell an event, or begins when it has seen all.
func (t *term) deliver() {
	keys := t.undelivered()
	if len(keys) == 0 || t.noSync && !t.begun && t.r.IntN(3) == 0 {
		if !t.begun {
			t.begun = true
			t.controller.unsynced = 1
			t.markSourceSynced()
		}
		return
	}
	key := pick(t.r, keys...)
	o, there := t.view()[key]
	was := t.delivered[key]
	t.updateAndEnqueue(func(tb *table) {
		if !there {
			delete(t.delivered, key)
			t.forget(tb, was)
			return
		}
		t.delivered[key] = o
		switch content := o.content.(type) {
		case *slim.Pod:
			tb.upsertPod(content)
		case *slim.Namespace:
			tb.upsertNamespace(content)
		case *ciliumio.Identity:
			if old, ok := was.content.(*ciliumio.Identity); ok && old.UID != content.UID {
				t.vanish(old)
			}
			tb.upsertObject(t.told(content))
		}
	})
	t.unguard()
}

func (t *term) forget(tb *table, was thing) {
	switch content := was.content.(type) {
	case *slim.Pod:
		tb.deletePod(content.Key())
	case *slim.Namespace:
		tb.deleteNamespace(content.Name)
	case *ciliumio.Identity:
		t.vanish(content)
		tb.deleteObject(content.Name, content.ResourceVersion)
	}
}

func (t *term) vanish(o *ciliumio.Identity) {
	n, _ := identity.ParseNumber(o.Name)
	if t.gone[n].uid != o.UID { // else the server has told it before the view
		t.gone[n] = vanished{time.Now(), o.UID}
	}
}

// told is what the leader is told of an identity.
func (t *term) told(o *ciliumio.Identity) *ciliumio.Identity {
	i := *o
	if t.noUID {
		i.UID = slim.ParseUID(fmt.Sprint("revision-", o.ResourceVersion))
	}
	return &i
}

// unguard takes away what the history is to do without.
func (t *term) unguard() {
	if t.noRest {
		t.table.numbers.expire(time.Now().Add(quarantinePeriod))
	}
}

func (t *term) tick() {
	t.updateAndEnqueue((*table).expireQuarantine)
	if t.noConfirm {
		return
	}
	t.confirmCreated(func(n identity.Number, at slim.Revision) (there, isNew bool) {
		_, there = t.view()["identity"+n.String()]
		if isNew = t.at >= at; isNew && !there {
			t.tally.Ghosts++
		}
		return there, isNew
	})
}

// lookNext lets a worker look at a set.
func (t *term) lookNext() {
	i := slices.IndexFunc(t.queue, func(of slim.Labels) bool { return !t.looking[of] })
	if i < 0 {
		return
	}
	of := t.queue[i]
	t.queue = slices.Delete(t.queue, i, i+1)
	t.looking[of] = true
	known := t.known(of)
	if len(known) > 0 && t.table.sets[of] != nil && t.table.sets[of].exists {
		t.tally.Adopted++
	}
	err := t.reconcile(context.WithValue(context.Background(), knownKey{}, known), of)
	delete(t.looking, of)
	if s := t.table.sets[of]; s != nil && t.table.awaitingNumber[s] {
		t.tally.Starved++
	}
	if err != nil && !t.over {
		t.controller.enqueue(of)
	}
	t.unguard()
}

type knownKey struct{}

// known are the identities with these labels that the leader has to know of: those
// that it was told of, and those that leaders made before it.
func (t *term) known(of slim.Labels) (all []identity.Number) {
	for n := smallest.Min; n <= smallest.Max; n++ {
		o := t.identity(n)
		if o == nil || o.SecurityLabels != of || t.given[o.UID] != of {
			continue
		}
		told := t.delivered["identity"+o.Name].revision == o.ResourceVersion
		if told || t.byLeaders[n] && o.ResourceVersion <= t.entered {
			all = append(all, n)
		}
	}
	return all
}

// client is the way of a term to the server: before and after each request
// anything may happen.
type client struct {
	k8s.Client
	term *term
}

var errNoAnswer = errors.New("no answer")

func (w *model) meanwhile() {
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

func (c client) Create(ctx context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	t, o := c.term, obj.(*v2.CiliumIdentity)
	n, _ := identity.ParseNumber(o.Name)
	of, began := slim.MakeLabels(o.SecurityLabels), slim.Revision(len(t.changes))
	again := t.carried(n)
	if known := ctx.Value(knownKey{}).([]identity.Number); len(known) > 0 && !again {
		t.fail("%d makes %d although it knows %v: %s", t.id, n, known, of)
	}
	if v, ok := t.gone[n]; ok && !t.had[v.uid][of] && time.Since(v.at) < quarantinePeriod {
		t.fail("%d makes %d, which was another %s ago", t.id, n, time.Since(v.at))
	}
	t.meanwhile()
	defer t.meanwhile()
	switch {
	case t.over:
		t.tally.Fenced++
		return nil, leading.ErrFenced
	case t.chance(t.lose / 2):
		return nil, apierrors.NewTooManyRequests("busy", 1)
	case t.chance(t.lose):
		t.flying = append(t.flying, func(arrives bool) {
			if arrives && t.identity(n) == nil {
				t.tally.Late++
				t.byLeaders[n] = false
				t.storeIdentity(n, of, t.mutated("create", of))
				t.logf("what %d sent makes %d late: %s", t.id, n, of)
			}
		})
		if t.chance(0.5) {
			t.model.land(true)
		}
		return nil, errNoAnswer
	case t.identity(n) != nil:
		t.tally.Taken++
		return nil, apierrors.NewAlreadyExists(resource.GroupResource(), o.Name)
	}
	for pod, e := range t.endpoints {
		if e.number == n && e.labels != of && e.since <= began && !e.misled {
			t.fail("%d makes %d, which the endpoint of %s has: %s", t.id, n, pod, of)
		}
	}
	t.tally.Made++
	if again {
		t.tally.Again++
	}
	for uid, given := range t.mine {
		if mine := t.identity(given.number); given.of == of && mine != nil && mine.UID == uid && !again {
			t.fail("%d makes %d, although it has made %d with the same labels", t.id, n, given.number)
		}
	}
	i := t.storeIdentity(n, of, t.mutated("create", of))
	t.byLeaders[n] = true
	t.mine[i.UID] = mine{n, of}
	t.logf("%d makes %d: %s, stored with %s", t.id, n, of, i.SecurityLabels)
	return encoded(t.told(i)), nil
}

// Modify is what the cell does to put labels back.
func (c client) Modify(_ context.Context, ref k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	t := c.term
	t.meanwhile()
	defer t.meanwhile()
	n, _ := identity.ParseNumber(ref.Name)
	old := t.identity(n)
	switch {
	case t.over:
		return nil, false, leading.ErrFenced
	case old == nil:
		for _, c := range slices.Backward(t.changes) {
			if was, ok := c.content.(*ciliumio.Identity); ok && was.Name == ref.Name {
				t.vanish(was)
				break
			}
		}
		return nil, false, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	case t.chance(t.lose / 2):
		t.tally.Refused++
		return nil, false, apierrors.NewForbidden(ref.Resource.GroupResource(), ref.Name, errNoAnswer)
	}
	u := encoded(t.told(old))
	if err := edit(u); err != nil {
		return nil, false, err
	}
	all, _, _ := unstructured.NestedStringMap(u.Object, "security-labels")
	of := slim.MakeLabels(all)
	if of == old.SecurityLabels {
		return u, false, nil
	}
	if !t.had[old.UID][of] {
		t.fail("%d writes to %d, which never had them: %s", t.id, n, of)
	}
	i := *old
	i.SecurityLabels = t.mutated("update", of)
	t.store("identity", i.Name, &i)
	t.tally.Restored++
	t.logf("%d puts labels of %d back: %s, stored with %s", t.id, n, of, i.SecurityLabels)
	if t.chance(t.lose / 2) {
		return nil, false, errNoAnswer
	}
	return encoded(t.told(&i)), true, nil
}

func (c client) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	t := c.term
	t.meanwhile()
	n, _ := identity.ParseNumber(ref.Name)
	i := t.identity(n)
	if i == nil {
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	u := encoded(t.told(i))
	if t.noCompare {
		if s := t.table.owners[n]; s != nil {
			_ = unstructured.SetNestedStringMap(u.Object, s.labels.Map(), "security-labels")
		}
	}
	return u, nil
}

func encoded(i *ciliumio.Identity) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(i.Name)
	u.SetUID(i.UID.API())
	u.SetResourceVersion(i.ResourceVersion.String())
	_ = unstructured.SetNestedField(u.Object, i.CreationTimestamp.Time().Format(time.RFC3339), "metadata", "creationTimestamp")
	_ = unstructured.SetNestedStringMap(u.Object, i.SecurityLabels.Map(), "security-labels")
	return u
}

// check looks at the table: what it counts is what it has, and what it has was there.
func (t *term) check() {
	if err := t.table.consistent(); err != nil {
		t.fail("%v", err)
	}
	for n, o := range t.table.objects {
		was, _ := t.changes[o.revision-1].content.(*ciliumio.Identity)
		if was == nil || was.Name != n.String() || o.set == nil || was.SecurityLabels != o.labels {
			t.fail("%d takes %d for what it was not: %v", t.id, n, was)
		}
	}
}

// consistent checks what the table keeps about itself.
func (t *table) consistent() error {
	holds := map[identity.Number]int{}
	for n, o := range t.objects {
		holds[n]++
		if o.set != nil && !slices.Contains(o.set.objects, o) {
			return fmt.Errorf("object %d is not one of its set", n)
		}
	}
	havePorts := 0
	for _, o := range t.objects {
		if o.set != nil && o.set.hasPorts() {
			havePorts++
		}
	}
	if havePorts != t.havePorts {
		return fmt.Errorf("%d identities have named ports, counted are %d", havePorts, t.havePorts)
	}
	used, duplicates, pods := 0, 0, 0
	for of, s := range t.sets {
		n := 0
		for i, from := range s.templates {
			if from.set != s || from.index != i {
				return fmt.Errorf("a template of %s is elsewhere", of)
			}
			n += len(from.pods)
		}
		if n != s.pods {
			return fmt.Errorf("%s has %d pods, and counts %d", of, n, s.pods)
		}
		pods += n
		if n > 0 {
			used++
		}
		if len(s.objects) > 1 {
			duplicates++
		}
		if s.number != 0 {
			holds[s.number]++
			if t.owners[s.number] != s {
				return fmt.Errorf("%d is %s and somebody else's", s.number, of)
			}
		}
		if o := t.objects[s.number]; s.exists != (o != nil && o.set == s && !o.edited()) {
			return fmt.Errorf("%d of %s exists: %t", s.number, of, s.exists)
		}
		if n == 0 && len(s.objects) == 0 && s.number == 0 && !s.inFlight {
			return fmt.Errorf("%s is of no use", of)
		}
	}
	for _, r := range t.numbers.quarantined {
		holds[r.number]++
	}
	counted := map[identity.Number]int{}
	for n, h := range t.numbers.held.All() {
		counted[n] = h.count
	}
	if !maps.Equal(holds, counted) || len(holds) != t.numbers.used() {
		return fmt.Errorf("numbers are held %v, and counted %v", holds, counted)
	}
	if used != t.used || duplicates != t.duplicates {
		return fmt.Errorf("%d sets are used and %d have duplicates, counted are %d and %d", used, duplicates, t.used, t.duplicates)
	}
	return nil
}
