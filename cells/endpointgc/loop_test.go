// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
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

// nothing is a server that has no object.
type nothing struct{ k8s.Client }

func (nothing) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
}

// Rule 1: the end of a pod is reacted to long before the interval is over.
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
	scheme := runtime.NewScheme()
	tracker := fake.NewSimpleDynamicClient(scheme, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint", "metadata": map[string]any{"namespace": "ns", "name": "web"},
	}})
	m, reporter, module := newMetrics(), health.NewTree().Reporter("endpointgc"), cell.Scope{ID: "endpointgc"}
	log := slog.New(slog.DiscardHandler)
	c := newCollector(params{
		Config:    Config{CiliumEndpointGCInterval: time.Hour},
		API:       &api{client: nothing{}, objects: tracker.Resource(v2.CiliumEndpointResource), metrics: m},
		Endpoints: endpoints, Pods: pods, Nodes: local[ciliumio.Node](t),
		Sweep:     sweep.Scope{Module: module, Log: log, Health: reporter, MaxShare: 1},
		Reconcile: reconcile.Scope{Module: module, Log: log, Health: reporter},
		Metrics:   m, Log: log,
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = c.run(ctx) }()
	go func() { _ = c.watch(ctx) }()
	time.Sleep(2*time.Hour + 10*time.Minute) // it is young no more, and the next sweep far away
	end(pods, p)
	time.Sleep(reaction - time.Second)
	if n := len(tracker.Actions()); n != 0 {
		t.Errorf("%d requests before the agent has had time", n)
	}
	time.Sleep(2 * time.Second)
	if n := len(tracker.Actions()); n != 1 || tracker.Actions()[0].GetVerb() != "delete" {
		t.Errorf("requests: %v", tracker.Actions())
	}
	cancel()
	synctest.Wait()
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
		found, odd := v.survey(time.Now(), time.Minute)
		if found.Total != n || len(found.Candidates) != 0 || len(odd.stale) != 0 || odd.foreign != 0 {
			b.Fatalf("%d of %d, %+v", len(found.Candidates), found.Total, odd)
		}
	}
}
