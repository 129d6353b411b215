// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/runtime/seedtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// underFaults is what a duty brings to a run with faults. Churn and newTerm run one
// at a time, in the goroutine of the test.
type underFaults struct {
	name string
	// args are what the operator is started with for this duty.
	args []string
	// churn are things that happen to the cluster; each call does one, which is all
	// that there is to say: what must stay is told with want, what must go with
	// condemn.
	churn []func()
	// note takes note of the cluster after each thing that has happened to it.
	note func()
	// newTerm happens right before the operator loses its lease.
	newTerm func()
	// missing says what has not happened yet and must, for the run to show anything: it goes on until then. Nil if nothing must.
	missing func() error
	// last happens right before all is to become calm: things that are not
	// seen to by chance, since nothing follows.
	last func()
	// rest says what is not yet as it should be when all is calm.
	rest func() error
	// grace says what is there yet that is to go when its time has come.
	grace func() error
	// end looks at the whole history.
	end func()
}

// dutiesUnderFaults are made when the definitions of all kinds are there, and
// before the operator starts.
var dutiesUnderFaults = []func(*turmoil) underFaults{
	definitionsUnderFaults, podCIDRsUnderFaults, endpointsUnderFaults, keysUnderFaults, identitiesUnderFaults, slicesUnderFaults,
	addressesUnderFaults, taintsUnderFaults, networkPoliciesUnderFaults, bgpUnderFaults, proxiesOf, remoteClustersUnderFaults,
}

// slowness is how much longer than it should the operator may take on a machine that has
// other things to do.
const slowness = 2

// calmsWithin is how long the operator may take until all is well when the API server is.
const calmsWithin = 10 * time.Second

// harm is what is done to the requests of the operator.
type harm struct {
	name string
	// begin starts it.
	begin func(*turmoil) faults
	// calms is how long the operator may take until all is well after it.
	calms time.Duration
	// twins is how many identities of one label set there may be: more than one where the
	// answer to a create may not tell that it was done.
	twins int
	// restarts says that the operator starts anew, once meanwhile and once when all is well.
	restarts bool
	// kills says that it is killed meanwhile.
	kills bool
}

// ends is how the second term ends.
func (h harm) ends(f *turmoil) func() {
	switch {
	case h.restarts:
		return f.restart
	case h.kills:
		return f.crash
	}
	return f.loseLease
}

// fault is one that tells how often it has happened.
type fault interface{ Hits(testing.TB) int }

// faults are at work.
type faults struct {
	// hits are by what they do. One that has not happened fails the test.
	hits map[string]fault
	// missing says what has not happened yet and must before the end; nil if nothing must.
	missing func() error
	// worst makes them worse for the last things that happen, and says what must happen
	// by then as missing does; nil if they stay as they are.
	worst func() (missing func() error)
	end   func()
}

// The API server answers one request of twenty with 429, 500, 409 or 403, whatever
// it asks for, and watches are cut every few seconds, while nodes, pods, endpoints,
// labels, identities, slices, definitions and keys come and go, the lease is
// lost, and the leader is killed. When it is calm again all is as it should be within seconds, and nothing was
// lost, given twice, or leaked on the way. SKEP_SEED repeats a run.
// In the long form slices are made in all ways, else in one that the seed decides.
func TestFaultsOfTheAPIServerUnderChurn(t *testing.T) {
	seed := seedtest.Seed(t)
	if !seedtest.Soak() {
		way := gatherings[seed%uint64(len(gatherings))]
		t.Logf("slices of %s", way.name)
		newTurmoil(t, seed, way, failing).endure(900)
		return
	}
	for _, way := range gatherings {
		t.Run(way.name, func(t *testing.T) { newTurmoil(t, seed, way, failing).endure(manyActs) })
	}
}

// failing is an API server that fails at random.
var failing = harm{name: "failing", begin: (*turmoil).break_, calms: calmsWithin, twins: 1, kills: true}

// manyActs take about five minutes.
const manyActs = 10_000

