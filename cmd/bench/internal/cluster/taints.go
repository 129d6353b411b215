// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// The names of what is measured of agents that get ready, at each number of them.
const (
	readyMade    = "agents, until the last pod was ready"
	readyFree    = "the last pod ready → the last taint removed"
	readyUp      = "the last pod ready → the last condition set"
	readyTainted = "nodes with the taint"
	readyDown    = "nodes without the condition"
	readyPatches = "patches per node"
	readyCPU     = "CPU of the operator for each"
)

func (b Bench) taintsCounts() []int { return b.counts(200, 2000) }

func (b Bench) taintsContest() contest.Contest {
	c := contest.Contest{
		Name: "taints", Title: "Nodes whose agents get ready at once",
		Note: "Nodes have the taint of the agent, and a pod of the agent that is not ready. All pods get ready at once: that is written straight into etcd. " +
			"Each number of nodes is on a control plane of its own. One round.",
		Contestants: contestants,
	}
	for _, n := range b.taintsCounts() {
		c.Measures = append(c.Measures,
			contest.Measure{Name: scaled(readyMade, n), Unit: "s"},
			contest.Measure{Name: scaled(readyFree, n), Unit: "s"},
			contest.Measure{Name: scaled(readyUp, n), Unit: "s"},
			contest.Measure{Name: scaled(readyTainted, n), Budget: contest.Budget{Nothing: true}},
			contest.Measure{Name: scaled(readyDown, n), Budget: contest.Budget{Nothing: true}},
			contest.Measure{Name: scaled(readyPatches, n), Budget: contest.Budget{AtMost: 2}},
			contest.Measure{Name: scaled(readyCPU, n), Unit: "ms"},
		)
	}
	return c
}

// taints measures how fast nodes become schedulable.
func (b Bench) taints(ctx context.Context, record func(contest.Figures)) error {
	for _, n := range b.taintsCounts() {
		err := b.onDuty(ctx, []string{"--ipam=kubernetes"}, []schema.GroupVersionResource{ciliumNodes}, func(ctx context.Context, p *plane, o *operator) error {
			b.Progress(fmt.Sprintf("%d agents get ready", n))
			a, err := p.watchAgents(ctx)
			if err != nil {
				return err
			}
			figures, err := a.measure(ctx, o, n)
			record(figures)
			return err
		})
		if err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
	}
	return nil
}

// agents are nodes that the bench makes, each with the pod of its agent.
type agents struct {
	plane    *plane
	pods     map[string]*corev1.Pod // by node
	made     *sightings[string]     // nodes
	ready    *sightings[string]     // pods
	free, up *sightings[string]     // nodes
}

func (p *plane) watchAgents(ctx context.Context) (*agents, error) {
	a := &agents{plane: p, pods: map[string]*corev1.Pod{}, made: newSightings[string](), ready: newSightings[string](), free: newSightings[string](), up: newSightings[string]()}
	err := p.follow(ctx, listWatch(p.core.CoreV1().Nodes(), metav1.ListOptions{}), func(_ watch.EventType, obj runtime.Object) {
		a.handleNode(time.Now(), obj.(*corev1.Node))
	})
	if err != nil {
		return nil, err
	}
	return a, p.follow(ctx, listWatch(p.core.CoreV1().Pods(agentNamespace), metav1.ListOptions{}), func(_ watch.EventType, obj runtime.Object) {
		at, pod := time.Now(), obj.(*corev1.Pod)
		if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
			a.ready.record(at, pod.Spec.NodeName)
		}
	})
}

const (
	agentNamespace = "kube-system"
	agentTaint     = "node.cilium.io/agent-not-ready"
)

func (a *agents) handleNode(at time.Time, node *corev1.Node) {
	a.made.record(at, node.Name)
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == agentTaint }) {
		a.free.record(at, node.Name)
	}
	if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionFalse && c.Reason == "CiliumIsUp"
	}) {
		a.up.record(at, node.Name)
	}
}

func (a *agents) measure(ctx context.Context, o *operator, n int) (contest.Figures, error) {
	first := numbered("first", 1)
	if err := a.create(ctx, first); err != nil {
		return nil, err
	}
	if err := a.getReady(ctx, first); err != nil {
		return nil, err
	}
	if _, err := a.up.wait(ctx, first); err != nil { // the duty has begun
		return nil, err
	}
	names := numbered("bench", n)
	if err := a.create(ctx, names); err != nil {
		return nil, err
	}
	began := time.Now()
	before, err := o.cpu()
	if err != nil {
		return nil, err
	}
	if err := a.getReady(ctx, names); err != nil {
		return nil, err
	}
	ready, err := a.ready.await(ctx, names)
	if err != nil {
		return nil, err
	}
	free, err := a.free.await(ctx, names)
	if err != nil {
		return nil, err
	}
	up, err := a.up.await(ctx, names)
	if err != nil {
		return nil, err
	}
	after, err := o.cpu()
	if err != nil {
		return nil, err
	}
	requests, err := a.plane.requests(o.user, began)
	writes, _ := writesTo(requests, corev1.SchemeGroupVersion.WithResource("nodes"))
	last := latest(ready)
	return contest.Figures{
		scaled(readyMade, n): seconds(began, ready), scaled(readyFree, n): seconds(last, free), scaled(readyUp, n): seconds(last, up),
		scaled(readyTainted, n): float64(n - len(free)), scaled(readyDown, n): float64(n - len(up)),
		scaled(readyPatches, n): float64(len(writes)) / float64(n), scaled(readyCPU, n): 1000 * (after - before) / float64(n),
	}, err
}

// create makes nodes with the taint, and a pod on each that is not ready.
func (a *agents) create(ctx context.Context, names []string) error {
	err := paced(ctx, 0, len(names), func(ctx context.Context, i int) error {
		_, err := a.plane.core.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: names[i]},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: agentTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if _, err := a.made.wait(ctx, names); err != nil {
		return err
	}
	for _, name := range names {
		a.pods[name] = agentPod(name)
	}
	return a.storePods(ctx, names)
}

// getReady makes the pods of nodes ready.
func (a *agents) getReady(ctx context.Context, names []string) error {
	for _, name := range names {
		status := &a.pods[name].Status
		status.Phase = corev1.PodRunning
		status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return a.storePods(ctx, names)
}

func (a *agents) storePods(ctx context.Context, names []string) error {
	var pods []*corev1.Pod
	for _, name := range names {
		pods = append(pods, a.pods[name])
	}
	return a.plane.store(ctx, pods)
}

// agentPod is the pod of an agent as it begins.
func agentPod(node string) *corev1.Pod {
	made := pod{namespace: agentNamespace, name: "cilium-" + node, labels: map[string]string{"k8s-app": "cilium"}}.stored()
	made.Spec.NodeName, made.Spec.HostNetwork = node, true
	made.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return made
}
