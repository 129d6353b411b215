// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// memory is an API server that takes some milliseconds for each write.
type memory struct {
	k8s.Client
	services *stream.Local[serviceObject]
	pools    *stream.Local[poolObject]

	mu        sync.Mutex
	patches   map[string]int // by name of the object
	refuse    int            // requests that are refused
	lose      bool           // no request about a Service arrives
	seen      atomic.Uint64  // of the hand-over
	losePools bool           // no request about a pool arrives
}

func newMemory(t *testing.T) *memory {
	t.Helper()
	m := &memory{patches: map[string]int{}}
	var err error
	if m.services, err = stream.NewLocal[serviceObject](); err != nil {
		t.Fatal(err)
	}
	if m.pools, err = stream.NewLocal[poolObject](); err != nil {
		t.Fatal(err)
	}
	m.services.Replace()
	m.pools.Replace()
	return m
}

// start runs a controller until stop.
func (m *memory) start(t *testing.T) (c *controller, stop func()) {
	t.Helper()
	deps := reconcile.Deps{Module: cell.ModuleInfo{ID: "lbipam", Term: "leader"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("lbipam")}
	c = newController(params{
		Config: Config{EnableLBIPAM: true}, Shared: cluster.DefaultConfig, Pools: m.pools, Services: m.services, Client: m,
		Handover: firstLeader{&m.seen}, Deps: deps, Metrics: newMetrics(metrics.Factory{}), Health: deps.Health, Log: deps.Log,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, job := range []func(context.Context) error{c.writeServices, c.writePools, c.watchPools, c.watchServices} {
		running.Go(func() { _ = job(ctx) })
	}
	return c, func() { cancel(); running.Wait() }
}

// firstLeader is the hand-over of a process before which none led.
type firstLeader struct {
	seen *atomic.Uint64 // the revision of pools that the next leader has to see
}

func (firstLeader) PredecessorRevision(context.Context, schema.GroupVersionResource) (uint64, bool, error) {
	return 0, false, nil
}
func (firstLeader) WasLeader() bool { return false }
func (h firstLeader) RecordSynced(resource schema.GroupVersionResource, revision uint64) {
	if resource == poolKind.Resource() {
		h.seen.Store(max(h.seen.Load(), revision))
	}
}

var _ leading.Handover = firstLeader{}

// Patch implements k8s.Client.
func (m *memory) Patch(_ context.Context, ref k8s.Ref, patch []byte, _ ...k8s.PatchedValue) (*unstructured.Unstructured, error) {
	time.Sleep(5 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.patches[ref.Name]++
	invalid := apierrors.NewGenericServerResponse(422, "patch", ref.Resource.GroupResource(), ref.Name, "", 0, false)
	if m.lose && ref.Namespace != "" || m.losePools && ref.Namespace == "" {
		return nil, errors.New("no answer")
	}
	if m.refuse > 0 && ref.Namespace != "" {
		m.refuse--
		return nil, invalid
	}
	u, err := m.Get(context.Background(), ref)
	if err != nil {
		return nil, err
	}
	before, _ := u.MarshalJSON()
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	after, err := decoded.Apply(before)
	if err != nil {
		return nil, invalid
	}
	if err := u.UnmarshalJSON(after); err != nil {
		return nil, err
	}
	status, err := statusOf(u)
	if err != nil {
		return nil, err
	}
	var revision slim.Revision
	if ref.Namespace == "" {
		o := *m.pool(ref.Name)
		o.Status = &poolStatus{status.Conditions}
		revision = m.pools.Upsert(&o)
	} else {
		o := *m.service(ref)
		o.Status = status
		revision = m.services.Upsert(&o)
	}
	u.SetResourceVersion(revision.String())
	return u, nil
}

func (m *memory) service(ref k8s.Ref) *serviceObject {
	store, _ := m.services.Store(context.Background())
	o, _ := store.Get(slim.Key{Namespace: ref.Namespace, Name: ref.Name})
	return o
}

func (m *memory) pool(name string) *poolObject {
	store, _ := m.pools.Store(context.Background())
	o, _ := store.Get(slim.Key{Name: name})
	return o
}

// Get implements k8s.Client.
func (m *memory) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	content := map[string]any{"apiVersion": "v1", "kind": "Service"}
	metadata := map[string]any{"name": ref.Name, "namespace": ref.Namespace}
	var status any
	if ref.Namespace == "" {
		o := m.pool(ref.Name)
		if o == nil {
			return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
		}
		metadata["resourceVersion"] = o.ResourceVersion.String()
		if o.Status != nil {
			status = o.Status
		}
	} else {
		o := m.service(ref)
		if o == nil {
			return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
		}
		metadata["resourceVersion"] = o.ResourceVersion.String()
		status = map[string]any{"loadBalancer": loadBalancer(o)}
		if len(o.Status.Conditions) > 0 {
			status.(map[string]any)["conditions"] = o.Status.Conditions
		}
	}
	content["metadata"] = metadata
	if status != nil {
		content["status"] = status
	}
	text, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(text)
}

func loadBalancer(o *serviceObject) map[string]any {
	if len(o.Status.LoadBalancer.Ingress) == 0 {
		return map[string]any{}
	}
	return map[string]any{"ingress": o.Status.LoadBalancer.Ingress}
}

// written are the patches so far, and their sum.
func (m *memory) written() (by map[string]int, sum int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.patches {
		sum += n
	}
	return maps.Clone(m.patches), sum
}

// 10,000 Services at once: each is written once, and the pool at most once a second. A restart writes nothing.
func TestManyServices(t *testing.T) {
	services := 10_000
	if testing.Short() || seedtest.RaceEnabled {
		services = 1_000
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		m.pools.Upsert(newPool("blue", 1, blocks("10.0.0.0/8")))
		_, stop := m.start(t)
		synctest.Wait()
		began := time.Now()
		for i := range services {
			m.services.Upsert(newService(fmt.Sprint("s", i)))
		}
		for {
			time.Sleep(100 * time.Millisecond)
			if _, sum := m.written(); sum >= services {
				break
			}
		}
		took := time.Since(began)
		time.Sleep(3 * time.Second)
		stop()
		by, sum := m.written()
		if most := int(took/time.Second) + 3; by["blue"] > most {
			t.Errorf("the pool was written %d times in %s", by["blue"], took)
		}
		if sum-by["blue"] != services {
			t.Errorf("%d writes of %d Services", sum-by["blue"], services)
		}
		if c := m.pool("blue").conditions(); !slices.ContainsFunc(c, func(c condition) bool { return c.Message == fmt.Sprint(services) }) {
			t.Errorf("the pool says %v", c)
		}
		_, stop = m.start(t)
		time.Sleep(10 * time.Second)
		stop()
		if _, now := m.written(); now != sum {
			t.Errorf("a restart wrote %d times", now-sum)
		}
	})
}

// A patch that is refused because the object has changed is no failure; another refusal is.
func TestRefusedPatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		m.pools.Upsert(newPool("blue", 1, blocks("10.0.0.0/8")))
		c, stop := m.start(t)
		defer stop()
		time.Sleep(5 * time.Second)
		m.mu.Lock()
		m.refuse = 3
		m.mu.Unlock()
		m.services.Upsert(newService("a"))
		time.Sleep(time.Minute)
		if o := m.service(k8s.Ref{Namespace: "ns", Name: "a"}); len(o.Status.LoadBalancer.Ingress) != 1 {
			t.Errorf("the status is %+v", o.Status)
		}
		if by, _ := m.written(); by["a"] != 4 {
			t.Errorf("%d patches", by["a"])
		}
		w := &statusWrite{ref: k8s.Ref{Resource: serviceKind.Resource(), Namespace: "ns", Name: "a", Subresource: "status"}, revision: 1}
		refusal := apierrors.NewGenericServerResponse(422, "patch", schema.GroupResource{Resource: "services"}, "a", "", 0, false)
		if err := reconcile.PatchRefused(t.Context(), c.Client, w.ref, w.revision.String(), refusal); err == nil || err.Error() != reconcile.Recheck().Error() {
			t.Errorf("the refusal of an old state: %v", err)
		}
		w.revision = m.service(w.ref).ResourceVersion
		if err := reconcile.PatchRefused(t.Context(), c.Client, w.ref, w.revision.String(), refusal); !errors.Is(err, refusal) {
			t.Errorf("the refusal of the present state: %v", err)
		}
		gone := apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, "a")
		if err := reconcile.PatchRefused(t.Context(), c.Client, w.ref, w.revision.String(), gone); err == nil || err.Error() != reconcile.Recheck().Error() {
			t.Errorf("a Service that is gone: %v", err)
		}
	})
}

