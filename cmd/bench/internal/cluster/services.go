// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// The names of what is measured of LoadBalancer Services, at each number of them.
const (
	lbCreated    = "Services, until the last was created"
	lbLast       = "the last created → the last has its IP"
	lb50         = "created → IP, p50"
	lb99         = "created → IP, p99"
	lbWithout    = "Services without an IP"
	lbWrites     = "writes per Service"
	lbPoolWrites = "writes of pools per second"
	lbCPU        = "CPU of the operator for each"
)

// poolEdits are what is done to pools where all Services have their IPs.
var poolEdits = []struct {
	name     string
	do       func(context.Context, *services) error
	services int // that it concerns
}{
	{"a pool is added", func(ctx context.Context, s *services) error { return s.addPool(ctx, "other", "10.201.0.0/24") }, 0},
	{"a block is added to it", func(ctx context.Context, s *services) error {
		return s.setBlocks(ctx, "other", "10.201.0.0/24", "10.202.0.0/24")
	}, 0},
	{"it is deleted", func(ctx context.Context, s *services) error { return s.deletePool(ctx, "other") }, 0},
	{"the block of ten Services is replaced", func(ctx context.Context, s *services) error { return s.setBlocks(ctx, "ten", "10.204.0.0/24") }, tenServices},
}

const (
	editCPU      = "CPU"
	editServices = "writes of Services"
	editPools    = "writes of pools"
	tenServices  = 10
)

func (b Bench) serviceCounts() []int { return b.counts(1000, 10_000) }

func (b Bench) servicesContest() contest.Contest {
	c := contest.Contest{
		Name: "services", Title: "IPs of LoadBalancer Services",
		Note: "Services are created through the API server, by 32 clients at once; a pool has room for all. Each number of Services is on a control plane of its own. " +
			"Times are between events of one watch of the bench. CPU of an edit of pools is that of five seconds, without that of five idle ones. One round. " +
			"The recorded figures are of 1,000 Services on two cores.",
		Contestants: contestants,
	}
	for _, n := range b.serviceCounts() {
		c.Measures = append(c.Measures,
			contest.Measure{Name: scaled(lbCreated, n), Unit: "s"},
			contest.Measure{Name: scaled(lbLast, n), Unit: "s"},
			contest.Measure{Name: scaled(lb50, n), Unit: "ms"},
			contest.Measure{Name: scaled(lb99, n), Unit: "ms", Budget: contest.Budget{AtMost: 500}},
			contest.Measure{Name: scaled(lbWithout, n), Budget: contest.Budget{Nothing: true}},
			contest.Measure{Name: scaled(lbWrites, n), Budget: contest.Budget{AtMost: 1}},
			contest.Measure{Name: scaled(lbPoolWrites, n), Unit: "/s", Budget: contest.Budget{AtMost: 1}},
			contest.Measure{Name: scaled(lbCPU, n), Unit: "ms"},
		)
		for _, e := range poolEdits {
			writes := contest.Budget{Nothing: true}
			if e.services > 0 {
				writes = contest.Budget{AtMost: float64(e.services)}
			}
			c.Measures = append(c.Measures,
				contest.Measure{Name: scaled(e.name+": "+editCPU, n), Unit: "ms"},
				contest.Measure{Name: scaled(e.name+": "+editServices, n), Budget: writes},
				contest.Measure{Name: scaled(e.name+": "+editPools, n)},
			)
		}
	}
	return c
}

// recordedServices are those of the original for 1,000 Services.
func (b Bench) recordedServices() contest.Figures {
	if b.Quick {
		return nil
	}
	return contest.Figures{scaled(lbCreated, 1000): 7.8, scaled(lbLast, 1000): 11.3, scaled(lb50, 1000): 6900, scaled(lb99, 1000): 11_100}
}

var ipPools = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumloadbalancerippools"}

// services measures how fast Services get IPs of pools, and what edits of pools cost.
func (b Bench) services(ctx context.Context, record func(contest.Figures)) error {
	for _, n := range b.serviceCounts() {
		err := b.onDuty(ctx, []string{"--ipam=kubernetes"}, []schema.GroupVersionResource{ipPools}, func(ctx context.Context, p *plane, o *operator) error {
			s, err := p.watchServices(ctx)
			if err != nil {
				return err
			}
			s.Bench, s.operator, s.n, s.record = b, o, n, record
			return s.measure(ctx)
		})
		if err != nil {
			return fmt.Errorf("%d Services: %w", n, err)
		}
	}
	return nil
}

// services are those that the bench makes, and when each came and had its IP, as a watch tells it.
type services struct {
	Bench
	plane       *plane
	operator    *operator
	n           int
	made, given *sightings[string]
	record      func(contest.Figures)
}

func (p *plane) watchServices(ctx context.Context) (*services, error) {
	s := &services{plane: p, made: newSightings[string](), given: newSightings[string]()}
	only := metav1.ListOptions{LabelSelector: byBench}
	return s, p.follow(ctx, listWatch(p.core.CoreV1().Services(""), only), func(_ watch.EventType, obj runtime.Object) { s.handleService(time.Now(), obj.(*corev1.Service)) })
}

func (s *services) handleService(at time.Time, service *corev1.Service) {
	s.made.record(at, service.Name)
	if len(service.Status.LoadBalancer.Ingress) > 0 {
		s.given.record(at, service.Name)
	}
}

