// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// No address is given to two Services that cannot share it, over any history of edits of pools and Services, crashes, late
// caches, and writes whose answers are lost or that are stored late. What decides is the cell's own code, on a model of an
// API server. In between, and at the end, all comes to rest: then each Service has what it can have, a restart writes
// nothing, and an edit of a pool moves no address that it still covers.
func TestInvariant4NoDoubleAllocationInModel(t *testing.T) {
	var total tally
	for seed := range seedtest.Seeds(t, 1200) {
		w := newWorld(seed)
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
	if slices.Contains([]int{total.Writes, total.Given, total.Taken, total.Shared, total.Crashes, total.Late, total.Lost, total.Stale, total.Waiting, total.Conflicts, total.Resolved}, 0) {
		t.Errorf("the histories leave something out: %+v", total)
	}
}

// The model notices when a part of the protocol is missing.
func TestInvariant4ModelNotices(t *testing.T) {
	for name, breakIt := range map[string]func(*world){
		"addresses are free before their Service is seen without them": func(w *world) { w.forgetShown = true },
		"writes under way are forgotten":                               func(w *world) { w.forgetSent = true },
		"allocation begins before all is imported":                     func(w *world) { w.importLate = true },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20_000) {
				w := newWorld(seed)
				breakIt(w)
				if w.run(); w.wrong != "" {
					t.Logf("seed %d: %s", seed, w.wrong)
					return
				}
			}
			t.Error("not noticed")
		})
	}
}

// tally counts what happened.
type tally struct{ Writes, Given, Taken, Shared, Crashes, Late, Lost, Stale, Waiting, Conflicts, Resolved int }

func (t *tally) add(o tally) {
	t.Writes, t.Given, t.Taken, t.Shared, t.Crashes = t.Writes+o.Writes, t.Given+o.Given, t.Taken+o.Taken, t.Shared+o.Shared, t.Crashes+o.Crashes
	t.Late, t.Lost, t.Stale, t.Waiting, t.Conflicts = t.Late+o.Late, t.Lost+o.Lost, t.Stale+o.Stale, t.Waiting+o.Waiting, t.Conflicts+o.Conflicts
	t.Resolved += o.Resolved
}

// world is an API server, its users, and one leader after another.
type world struct {
	r        *rand.Rand
	settings settings
	revision slim.Revision
	services map[slim.Key]*serviceObject
	pools    map[string]*poolObject
	events   []func(*allocator) // that the leader has not seen
	leader   *controller
	dirty    []slim.Key
	flying   []*statusWrite // of the leader, without an answer

	forgetShown, forgetSent, importLate bool

	uids  int
	tally tally
	log   []string
	wrong string
}

func newWorld(seed uint64) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 13)), settings: worldSettings, services: map[slim.Key]*serviceObject{}, pools: map[string]*poolObject{}}
	if seed%2 == 1 {
		w.settings.most = 1
	}
	return w
}

var worldSettings = settings{classes: []string{""}, ipv4: true, ipv6: true, most: mostRequested}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
		w.note("WRONG: %s", w.wrong)
	}
}

func (w *world) run() {
	w.start()
	for phase := 0; phase < 3 && w.wrong == ""; phase++ {
		for range 10 + w.r.IntN(40) {
			w.step()
			if w.wrong != "" {
				return
			}
		}
		w.rest()
		w.checkRest()
		if w.r.IntN(2) == 0 {
			w.restartAtRest()
		} else {
			w.editAtRest()
		}
	}
}

func (w *world) step() {
	switch n := w.r.IntN(20); {
	case n < 5:
		w.editService()
	case n < 7:
		w.editPool()
	case n < 12:
		w.deliver(1 + w.r.IntN(3))
	case n < 17:
		w.write()
	case n < 19:
		w.land()
	default:
		w.crash()
	}
}

// start is the beginning of a term: all is seen as it is.
func (w *world) start() {
	w.leader = &controller{alloc: newAllocator(w.settings), written: map[slim.Key]written{}, poolsWritten: map[string]written{}}
	w.events, w.dirty, w.flying = nil, nil, nil
	a := w.leader.alloc
	for _, name := range w.shuffledPools() {
		a.upsertPool(w.pools[name])
	}
	if w.importLate {
		a.synced = true
	}
	for _, key := range w.shuffled() {
		a.upsertService(w.services[key])
	}
	a.markSynced()
	w.drain()
}

func (w *world) crash() {
	w.tally.Crashes++
	for len(w.flying) > 0 { // the next leader waits for them
		w.land()
	}
	w.note("crash")
	w.start()
}