// LBIP-23: a write that is not stored, and that no other follows, holds its address until it cannot be stored any more.
func TestWriteThatIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		o := newPool("p", 1, blocks("fd00::/127"))
		m.pools.Upsert(o)
		_, stop := m.start(t)
		defer stop()
		m.services.Upsert(newService("a"))
		time.Sleep(5 * time.Second) // it says that there is no pool
		m.mu.Lock()
		m.lose = true
		m.mu.Unlock()
		o = next(o, blocks("10.0.0.1-10.0.0.1"))
		m.pools.Upsert(o)
		time.Sleep(time.Second)
		o = next(o, blocks("fd00::/127"))
		m.pools.Upsert(o) // there is nothing to write
		time.Sleep(10 * time.Millisecond)
		m.mu.Lock()
		m.lose = false
		m.mu.Unlock()
		spec := blocks("10.0.0.1-10.0.0.1")
		spec.ServiceSelector = &v2.LabelSelector{MatchLabels: map[string]string{nameLabel: "b"}}
		m.services.Upsert(newService("b"))
		m.pools.Upsert(next(o, spec))
		has := func() bool {
			return len(m.service(k8s.Ref{Namespace: "ns", Name: "b"}).Status.LoadBalancer.Ingress) == 1
		}
		if time.Sleep(staleLimit - time.Second); has() {
			t.Error("the address is given away, and the write may yet be stored")
		}
		if time.Sleep(time.Minute); !has() {
			t.Error("the address is never given to another Service")
		}
	})
}