// endure lets a whole run of so many acts happen, and those that are missing then.
func (f *turmoil) endure(length int) {
	t := f.t
	f.start()
	f.calmed("the start")
	before := f.size()

	faults := f.harm.begin(f)
	acts, began := 0, time.Now()
	for _, ends := range []func(){f.loseLease, f.harm.ends(f), func() {}} {
		for range length / 3 {
			f.pace()
			acts++
		}
		ends()
	}
	acts += f.actUntil(func() error { return f.missing(faults) })
	if faults.worst != nil {
		acts += f.actUntil(faults.worst())
	}
	f.each(func(d underFaults) func() { return d.last })
	for _, what := range slices.Sorted(maps.Keys(faults.hits)) {
		if n := faults.hits[what].Hits(t); n == 0 {
			t.Errorf("no request met with %s: the test shows nothing", what)
		} else {
			t.Logf("%s: %d times", what, n)
		}
	}
	faults.end()
	f.calmed(fmt.Sprintf("%d acts in %s", acts, time.Since(began).Round(time.Second)))
	f.restsSilently()
	after := f.size()
	t.Logf("goroutines %d → %d, live heap %d → %d bytes", before.goroutines, after.goroutines, before.heap, after.heap)
	eventually(t, "no goroutine is left over", func() bool { return goroutineCount(t, f.pprof) <= before.goroutines+fewGoroutines })
	if grown := after.heap - before.heap; grown > heapOfRings+heapSlack {
		t.Errorf("the live heap grew by %d bytes", grown)
	}
	if f.harm.restarts {
		f.restartsSilently()
	}
	f.each(func(d underFaults) func() { return d.end })
	f.stop()
}

// missing says what must happen yet, of the faults and of each duty.
func (f *turmoil) missing(at faults) error {
	var errs []error
	if at.missing != nil {
		errs = append(errs, at.missing())
	}
	for _, d := range f.duties {
		if d.missing != nil {
			errs = append(errs, d.missing())
		}
	}
	return errors.Join(errs...)
}

// stop ends the operator, which must not have panicked.
func (f *turmoil) stop() {
	f.t.Helper()
	f.hasNotPanicked()
	if code := f.o.stop(); code != 0 {
		f.t.Errorf("exit code %d", code)
	}
}

// hasNotPanicked checks the log of the operator.
func (f *turmoil) hasNotPanicked() {
	f.t.Helper()
	if n := f.o.log.Count("panicked") + f.o.log.Count("goroutine "); n > 0 {
		f.t.Errorf("the operator has panicked: %d lines of the log say so", n)
	}
}

// crash kills the operator amid its writes, and starts another, which need not wait for the lease to expire.
func (f *turmoil) crash() {
	f.t.Helper()
	f.endsTerm()
	f.hasNotPanicked()
	f.o.kill()
	f.steal("")
	f.begin()
}

// restart ends the operator and starts another.
func (f *turmoil) restart() {
	f.t.Helper()
	f.endsTerm()
	f.stop()
	f.begin()
}

// begin starts an operator in place of one that has ended.
func (f *turmoil) begin() {
	f.t.Helper()
	f.o = f.operator("faulty")
	f.termBegins()
	f.o.leads()
}

const (
	// fewGoroutines are those of connections, of which there may be one more.
	fewGoroutines = 4
	// heapOfRings is what the operator remembers of its last writes and decisions.
	heapOfRings = 4 << 20
)

// turmoil is a population whose API server fails at random.
type turmoil struct {
	*population
	r      *rand.Rand
	seed   uint64
	way    gathering
	harm   harm
	etcd   *kvstoretest.Etcd
	pprof  int
	pods   *podsUnderFaults
	duties []underFaults
	// serveNewNode makes a node, and waits until the operator has done what there is to do for it.
	serveNewNode func() (name string)

	mu        sync.Mutex
	wanted    map[types.UID]string // what must stay, and what it is
	condemned map[types.UID]string // what must go
	deleted   map[types.UID]bool
	made      int       // numbers what was made
	term      time.Time // when it began
	lost      int       // how many were lost before
}

// always is a node that stays, with the pods on it: a cluster without any Node is none
// to draw conclusions from.
const always = "always"

func newTurmoil(t *testing.T, seed uint64, way gathering, harm harm) *turmoil {
	return newTurmoilOf(t, seed, way, harm, dutiesUnderFaults)
}

