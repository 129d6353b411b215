// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/metrics"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// duty is the cell with what it shares with other collectors.
var duty = cell.Set(identitygc.Cell, Cell)

// rig is a cluster in a bubble, and an operator in it. What is written is noted
// with its time.
type rig struct {
	t          *testing.T
	config     identitygc.Config
	cluster    cluster.Config
	identities *watched[ciliumio.Identity]
	endpoints  *watched[ciliumio.Endpoint]
	slices     *watched[ciliumio.EndpointSlice]
	pods       *watched[slim.Pod]
	assigned   *assignments
	share      float64
	metrics    *identitygc.Metrics
	marks      *markMetrics
	tree       *health.Tree
	log        bytes.Buffer // read when the operator has stopped
	collector  *controller  // of the operator that runs
	jobs       *job.Runner
	wrap       func(referrers) referrers // nil: users are as they are
	own        identity.Range            // numbers, if not all of the cluster
	*server
}

// watched is a stream whose WaitForFresh can be watched, and made to fail.
type watched[T any] struct {
	*stream.Local[T]
	confirm func(context.Context) error
}

func (w *watched[T]) WaitForFresh(ctx context.Context) error {
	if w.confirm == nil {
		return nil
	}
	return w.confirm(ctx)
}

func local[T any](t testing.TB) *watched[T] {
	t.Helper()
	l, err := stream.NewLocal[T]()
	if err != nil {
		t.Fatal(err)
	}
	l.Replace()
	return &watched[T]{Local: l}
}

// newRig is a cluster with the defaults, but for a run every 16 minutes: the
// examples have an interval of 15, and runs of a minute.
func newRig(t *testing.T) *rig {
	r := &rig{
		t: t,
		config: identitygc.Config{
			IdentityGCInterval: 16 * time.Minute, IdentityHeartbeatTimeout: 30 * time.Minute,
			IdentityGCRateLimit: 2500, IdentityGCRateInterval: time.Minute,
		},
		cluster:    cluster.DefaultConfig,
		identities: local[ciliumio.Identity](t), endpoints: local[ciliumio.Endpoint](t),
		slices: local[ciliumio.EndpointSlice](t), pods: local[slim.Pod](t),
		assigned: newAssignments(), share: 0.5, metrics: identitygc.NewMetrics(metrics.Factory{}), marks: newMarkMetrics(metrics.Factory{}), tree: health.NewTree(),
	}
	r.server = &server{began: time.Now(), stream: r.identities.Local, fails: map[string]error{}}
	return r
}

// start has an operator work, which ends with stop.
func (r *rig) start() {
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	module := cell.ModuleInfo{ID: "identitygc.crd"}
	r.jobs = job.NewGroup(module.ID, r.tree.Reporter(module.ID), job.Hooks{})
	p := params{
		Config: r.config, Cluster: r.cluster, Budget: identitygc.NewBudget(r.config),
		Identities: r.identities, Referrers: r.users(), Jobs: r.jobs,
		Client: r.server, Permissions: &k8s.Permissions{},
		Sweep:     sweep.Deps{Module: module, Log: log, Health: r.tree.Reporter(module.ID), MaxShare: r.share},
		Reconcile: reconcile.Deps{Module: module, Log: log, Health: r.tree.Reporter(module.ID)},
		Metrics:   r.metrics, Marks: r.marks, Log: log,
	}
	r.collector = newController(p)
	if r.own != (identity.Range{}) {
		r.collector.policy.own = r.own
	}
	r.collector.start(r.t, r.jobs)
}

// referrers are those that are on.
func (r *rig) users() (all []referrers) {
	var view *podView
	if r.cluster.OperatorIdentities() {
		view = newPodView(r.pods, r.cluster)
	}
	if r.cluster.EndpointCRD() {
		all = append(all, newEndpoints(endpointsIn{Endpoints: r.endpoints, Pods: view}).Referrers)
	}
	if r.cluster.EnableCiliumEndpointSlice {
		all = append(all, newSlices(slicesIn{Slices: r.slices, Pods: view}).Referrers)
	}
	if r.cluster.OperatorIdentities() {
		in := podsIn{Pods: r.pods}
		if r.assigned != nil {
			in.Assignments = r.assigned
		}
		all = append(all, newPods(in).Referrers)
	}
	for i := range all {
		if r.wrap != nil {
			all[i] = r.wrap(all[i])
		}
	}
	return all
}