// LBIP-13: a leader that never writes to a pool names it to the next one, as Services have its addresses.
func TestNextLeaderSeesPoolsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		m.pools.Upsert(newPool("first", 1, blocks("fd00::/127")))
		_, stop := m.start(t)
		defer stop()
		m.services.Upsert(newService("a"))
		time.Sleep(5 * time.Second)
		m.mu.Lock()
		m.losePools = true
		m.mu.Unlock()
		made := m.pools.Upsert(newPool("second", 2, blocks("10.0.0.0/31")))
		time.Sleep(time.Minute)
		if len(m.service(k8s.Ref{Namespace: "ns", Name: "a"}).Status.LoadBalancer.Ingress) != 1 || m.pool("second").ResourceVersion != made {
			t.Error("the Service has no address, or the pool was written")
		}
		if seen := m.seen.Load(); seen < uint64(made) {
			t.Errorf("the next leader has to see pools at %d, and that of the Service is of %d", seen, made)
		}
	})
}

// The watches of pools and of Services update the allocator at the same time. The race detector sees whether they share
// what they enqueue.
func TestPoolsAndServicesChangeAtTheSameTime(t *testing.T) {
	m := newMemory(t)
	c, stop := m.start(t)
	defer stop()
	var updates sync.WaitGroup
	updates.Go(func() {
		for i := range 200 {
			c.update(func(a *allocator) { a.dirtyPools[fmt.Sprint(i%3)] = true }, c.Deps.TermTrigger())
		}
	})
	updates.Go(func() {
		for i := range 200 {
			c.update(func(a *allocator) { a.dirtyServices[slim.Key{Namespace: "ns", Name: fmt.Sprint(i % 3)}] = true }, c.Deps.TermTrigger())
		}
	})
	updates.Wait()
}
