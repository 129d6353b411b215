// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// latestWrite is how late a slice may be written, by the budget: none that keeps
// it needs fewer writes than one for each slice and each second in which something
// happens to it.
const latestWrite = time.Second

// sliceWork is how much is done to endpoints.
type sliceWork struct {
	endpoints int // in whole namespaces
	removed   int // at random, and then made again in a random order
	slim      int // pods
	perSecond float64
	pause     time.Duration
}

func (b Bench) sliceWork() sliceWork {
	w := sliceWork{endpoints: 16_000, removed: 4000, slim: 4000, perSecond: 100, pause: 3 * time.Second}
	if b.Quick {
		w.endpoints, w.removed, w.slim = 2000, 500, 500
	}
	w.endpoints = min(w.endpoints, b.size().pods)
	return w
}

// batches are the three parts of the work on endpoints in each mode.
var batches = []string{"made, namespace after namespace", "removed at random", "made in random order"}

// The names of what is measured of slices: of a mode and a part of the work.
func perEvent(mode, batch string) string { return mode + ", endpoints " + batch + ": writes per event" }
func leastPer(mode, batch string) string { return mode + ", endpoints " + batch + ": least possible" }
func slice50(mode, batch string) string  { return mode + ", endpoints " + batch + ": p50" }
func slice99(mode, batch string) string  { return mode + ", endpoints " + batch + ": p99" }
func sliceCPU(mode, batch string) string {
	return mode + ", endpoints " + batch + ": CPU of the operator per event"
}
func sliceFill(mode string) string { return mode + ": endpoints per slice after that" }
func sliceRate(mode string) string { return mode + ": endpoints that came a second" }

const (
	fcfs, byIdentity, slim = "fcfs", "identity", "slim"
	slimBatch              = "of new pods, namespace after namespace"
	slimStart              = "slim: every pod that was there is in a slice, after the start"
)

func (b Bench) batchingContest() contest.Contest {
	w := b.sliceWork()
	c := contest.Contest{
		Name: "slices", Title: "CiliumEndpointSlices on a cluster of size " + b.Size,
		Note: fmt.Sprintf("%d endpoints are made at %v a second, then %d removed, then made again. ", w.endpoints, w.perSecond, w.removed) +
			"An event is an endpoint that comes or goes; its time is from the event of the bench's watch to that of the slice that has it, or has it no more. " +
			"Least possible is one write for each slice and each second in which something happens to it; --ces-rate-limits allows 50 a second, so that what happens at random to all slices waits for its turn. " +
			"One round of each. The recorded figure is that of an identity mode which was over a minute behind.",
		Contestants: contestants,
	}
	for _, mode := range []string{fcfs, byIdentity} {
		for _, batch := range batches {
			var writes, late contest.Budget
			if mode == fcfs && batch == batches[0] {
				writes, late = contest.Budget{AtMost: .05}, b.upToM(1)
			}
			c.Measures = append(c.Measures, batchMeasures(mode, batch, writes, late)...)
		}
		c.Measures = append(c.Measures, contest.Measure{Name: sliceFill(mode)}, contest.Measure{Name: sliceRate(mode), Unit: "/s"})
	}
	c.Measures = append(c.Measures, contest.Measure{Name: slimStart, Unit: "s"})
	c.Measures = append(c.Measures, batchMeasures(slim, slimBatch, contest.Budget{}, contest.Budget{})...)
	return c
}

func batchMeasures(mode, batch string, writes, late contest.Budget) []contest.Measure {
	return []contest.Measure{
		{Name: perEvent(mode, batch), Budget: writes}, {Name: leastPer(mode, batch)},
		{Name: slice50(mode, batch), Unit: "s"}, {Name: slice99(mode, batch), Unit: "s", Budget: late},
		{Name: sliceCPU(mode, batch), Unit: "ms"},
	}
}

var recordedBatching = contest.Figures{perEvent(byIdentity, batches[0]): .13}