// shuffled are the keys of all Services, in a random order that the seed decides.
func (w *world) shuffled() []slim.Key {
	keys := slices.SortedFunc(maps.Keys(w.services), func(a, b slim.Key) int { return compareText(a.String(), b.String()) })
	w.r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func compareText(a, b string) int {
	if a < b {
		return -1
	} else if a > b {
		return 1
	}
	return 0
}

func (w *world) shuffledPools() []string {
	names := slices.Sorted(maps.Keys(w.pools))
	w.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// drain takes what the leader wants to write.
func (w *world) drain() {
	a := w.leader.alloc
	for _, key := range slices.SortedFunc(maps.Keys(a.dirtyServices), func(a, b slim.Key) int { return compareText(a.String(), b.String()) }) {
		if !slices.Contains(w.dirty, key) {
			w.dirty = append(w.dirty, key)
		}
	}
	clear(a.dirtyServices)
	clear(a.dirtyPools)
	if w.forgetShown || w.forgetSent {
		for _, s := range a.services {
			if w.forgetSent {
				a.forgetSent(s)
			}
			if w.forgetShown {
				for _, addr := range s.shown {
					if !slices.Contains(s.held, addr) {
						a.unuse(s, addr, shows)
					}
				}
			}
		}
		a.released = nil
	}
}

func (w *world) store(o *serviceObject) {
	w.revision++
	o.ResourceVersion = w.revision
	w.services[o.Key()] = o
	w.events = append(w.events, func(a *allocator) { a.upsertService(o) })
}

func (w *world) storePool(o *poolObject) {
	w.revision++
	o.ResourceVersion = w.revision
	w.pools[o.Name] = o
	w.events = append(w.events, func(a *allocator) { a.upsertPool(o) })
}

// editService is what users do.
func (w *world) editService() {
	key := slim.Key{Namespace: pick(w, "x", "y"), Name: pick(w, "a", "b", "c", "d", "e")}
	o := w.services[key]
	if o == nil {
		w.createService(key)
		return
	}
	if w.r.IntN(3) == 0 {
		w.note("delete %s", key)
		delete(w.services, key)
		w.revision++
		delete(w.leader.written, key)
		w.events = append(w.events, func(a *allocator) { a.removeService(key) })
		return
	}
	edited := *o
	switch w.r.IntN(4) {
	case 0:
		edited.Labels = slim.MakeLabels(map[string]string{"color": pick(w, "red", "blue")})
	case 1:
		w.setFamilies(&edited)
	case 2:
		w.setRequest(&edited)
	case 3:
		edited.Spec.Type = slim.MakeString(pick(w, "LoadBalancer", "LoadBalancer", "ClusterIP"))
	}
	w.note("edit %s: %s %v %v %v %v", key, edited.Spec.Type, edited.Labels, edited.Spec.IPFamilyPolicy, edited.Spec.IPFamilies, edited.Annotations)
	w.store(&edited)
}

func (w *world) createService(key slim.Key) {
	o := &serviceObject{}
	w.uids++
	o.Name, o.Namespace, o.UID = key.Name, slim.MakeString(key.Namespace), slim.ParseUID(fmt.Sprint("uid-", w.uids))
	o.CreationTimestamp = slim.Time(1 + w.uids/3)
	o.Generation = 1
	o.Spec.Type = slim.MakeString("LoadBalancer")
	o.Labels = slim.MakeLabels(map[string]string{"color": pick(w, "red", "blue")})
	o.Spec.Ports = []servicePort{{Port: int32(80 + w.r.IntN(3))}}
	if w.r.IntN(2) == 0 {
		o.Annotations.Labels = slim.MakeLabels(map[string]string{sharingKeyAnnotation: pick(w, "k", "l"), crossNamespaceAnnotation: pick(w, "", "*")})
	}
	w.setFamilies(o)
	if w.r.IntN(3) == 0 {
		w.setRequest(o)
	}
	w.note("create %s: %v %v %v", key, o.Labels, o.Annotations, o.Spec)
	w.store(o)
}

func (w *world) setFamilies(o *serviceObject) {
	o.Spec.IPFamilies, o.Spec.IPFamilyPolicy = nil, slim.String{}
	switch w.r.IntN(4) {
	case 0:
		o.Spec.IPFamilyPolicy = slim.MakeString("RequireDualStack")
	case 1:
		o.Spec.IPFamilies = []slim.String{slim.MakeString("IPv6")}
	}
}

func (w *world) setRequest(o *serviceObject) {
	all := o.Annotations.Map()
	if all == nil {
		all = map[string]string{}
	}
	delete(all, requestAnnotation)
	if w.r.IntN(2) == 0 {
		all[requestAnnotation] = fmt.Sprintf("10.0.0.%d", w.r.IntN(8))
		if w.r.IntN(4) == 0 {
			all[requestAnnotation] += fmt.Sprintf(",10.0.0.%d", w.r.IntN(8))
		}
		if w.r.IntN(4) == 0 {
			all[requestAnnotation] += fmt.Sprintf(",fd00::%d", w.r.IntN(4))
		}
	}
	o.Annotations.Labels = slim.MakeLabels(all)
}

func pick[T any](w *world, all ...T) T { return all[w.r.IntN(len(all))] }

// editPool is what administrators do.
func (w *world) editPool() {
	name := pick(w, "p", "q")
	if w.pools[name] != nil && w.r.IntN(4) == 0 {
		w.note("delete pool %s", name)
		delete(w.pools, name)
		w.revision++
		w.events = append(w.events, func(a *allocator) { a.removePool(name) })
		return
	}
	w.storePool(w.drawPool(name))
}

func (w *world) drawPool(name string) *poolObject {
	o := &poolObject{}
	if old := w.pools[name]; old != nil {
		*o = *old
	} else {
		w.uids++
		o.Name, o.UID, o.CreationTimestamp = name, slim.ParseUID(fmt.Sprint("uid-", w.uids)), slim.Time(1+w.uids/3)
	}
	o.Generation++
	o.Spec = poolSpec{}
	for range 1 + w.r.IntN(2) {
		o.Spec.Blocks = append(o.Spec.Blocks, pick(w, block{CIDR: "10.0.0.0/30"}, block{CIDR: "10.0.0.4/31"}, block{Start: "10.0.0.5", Stop: "10.0.0.7"}, block{CIDR: "fd00::/127"}, block{CIDR: "fd00::/126"}, block{Start: "10.0.0.2"}))
	}
	o.Spec.Disabled = w.r.IntN(6) == 0
	if w.r.IntN(6) == 0 {
		o.Spec.AllowFirstLastIPs = slim.MakeString("No")
	}
	if w.r.IntN(5) == 0 {
		o.Spec.ServiceSelector = &v2.LabelSelector{MatchLabels: map[string]string{"color": pick(w, "red", "blue")}}
	}
	w.note("pool %s: %+v", name, o.Spec)
	return o
}

func (w *world) deliver(n int) {
	for ; n > 0 && len(w.events) > 0; n-- {
		w.events[0](w.leader.alloc)
		w.events = w.events[1:]
		w.drain()
	}
}

// write begins the write of a Service, and mostly ends it.
func (w *world) write() {
	if len(w.dirty) == 0 {
		return
	}
	i := w.r.IntN(len(w.dirty))
	key := w.dirty[i]
	if slices.ContainsFunc(w.flying, func(f *statusWrite) bool { return f.ref.Name == key.Name && f.ref.Namespace == key.Namespace }) && w.r.IntN(2) == 0 {
		return
	}
	w.dirty = slices.Delete(w.dirty, i, i+1)
	next, _, err := w.leader.nextServiceWrite(key)
	if err != nil {
		w.tally.Stale++
		w.dirty = append(w.dirty, key)
		return
	}
	if next == nil {
		w.resolve(key)
		return
	}
	switch w.r.IntN(6) {
	case 0: // it is stored later, or never
		w.note("write of %s at %s under way: %v", key, next.revision, next.ops)
		w.flying = append(w.flying, next)
		w.dirty = append(w.dirty, key)
	case 1: // it is stored, and the answer is lost
		w.tally.Lost++
		w.stored(next)
		w.dirty = append(w.dirty, key)
	default:
		if revision, ok := w.stored(next); ok {
			w.leader.written[key] = written{revision, time.Now(), next.want.String()}
		} else {
			w.dirty = append(w.dirty, key)
		}
	}
	w.drain()
}

// resolve is what the leader does when there is nothing to write and the outcome of the last write is not known: it reads the
// Service when the write cannot be stored any more.
func (w *world) resolve(key slim.Key) {
	revision, _ := w.leader.unresolved(key)
	o := w.services[key]
	if revision == 0 || o == nil {
		return
	}
	flying := slices.ContainsFunc(w.flying, func(f *statusWrite) bool { return f.ref.Name == key.Name && f.ref.Namespace == key.Namespace })
	if flying || o.ResourceVersion != revision {
		w.dirty = append(w.dirty, key)
		return
	}
	w.tally.Resolved++
	w.leader.alloc.forgetUnstored(key, revision)
	w.drain()
}

// land ends a write that is under way.
func (w *world) land() {
	if len(w.flying) == 0 {
		return
	}
	next := w.flying[0]
	w.flying = w.flying[1:]
	if w.r.IntN(3) > 0 {
		w.tally.Late++
		w.stored(next)
	}
}

// stored stores a write, if the Service has the revision that it tests.
func (w *world) stored(next *statusWrite) (slim.Revision, bool) {
	key := slim.Key{Namespace: next.ref.Namespace, Name: next.ref.Name}
	o := w.services[key]
	if o == nil || o.ResourceVersion != next.revision {
		return 0, false
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	text, _ := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Service", "status": o.Status})
	if err := u.UnmarshalJSON(text); err != nil {
		w.fail("%v", err)
		return 0, false
	}
	if o.Status.LoadBalancer.Ingress == nil {
		unstructured.RemoveNestedField(u.Object, "status", "loadBalancer", "ingress")
	}
	if o.Status.Conditions == nil {
		unstructured.RemoveNestedField(u.Object, "status", "conditions")
	}
	if err := apply(u, next.ops); err != nil {
		w.fail("%s: %v of %v", key, err, next.ops)
		return 0, false
	}
	status, err := statusOf(u)
	if err != nil {
		w.fail("%v", err)
	}
	after := *o
	after.Status = status
	if len(status.LoadBalancer.Ingress) == 0 {
		after.Status.LoadBalancer.Ingress = nil
	}
	w.judge(o, &after)
	w.note("stored %s: %v -> %v %v", key, shownAddrs(o), shownAddrs(&after), after.Status.Conditions)
	w.store(&after)
	w.tally.Writes++
	return w.revision, true
}

// judge judges a write.
func (w *world) judge(before, after *serviceObject) {
	for _, addr := range shownAddrs(after) {
		if slices.Contains(shownAddrs(before), addr) {
			continue
		}
		w.tally.Given++
		for key, other := range w.services {
			if key == after.Key() || !slices.Contains(shownAddrs(other), addr) || other.Spec.Type.String() != "LoadBalancer" {
				continue
			}
			w.tally.Shared++
			if !mayShare(after, other) {
				w.fail("%s is given to %s, and %s has it", addr, after.Key(), key)
			}
		}
	}
	for _, addr := range shownAddrs(before) {
		if !slices.Contains(shownAddrs(after), addr) {
			w.tally.Taken++
		}
	}
}

// mayShare is the rule for sharing, of Services as this model makes them.
func mayShare(a, b *serviceObject) bool {
	key := a.Annotations.Get(sharingKeyAnnotation)
	anywhere := a.Annotations.Get(crossNamespaceAnnotation) == "*" && b.Annotations.Get(crossNamespaceAnnotation) == "*"
	return key != "" && key == b.Annotations.Get(sharingKeyAnnotation) && (a.Namespace == b.Namespace || anywhere) && a.Spec.Ports[0] != b.Spec.Ports[0]
}

// rest lets the leader see and write all.
func (w *world) rest() {
	for len(w.flying) > 0 {
		w.land()
	}
	for range 2000 {
		w.deliver(len(w.events))
		if len(w.dirty) == 0 && len(w.events) == 0 {
			return
		}
		for key, last := range w.leader.written { // time passes
			last.at = last.at.Add(-staleLimit)
			w.leader.written[key] = last
		}
		for len(w.flying) > 0 {
			w.land()
		}
		w.write()
	}
	w.fail("it does not come to rest: %v", w.dirty)
}

// checkRest compares the state at rest with the rules, told in another way.
func (w *world) checkRest() {
	if w.wrong != "" {
		return
	}
	users := map[netip.Addr][]*serviceObject{}
	for _, o := range w.services {
		if o.Spec.Type.String() == "LoadBalancer" {
			for _, addr := range shownAddrs(o) {
				users[addr] = append(users[addr], o)
			}
		}
	}
	for addr, all := range users {
		for i, a := range all {
			for _, b := range all[i+1:] {
				if !mayShare(a, b) {
					w.fail("at rest %s and %s have %s", a.Key(), b.Key(), addr)
				}
			}
		}
	}
	for key, o := range w.services {
		if o.Spec.Type.String() == "LoadBalancer" && len(w.pools) > 0 {
			w.checkService(key, o, users)
		}
	}
}

func (w *world) checkService(key slim.Key, o *serviceObject, users map[netip.Addr][]*serviceObject) {
	i := slices.IndexFunc(o.Status.Conditions, isSatisfied)
	if i < 0 {
		w.fail("%s has no condition", key)
		return
	}
	for _, addr := range shownAddrs(o) {
		if !slices.ContainsFunc(slices.Collect(maps.Values(w.pools)), func(p *poolObject) bool { return slices.Contains(addrsOf(p), addr) && chooses(p, o) }) {
			w.fail("%s has %s, which no pool has for it", key, addr)
		}
	}
	conflicts := w.conflicting()
	w.tally.Conflicts += len(conflicts)
	c := o.Status.Conditions[i]
	if c.Status.String() == "False" {
		w.tally.Waiting++
	}
	request := w.settings.parseRequest(o, nil)
	if got := request.beyond == 0 && len(shownAddrs(o)) >= max(len(request.ips), len(request.families)*min(1, 1-min(1, len(request.ips)))); got != (c.Status.String() == "True") {
		w.fail("%s has %v and condition %s", key, shownAddrs(o), c.Status)
	}
	if len(request.ips) > 0 || c.Status.String() == "True" {
		return
	}
	for _, f := range request.families { // is there a free address that it could have?
		if hasFamily(shownAddrs(o), f) {
			continue
		}
		for name, p := range w.pools {
			for _, addr := range allocatable(p) {
				if !conflicts[name] && !p.Spec.Disabled && chooses(p, o) && alloc.FamilyOf(addr) == f && len(users[addr]) == 0 {
					w.fail("%s waits for an address, and %s is free", key, addr)
				}
			}
		}
	}
}

func chooses(p *poolObject, o *serviceObject) bool {
	return p.Spec.ServiceSelector == nil || o.Labels.Get("color") == p.Spec.ServiceSelector.MatchLabels["color"]
}

func addrsOf(p *poolObject) (all []netip.Addr) {
	for _, b := range p.Spec.Blocks {
		all = append(all, b.addrs()...)
	}
	return all
}

func (b block) addrs() (all []netip.Addr) {
	if b.CIDR != "" {
		prefix := netip.MustParsePrefix(b.CIDR)
		for a := prefix.Addr(); prefix.Contains(a); a = a.Next() {
			all = append(all, a)
		}
		return all
	}
	stop := b.Stop
	if stop == "" {
		stop = b.Start
	}
	for a := netip.MustParseAddr(b.Start); a.Compare(netip.MustParseAddr(stop)) <= 0; a = a.Next() {
		all = append(all, a)
	}
	return all
}

func allocatable(p *poolObject) (all []netip.Addr) {
	for _, b := range p.Spec.Blocks {
		addrs := b.addrs()
		if b.CIDR != "" && p.Spec.AllowFirstLastIPs.String() == "No" && len(addrs) > 2 {
			addrs = addrs[1 : len(addrs)-1]
		}
		all = append(all, addrs...)
	}
	return all
}

// conflicting are the pools that overlap themselves, or the older one.
func (w *world) conflicting() map[string]bool {
	bad := map[string]bool{}
	for name, p := range w.pools {
		own := addrsOf(p)
		seen := map[netip.Addr]bool{}
		for _, a := range own {
			bad[name] = bad[name] || seen[a]
			seen[a] = true
		}
		for otherName, other := range w.pools {
			older := other.CreationTimestamp < p.CreationTimestamp || other.CreationTimestamp == p.CreationTimestamp && otherName < name
			if older && slices.ContainsFunc(addrsOf(other), func(a netip.Addr) bool { return seen[a] }) {
				bad[name] = true
			}
		}
	}
	maps.DeleteFunc(bad, func(_ string, is bool) bool { return !is })
	return bad
}

// restartAtRest restarts, which writes nothing. Services that are another's are forgotten by that.
func (w *world) restartAtRest() {
	if w.wrong != "" || len(w.pools) == 0 {
		return
	}
	w.note("restart at rest")
	w.start()
	if len(w.dirty) > 0 {
		key := w.dirty[0]
		s := w.leader.alloc.services[key]
		w.fail("a restart would write %s: has %v %v, wants %v %v", key, shownAddrs(w.services[key]), w.services[key].Status.Conditions, s.held, s.result)
	}
}

// editAtRest edits a pool: no Service loses an address that pools still have for it.
func (w *world) editAtRest() {
	if w.wrong != "" || len(w.pools) == 0 {
		return
	}
	before := maps.Clone(w.services)
	w.editPool()
	w.rest()
	for key, o := range before {
		for _, addr := range shownAddrs(o) {
			covered := slices.ContainsFunc(slices.Collect(maps.Values(w.pools)), func(p *poolObject) bool { return slices.Contains(addrsOf(p), addr) && chooses(p, o) })
			if covered && o.Spec.Type.String() == "LoadBalancer" && !slices.Contains(shownAddrs(w.services[key]), addr) {
				w.fail("%s lost %s by an edit of a pool that still has it", key, addr)
			}
		}
	}
	w.checkRest()
}
