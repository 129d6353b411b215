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

// shrinking is a server that has no pods, and whose endpoints go when they are deleted.
type shrinking struct {
	nothing
	endpoints *stream.Local[ciliumio.Endpoint]
}

func (s *shrinking) Delete(ctx context.Context, ref k8s.Ref, only k8s.Preconditions) error {
	s.endpoints.Delete(slim.Key{Namespace: ref.Namespace, Name: ref.Name})
	return s.nothing.Delete(ctx, ref, only)
}

func endpointsIn(namespace string, n int, owners ...string) (all []*ciliumio.Endpoint) {
	for i := range n {
		e := endpoint(fmt.Sprintf("web-%05d", i), owners...)
		e.Namespace, e.UID = slim.MakeString(namespace), slim.ParseUID(namespace+e.Name)
		all = append(all, e)
	}
	return all
}

// EPGC-20; EPGC-E20: K7 of the contract's tenants.md. While 4000 endpoints of one namespace are deleted, for more than three minutes, what a dead node leaves of another
// one goes within one to two minutes.
func TestEndpointsOfOneNamespaceHoldUpNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpoints, pods := local[ciliumio.Endpoint](t), local[slim.Pod](t)
		p := pod("lives", "A", "Running")
		p.Namespace = slim.MakeString("kept")
		pods.Upsert(p)
		for _, e := range append(endpointsIn("bb", 4000), endpointsIn("kept", 4200, "Pod/lives")...) {
			endpoints.Upsert(e)
		}
		server := &shrinking{endpoints: endpoints}
		m, reporter, module := newMetrics(metrics.Factory{}), health.NewTree().Reporter("endpointgc"), cell.ModuleInfo{ID: "endpointgc"}
		log := slog.New(slog.DiscardHandler)
		c := newController(params{
			Config:    Config{CiliumEndpointGCInterval: 5 * time.Minute},
			API:       &api{client: server, metrics: m},
			Endpoints: endpoints, Pods: pods, Nodes: local[ciliumio.Node](t),
			Sweep:     sweep.Deps{Module: module, Log: log, Health: reporter, MaxShare: 0.5},
			Reconcile: reconcile.Deps{Module: module, Log: log, Health: reporter},
			Metrics:   m, Log: log,
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = c.run(ctx) }()
		time.Sleep(gracePeriod + 15*time.Second)
		if n := server.deleted.Load(); n < 290 || n > 310 {
			t.Errorf("%d are deleted within 15 s", n)
		}
		dead := endpointsIn("aa", 30)
		for _, e := range dead {
			endpoints.Upsert(e)
		}
		time.Sleep(2 * time.Minute)
		store, err := endpoints.Store(ctx)
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, e := range dead {
			if _, exists := store.Get(e.Key()); exists {
				left++
			}
		}
		if left > 0 || store.Len() < 4200+1000 {
			t.Errorf("after two minutes there are %d of aa, and %d in all", left, store.Len())
		}
		time.Sleep(2 * time.Minute)
		if n := store.Len(); n != 4200 {
			t.Errorf("%d are left", n)
		}
		cancel()
		synctest.Wait()
	})
}