func (c *controller) start(t *testing.T, jobs *job.Runner) {
	jobs.Add("sweep", job.OneShot(c.run))
	jobs.Add("mark", job.OneShot(c.runMarks))
	if err := jobs.Start(t.Context()); err != nil {
		t.Error(err)
	}
}

func (r *rig) stop() {
	if err := r.jobs.Stop(context.Background()); err != nil {
		r.t.Error(err)
	}
}

// at sleeps until so much of the cluster's time has passed.
func (r *rig) at(d time.Duration) {
	r.t.Helper()
	time.Sleep(d - time.Since(r.began))
	synctest.Wait()
}

func (r *rig) identity(name string) {
	i := &ciliumio.Identity{}
	i.Name = name
	r.server.revision++
	i.UID = slim.ParseUID(fmt.Sprintf("%s-%d", name, r.server.revision))
	r.identities.Upsert(i)
}

// marked makes an identity that was marked so long ago.
func (r *rig) marked(name string, ago time.Duration) {
	r.identity(name)
	r.setMark(name, time.Now().Add(-ago).Format(time.RFC3339Nano))
}

// setMark writes as others do; "" takes the mark off.
func (r *rig) setMark(name, text string) {
	_, _, err := r.change(name, func(u *unstructured.Unstructured) error {
		if text == "" {
			unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
			return nil
		}
		return unstructured.SetNestedField(u.Object, text, "metadata", "annotations", annotation)
	})
	if err != nil {
		r.t.Error(err)
	}
}

func (r *rig) endpoint(name string, n int64) {
	e := &ciliumio.Endpoint{}
	e.Name = name
	e.Status.Identity = &ciliumio.EndpointIdentity{ID: n}
	r.endpoints.Upsert(e)
}

func (r *rig) slice(name string, ns ...int64) {
	s := &ciliumio.EndpointSlice{}
	s.Name = name
	for _, n := range ns {
		s.Endpoints = append(s.Endpoints, ciliumio.SliceEndpoint{Name: "p", IdentityID: n})
	}
	r.slices.Upsert(s)
}

// happened checks what the operator wrote since the last call.
func (r *rig) happened(want ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.notes, want) {
		r.t.Errorf("what happened:\n\t%s\nwant:\n\t%s", strings.Join(r.notes, "\n\t"), strings.Join(want, "\n\t"))
	}
	r.notes = nil
}

// text is the mark of an identity; there is false if there is no identity.
func (r *rig) text(name string) (text string, there bool) {
	i, ok := r.server.get(name)
	if !ok {
		return "", false
	}
	return i.Annotations.Get(annotation), true
}

func (r *rig) degraded() string {
	var texts []string
	for _, s := range r.tree.Degraded() {
		texts = append(texts, s.ID+": "+s.Message+": "+s.Error)
	}
	return strings.Join(texts, "\n")
}

// warnings are the lines of the log that warn, when the operator has stopped.
func (r *rig) warnings(about string) (n int) {
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, about) {
			n++
		}
	}
	return n
}

// server has identities, in the state that their stream shows.
type server struct {
	k8s.Client
	began    time.Time
	stream   *stream.Local[ciliumio.Identity]
	revision int
	held     bool       // identities have finalizers of others
	one      sync.Mutex // held by the request that is being done

	mu     sync.Mutex
	notes  []string
	fails  map[string]error  // by what was to be done
	before func(what string) // called before it is done
	pause  time.Duration     // of a request
}

func (s *server) get(name string) (*ciliumio.Identity, bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store, err := s.stream.Store(ctx)
	if err != nil {
		return nil, false
	}
	return store.Get(slim.Key{Name: name})
}

// begin notes a request, and returns what comes of it.
func (s *server) begin(what string) error {
	time.Sleep(s.pause)
	s.mu.Lock()
	before, err := s.before, s.fails[what]
	s.mu.Unlock()
	if before != nil {
		before(what)
	}
	return err
}