// newTurmoilOf is newTurmoil of some duties.
func newTurmoilOf(t *testing.T, seed uint64, way gathering, harm harm, duties []func(*turmoil) underFaults) *turmoil {
	pods := newTenants(t)
	pods.cluster, pods.numbers = "c1", identity.RangeOf(1, 255) // as withEtcd has it
	pods.define()
	f := &turmoil{
		population: populationOf(pods.world), seed: seed, way: way, harm: harm, r: rand.New(rand.NewPCG(seed, 1)), etcd: kvstoretest.Start(t, 1), pprof: clustertest.FreePort(t),
		wanted: map[types.UID]string{}, condemned: map[types.UID]string{}, deleted: map[types.UID]bool{},
	}
	f.serveNewNode = func() (name string) {
		name = f.newNode()
		eventually(t, "a new node is served", func() bool { return len(podCIDRs(f.nodes()[name])) == 2 })
		return name
	}
	pods.node = always
	f.node(always)
	f.want(f.ciliumNode(always), "CiliumNode "+always)
	f.pods = newPodsUnderFaults(f, pods)
	for _, add := range duties {
		f.duties = append(f.duties, add(f))
	}
	return f
}

func (f *turmoil) start() {
	f.t.Helper()
	f.proxy = f.NewSeededProxy(f.t, f.seed)
	f.o = f.operator("faulty")
	f.termBegins()
	f.o.leads()
	for range 20 {
		f.act()
	}
	f.each(func(d underFaults) func() { return d.last })
}

// args are those of an operator with all duties.
func (f *turmoil) args() []string {
	args := slices.Concat([]string{"--k8s-namespace=" + f.namespace, "--operator-pprof", "--operator-pprof-port=" + strconv.Itoa(f.pprof)}, eager)
	for _, d := range f.duties {
		args = append(args, d.args...)
	}
	return args
}

// operator starts an operator with all duties.
func (f *turmoil) operator(user string) *operator {
	f.t.Helper()
	return start(f.t, f.proxy.UserKubeconfig(f.t, user, "system:masters"), nil, f.args()...)
}

// pace is one thing of a duty, and a moment.
func (f *turmoil) pace() {
	f.t.Helper()
	if !f.o.running() {
		f.t.Fatalf("the operator has ended: %s", f.o.cmd.ProcessState)
	}
	f.act()
	time.Sleep(time.Duration(f.r.IntN(30)) * time.Millisecond) // a pace, not a wait
}

// actUntil lets things happen until nothing is missing, and returns how many.
func (f *turmoil) actUntil(missing func() error) (acts int) {
	f.t.Helper()
	for began := time.Now(); ; acts++ {
		err := missing()
		if err == nil {
			return acts
		}
		if time.Since(began) > waittest.Limit {
			f.t.Fatalf("after %s and %d acts: %v", waittest.Limit, acts, err)
		}
		f.pace()
	}
}

// break_ makes the API server fail.
func (f *turmoil) break_() faults {
	f.t.Helper()
	hits := map[string]fault{}
	codes := []int{429, 500, 409, 403}
	for _, code := range codes {
		hits[strconv.Itoa(code)] = f.proxy.Rule(f.t, clustertest.Rule{
			ID: fmt.Sprint("answer-", code), Probability: 0.05 / float64(len(codes)), Status: &clustertest.Status{Code: code},
		})
	}
	f.cutWatches(hits)
	return faults{hits: hits, missing: func() error { return f.without(hits) }, end: func() { f.proxy.Heal(f.t) }}
}

// without says what no request has met with.
func (f *turmoil) without(hits map[string]fault) error {
	for _, what := range slices.Sorted(maps.Keys(hits)) {
		if hits[what].Hits(f.t) == 0 {
			return fmt.Errorf("no request met with %s", what)
		}
	}
	return nil
}

// cutWatches ends watches every few seconds.
func (f *turmoil) cutWatches(hits map[string]fault) {
	f.t.Helper()
	cuts := map[string]clustertest.CutWatch{"cut": {Abrupt: true}, "end": {}, "expired": {Expire: true}}
	for _, how := range slices.Sorted(maps.Keys(cuts)) {
		cut := cuts[how] // the first one of the three counts
		cut.After, cut.Jitter = time.Second, 9*time.Second
		hits["watch "+how] = f.proxy.Rule(f.t, clustertest.Rule{ID: "watch-" + how, CutWatch: &cut})
	}
}