func (s *services) measure(ctx context.Context) error {
	s.Progress(fmt.Sprintf("creating %d Services", s.n))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: servicesNamespace}}
	if _, err := s.plane.core.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	for name, block := range map[string]string{"main": "10.64.0.0/14", "ten": "10.203.0.0/24"} {
		if err := s.addPool(ctx, name, block); err != nil {
			return err
		}
	}
	if err := s.create(ctx, "ten", tenServices); err != nil {
		return err
	}
	if _, err := s.given.wait(ctx, numbered("ten", tenServices)); err != nil { // the duty has begun
		return err
	}
	if err := s.burst(ctx); err != nil {
		return err
	}
	return s.edits(ctx)
}

// burst creates the Services as fast as the API server takes them.
func (s *services) burst(ctx context.Context) error {
	began := time.Now()
	before, err := s.operator.cpu()
	if err != nil {
		return err
	}
	if err := s.create(ctx, "main", s.n); err != nil {
		return err
	}
	names := numbered("main", s.n)
	made, err := s.made.await(ctx, names)
	if err != nil {
		return err
	}
	given, err := s.given.await(ctx, names)
	if err != nil {
		return err
	}
	if len(given) == 0 {
		return errors.New("no Service has an IP")
	}
	after, err := s.operator.cpu()
	if err != nil {
		return err
	}
	requests, err := s.plane.requests(s.operator.user, began)
	if err != nil {
		return err
	}
	writes, _ := writesTo(requests, coreServices)
	poolWrites, _ := writesTo(requests, ipPools)
	late := delays(both(made, given), given)
	s.record(contest.Figures{
		scaled(lbCreated, s.n): seconds(began, made), scaled(lbLast, s.n): seconds(latest(made), given),
		scaled(lb50, s.n): 1000 * percentile(late, .5), scaled(lb99, s.n): 1000 * percentile(late, .99),
		scaled(lbWithout, s.n): float64(s.n - len(given)), scaled(lbWrites, s.n): float64(len(writes)) / float64(s.n),
		scaled(lbPoolWrites, s.n): perSecond(poolWrites), scaled(lbCPU, s.n): 1000 * (after - before) / float64(s.n),
	})
	return nil
}

var coreServices = corev1.SchemeGroupVersion.WithResource("services")

// window is how long the work of an edit of pools is waited for.
const window = 5 * time.Second

// edits measures each edit of pools.
func (s *services) edits(ctx context.Context) error {
	for _, e := range poolEdits {
		s.Progress(fmt.Sprintf("%d Services: %s", s.n, e.name))
		idle, err := s.cost(ctx, func(context.Context) error { return nil })
		if err != nil {
			return err
		}
		began := time.Now()
		busy, err := s.cost(ctx, func(ctx context.Context) error { return e.do(ctx, s) })
		if err != nil {
			return err
		}
		requests, err := s.plane.requests(s.operator.user, began)
		if err != nil {
			return err
		}
		services, _ := writesTo(requests, coreServices)
		pools, _ := writesTo(requests, ipPools)
		s.record(contest.Figures{
			scaled(e.name+": "+editCPU, s.n): 1000 * max(0, busy-idle), scaled(e.name+": "+editServices, s.n): float64(len(services)),
			scaled(e.name+": "+editPools, s.n): float64(len(pools)),
		})
	}
	return nil
}

// cost is the CPU time that the operator takes in the time after something was done.
func (s *services) cost(ctx context.Context, do func(context.Context) error) (float64, error) {
	before, err := s.operator.cpu()
	if err != nil {
		return 0, err
	}
	if err := do(ctx); err != nil {
		return 0, err
	}
	if err := sleep(ctx, window); err != nil {
		return 0, err
	}
	after, err := s.operator.cpu()
	return after - before, err
}

const servicesNamespace = "bench-services"

// create creates Services that get IPs of a pool.
func (s *services) create(ctx context.Context, pool string, n int) error {
	client := s.plane.core.CoreV1().Services(servicesNamespace)
	names := numbered(pool, n)
	return paced(ctx, 0, n, func(ctx context.Context, i int) error {
		_, err := client.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: names[i], Labels: map[string]string{byBench: "service", "pool": pool}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: new(false), // there are fewer
				Ports: []corev1.ServicePort{{Port: 80}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

// addPool creates a pool for the Services that are labelled with its name.
func (s *services) addPool(ctx context.Context, name string, blocks ...string) error {
	pool := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumLoadBalancerIPPool", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"blocks":          poolBlocks(blocks),
			"serviceSelector": map[string]any{"matchLabels": map[string]any{"pool": name}},
		},
	}}
	_, err := s.plane.client.Resource(ipPools).Create(ctx, pool, metav1.CreateOptions{})
	return err
}

func (s *services) setBlocks(ctx context.Context, name string, blocks ...string) error {
	pool, err := s.plane.client.Resource(ipPools).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedSlice(pool.Object, poolBlocks(blocks), "spec", "blocks"); err != nil {
		return err
	}
	_, err = s.plane.client.Resource(ipPools).Update(ctx, pool, metav1.UpdateOptions{})
	return err
}

func (s *services) deletePool(ctx context.Context, name string) error {
	return s.plane.client.Resource(ipPools).Delete(ctx, name, metav1.DeleteOptions{})
}

func poolBlocks(cidrs []string) (blocks []any) {
	for _, cidr := range cidrs {
		blocks = append(blocks, map[string]any{"cidr": cidr})
	}
	return blocks
}