// batching measures how few writes slices take, and how late they are.
func (b Bench) batching(ctx context.Context, record func(contest.Figures)) error {
	for _, mode := range []string{fcfs, byIdentity} {
		if err := b.inMode(ctx, mode, record); err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
	}
	if err := b.fromPods(ctx, record); err != nil {
		return fmt.Errorf("%s: %w", slim, err)
	}
	return nil
}

// batcher is work on endpoints in progress.
type batcher struct {
	Bench
	work      sliceWork
	mode      string
	plane     *plane
	operator  *operator
	all       *endpointSlices
	endpoints *endpoints
	record    func(contest.Figures)
}

func (b Bench) inMode(ctx context.Context, mode string, record func(contest.Figures)) error {
	return b.onPlane(ctx, b.load("--identities", "--without=ciliumendpoints"), func(ctx context.Context, p *plane) error {
		w := &batcher{Bench: b, work: b.sliceWork(), mode: mode, plane: p, record: record}
		identities, err := p.watchIdentities(ctx)
		if err != nil {
			return err
		}
		if w.endpoints, err = p.watchEndpoints(ctx); err != nil {
			return err
		}
		planned, err := w.endpoints.ofPods(ctx, w.work.endpoints, identities)
		if err != nil {
			return err
		}
		if err := w.start(ctx, "--ces-slice-mode="+mode); err != nil {
			return err
		}
		defer w.operator.end(syscall.SIGKILL)
		if err := w.first(ctx, planned[:1]); err != nil {
			return err
		}
		return w.phases(ctx, planned[1:])
	})
}

func (w *batcher) start(ctx context.Context, args ...string) (err error) {
	if w.operator, err = w.run(ctx, w.plane, "operator-"+w.mode, slices.Concat(raised, duties, args)...); err != nil {
		return err
	}
	w.all, err = w.plane.watchSlices(ctx)
	return err
}

// first waits until the operator makes slices: its start is measured elsewhere.
func (w *batcher) first(ctx context.Context, planned []endpoint) error {
	if err := w.endpoints.make(ctx, w.work.perSecond, planned); err != nil {
		return err
	}
	if _, err := w.all.appeared.wait(ctx, keys(planned)); err != nil {
		return fmt.Errorf("the first endpoint in a slice: %w", err)
	}
	return nil
}

func (w *batcher) phases(ctx context.Context, planned []endpoint) error {
	err := w.phase(ctx, batches[0], keys(planned), w.endpoints.came, w.all.appeared, func(ctx context.Context) error {
		return w.endpoints.make(ctx, w.work.perSecond, planned)
	})
	if err != nil {
		return err
	}
	w.record(contest.Figures{sliceRate(w.mode): rate(w.endpoints.came.at)})

	random := rand.New(rand.NewPCG(1, 1))
	random.Shuffle(len(planned), func(i, j int) { planned[i], planned[j] = planned[j], planned[i] })
	some := planned[:min(w.work.removed, len(planned))]
	err = w.phase(ctx, batches[1], keys(some), w.endpoints.went, w.all.vanished, func(ctx context.Context) error {
		return w.endpoints.remove(ctx, w.work.perSecond, some)
	})
	if err != nil {
		return err
	}
	random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	err = w.phase(ctx, batches[2], keys(some), w.endpoints.came, w.all.appeared, func(ctx context.Context) error {
		return w.endpoints.make(ctx, w.work.perSecond, some)
	})
	fill, _ := w.all.fill()
	w.record(contest.Figures{sliceFill(w.mode): fill})
	return err
}