// act does one thing of a duty.
func (f *turmoil) act() {
	d := f.duties[f.r.IntN(len(f.duties))]
	if len(d.churn) > 0 {
		d.churn[f.r.IntN(len(d.churn))]()
	}
	f.note()
}

// note has all duties take note of what is in use. It is called as soon as that has changed: what the operator deletes
// soon after is judged by it.
func (f *turmoil) note() { f.each(func(d underFaults) func() { return d.note }) }

// endsTerm is called before a term ends.
func (f *turmoil) endsTerm() {
	f.each(func(d underFaults) func() { return d.newTerm })
	f.note()
}

// each lets something happen for each duty.
func (f *turmoil) each(what func(underFaults) func()) {
	for _, d := range f.duties {
		if happens := what(d); happens != nil {
			happens()
		}
	}
}

func (f *turmoil) loseLease() {
	f.t.Helper()
	f.endsTerm()
	f.steal("thief")
	f.o.until("it has noticed", func() bool { s, ok := f.o.status(); return ok && !s.Election.Leading })
	f.steal("")
	f.termBegins()
}

// termBegins is called about when a term begins.
func (f *turmoil) termBegins() { f.term, f.lost = time.Now(), f.losses() }

// losses is how often the lease was lost: on a machine that has other things to do
// also without being stolen.
func (f *turmoil) losses() int { return f.o.log.Count("lost the lease") }

// calmed waits until all is as it should be, and unused objects are deleted.
func (f *turmoil) calmed(after string) {
	f.t.Helper()
	f.awaits(after, "all is well", slowness*f.harm.calms, f.rest)
	f.awaits(after, "and what had its time is gone", waittest.Limit, f.grace)
}

func (f *turmoil) awaits(after, what string, within time.Duration, check func() error) {
	f.t.Helper()
	meter, logged := waittest.StartMeter(), len(f.o.log.String())
	defer meter.Stop()
	var last error
	for told := time.Now(); ; {
		err := check()
		took := meter.Elapsed()
		if err == nil {
			f.t.Logf("%s %s after %s, beside stalls of %s; the last that was not: %v",
				what, took.Round(time.Millisecond), after, meter.Stalled().Round(time.Millisecond), last)
			if took > f.harm.calms {
				f.t.Logf("meanwhile the operator said:\n%s", f.o.log.After(logged))
			}
			return
		}
		if time.Since(told) > f.harm.calms/4 {
			told = time.Now()
			f.t.Logf("%s after %s: %v", took.Round(time.Millisecond), after, err)
		}
		last = err
		if took > within || !f.o.running() {
			f.t.Logf("the operator's account:\n%s", f.account(err))
			f.t.Fatalf("%s after %s this is not as it should be: %v", took, after, err)
		}
		time.Sleep(min(max(took/10, 20*time.Millisecond), 250*time.Millisecond)) // between looks
	}
}

// namedInErrors are the objects that errors of rest and grace name; entries of slices begin with an identity.
var namedInErrors = regexp.MustCompile(`\b(node|identity|slice) ([a-z0-9-]*[0-9][a-z0-9-]*)|(\[)([0-9]{4,})`)

// podsInErrors are the pods that they name.
var podsInErrors = regexp.MustCompile(`\bpod ([a-z0-9-]+)`)

