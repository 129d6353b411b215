// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
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
	// newTerm happens right before the operator loses its lease.
	newTerm func()
	// rest says what is not yet as it should be when all is calm.
	rest func() error
	// end looks at the whole history.
	end func()
}

// dutiesUnderFaults are made when the definitions of all kinds are there, and
// before the operator starts.
var dutiesUnderFaults = []func(*turmoil) underFaults{
	definitionsUnderFaults, podCIDRsUnderFaults, endpointsUnderFaults, keysUnderFaults,
}

// How long the operator may take until all is well when the API server is, and how
// much longer a machine may that has other things to do.
const (
	calmsWithin = 10 * time.Second
	slowness    = 2
)

// The API server answers one request of twenty with 429, 500, 409 or 403, whatever
// it asks for, and watches are cut every few seconds, while nodes, pods, endpoints,
// definitions and keys come and go and the lease is lost. When it is calm again all
// is as it should be within seconds, and nothing was lost, given twice, or leaked
// on the way. SKEP_SEED repeats a run.
func TestFaultsOfTheAPIServerUnderChurn(t *testing.T) {
	length := 30 * time.Second
	if soak() {
		length = 5 * time.Minute
	}
	f := newTurmoil(t, seed(t))
	f.start()
	f.calmed("the start")
	before := f.size()

	faults := f.break_()
	acts, began := 0, time.Now()
	for _, loss := range []time.Duration{length / 3, length * 2 / 3, length} {
		for ; time.Since(began) < loss; acts++ {
			if !f.o.running() {
				t.Fatalf("the operator has ended: %s", f.o.cmd.ProcessState)
			}
			f.act()
			time.Sleep(time.Duration(f.r.IntN(30)) * time.Millisecond) // a pace, not a wait
		}
		if loss < length {
			f.loseLease()
		}
	}
	for what, rule := range faults {
		if rule.Hits(t) == 0 {
			t.Errorf("no request met with %s: the test shows nothing", what)
		} else {
			t.Logf("%s: %d times", what, rule.Hits(t))
		}
	}
	f.proxy.Heal(t)
	f.calmed(fmt.Sprintf("%d acts in %s", acts, time.Since(began).Round(time.Second)))
	f.restsSilently()
	after := f.size()
	t.Logf("goroutines %d → %d, live heap %d → %d bytes", before.goroutines, after.goroutines, before.heap, after.heap)
	eventually(t, "no goroutine is left over", func() bool { return goroutineCount(t, f.pprof) <= before.goroutines+fewGoroutines })
	if grown := after.heap - before.heap; grown > heapOfRings+heapSlack {
		t.Errorf("the live heap grew by %d bytes", grown)
	}
	for _, d := range f.duties {
		if d.end != nil {
			d.end()
		}
	}
	if n := f.o.log.Count("panicked") + f.o.log.Count("goroutine "); n > 0 {
		t.Errorf("the operator has panicked: %d lines of the log say so", n)
	}
	if code := f.o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
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
	etcd   *kvstoretest.Etcd
	pprof  int
	duties []underFaults

	mu        sync.Mutex
	wanted    map[types.UID]string // what must stay, and what it is
	condemned map[types.UID]string // what must go
	deleted   map[types.UID]bool
	made      int // numbers what was made
	term      time.Time
}

func newTurmoil(t *testing.T, seed uint64) *turmoil {
	f := &turmoil{
		population: newPopulation(t), seed: seed, r: rand.New(rand.NewPCG(seed, 1)), etcd: kvstoretest.Start(t, 1), pprof: freePort(t),
		wanted: map[types.UID]string{}, condemned: map[types.UID]string{}, deleted: map[types.UID]bool{},
	}
	for _, add := range dutiesUnderFaults {
		f.duties = append(f.duties, add(f))
	}
	return f
}

func (f *turmoil) start() {
	f.t.Helper()
	f.proxy = f.NewSeededProxy(f.t, f.seed)
	args := slices.Concat([]string{"--k8s-namespace=" + f.namespace, "--operator-pprof", "--operator-pprof-port=" + strconv.Itoa(f.pprof)}, eager)
	for _, d := range f.duties {
		args = append(args, d.args...)
	}
	f.o = start(f.t, f.proxy.UserKubeconfig(f.t, "faulty", "system:masters"), nil, args...)
	f.term = time.Now()
	f.o.leads()
	for range 20 {
		f.act()
	}
}

