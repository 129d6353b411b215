// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
)

// The names of what is measured of nodes on instances of EC2, at each number of them.
const (
	ec2Took      = "the first CiliumNode is created → the last has its addresses"
	ec2Without   = "nodes without their addresses"
	ec2Changes   = "calls that change EC2, per node"
	ec2Described = "calls that describe, per node"
	ec2Writes    = "writes per CiliumNode"
	ec2CPU       = "CPU of the operator for each"
	ec2Heap      = "live heap"
	ec2Rest      = "resident, when it has nothing to do"
	ec2Peak      = "resident at most"
	ec2Restart   = "writes of CiliumNodes and changes of EC2 by a restart"
)

// ec2Addresses are what a node has that asks for no number.
const ec2Addresses = 8

func (b Bench) instanceCounts() []int { return b.counts(1000, 5000) }

func (b Bench) instancesContest() contest.Contest {
	c := contest.Contest{
		Name: "instances", Title: "Nodes on instances of a simulated EC2",
		Note: "Instances of the type m5.large, whose CiliumNodes are created by 32 clients at once. EC2 has no token buckets, and the operator no limit of calls: " +
			"make bench-aws has both, and there fewer descriptions do. EC2 runs in the process of the bench. One round.",
		Contestants: contestants,
	}
	for _, n := range b.instanceCounts() {
		resident := contest.Budget{}
		if n == 5000 {
			resident.AtMost = 200
		}
		c.Measures = append(c.Measures,
			contest.Measure{Name: scaled(ec2Took, n), Unit: "s"},
			contest.Measure{Name: scaled(ec2Without, n), Budget: contest.Budget{Nothing: true}},
			contest.Measure{Name: scaled(ec2Changes, n), Budget: contest.Budget{AtMost: 2}},
			contest.Measure{Name: scaled(ec2Described, n)},
			contest.Measure{Name: scaled(ec2Writes, n)},
			contest.Measure{Name: scaled(ec2CPU, n), Unit: "ms"},
			contest.Measure{Name: scaled(ec2Heap, n), Unit: "MB"},
			contest.Measure{Name: scaled(ec2Rest, n), Unit: "MB"},
			contest.Measure{Name: scaled(ec2Peak, n), Unit: "MB", Budget: resident},
			contest.Measure{Name: scaled(ec2Restart, n), Budget: contest.Budget{Nothing: true}},
		)
	}
	return c
}

// instances measures what nodes in EC2 cost.
func (b Bench) instances(ctx context.Context, record func(contest.Figures)) error {
	for _, n := range b.instanceCounts() {
		if err := b.onInstances(ctx, n, record); err != nil {
			return fmt.Errorf("%d instances: %w", n, err)
		}
	}
	return nil
}

func (b Bench) onInstances(ctx context.Context, n int, record func(contest.Figures)) error {
	cloud := ec2test.New()
	cloud.AddSubnet("subnet-a", "vpc-1", cloud.Region+"a", "10.64.0.0/15", nil)
	names := numbered("i", n)
	for _, name := range names {
		if err := cloud.Run(name, "m5.large", "subnet-a", nil); err != nil {
			return err
		}
	}
	api, metadata := httptest.NewServer(cloud), httptest.NewServer(cloud.Metadata())
	defer api.Close()
	defer metadata.Close()
	b.env = []string{
		"AWS_ENDPOINT_URL_EC2=" + api.URL, "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + metadata.URL, "AWS_ACCESS_KEY_ID=AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY=secret",
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_PROFILE=",
	}
	flags := []string{"--ipam=eni", "--limit-ipam-api-qps=100000", "--limit-ipam-api-burst=100000"}
	return b.onDuty(ctx, flags, []schema.GroupVersionResource{ciliumNodes}, func(ctx context.Context, p *plane, o *operator) error {
		e := &ec2Nodes{Bench: b, plane: p, cloud: cloud, names: names, given: newSightings[string]()}
		if err := p.followKind(ctx, ciliumNodes, e.handleNode); err != nil {
			return err
		}
		figures, err := e.join(ctx, o)
		if err != nil {
			return err
		}
		record(figures)
		if figures, err = e.rest(ctx, o); err != nil {
			return err
		}
		record(figures)
		o.end(syscall.SIGTERM)
		figures, err = e.restart(ctx, append(flags, raised...))
		record(figures)
		return err
	})
}

