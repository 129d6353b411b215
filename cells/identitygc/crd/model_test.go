// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/metrics"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// universe is a cluster in a bubble, with operators that follow each other. Pods
// come and go, and share identities. Each stream shows them as they were some time
// ago, up to lateness, each by its own.
type universe struct {
	r        *rand.Rand
	lateness time.Duration
	began    time.Time
	shared   cluster.Config
	scarce   bool // numbers always are
	mistakes      // that were made on purpose

	mu         sync.Mutex
	identities story[ciliumio.Identity]
	endpoints  story[ciliumio.Endpoint]
	slices     story[ciliumio.EndpointSlice]
	pods       story[slim.Pod] // whose uid is the identity they bear
	users      map[string]int  // the identities that agents use, by pod
	since      map[string]time.Time
	revs       int

	wrong   []string // deletes of identities that are in use
	deletes int
}

// mistakes are what operators, or agents, do wrong.
type mistakes struct {
	careless bool // deletes have no preconditions
	trusting bool // whether streams are late is not checked
	rude     bool // agents leave marks where they are
}

// story is all that was written of a kind.
type story[T any] struct {
	now  map[string]*T
	past []written[T]
}

type written[T any] struct {
	at   time.Time
	name string
	obj  *T // nil: deleted
}

// marked is called with the lock held. nil deletes.
func (h *story[T]) put(name string, obj *T) {
	if h.now == nil {
		h.now = map[string]*T{}
	}
	if h.now[name] = obj; obj == nil {
		delete(h.now, name)
	}
	h.past = append(h.past, written[T]{time.Now(), name, obj})
}

func (u *universe) roll(n int64) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.r.Int64N(n)
}

func (u *universe) pause(most time.Duration) { time.Sleep(time.Duration(u.roll(int64(most)))) }

// putIdentity is called with the lock held.
func (u *universe) putIdentity(name, uid, mark string) {
	i := &ciliumio.Identity{}
	u.revs++
	if uid == "" {
		uid = fmt.Sprint("uid-", u.revs)
	}
	i.Name, i.UID, i.ResourceVersion = name, slim.ParseUID(uid), slim.Revision(u.revs)
	if mark != "" {
		i.Annotations.Labels = slim.MakeLabels(map[string]string{annotation: mark})
	}
	u.identities.put(name, i)
}

// begin has a pod begin: its agent takes an identity into use at once, and tells so
// some time later.
func (u *universe) begin(name string, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pod := &slim.Pod{}
	pod.Name, pod.UID = name, slim.ParseUID(strconv.Itoa(n))
	u.pods.put(name, pod)
	u.users[name], u.since[name] = n, time.Now()
	number := strconv.Itoa(n)
	i := u.identities.now[number]
	operators := u.shared.OperatorManagesIdentities
	switch {
	case i == nil:
		u.putIdentity(number, "", "")
	case i.Annotations.Has(annotation) && !operators && !u.rude:
		u.putIdentity(number, i.UID.String(), "")
	}
	later := time.Duration(u.r.Int64N(int64(time.Minute)))
	time.AfterFunc(later, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.users[name] != n {
			return
		}
		if u.shared.EnableCiliumEndpointSlice && u.r.IntN(2) == 0 {
			s := &ciliumio.EndpointSlice{Endpoints: []ciliumio.SliceEndpoint{{Name: name, IdentityID: int64(n)}}}
			s.Name = name
			u.slices.put(name, s)
			return
		}
		e := &ciliumio.Endpoint{}
		e.Name = name
		e.Status.Identity = &ciliumio.EndpointIdentity{ID: int64(n)}
		u.endpoints.put(name, e)
	})
}

func (u *universe) end(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.users, name)
	u.pods.put(name, nil)
	if u.endpoints.now[name] != nil {
		u.endpoints.put(name, nil)
	}
	if u.slices.now[name] != nil {
		u.slices.put(name, nil)
	}
}

// live changes the universe for a while.
func (u *universe) live(steps int) {
	for step := range steps {
		u.mu.Lock()
		var some string
		for some = range u.users {
			break
		}
		ends := some != "" && u.r.IntN(8) < len(u.users)
		n := 300 + u.r.IntN(16)
		u.mu.Unlock()
		if ends {
			u.end(some)
		} else {
			u.begin(fmt.Sprint("pod-", step), n)
		}
		u.pause(2 * time.Minute)
	}
}