// break_ makes the API server fail. The rules are by what they do.
func (f *turmoil) break_() map[string]*clustertest.ActiveRule {
	f.t.Helper()
	faults := map[string]*clustertest.ActiveRule{}
	codes := []int{429, 500, 409, 403}
	for _, code := range codes {
		faults[strconv.Itoa(code)] = f.proxy.Rule(f.t, clustertest.Rule{
			ID: fmt.Sprint("answer-", code), Probability: 0.05 / float64(len(codes)), Status: &clustertest.Status{Code: code},
		})
	}
	cuts := map[string]clustertest.CutWatch{
		"cut":     {After: time.Second, Jitter: 5 * time.Second, Abrupt: true},
		"end":     {After: 2 * time.Second, Jitter: 8 * time.Second},
		"expired": {After: 3 * time.Second, Jitter: 12 * time.Second, Expire: true},
	}
	for _, how := range slices.Sorted(maps.Keys(cuts)) {
		cut := cuts[how]
		faults["watch "+how] = f.proxy.Rule(f.t, clustertest.Rule{ID: "watch-" + how, CutWatch: &cut})
	}
	return faults
}

// act does one thing of a duty.
func (f *turmoil) act() {
	d := f.duties[f.r.IntN(len(f.duties))]
	if len(d.churn) > 0 {
		d.churn[f.r.IntN(len(d.churn))]()
	}
}

func (f *turmoil) loseLease() {
	f.t.Helper()
	for _, d := range f.duties {
		if d.newTerm != nil {
			d.newTerm()
		}
	}
	f.steal("thief")
	f.o.until("it has noticed", func() bool { s, ok := f.o.status(); return ok && !s.Election.Leading })
	f.steal("")
	f.term = time.Now()
}

