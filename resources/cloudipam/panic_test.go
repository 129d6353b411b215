// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// brittle is a cloud whose provider panics for one instance, in Limits or in Assign, until it is mended.
type brittle struct {
	Provider
	mu       sync.Mutex
	in       string
	read     bool // Read panics the first time
	assigned []string
	wanted   map[string]int // reads by instance
}

func (b *brittle) panicIn(what string, i *Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.in == what && i.ID == "i-n3" {
		panic("bad instance type")
	}
}

func (b *brittle) instances() map[string]*Instance {
	all := map[string]*Instance{}
	for n := range 7 {
		id := fmt.Sprintf("i-n%d", n)
		of := Interface{ID: "e-" + id, Subnet: "s"}
		if slices.Contains(b.assigned, id) {
			for a := range 8 {
				of.Addresses = append(of.Addresses, fmt.Sprintf("10.0.%d.%d", n, a))
			}
		}
		all[id] = &Instance{ID: id, Interfaces: []Interface{of}}
	}
	return all
}

func (b *brittle) Read(context.Context) (*State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read {
		b.read = false
		panic("bad answer")
	}
	return &State{Instances: b.instances(), Subnets: map[string]Subnet{"s": {ID: "s", Free: 100}}}, nil
}

func (b *brittle) ReadInstances(_ context.Context, ids []string) (map[string]*Instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		b.wanted[id]++
	}
	return b.instances(), nil
}

func (b *brittle) Limits(_ *Node, i *Instance) (Limits, error) {
	b.panicIn("Limits", i)
	return Limits{PreAllocate: 8, Interfaces: 1}, nil
}

func (b *brittle) Addresses(_ *Node, i *Instance) map[string]Address {
	all := map[string]Address{}
	for _, a := range i.Interfaces[0].Addresses {
		all[a] = Address{Resource: i.Interfaces[0].ID}
	}
	return all
}

func (b *brittle) FreeInterface(_ *Node, i *Instance, _ map[string]Subnet) (Candidate, bool) {
	return Candidate{Interface: i.Interfaces[0].ID, Subnet: "s", Count: 8}, true
}

func (b *brittle) Assign(_ context.Context, _ *Node, i *Instance, _ Candidate, _ int) error {
	b.panicIn("Assign", i)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.assigned = append(b.assigned, i.ID)
	return nil
}

func (b *brittle) SetStatus(*Node, *Instance, *v2.CiliumNodeStatus) {}

func (b *brittle) served() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := slices.Clone(b.assigned)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// noPredecessor is the hand-over of the first leader.
type noPredecessor struct{}

func (noPredecessor) PredecessorRevision(context.Context, schema.GroupVersionResource) (uint64, bool, error) {
	return 0, true, nil
}
func (noPredecessor) WasLeader() bool                                  { return false }
func (noPredecessor) RecordSynced(schema.GroupVersionResource, uint64) {}

// unwritten is a client that writes nothing.
type unwritten struct{ k8s.Client }

func (unwritten) Modify(context.Context, k8s.Ref, func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	return nil, false, nil
}

// K8S-19: a node whose handling panics leaves no other node without addresses, is named, and is served when that is over. Before that
// its instance is read again, as the cloud may have changed.
func TestANodeThatPanicsLeavesNoOtherWithoutAddresses(t *testing.T) {
	for _, in := range []string{"Limits", "Assign"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := &brittle{in: in, read: true, wanted: map[string]int{}}
				nodes, err := stream.NewLocal[ciliumNode]()
				pods, err2 := stream.NewLocal[pendingPod]()
				if err := errors.Join(err, err2); err != nil {
					t.Fatal(err)
				}
				log, tree := slog.New(slog.DiscardHandler), health.NewTree()
				h := tree.Reporter("ipam.memory")
				c := newController(params{
					Config: Config{ParallelAllocWorkers: 2, LimitIPAMAPIQPS: 1000, LimitIPAMAPIBurst: 1000}, Provider: cloud, Nodes: nodes, Pods: pods, Client: unwritten{},
					Handover: noPredecessor{}, Health: h, Log: log, Metrics: newMetrics(metrics.Factory{Namespace: "test"}),
					Deps: reconcile.Deps{Module: cell.ModuleInfo{ID: "ipam.memory", Term: "leader"}, Log: log, Health: h},
				})
				c.batches = rate.NewLimiter(rate.Inf, 1)
				pods.Replace()
				nodes.Replace()
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				for _, run := range []func(context.Context) error{c.watchNodes, c.readCloud, c.write} {
					running.Go(func() { _ = run(ctx) })
				}
				for n := range 7 {
					node := &ciliumNode{}
					node.Name, node.Spec.InstanceID = fmt.Sprintf("n%d", n), fmt.Sprintf("i-n%d", n)
					nodes.Upsert(node)
				}
				time.Sleep(10 * time.Second)
				if got := cloud.served(); len(got) != 6 || slices.Contains(got, "i-n3") {
					t.Errorf("these got addresses: %v", got)
				}
				degraded := ""
				for _, s := range tree.Degraded() {
					degraded += s.ID + ": " + s.Message + ": " + s.Error + "\n"
				}
				if !strings.Contains(degraded, "handling n3 panicked ") || !strings.Contains(degraded, "at resources/cloudipam/panic_test.go:") {
					t.Errorf("health says:\n%s", degraded)
				}
				cloud.mu.Lock()
				cloud.in = ""
				reads := cloud.wanted["i-n3"]
				cloud.mu.Unlock()
				time.Sleep(time.Minute)
				if got := cloud.served(); len(got) != 7 || reads == 0 {
					t.Errorf("afterwards these have addresses: %v; the instance was read %d times", got, reads)
				}
				cancel()
				running.Wait()
			})
		})
	}
}