// late is a stream as an operator has it: of its own, and behind.
type late[T any] struct {
	*stream.Local[T]
	u       *universe
	all     *story[T]
	shows   int // how much of it
	at      time.Time
	stalled time.Time                  // until then
	show    func(shown *T, written *T) // with the lock of the universe held
	gone    func(shown *T)
	last    map[string]*T
}

func newLate[T any](u *universe, all *story[T]) *late[T] {
	l, err := stream.NewLocal[T]()
	if err != nil {
		panic(err)
	}
	return &late[T]{Local: l, u: u, all: all, last: map[string]*T{}}
}

// run shows what happens, late. It begins with nothing, then the half of what there
// was.
func (l *late[T]) run(ctx context.Context) {
	l.u.mu.Lock()
	whole := l.behind()
	l.u.mu.Unlock()
	l.u.pause(time.Minute)
	l.advance(time.Time{}, whole/2)
	l.u.pause(time.Minute)
	l.advance(time.Time{}, whole)
	l.Synced()
	for ctx.Err() == nil {
		l.u.pause(20 * time.Second)
		l.u.mu.Lock()
		to := l.behind()
		l.u.mu.Unlock()
		l.advance(time.Time{}, to)
	}
}

// behind is how much the stream shows next: mostly all, at times nothing new for as
// long as it may be late. It is called with the lock held.
func (l *late[T]) behind() int {
	if time.Now().After(l.stalled) && l.u.r.IntN(10) == 0 {
		l.stalled = time.Now().Add(l.u.lateness)
	}
	if time.Now().After(l.stalled) && l.u.r.IntN(3) > 0 {
		if at := time.Now().Add(-time.Duration(l.u.r.Int64N(int64(l.u.lateness) + 1))); at.After(l.at) {
			l.at = at
		}
	}
	if oldest := time.Now().Add(-l.u.lateness); oldest.After(l.at) {
		l.at = oldest
	}
	return l.until(l.at)
}

func (l *late[T]) until(at time.Time) (n int) {
	for n < len(l.all.past) && !l.all.past[n].at.After(at) {
		n++
	}
	return n
}

// advance shows what was written until then, or so much of it.
func (l *late[T]) advance(at time.Time, to int) {
	l.u.mu.Lock()
	defer l.u.mu.Unlock()
	if !at.IsZero() {
		to = l.until(at)
	}
	for ; l.shows < to; l.shows++ {
		w := l.all.past[l.shows]
		if w.obj == nil {
			l.Delete(slim.Key{Name: w.name})
			if l.gone != nil {
				l.gone(l.last[w.name])
			}
			delete(l.last, w.name)
			continue
		}
		shown := *w.obj
		l.Upsert(&shown)
		l.last[w.name] = w.obj
		if l.show != nil {
			l.show(&shown, w.obj)
		}
	}
}

// WaitForFresh shows what was written before the call. It takes its time, and may fail.
func (l *late[T]) WaitForFresh(ctx context.Context) error {
	if l.u.trusting {
		return nil
	}
	at := time.Now()
	l.u.pause(5 * time.Second)
	if l.u.roll(10) == 0 {
		return errors.New("no answer")
	}
	l.advance(at, 0)
	return nil
}

// operator is one in its universe. Streams number revisions by themselves: it knows
// which are which.
type operator struct {
	k8s.Client
	u       *universe
	shown   map[slim.Revision]slim.Revision // by that of the server
	written map[string]slim.Revision        // by that of the stream
}

// answer waits for an answer, or for the end of ctx, as a client does: the server may have done then what was asked for.
func (o *operator) answer(ctx context.Context) error {
	if !job.Sleep(ctx, time.Duration(o.u.roll(int64(10*time.Second)))) {
		return ctx.Err()
	}
	if o.u.roll(20) == 0 {
		return errors.New("no answer")
	}
	return nil
}