// calmed waits until all is as it should be.
func (f *turmoil) calmed(after string) {
	f.t.Helper()
	began := time.Now()
	var last error
	for {
		err := f.rest()
		took := time.Since(began)
		if err == nil {
			f.t.Logf("all is well %s after %s; the last that was not: %v", took.Round(time.Millisecond), after, last)
			return
		}
		last = err
		if took > slowness*calmsWithin || !f.o.running() {
			f.t.Fatalf("%s after %s this is not as it should be: %v", took, after, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
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
	audit := f.Audit(f.t)
	name := f.newNode()
	eventually(f.t, "a new node is served", func() bool { return len(podCIDRs(f.nodes()[name])) == 2 })
	others := f.requests(audit, "faulty").writes().which(func(e clustertest.AuditEvent) bool { return e.ObjectRef.Name != name })
	if len(others) > 0 {
		f.t.Errorf("written without a reason:\n%s", others)
	}
}

type processSize struct{ goroutines, heap int }

func (f *turmoil) size() processSize {
	return processSize{goroutineCount(f.t, f.pprof), liveHeap(f.t, f.pprof)}
}

// follows records what is deleted of a resource, whoever does it.
func (f *turmoil) follows(resource schema.GroupVersionResource) {
	f.t.Helper()
	list, err := f.dynamic.Resource(resource).List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.follow(resource, list.GetResourceVersion(), func(kind watch.EventType, u *unstructured.Unstructured) {
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

// one is one of several things, by its index; false if there are none.
func one[T any](r *rand.Rand, of []T) (i int, ok bool) {
	if len(of) == 0 {
		return 0, false
	}
	return r.IntN(len(of)), true
}

// Nodes come, go, lose their CIDRs by hand, and leave a CiliumNode behind.

type nodesUnderFaults struct {
	*turmoil
	names []string // that have a Node and a CiliumNode
	judge *judge
}

// mostNodes is how many there are at once, of blocks for 64.
const mostNodes = 30

func podCIDRsUnderFaults(f *turmoil) underFaults {
	n := &nodesUnderFaults{turmoil: f, judge: newJudge(f.world)}
	n.node("always") // a cluster without any Node is none to draw conclusions from
	f.follows(v2.CiliumNodeResource)
	return underFaults{
		name: "pod CIDRs and left-over CiliumNodes",
		args: []string{
			"--enable-ipv6=true", "--cluster-pool-ipv4-cidr=10.0.0.0/22", "--cluster-pool-ipv4-mask-size=28",
			"--cluster-pool-ipv6-cidr=fd00::/106", "--cluster-pool-ipv6-mask-size=112",
		},
		churn: []func(){n.come, n.come, n.leave, n.leave, n.lookAt, n.lose, n.loseFamily, n.blame},
		rest:  n.rest,
		end: func() {
			n.judge.finish()
			if n.judge.reused == 0 {
				n.t.Error("no block was used again: the run shows nothing")
			}
		},
	}
}

// newNode makes a Node and its CiliumNode.
func (f *turmoil) newNode() string {
	f.t.Helper()
	name := fmt.Sprint("node-", f.number())
	f.node(name)
	f.want(f.ciliumNode(name), "CiliumNode "+name)
	return name
}

func (n *nodesUnderFaults) come() {
	if len(n.names) < mostNodes {
		n.names = append(n.names, n.newNode())
	}
}

// leave takes a Node away, and half of the time its CiliumNode.
func (n *nodesUnderFaults) leave() {
	i, ok := one(n.r, n.names)
	if !ok || len(n.names) < mostNodes/2 {
		return
	}
	name := n.names[i]
	n.names = slices.Delete(n.names, i, i+1)
	n.condemn(n.nodes()[name].GetUID(), "CiliumNode "+name+", whose Node is gone,")
	if err := n.core.CoreV1().Nodes().Delete(n.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
	if n.r.IntN(2) == 0 {
		n.deleteNodes(name)
	}
}

func (n *nodesUnderFaults) edit(patch string, subresources ...string) {
	if i, ok := one(n.r, n.names); ok {
		n.patchIfThere(v2.CiliumNodeResource, "", n.names[i], patch, subresources...)
	}
}

func (n *nodesUnderFaults) lookAt() {
	n.edit(fmt.Sprintf(`{"metadata":{"annotations":{"example.com/seen":"%d"}}}`, n.number()))
}

func (n *nodesUnderFaults) lose() { n.edit(`{"spec":{"ipam":{"podCIDRs":null}}}`) }

func (n *nodesUnderFaults) blame() {
	n.edit(`{"status":{"ipam":{"operator-status":{"error":"said by hand"}}}}`, "status")
}

// loseFamily takes the second CIDR of a node.
func (n *nodesUnderFaults) loseFamily() {
	i, ok := one(n.r, n.names)
	if !ok {
		return
	}
	if has := podCIDRs(n.nodes()[n.names[i]]); len(has) == 2 {
		n.patchIfThere(v2.CiliumNodeResource, "", n.names[i], fmt.Sprintf(`{"spec":{"ipam":{"podCIDRs":[%q]}}}`, has[0]))
	}
}

// rest: every node has one CIDR of each family, and no error.
func (n *nodesUnderFaults) rest() error {
	for name, u := range n.nodes() {
		has := podCIDRs(u)
		if len(has) != 2 || !netip.MustParsePrefix(has[0]).Addr().Is4() || !netip.MustParsePrefix(has[1]).Addr().Is6() || nodeError(u) != "" {
			return fmt.Errorf("node %s has %q and says %q", name, has, nodeError(u))
		}
	}
	return nil
}

// Pods come, finish and go, endpoints are edited by hand and left over.

type podsUnderFaults struct {
	*turmoil
	pods []livingPod
}

type livingPod struct {
	name     string
	endpoint types.UID
}

const mostPods = 40

func endpointsUnderFaults(f *turmoil) underFaults {
	p := &podsUnderFaults{turmoil: f}
	f.follows(v2.CiliumEndpointResource)
	return underFaults{
		name:  "left-over endpoints",
		churn: []func(){p.come, p.come, p.come, p.finish, p.leave, p.leftOver, p.lookAt},
	}
}

func (p *podsUnderFaults) come() {
	if len(p.pods) < mostPods {
		name := fmt.Sprint("pod-", p.number())
		uid := p.endpoint(name, p.pod(name))
		p.want(uid, "the endpoint of pod "+name)
		p.pods = append(p.pods, livingPod{name, uid})
	}
}

// end takes a pod out of those that live.
func (p *podsUnderFaults) end(how string) (name string, ok bool) {
	i, ok := one(p.r, p.pods)
	if !ok || len(p.pods) < mostPods/2 {
		return "", false
	}
	pod := p.pods[i]
	p.pods = slices.Delete(p.pods, i, i+1)
	p.condemn(pod.endpoint, "the endpoint of pod "+pod.name+", which has "+how+",")
	return pod.name, true
}

func (p *podsUnderFaults) finish() {
	if name, ok := p.end("finished"); ok {
		p.patchIfThere(corev1.SchemeGroupVersion.WithResource("pods"), p.namespace, name, `{"status":{"phase":"Succeeded"}}`, "status")
	}
}

func (p *podsUnderFaults) leave() {
	if name, ok := p.end("gone"); ok {
		now := int64(0)
		if err := p.core.CoreV1().Pods(p.namespace).Delete(p.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *podsUnderFaults) leftOver() {
	name := fmt.Sprint("left-over-", p.number())
	p.condemn(p.population.endpoint(name), "endpoint "+name)
}

func (p *podsUnderFaults) lookAt() {
	if i, ok := one(p.r, p.pods); ok {
		p.patchIfThere(v2.CiliumEndpointResource, p.namespace, p.pods[i].name, fmt.Sprintf(`{"metadata":{"labels":{"seen":"%d"}}}`, p.number()))
	}
}

// Definitions are deleted and aged by hand. They are looked at once in a term.

func definitionsUnderFaults(f *turmoil) underFaults {
	const version = "io.cilium.k8s.crd.schema.version"
	schemaOf := func(kind string) string {
		u, err := f.dynamic.Resource(definitions).Get(f.t.Context(), definitionName(f.t, kind), metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return u.GetLabels()[version]
	}
	const gone, aged = "CiliumLoadBalancerIPPool", "CiliumCIDRGroup"
	current := "" // as the operator made it at first
	return underFaults{
		name: "definitions",
		newTerm: func() {
			f.deleteDefinition(definitionName(f.t, gone))
			f.patch(definitions, definitionName(f.t, aged), `{"metadata":{"labels":{"`+version+`":"1.0.0"}}}`)
		},
		rest: func() error {
			if !f.serves(definitionName(f.t, gone)) {
				return fmt.Errorf("%s is not served", gone)
			}
			switch has := schemaOf(aged); {
			case !f.serves(definitionName(f.t, aged)):
				return fmt.Errorf("%s is not served", aged)
			case current == "":
				current = has
			case has != current:
				return fmt.Errorf("%s has version %s, not %s", aged, has, current)
			}
			return nil
		},
	}
}

// Keys of etcd are deleted and changed by hand; locks are left over.

type etcdUnderFaults struct {
	*turmoil
	locks map[string]time.Time // since when
}

// lockDue is when a lock is taken away that a term has seen all the time: by its
// third look at the latest.
const lockDue = 2*25*time.Second + calmsWithin

func keysUnderFaults(f *turmoil) underFaults {
	e := &etcdUnderFaults{turmoil: f, locks: map[string]time.Time{}}
	return underFaults{
		name:    "keys of etcd",
		args:    withEtcd(f.etcd),
		churn:   []func(){e.dropHeartbeat, e.dropConfig, e.changeConfig, e.leakLock},
		newTerm: e.checkLocks,
		rest:    e.rest,
	}
}

func (e *etcdUnderFaults) dropHeartbeat() { e.etcd.Delete(heartbeatKey) }
func (e *etcdUnderFaults) dropConfig()    { e.etcd.Delete(configKey) }
func (e *etcdUnderFaults) changeConfig()  { e.etcd.Put(configKey, "{}", 0) }

func (e *etcdUnderFaults) leakLock() {
	if len(e.locks) < 100 {
		key := fmt.Sprintf("cilium/state/identities/v1/locks/leaked-%d/%x", e.number(), e.r.Uint32())
		e.etcd.Put(key, "", 0)
		e.locks[key] = time.Now()
	}
}

// checkLocks looks whether those are gone that the term must have removed.
func (e *etcdUnderFaults) checkLocks() {
	for key := range e.stuckLocks() {
		e.t.Errorf("lock %s is still there", key)
	}
}

func (e *etcdUnderFaults) stuckLocks() map[string]time.Time {
	stuck := map[string]time.Time{}
	for key, since := range e.locks {
		if time.Since(since) < lockDue || time.Since(e.term) < lockDue {
			continue
		}
		if e.etcd.Get(key) != nil {
			stuck[key] = since
		} else {
			delete(e.locks, key)
		}
	}
	return stuck
}

// recent reports whether a heartbeat, of which there is one in a second and whose
// text has no parts of it, was made a moment ago.
func recent(heartbeat string) bool {
	at, err := time.Parse(time.RFC3339, heartbeat)
	return err == nil && time.Since(at) < 4*time.Second
}

func (e *etcdUnderFaults) rest() error {
	beat, config := e.etcd.Get(heartbeatKey), e.etcd.Get(configKey)
	switch {
	case beat == nil || beat.Lease == 0 || config == nil || config.Lease == 0:
		return fmt.Errorf("the heartbeat is %v, the configuration %v", beat, config)
	case !recent(string(beat.Value)):
		return fmt.Errorf("the last heartbeat was at %s", beat.Value)
	case !strings.HasPrefix(string(config.Value), `{"id":1,"capabilities":`):
		return fmt.Errorf("the configuration is %s", config.Value)
	}
	if stuck := e.stuckLocks(); len(stuck) > 0 {
		return fmt.Errorf("locks are still there: %v", slices.Sorted(maps.Keys(stuck)))
	}
	return nil
}