func (s *server) note(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		what += ": " + string(apierrors.ReasonForError(err))
	}
	s.notes = append(s.notes, time.Since(s.began).Round(time.Second).String()+" "+what)
}

var group = identities.GroupResource()

func (s *server) Modify(_ context.Context, ref k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	if err := s.begin("update " + ref.Name); err != nil {
		s.note("update "+ref.Name, err)
		return nil, false, err
	}
	u, written, err := s.change(ref.Name, edit)
	switch {
	case errors.Is(err, errChanged):
		s.note("leave "+ref.Name, nil)
	case err != nil:
		s.note("update "+ref.Name, err)
	case written && len(u.GetAnnotations()) == 0:
		s.note("unmark "+ref.Name, nil)
	case written:
		s.note("mark "+ref.Name, nil)
	}
	return u, written, err
}

func (s *server) change(name string, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	s.one.Lock()
	defer s.one.Unlock()
	i, ok := s.get(name)
	if !ok {
		return nil, false, apierrors.NewNotFound(group, name)
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(name)
	u.SetUID(i.UID.API())
	u.SetResourceVersion(i.ResourceVersion.String())
	if i.Annotations.Len() > 0 {
		u.SetAnnotations(i.Annotations.Map())
	}
	before := u.DeepCopy()
	if err := edit(u); err != nil {
		return nil, false, err
	}
	if fmt.Sprint(u.Object) == fmt.Sprint(before.Object) {
		return u, false, nil
	}
	changed := *i
	changed.Annotations.Labels = slim.MakeLabels(u.GetAnnotations())
	s.stream.Upsert(&changed)
	return u, true, nil
}

func (s *server) Delete(_ context.Context, ref k8s.Ref, only k8s.Preconditions) error {
	err := s.begin("delete " + ref.Name)
	s.one.Lock()
	defer s.one.Unlock()
	i, ok := s.get(ref.Name)
	switch {
	case err != nil:
	case !ok:
		err = apierrors.NewNotFound(group, ref.Name)
	case i.UID.API() != only.UID || i.ResourceVersion.String() != only.ResourceVersion:
		err = apierrors.NewConflict(group, ref.Name, errors.New("it is another one"))
	case s.held:
		going := *i
		going.DeletionTimestamp = slim.MakeTime(time.Now())
		s.stream.Upsert(&going)
	default:
		s.stream.Delete(slim.Key{Name: ref.Name})
	}
	s.note("delete "+ref.Name, err)
	return err
}

// assignments are pods with the numbers that they bear.
type assignments struct {
	complete chan struct{}

	mu   sync.Mutex
	pods map[types.NamespacedName]identity.Number
	see  func(types.NamespacedName)

	hidden error
}

func newAssignments() *assignments {
	a := &assignments{complete: make(chan struct{}), pods: map[types.NamespacedName]identity.Number{}}
	close(a.complete)
	return a
}

func (a *assignments) set(name string, n identity.Number) {
	pod := types.NamespacedName{Namespace: "shop", Name: name}
	a.mu.Lock()
	a.pods[pod] = n
	if n == 0 {
		delete(a.pods, pod)
	}
	see := a.see
	a.mu.Unlock()
	if see != nil {
		see(pod)
	}
}

func (a *assignments) ForPod(pod types.NamespacedName) (identity.Number, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.pods[pod]
	return n, n != 0
}

func (a *assignments) All(pod types.NamespacedName) iter.Seq[identity.Number] {
	return func(yield func(identity.Number) bool) {
		if n, ok := a.ForPod(pod); ok {
			yield(n)
		}
	}
}

func (a *assignments) Wanted(n identity.Number) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, other := range a.pods {
		if other == n {
			return true
		}
	}
	return false
}

func (a *assignments) Observe(see func(types.NamespacedName)) (cancel func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.see = see
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.see = nil
	}
}

func (a *assignments) Complete() <-chan struct{} { return a.complete }

func (a *assignments) Whole() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hidden
}

// bear has a pod bear the identity that is its uid, or not any more.
func (a *assignments) bear(pod *slim.Pod, bears bool) {
	n, _ := identity.ParseNumber(pod.UID.String())
	if !bears {
		n = 0
	}
	a.set(pod.Name, n)
}
