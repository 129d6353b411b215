// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// The names of what is measured of nodes that join, at each number of them.
const (
	joinTook       = "nodes and their agents, until the last has its CIDR"
	joinLast       = "the last created → the last has its CIDR"
	joinWithout    = "nodes without a CIDR"
	joinDuplicates = "CIDRs on two nodes"
	joinWrites     = "writes per node"
	joinConflicts  = "conflicts"
	joinCPU        = "CPU of the operator for each"
)

func (b Bench) joiningCounts() []int { return b.counts(200, 2000) }

func (b Bench) joiningContest() contest.Contest {
	c := contest.Contest{
		Name: "joining", Title: "Nodes that join, in the IPAM mode multi-pool",
		Note: "The agent of a node creates its CiliumNode with a request, and writes it twice more at once, by 32 clients at once. One pool has room for all. " +
			"Each number of nodes is on a control plane of its own. One round. Conflicts are writes of the operator that another writer forestalled; they are not among the writes.",
		Contestants: contestants,
	}
	for _, n := range b.joiningCounts() {
		c.Measures = append(c.Measures,
			contest.Measure{Name: scaled(joinTook, n), Unit: "s"},
			contest.Measure{Name: scaled(joinLast, n), Unit: "s"},
			contest.Measure{Name: scaled(joinWithout, n), Budget: contest.Budget{Nothing: true}},
			contest.Measure{Name: scaled(joinDuplicates, n), Budget: contest.Budget{Nothing: true}},
			contest.Measure{Name: scaled(joinWrites, n), Budget: contest.Budget{AtMost: 1}},
			contest.Measure{Name: scaled(joinConflicts, n)},
			contest.Measure{Name: scaled(joinCPU, n), Unit: "ms"},
		)
	}
	return c
}

var podPools = schema.GroupVersionResource{Group: "cilium.io", Version: "v2alpha1", Resource: "ciliumpodippools"}

// joining measures how fast nodes get CIDRs while their agents write the same CiliumNodes.
func (b Bench) joining(ctx context.Context, record func(contest.Figures)) error {
	flags := []string{"--ipam=multi-pool", "--auto-create-cilium-pod-ip-pools=default=ipv4-cidrs:10.0.0.0/8;ipv4-mask-size:24"}
	for _, n := range b.joiningCounts() {
		err := b.onDuty(ctx, flags, []schema.GroupVersionResource{ciliumNodes, podPools}, func(ctx context.Context, p *plane, o *operator) error {
			b.Progress(fmt.Sprintf("%d nodes join", n))
			j := &joiningNodes{plane: p, made: newSightings[string](), given: newSightings[string](), of: map[string]string{}}
			if err := p.followKind(ctx, ciliumNodes, j.handleNode); err != nil {
				return err
			}
			err := until(ctx, func() (bool, error) { // the operator creates the pool
				_, err := p.client.Resource(podPools).Get(ctx, "default", metav1.GetOptions{})
				return err == nil, nil
			})
			if err != nil {
				return err
			}
			figures, err := j.measure(ctx, o, n)
			record(figures)
			return err
		})
		if err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
	}
	return nil
}

// joiningNodes are nodes that the bench makes, and when each came and had its CIDR, as a watch tells it.
type joiningNodes struct {
	plane       *plane
	made, given *sightings[string]

	mu         sync.Mutex
	of         map[string]string // nodes by CIDR
	duplicates int
}

func (j *joiningNodes) handleNode(_ watch.EventType, node *unstructured.Unstructured) {
	at, name := time.Now(), node.GetName()
	j.made.record(at, name)
	cidrs := allocatedCIDRs(node)
	if len(cidrs) == 0 {
		return
	}
	j.given.record(at, name)
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, cidr := range cidrs {
		if other, known := j.of[cidr]; known && other != name {
			j.duplicates++
		}
		j.of[cidr] = name
	}
}

func allocatedCIDRs(node *unstructured.Unstructured) (cidrs []string) {
	pools, _, _ := unstructured.NestedSlice(node.Object, "spec", "ipam", "pools", "allocated")
	for _, pool := range pools {
		if pool, ok := pool.(map[string]any); ok {
			of, _, _ := unstructured.NestedStringSlice(pool, "cidrs")
			cidrs = append(cidrs, of...)
		}
	}
	return cidrs
}

func (j *joiningNodes) measure(ctx context.Context, o *operator, n int) (contest.Figures, error) {
	if err := j.join(ctx, "first"); err != nil {
		return nil, err
	}
	if _, err := j.given.wait(ctx, []string{"first"}); err != nil { // the duty has begun
		return nil, err
	}
	began, names := time.Now(), numbered("bench", n)
	before, err := o.cpu()
	if err != nil {
		return nil, err
	}
	if err := paced(ctx, 0, n, func(ctx context.Context, i int) error { return j.join(ctx, names[i]) }); err != nil {
		return nil, err
	}
	made, err := j.made.await(ctx, names)
	if err != nil {
		return nil, err
	}
	given, err := j.given.await(ctx, names)
	if err != nil {
		return nil, err
	}
	after, err := o.cpu()
	if err != nil {
		return nil, err
	}
	requests, err := j.plane.requests(o.user, began)
	writes, conflicts := writesTo(requests, ciliumNodes)
	j.mu.Lock()
	defer j.mu.Unlock()
	return contest.Figures{
		scaled(joinTook, n): seconds(began, given), scaled(joinLast, n): seconds(latest(made), given),
		scaled(joinWithout, n): float64(n - len(given)), scaled(joinDuplicates, n): float64(j.duplicates),
		scaled(joinWrites, n): float64(len(writes)) / float64(n), scaled(joinConflicts, n): float64(conflicts),
		scaled(joinCPU, n): 1000 * (after - before) / float64(n),
	}, err
}

// join is what an agent does: it creates its CiliumNode, and writes it again for other reasons.
func (j *joiningNodes) join(ctx context.Context, name string) error {
	client := j.plane.client.Resource(ciliumNodes)
	request := map[string]any{"pool": "default", "needed": map[string]any{"ipv4-addrs": int64(16)}}
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"ipam": map[string]any{"pools": map[string]any{"requested": []any{request}}}},
	}}
	if _, err := client.Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, patch := range []string{`{"spec":{"bootid":"6f1f8ab6"}}`, `{"metadata":{"labels":{"topology.kubernetes.io/zone":"a"}}}`} {
		if _, err := client.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}
