// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// flood is endpoints whose identities change, and a server that accepts all slices. It implements source and server.
type flood struct {
	mu         sync.Mutex
	identities map[slim.Key]int64
	revision   slim.Revision
	writes     map[string][]time.Time // by namespace
}

func (f *flood) watch(context.Context, func(slim.Key, k8s.Trigger), func()) error { return nil }

func (f *flood) undecodable(slim.Key) bool { return false }

func (f *flood) awaitFresh(context.Context) error { return nil }

func (f *flood) content(key slim.Key, _ int64) (v2alpha1.CoreCiliumEndpoint, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ok := f.identities[key]
	return v2alpha1.CoreCiliumEndpoint{Name: key.Name, IdentityID: id, Networking: &v2.EndpointNetworking{}}, ok
}

// set gives an endpoint an identity.
func (f *flood) set(c *controller, key slim.Key, identity int64) {
	f.mu.Lock()
	f.identities[key] = identity
	f.mu.Unlock()
	c.handleEndpoint(key, k8s.Trigger{Kind: "Pod", Namespace: key.Namespace, Name: key.Name})
}

func (f *flood) write(namespace string) slim.Revision {
	time.Sleep(10 * time.Millisecond) // of the bubble: the response comes
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes[namespace] = append(f.writes[namespace], time.Now())
	f.revision++
	return f.revision
}

func (f *flood) create(_ context.Context, s *v2alpha1.CiliumEndpointSlice) (slim.UID, slim.Revision, error) {
	return slim.ParseUID(s.Name), f.write(s.Namespace), nil
}

func (f *flood) update(_ context.Context, s *v2alpha1.CiliumEndpointSlice, _ []string) (slim.UID, slim.Revision, error) {
	return slim.ParseUID(s.Name), f.write(s.Namespace), nil
}

func (f *flood) delete(_ context.Context, _ string, base stored) error {
	f.write(base.namespace)
	return nil
}

func (f *flood) get(context.Context, string) (now stored, err error) { return now, nil }

// written is how often slices of a namespace are written, and when the first one was.
func (f *flood) written(namespace string) (n int, first time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if all := f.writes[namespace]; len(all) > 0 {
		return len(all), all[0]
	}
	return 0, time.Time{}
}

// K7 of the contract's tenants.md, K8S-22, CES-11, CES-E20: 400 slices of a namespace that are due each second, of which ten a second can be
// written, do not keep the slice of another namespace waiting.
func TestManySlicesOfOneNamespaceDoNotHoldUpThoseOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flood{identities: map[slim.Key]int64{}, writes: map[string][]time.Time{}}
		deps := reconcile.Deps{Module: cell.ModuleInfo{ID: "endpointslice"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("endpointslice")}
		config := defaultConfig
		config.ModeGiven = true
		c, err := newController(params{Config: config, Source: f, Server: f, Deps: deps, Metrics: newMetrics(metrics.Factory{}), Log: deps.Log})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, job := range []func(context.Context) error{c.write, c.giveTurns, c.runBatch} {
			running.Go(func() { _ = job(ctx) })
		}
		c.assignAll()
		c.mu.Lock()
		c.planner.confirm()
		c.mu.Unlock()
		flip := func(rounds int) {
			for round := range rounds {
				for i := range 200 {
					f.set(c, slim.Key{Namespace: "bb", Name: fmt.Sprint("web-", i)}, int64(2*i+round%2+1))
				}
				time.Sleep(time.Second) // of the bubble
			}
		}
		flip(10)
		began := time.Now()
		f.set(c, slim.Key{Namespace: "aa", Name: "web"}, 1000)
		flip(6)
		cancel()
		running.Wait()
		n, first := f.written("aa")
		if n != 1 || first.Sub(began) > 1500*time.Millisecond {
			t.Errorf("its slice is written %d times, first after %s", n, first.Sub(began))
		}
		if n, _ := f.written("bb"); n < 50 { // some turns find that the pods have changed back
			t.Errorf("%d slices of the other namespace are written", n)
		}
	})
}