// phase does something to endpoints and measures until it is in the slices.
func (w *batcher) phase(ctx context.Context, batch string, of []string, cause, effect *sightings[string], do func(context.Context) error) error {
	w.Progress(fmt.Sprintf("%s: %d endpoints %s", w.mode, len(of), batch))
	w.all.begin()
	if w.endpoints != nil {
		w.endpoints.begin()
	}
	began := time.Now()
	before, err := w.operator.cpu()
	if err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return err
	}
	causes, err := cause.wait(ctx, of)
	if err != nil {
		return fmt.Errorf("endpoints: %w", err)
	}
	effects, err := effect.wait(ctx, of)
	if err != nil {
		return fmt.Errorf("endpoints in slices: %w", err)
	}
	if err := sleep(ctx, w.work.pause); err != nil { // whatever else it writes
		return err
	}
	after, err := w.operator.cpu()
	if err != nil {
		return err
	}
	requests, err := w.plane.requests(w.operator.user, began)
	late, events := delays(causes, effects), float64(len(of))
	w.record(contest.Figures{
		perEvent(w.mode, batch): float64(mutating(requests, ciliumEndpointSlices)) / events,
		leastPer(w.mode, batch): float64(w.all.least(causes, latestWrite)) / events,
		slice50(w.mode, batch):  percentile(late, .5), slice99(w.mode, batch): percentile(late, .99),
		sliceCPU(w.mode, batch): 1000 * (after - before) / events,
	})
	return err
}

// fromPods measures slices that are made of pods.
func (b Bench) fromPods(ctx context.Context, record func(contest.Figures)) error {
	return b.onPlane(ctx, b.load("--identities", "--without=ciliumendpoints"), func(ctx context.Context, p *plane) error {
		w := &batcher{Bench: b, work: b.sliceWork(), mode: slim, plane: p, record: record}
		pods, err := p.watchPods(ctx)
		if err != nil {
			return err
		}
		if err := w.start(ctx, "--ces-slice-mode="+fcfs, "--ces-controller-mode=slim"); err != nil {
			return err
		}
		defer w.operator.end(syscall.SIGKILL)
		last, err := w.all.appeared.count(ctx, w.size().pods)
		if err != nil {
			return fmt.Errorf("pods of the load in slices: %w", err)
		}
		w.record(contest.Figures{slimStart: last.Sub(w.operator.began).Seconds()})
		planned, err := w.slimPods(ctx, pods)
		if err != nil {
			return err
		}
		of := make([]string, len(planned))
		for i, pod := range planned {
			of[i] = pod.key()
		}
		return w.phase(ctx, slimBatch, of, pods.addressed, w.all.appeared, func(ctx context.Context) error {
			return pods.run(ctx, w.work.perSecond, planned)
		})
	})
}

// slimPods plans pods in namespaces of 200, of 10 label sets each.
func (w *batcher) slimPods(ctx context.Context, pods *pods) ([]pod, error) {
	const inNamespace, ofLabelSet = 200, 20
	var all []pod
	for i := range w.work.slim {
		namespace := fmt.Sprint("bench-", i/inNamespace)
		if i%inNamespace == 0 {
			if err := pods.makeNamespace(ctx, namespace); err != nil {
				return nil, err
			}
		}
		all = append(all, pods.plan(namespace, fmt.Sprint("pod-", i), fmt.Sprint("app-", i/ofLabelSet)))
	}
	return all, nil
}

// run makes pods on nodes of the load and gives them addresses, as scheduler and
// kubelet do, so many a second.
func (m *pods) run(ctx context.Context, perSecond float64, all []pod) error {
	nodes, err := m.plane.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 500})
	if err != nil {
		return err
	}
	return paced(ctx, perSecond, len(all), func(ctx context.Context, i int) error {
		node, client := nodes.Items[i%len(nodes.Items)], m.plane.core.CoreV1().Pods(all[i].namespace)
		planned := all[i].resource()
		planned.Spec.NodeName = node.Name
		made, err := client.Create(ctx, planned, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		made.Status = corev1.PodStatus{
			Phase:  corev1.PodRunning,
			HostIP: address(node), HostIPs: []corev1.HostIP{{IP: address(node)}},
			PodIP: slimIP(i), PodIPs: []corev1.PodIP{{IP: slimIP(i)}},
		}
		_, err = client.UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	})
}

func address(node corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// slimIP is outside of the load's addresses.
func slimIP(i int) string { return fmt.Sprintf("10.255.%d.%d", i/200, 1+i%200) }