// ec2Nodes are CiliumNodes of instances, and when each had its addresses, as a watch tells it.
type ec2Nodes struct {
	Bench
	plane *plane
	cloud *ec2test.Cloud
	names []string
	given *sightings[string]
}

func (e *ec2Nodes) handleNode(_ watch.EventType, node *unstructured.Unstructured) {
	at := time.Now()
	if pool, _, _ := unstructured.NestedMap(node.Object, "spec", "ipam", "pool"); len(pool) >= ec2Addresses {
		e.given.record(at, node.GetName())
	}
}

// join creates the CiliumNodes as agents do, and waits until all have their addresses.
func (e *ec2Nodes) join(ctx context.Context, o *operator) (contest.Figures, error) {
	n, began := len(e.names), time.Now()
	e.Progress(fmt.Sprintf("%d instances join", n))
	before, err := o.cpu()
	if err != nil {
		return nil, err
	}
	if err := paced(ctx, 0, n, func(ctx context.Context, i int) error { return e.create(ctx, e.names[i]) }); err != nil {
		return nil, err
	}
	given, err := e.given.await(ctx, e.names)
	if err != nil {
		return nil, err
	}
	after, err := o.cpu()
	if err != nil {
		return nil, err
	}
	requests, err := e.plane.requests(o.user, began)
	writes, _ := writesTo(requests, ciliumNodes)
	described := 0
	for operation, calls := range e.cloud.Calls() {
		if strings.HasPrefix(operation, "Describe") {
			described += calls
		}
	}
	per := func(amount float64) float64 { return amount / float64(n) }
	return contest.Figures{
		scaled(ec2Took, n): seconds(began, given), scaled(ec2Without, n): float64(n - len(given)),
		scaled(ec2Changes, n): per(float64(e.cloud.Changes())), scaled(ec2Described, n): per(float64(described)),
		scaled(ec2Writes, n): per(float64(len(writes))), scaled(ec2CPU, n): per(1000 * (after - before)),
	}, err
}

func (e *ec2Nodes) create(ctx context.Context, instance string) error {
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": instance},
		"spec": map[string]any{
			"instance-id": instance, "ipam": map[string]any{},
			"eni": map[string]any{"instance-type": "m5.large", "vpc-id": "vpc-1", "availability-zone": e.cloud.Region + "a", "node-subnet-id": "subnet-a"},
		},
	}}
	_, err := e.plane.client.Resource(ciliumNodes).Create(ctx, node, metav1.CreateOptions{})
	return err
}

// rest measures an operator that has nothing to do any more.
func (e *ec2Nodes) rest(ctx context.Context, o *operator) (contest.Figures, error) {
	n := len(e.names)
	if !e.Quick {
		e.Progress("idling")
		if err := sleep(ctx, collected); err != nil {
			return nil, err
		}
	}
	heap, resident, peak, err := o.memory(ctx)
	if err == nil {
		err = o.profile(ctx, e.Profiles)
	}
	return contest.Figures{scaled(ec2Heap, n): heap, scaled(ec2Rest, n): resident, scaled(ec2Peak, n): peak}, err
}

// restart starts another operator, which finds all as it should be.
func (e *ec2Nodes) restart(ctx context.Context, flags []string) (contest.Figures, error) {
	e.Progress("the operator starts again")
	began, before := time.Now(), e.cloud.Changes()
	o, err := e.run(ctx, e.plane, "operator-1", flags...)
	if err != nil {
		return nil, err
	}
	defer o.end(syscall.SIGKILL)
	if err := o.waits(ctx, true); err != nil {
		return nil, err
	}
	if err := o.ready(ctx); err != nil {
		return nil, err
	}
	if err := sleep(ctx, quiet); err != nil {
		return nil, err
	}
	requests, err := e.plane.requests(o.user, began)
	written := mutating(requests, ciliumNodes) + e.cloud.Changes() - before
	return contest.Figures{scaled(ec2Restart, len(e.names)): float64(written)}, err
}
