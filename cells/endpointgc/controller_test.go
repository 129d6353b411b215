// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

func local[T any](t *testing.T) *stream.Local[T] {
	t.Helper()
	l, err := stream.NewLocal[T]()
	if err != nil {
		t.Fatal(err)
	}
	l.Replace()
	return l
}

// nothing is a server that has no object, and notes deletions.
type nothing struct {
	k8s.Client
	deleted atomic.Int32
}

func (n *nothing) Delete(context.Context, k8s.Ref, k8s.Preconditions) error {
	n.deleted.Add(1)
	return nil
}

func (*nothing) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
}

// EPGC-1: the end of a pod is reacted to long before the interval is over.
func TestPodEnds(t *testing.T) {
	for name, end := range map[string]func(*stream.Local[slim.Pod], *slim.Pod){
		"deleted":  func(pods *stream.Local[slim.Pod], p *slim.Pod) { pods.Delete(p.Key()) },
		"finished": func(pods *stream.Local[slim.Pod], p *slim.Pod) { pods.Upsert(pod(p.Name, "A", "Failed")) },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testPodEnds(t, end) }) })
	}
}

func testPodEnds(t *testing.T, end func(*stream.Local[slim.Pod], *slim.Pod)) {
	endpoints, pods := local[ciliumio.Endpoint](t), local[slim.Pod](t)
	p := pod("web", "A", "Running")
	pods.Upsert(p)
	endpoints.Upsert(endpoint("web", "Pod/web"))
	server := &nothing{}
	m, reporter, module := newMetrics(metrics.Factory{}), health.NewTree().Reporter("endpointgc"), cell.ModuleInfo{ID: "endpointgc"}
	log := slog.New(slog.DiscardHandler)
	c := newController(params{
		Config:    Config{CiliumEndpointGCInterval: time.Hour},
		API:       &api{client: server, metrics: m},
		Endpoints: endpoints, Pods: pods, Nodes: local[ciliumio.Node](t),
		Sweep:     sweep.Deps{Module: module, Log: log, Health: reporter, MaxShare: 1},
		Reconcile: reconcile.Deps{Module: module, Log: log, Health: reporter},
		Metrics:   m, Log: log,
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = c.run(ctx) }()
	go func() { _ = c.watch(ctx) }()
	time.Sleep(2*time.Hour + 10*time.Minute) // it is young no more, and the next sweep far away
	end(pods, p)
	time.Sleep(gracePeriod - time.Second)
	if n := server.deleted.Load(); n != 0 {
		t.Errorf("%d deletions before the agent has had time", n)
	}
	time.Sleep(2 * time.Second)
	if n := server.deleted.Load(); n != 1 {
		t.Errorf("%d deletions", n)
	}
	cancel()
	synctest.Wait()
}

// EPGC-19: an endpoint that waits for its finalizers is deleted already.
func TestTerminating(t *testing.T) {
	endpoints := local[ciliumio.Endpoint](t)
	for _, name := range []string{"held", "left"} {
		e := endpoint(name, "Pod/"+name)
		if name == "held" {
			e.DeletionTimestamp = slim.MakeTime(time.Now())
		}
		endpoints.Upsert(e)
	}
	v, err := params{Endpoints: endpoints, Pods: local[slim.Pod](t), Nodes: local[ciliumio.Node](t)}.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, _ := v.scan(time.Now(), time.Hour)
	terminating := map[string]bool{}
	for _, c := range found.Candidates {
		terminating[c.Object.Name] = c.Terminating
	}
	if len(terminating) != 2 || !terminating["held"] || terminating["left"] {
		t.Errorf("candidates are %+v", found.Candidates)
	}
}

// One look at the endpoints of a large cluster.
func BenchmarkSurvey(b *testing.B) {
	const n = 16_000
	endpoints, err := stream.NewLocal[ciliumio.Endpoint]()
	if err != nil {
		b.Fatal(err)
	}
	pods, err := stream.NewLocal[slim.Pod]()
	if err != nil {
		b.Fatal(err)
	}
	nodes, err := stream.NewLocal[ciliumio.Node]()
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		name, ip := fmt.Sprint("pod-", i), fmt.Sprintf("10.0.%d.%d", i/256, i%256)
		e := endpoint(name, "Pod/"+name)
		e.Owners[0].UID = slim.ParseUID(name)
		e.Status.Networking = ciliumio.PackNetworking(&v2.EndpointNetworking{Addressing: []v2.AddressPair{{IPv4: ip}}})
		endpoints.Upsert(e)
		pods.Upsert(pod(name, name, "Running", ip))
	}
	endpoints.Synced()
	pods.Synced()
	nodes.Synced()
	v, err := params{Endpoints: endpoints, Pods: pods, Nodes: nodes}.open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		found, odd := v.scan(time.Now(), time.Minute)
		if found.Total != n || len(found.Candidates) != 0 || len(odd.stale) != 0 || odd.foreign != 0 {
			b.Fatalf("%d of %d, %+v", len(found.Candidates), found.Total, odd)
		}
	}
}