func (o *operator) Modify(ctx context.Context, ref k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	if err := o.answer(ctx); err != nil {
		return nil, false, err
	}
	o.u.mu.Lock()
	i := o.u.identities.now[ref.Name]
	if i == nil {
		o.u.mu.Unlock()
		return nil, false, apierrors.NewNotFound(group, ref.Name)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetUID(i.UID.API())
	obj.SetResourceVersion("unseen")
	if revision, ok := o.shown[i.ResourceVersion]; ok {
		obj.SetResourceVersion(revision.String())
	}
	if i.Annotations.Len() > 0 {
		obj.SetAnnotations(i.Annotations.Map())
	}
	o.u.mu.Unlock()
	if err := edit(obj); err != nil {
		return nil, false, err
	}
	lost := o.answer(ctx)
	o.u.mu.Lock()
	defer o.u.mu.Unlock()
	mark := obj.GetAnnotations()[annotation]
	switch now := o.u.identities.now[ref.Name]; {
	case now == nil:
		return nil, false, apierrors.NewNotFound(group, ref.Name)
	case now.ResourceVersion != i.ResourceVersion:
		return nil, false, apierrors.NewConflict(group, ref.Name, errors.New("changed"))
	case mark == i.Annotations.Get(annotation):
		return obj, false, nil
	}
	o.u.putIdentity(ref.Name, i.UID.String(), mark)
	return obj, lost == nil, lost
}

func (o *operator) Delete(ctx context.Context, ref k8s.Ref, only k8s.Preconditions) error {
	lost := o.answer(ctx)
	o.u.mu.Lock()
	defer o.u.mu.Unlock()
	if lost != nil && o.u.r.IntN(2) == 0 {
		return lost
	} // else it is deleted, and the answer is lost
	i := o.u.identities.now[ref.Name]
	switch {
	case i == nil:
		return apierrors.NewNotFound(group, ref.Name)
	case !o.u.careless && (i.UID.API() != only.UID || i.ResourceVersion != o.written[only.ResourceVersion]):
		return apierrors.NewConflict(group, ref.Name, errors.New("it is another one"))
	}
	o.u.deletes++
	for pod, n := range o.u.users {
		if strconv.Itoa(n) == ref.Name && time.Since(o.u.since[pod]) > o.u.grace() {
			o.u.wrong = append(o.u.wrong, fmt.Sprintf("%s of %s after %s", ref.Name, pod, time.Since(o.u.began)))
		}
	}
	o.u.identities.put(ref.Name, nil)
	return lost
}

// grace is how long a use may be unheard of: where agents make identities they say
// so themselves. Where operators do, pods are read, a minute before at most, and
// then comes the delete.
func (u *universe) grace() time.Duration {
	if u.shared.OperatorManagesIdentities {
		return maxAge + 20*time.Second
	}
	return 0
}

// operate lets an operator work for a while.
func (u *universe) operate(t *testing.T, config identitygc.Config, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	o := &operator{u: u, shown: map[slim.Revision]slim.Revision{}, written: map[string]slim.Revision{}}
	is, es, ss, ps := newLate(u, &u.identities), newLate(u, &u.endpoints), newLate(u, &u.slices), newLate(u, &u.pods)
	is.show = func(shown, truth *ciliumio.Identity) {
		o.shown[truth.ResourceVersion], o.written[shown.ResourceVersion.String()] = shown.ResourceVersion, truth.ResourceVersion
	}
	bearers := newAssignments()
	bearers.complete = make(chan struct{})
	ps.show = func(pod, _ *slim.Pod) { bearers.bear(pod, true) }
	ps.gone = func(pod *slim.Pod) { bearers.bear(pod, false) }
	log, module, reporter := slog.New(slog.DiscardHandler), cell.ModuleInfo{ID: "identitygc.crd"}, health.NewTree().Reporter("test")
	jobs := job.NewGroup(module.ID, reporter, job.Hooks{})
	var view *podView
	if u.shared.OperatorIdentities() {
		view = newPodView(ps, u.shared)
	}
	all := []referrers{newEndpoints(endpointsIn{Endpoints: es, Pods: view}).Referrers}
	if u.shared.EnableCiliumEndpointSlice {
		all = append(all, newSlices(slicesIn{Slices: ss, Pods: view}).Referrers)
	}
	if u.shared.OperatorIdentities() {
		all = append(all, newPods(podsIn{Pods: ps, Assignments: bearers}).Referrers)
	}
	c := newController(params{
		Config: config, Cluster: u.shared, Budget: identitygc.NewBudget(config), Identities: is, Referrers: all, Jobs: jobs,
		Client: o, Permissions: &k8s.Permissions{},
		Sweep:     sweep.Deps{Module: module, Log: log, Health: reporter, MaxShare: 1},
		Reconcile: reconcile.Deps{Module: module, Log: log, Health: reporter},
		Metrics:   identitygc.NewMetrics(metrics.Factory{}), Marks: newMarkMetrics(metrics.Factory{}), Log: log,
	})
	if u.scarce {
		c.policy.scarceFrom = 0
	}
	c.start(t, jobs)
	var streams sync.WaitGroup
	for _, run := range []func(context.Context){is.run, es.run, ss.run, ps.run} {
		streams.Go(func() { run(ctx) })
	}
	if _, err := ps.Store(ctx); err == nil {
		close(bearers.complete)
	}
	<-ctx.Done()
	streams.Wait()
	if err := jobs.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// runModel runs a universe, and counts what its operators delete that is in use, what
// they delete, and what garbage is left in the end.
func runModel(t *testing.T, seed uint64, edit func(*universe)) (wrong []string, deletes, left int) {
	synctest.Test(t, func(t *testing.T) {
		u := &universe{
			r: rand.New(rand.NewPCG(seed, 7)), lateness: 300 * time.Second, began: time.Now(),
			shared: cluster.DefaultConfig, users: map[string]int{}, since: map[string]time.Time{},
		}
		u.shared.EnableCiliumEndpointSlice = seed%2 == 1
		edit(u)
		// Shorter than streams are late; longer than it takes to publish an endpoint.
		config := identitygc.Config{
			IdentityGCInterval:       70*time.Second + time.Duration(u.roll(int64(2*time.Minute))),
			IdentityHeartbeatTimeout: 70*time.Second + time.Duration(u.roll(int64(5*time.Minute))),
			IdentityGCRateLimit:      100, IdentityGCRateInterval: time.Minute,
		}
		living := make(chan struct{})
		go func() {
			defer close(living)
			u.live(200)
		}()
		for lives := true; lives; {
			u.operate(t, config, 2*time.Minute+time.Duration(u.roll(int64(time.Hour))))
			select {
			case <-living:
				lives = false
			default:
			}
		}
		u.operate(t, config, 2*time.Hour) // quiet at last
		used := map[string]bool{}
		for _, n := range u.users {
			used[strconv.Itoa(n)] = true
		}
		for name := range u.identities.now {
			if !used[name] {
				left++
			}
		}
		wrong, deletes = u.wrong, u.deletes
	})
	return wrong, deletes, left
}

// byOperator has operators make identities: agents leave marks, pods tell.
func byOperator(u *universe) { u.shared.OperatorManagesIdentities = true }

// Streams that are late, each by its own time up to five minutes, views that are
// empty or half loaded, answers that are late or lost, operators that follow each
// other: no identity is deleted that is in use, and all garbage is in the end.
func TestNothingInUseIsDeleted(t *testing.T) {
	scarce := func(u *universe) { byOperator(u); u.scarce = true }
	for name, mode := range map[string]func(*universe){"agents": func(*universe) {}, "operator": byOperator, "operator, numbers are scarce": scarce} {
		t.Run(name, func(t *testing.T) {
			total := 0
			for seed := range seedtest.Seeds(t, 40) {
				wrong, deletes, left := runModel(t, seed, mode)
				total += deletes
				if len(wrong) > 0 || left > 0 {
					t.Fatalf("SKEP_SEED=%d: deleted although in use: %v; left in the end: %d", seed, wrong, left)
				}
			}
			if total == 0 {
				t.Error("nothing was deleted: the test shows nothing")
			}
			t.Logf("%d deletes, all of garbage", total)
		})
	}
}

// The model above finds what it is there for: each guard is needed.
func TestModelFindsMistakes(t *testing.T) {
	for name, mistake := range map[string]func(*universe){
		"deletes without preconditions": func(u *universe) { u.careless = true },
		"streams are not confirmed":     func(u *universe) { u.trusting = true },
		"agents leave marks":            func(u *universe) { u.rude = true },
		"pods are not confirmed":        func(u *universe) { byOperator(u); u.trusting = true },
	} {
		t.Run(name, func(t *testing.T) {
			found := 0
			for seed := range uint64(200) {
				wrong, _, _ := runModel(t, seed, mistake)
				if found += len(wrong); found > 0 {
					break
				}
			}
			if found == 0 {
				t.Error("the model does not notice")
			}
		})
	}
}