// account is what the operator and the server have of the objects that an error names.
func (f *turmoil) account(err error) string {
	var b strings.Builder
	resources := map[string]schema.GroupVersionResource{
		"node": v2.CiliumNodeResource, "slice": v2alpha1.CiliumEndpointSliceResource, "identity": v2.CiliumIdentityResource, "[": v2.CiliumIdentityResource,
	}
	for _, m := range podsInErrors.FindAllStringSubmatch(err.Error(), 8) {
		pod, getErr := f.core.CoreV1().Pods(home).Get(f.t.Context(), m[1], metav1.GetOptions{})
		text, _ := json.Marshal(pod)
		fmt.Fprintf(&b, "pod %s: %v, the server has %s\n", m[1], getErr, text)
		if f.o.running() {
			b.WriteString(f.o.ask("explain", "Pod/"+home+"/"+m[1]))
		}
	}
	for _, m := range namedInErrors.FindAllStringSubmatch(err.Error(), 8) {
		resource, name := resources[m[1]+m[3]], m[2]+m[4]
		if f.o.running() {
			fmt.Fprintf(&b, "%s %s:\n%s", resource.Resource, name, f.o.ask("explain", resource.Resource+"/"+name))
		}
		if object, err := f.dynamic.Resource(resource).Get(f.t.Context(), name, metav1.GetOptions{}); err == nil {
			text, _ := json.Marshal(object)
			fmt.Fprintf(&b, "the server has %s\n", text)
		}
	}
	return b.String()
}

func (f *turmoil) grace() error {
	var errs []error
	for _, d := range f.duties {
		if d.grace != nil {
			errs = append(errs, d.grace())
		}
	}
	return errors.Join(errs...)
}

// rest is what is not as it should be, to the server, to etcd, and to the operator
// itself.
func (f *turmoil) rest() error {
	var errs []error
	for _, d := range f.duties {
		if d.rest != nil {
			if err := d.rest(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", d.name, err))
			}
		}
	}
	f.note()
	switch s, ok := f.o.status(); {
	case !ok:
		errs = append(errs, errors.New("the operator does not answer"))
	case !s.Election.Leading || len(s.Degraded) > 0:
		errs = append(errs, fmt.Errorf("leading: %t, degraded: %s", s.Election.Leading, s.degraded()))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, what := range f.condemned {
		if !f.deleted[uid] {
			errs = append(errs, fmt.Errorf("%s is still there", what))
		}
	}
	return errors.Join(errs...)
}

// restsSilently checks that nothing is written any more but for what is new.
func (f *turmoil) restsSilently() {
	f.t.Helper()
	calm := time.Now() // what was received before may be logged later, and is what made all well
	audit := f.Audit(f.t)
	name := f.serveNewNode()
	others := f.requests(audit, "faulty").writes().which(func(e clustertest.AuditEvent) bool {
		return e.ObjectRef.Name != name && e.RequestReceivedTimestamp.After(calm)
	})
	if len(others) > 0 {
		f.t.Errorf("written without a reason:\n%s", others)
	}
}

type processSize struct{ goroutines, heap int }

func (f *turmoil) size() processSize {
	return processSize{goroutineCount(f.t, f.pprof), liveHeap(f.t, f.pprof)}
}

// follows records the deletions of a resource, by any writer.
func (f *turmoil) follows(resource schema.GroupVersionResource) {
	f.t.Helper()
	f.witness(resource, func(kind watch.EventType, u *unstructured.Unstructured) {
		if kind == watch.Deleted {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.deleted[u.GetUID()] = true
			f.mourn(u.GetUID())
		}
	})
}

// want says that an object must stay from now on.
func (f *turmoil) want(uid types.UID, what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted[uid] = what
	f.mourn(uid)
}

// condemn says that an object may go from now on, and must in the end.
func (f *turmoil) condemn(uid types.UID, what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.wanted, uid)
	f.condemned[uid] = what
}

// mourn is called with the lock held.
func (f *turmoil) mourn(uid types.UID) {
	if what := f.wanted[uid]; what != "" && f.deleted[uid] {
		f.t.Errorf("%s was deleted, and is needed", what)
	}
}

// number is one that no other object has.
func (f *turmoil) number() int { f.made++; return f.made }

// patchIfThere edits an object that may have gone.
func (f *turmoil) patchIfThere(resource schema.GroupVersionResource, namespace, name, patch string, subresources ...string) {
	_, _ = f.dynamic.Resource(resource).Namespace(namespace).Patch(f.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
}

// one is one of several things, by its index; false if there are none. What comes
// after it in a run does not depend on how many there are.
func one[T any](r *rand.Rand, of []T) (i int, ok bool) {
	draw := r.Int32()
	if len(of) == 0 {
		return 0, false
	}
	return int(draw) % len(of), true
}
