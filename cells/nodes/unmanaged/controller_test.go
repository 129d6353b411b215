// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package unmanaged

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// bubble is a controller with streams and an API server in memory. There are the nodes n1 and n2 with ready agents.
type bubble struct {
	k8s.Client
	t         *testing.T
	began     time.Time
	metrics   *podMetrics
	tree      *health.Tree
	pods      *stream.Local[pod]
	endpoints *stream.Local[ciliumio.Endpoint]
	agents    *stream.Local[agents.Pod]
	nodes     *stream.Local[agents.Node]

	mu      sync.Mutex
	objects map[k8s.Ref]runtime.Object
	refuse  map[string]error // of deletes, by pod
	newRole bool             // whether the role is unknown
	notes   []string
}

func local[T any](t *testing.T) *stream.Local[T] {
	t.Helper()
	l, err := stream.NewLocal[T]()
	if err != nil {
		t.Fatal(err)
	}
	l.Replace()
	return l
}

func newBubble(t *testing.T) *bubble {
	b := &bubble{
		t: t, began: time.Now(), metrics: newMetrics(metrics.Factory{}), tree: health.NewTree(),
		pods: local[pod](t), endpoints: local[ciliumio.Endpoint](t), agents: local[agents.Pod](t), nodes: local[agents.Node](t),
		objects: map[k8s.Ref]runtime.Object{}, refuse: map[string]error{},
	}
	for _, name := range []string{"n1", "n2"} {
		b.node(name)
		b.agent(name, true)
	}
	return b
}

// start runs the controller until stop.
func (b *bubble) start(change func(*Config)) (stop func()) {
	p := params{
		Config: Config{UnmanagedPodWatcherInterval: seconds(15 * time.Second)}, Agents: agents.Config{AgentNotReadyTaintKey: "wait"},
		Pods: b.pods, Endpoints: b.endpoints, AgentPods: b.agents, Nodes: b.nodes, Client: b,
		Health: b.tree.Reporter("nodes.unmanaged"), Metrics: b.metrics, Log: slog.New(slog.DiscardHandler),
	}
	p.Reconcile = reconcile.Deps{Module: cell.ModuleInfo{ID: "nodes.unmanaged"}, Log: p.Log, Health: p.Health}
	if change != nil {
		change(&p.Config)
	}
	c := newController(p)
	c.roleKnown = func() bool { return !b.newRole }
	ctx, cancel := context.WithCancel(b.t.Context())
	go func() { _ = c.run(ctx) }()
	return func() { cancel(); synctest.Wait() }
}

func (b *bubble) put(ref k8s.Ref, obj runtime.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[ref] = obj
}

func (b *bubble) node(name string, taints ...string) {
	n, full := &agents.Node{}, &corev1.Node{}
	n.Name, full.Name = name, name
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, agents.Taint{Key: slim.MakeString(key)})
		full.Spec.Taints = append(full.Spec.Taints, corev1.Taint{Key: key})
	}
	b.nodes.Upsert(n)
	b.put(k8s.Ref{Resource: agents.Nodes.Resource(), Name: name}, full)
}

func (b *bubble) agent(node string, ready bool) {
	p := &agents.Pod{}
	p.Name, p.Namespace = "agent-"+node, slim.MakeString("kube-system")
	p.Spec.NodeName, p.Status.Ready = slim.MakeString(node), slim.Ready(ready)
	b.agents.Upsert(p)
	b.serveAgent(node, ready)
}

// serveAgent is what the API server has, which no watch has shown.
func (b *bubble) serveAgent(node string, ready bool) {
	full := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node, Namespace: "kube-system"}}
	full.Spec.NodeName = node
	if ready {
		full.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	b.put(k8s.Ref{Resource: agents.Pods.Resource(), Namespace: "kube-system", Name: full.Name}, full)
}

func podRef(name string) k8s.Ref {
	return k8s.Ref{Resource: pods.Resource(), Namespace: "kube-system", Name: name}
}

func endpointRef(name string) k8s.Ref {
	return k8s.Ref{Resource: ciliumio.Endpoints.Resource(), Namespace: "kube-system", Name: name}
}

// pod creates a running pod that has started some time ago.
func (b *bubble) pod(name, node string, age time.Duration, edits ...func(*pod)) {
	p := &pod{}
	p.Name, p.Namespace, p.UID = name, slim.MakeString("kube-system"), slim.ParseUID(fmt.Sprintf("%s at %s", name, time.Since(b.began)))
	p.Spec.NodeName, p.Status.StartTime = slim.MakeString(node), slim.MakeTime(time.Now().Add(-age))
	for _, edit := range edits {
		edit(p)
	}
	full := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.Namespace.String(), UID: p.UID.API()}}
	full.Spec.NodeName, full.Status.Phase = node, corev1.PodRunning
	b.put(k8s.Ref{Resource: pods.Resource(), Namespace: full.Namespace, Name: name}, full)
	b.pods.Upsert(p)
}

func inNamespace(name string) func(*pod) { return func(p *pod) { p.Namespace = slim.MakeString(name) } }

// managed creates the CiliumEndpoint of a pod.
func (b *bubble) managed(name string) {
	e := &ciliumio.Endpoint{}
	e.Name, e.Namespace = name, slim.MakeString("kube-system")
	b.endpoints.Upsert(e)
	b.put(endpointRef(name), &corev1.Pod{})
}

func (b *bubble) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := ref.UID
	ref.UID = ""
	obj, ok := b.objects[ref]
	if !ok {
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	u := &unstructured.Unstructured{Object: content}
	if uid != "" && u.GetUID() != uid {
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	return u, err
}

func (b *bubble) Delete(_ context.Context, ref k8s.Ref, only k8s.Preconditions) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuse[ref.Name]; err != nil {
		return err
	}
	if only.UID == "" {
		b.t.Error("a delete without uid")
	}
	ref.UID = ""
	delete(b.objects, ref)
	b.pods.Delete(slim.Key{Namespace: ref.Namespace, Name: ref.Name})
	b.notes = append(b.notes, ref.Name+" after "+time.Since(b.began).Round(time.Second).String())
	return nil
}

// deleted checks what was deleted so far, and when.
func (b *bubble) deleted(want ...string) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.notes, want) {
		b.t.Errorf("deleted are %v, want %v", b.notes, want)
	}
}

// unmanaged checks the gauge.
func (b *bubble) unmanaged(want float64) {
	b.t.Helper()
	synctest.Wait()
	if got := value(b.t, b.metrics.Unmanaged); got != want {
		b.t.Errorf("%v pods are unmanaged, want %v", got, want)
	}
}

func in(t *testing.T, f func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newBubble(t)) })
}

// NUNM-E13: one pod at a time, the oldest first.
func TestOneAtATime(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		b.pod("a", "n1", time.Minute)
		b.pod("b", "n2", 2*time.Minute)
		b.pod("fine", "n2", time.Hour)
		b.managed("fine")
		stop := b.start(nil)
		b.unmanaged(2)
		time.Sleep(time.Minute)
		b.unmanaged(0)
		stop()
		b.deleted("b after 0s", "a after 15s")
		if n := value(t, b.metrics.Restarted); n != 2 {
			t.Errorf("%v restarts are counted", n)
		}
	})
}

// NUNM-E14: an agent has 30 s for a new pod, and none for one of the network of the node, which it does not manage.
func TestYoungAndHostNetwork(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		b.pod("young", "n1", 20*time.Second)
		b.pod("host", "n1", time.Hour, func(p *pod) { p.Spec.HostNetwork = true })
		b.pod("not-started", "n1", time.Hour, func(p *pod) { p.Status.StartTime = 0 })
		b.pod("terminating", "n1", time.Hour, func(p *pod) { p.DeletionTimestamp = slim.MakeTime(time.Now()) })
		stop := b.start(nil)
		b.unmanaged(0)
		time.Sleep(10 * time.Minute)
		stop()
		b.deleted("young after 15s")
	})
}

// NUNM-E15: a pod of the same name has five minutes until its next restart.
func TestSameNameAgain(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		b.pod("s-0", "n1", time.Minute)
		stop := b.start(nil)
		synctest.Wait()
		b.pod("s-0", "n1", 0)
		time.Sleep(4 * time.Minute)
		b.deleted("s-0 after 0s")
		b.unmanaged(1)
		time.Sleep(2 * time.Minute)
		b.deleted("s-0 after 0s", "s-0 after 5m0s")
		b.pod("s-0", "n1", 0)
		time.Sleep(4*time.Minute - time.Second)
		stop()
		b.deleted("s-0 after 0s", "s-0 after 5m0s")
	})
}

// NUNM-7: so has the pod that takes the place of a restarted one under another name.
func TestReplacementAgain(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		of := func(p *pod) {
			p.Controller = slim.MakeOwner(slim.OwnerReference{Name: "coredns", UID: slim.ParseUID("rs")})
		}
		b.pod("c-1", "n1", time.Minute, of)
		b.pod("c-2", "n1", time.Minute, of)
		stop := b.start(nil)
		synctest.Wait()
		b.pod("c-3", "n1", 0, of)
		time.Sleep(16 * time.Second)
		b.pod("c-4", "n1", 0, of)
		b.deleted("c-1 after 0s", "c-2 after 15s")
		time.Sleep(4 * time.Minute)
		b.deleted("c-1 after 0s", "c-2 after 15s")
		time.Sleep(time.Minute)
		stop()
		b.deleted("c-1 after 0s", "c-2 after 15s", "c-3 after 5m0s", "c-4 after 5m15s")
	})
}

// NUNM-8: nothing is restarted where the agent could not create the CiliumEndpoint.
func TestNodesThatCannotServe(t *testing.T) {
	for name, hinder := range map[string]func(b *bubble){
		"agent not ready": func(b *bubble) { b.agent("n1", false) },
		"taint":           func(b *bubble) { b.node("n1", "wait") },
		"no agent":        func(b *bubble) { b.agents.Delete(slim.Key{Namespace: "kube-system", Name: "agent-n1"}) },
		"no node":         func(b *bubble) { b.nodes.Delete(slim.Key{Name: "n1"}) },
		// Only the API server knows that.
		"agent not ready any more": func(b *bubble) { b.serveAgent("n1", false) },
		"taint not seen yet": func(b *bubble) {
			b.put(k8s.Ref{Resource: agents.Nodes.Resource(), Name: "n1"}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "wait"}}}})
		},
		"node gone":                   func(b *bubble) { delete(b.objects, k8s.Ref{Resource: agents.Nodes.Resource(), Name: "n1"}) },
		"CiliumEndpoint not seen yet": func(b *bubble) { b.put(endpointRef("p"), &corev1.Pod{}) },
		"pod gone":                    func(b *bubble) { delete(b.objects, podRef("p")) },
		"another pod":                 func(b *bubble) { b.objects[podRef("p")].(*corev1.Pod).UID = "another" },
		"pod finished":                func(b *bubble) { b.objects[podRef("p")].(*corev1.Pod).Status.Phase = corev1.PodSucceeded },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bubble) {
				b.pod("p", "n1", time.Hour)
				hinder(b)
				stop := b.start(nil)
				b.unmanaged(1)
				time.Sleep(10*time.Minute + time.Second)
				b.deleted()
				b.pod("q", "n2", time.Hour) // others are
				time.Sleep(20 * time.Second)
				stop()
				b.deleted("q after 10m15s")
			})
		})
	}
}

// NUNM-9: an error of one pod does not hold up the next, and one of all ends the pass.
func TestRefusedDeletes(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		b.pod("a", "n1", 3*time.Minute)
		b.pod("b", "n1", 2*time.Minute)
		b.refuse["a"] = apierrors.NewForbidden(pods.Resource().GroupResource(), "a", fmt.Errorf("webhook"))
		stop := b.start(nil)
		b.deleted("b after 0s")
		if len(b.tree.Degraded()) == 0 {
			t.Error("it is not degraded")
		}
		b.mu.Lock()
		b.refuse = map[string]error{}
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.deleted("b after 0s", "a after 15s")
		if d := b.tree.Degraded(); len(d) > 0 {
			t.Errorf("it is degraded: %v", d)
		}
		b.pod("c", "n1", 3*time.Minute)
		b.pod("d", "n1", 2*time.Minute)
		b.mu.Lock()
		b.refuse["c"] = apierrors.NewInternalError(fmt.Errorf("away"))
		b.mu.Unlock()
		time.Sleep(10 * time.Second)
		b.deleted("b after 0s", "a after 15s")
		stop()
	})
}

// NUNM-10: without permission nothing is tried again, and all are counted, until it is granted.
func TestPermissionMissing(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		granted := make(chan struct{})
		b.pod("a", "n1", 3*time.Minute)
		b.refuse["a"] = &k8s.PermissionError{Permission: "delete pods", Granted: granted, Err: fmt.Errorf("no")}
		b.refuse["b"] = b.refuse["a"]
		stop := b.start(nil)
		synctest.Wait()
		b.pod("b", "n1", 2*time.Minute)
		time.Sleep(time.Minute)
		b.unmanaged(2)
		if d := b.tree.Degraded(); len(d) != 1 {
			t.Errorf("degraded are %v", d)
		}
		b.mu.Lock()
		b.refuse = map[string]error{}
		b.mu.Unlock()
		close(granted)
		time.Sleep(31 * time.Second)
		stop()
		b.deleted("a after 1m15s", "b after 1m30s")
		if d := b.tree.Degraded(); len(d) > 0 {
			t.Errorf("it is degraded: %v", d)
		}
	})
}

// NUNM-12: a first pass before the role is known only counts, and a role that never is holds up nothing.
func TestRoleNotKnownYet(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		b.newRole = true
		b.pod("a", "n1", time.Minute)
		stop := b.start(nil)
		b.unmanaged(1)
		b.deleted()
		time.Sleep(16 * time.Second)
		stop()
		b.deleted("a after 15s")
	})
}

// NUNM-11.
func TestObserveOnly(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		b.pod("a", "n1", time.Minute)
		b.pod("b", "n1", time.Minute)
		stop := b.start(func(c *Config) { c.EnableUnmanagedPodObserveOnly = true })
		time.Sleep(time.Hour)
		b.unmanaged(2)
		stop()
		b.deleted()
	})
}

// NUNM-12: without the initial state of a stream nothing is known.
func TestWaitsForStreams(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		endpoints, err := stream.NewLocal[ciliumio.Endpoint]()
		if err != nil {
			t.Fatal(err)
		}
		b.endpoints = endpoints
		b.pod("a", "n1", time.Minute)
		stop := b.start(nil)
		time.Sleep(time.Hour)
		b.deleted()
		endpoints.Synced()
		b.deleted("a after 1h0m0s")
		stop()
	})
}

// NUNM-3; number 7.3 of the contract's tenants.md: a pass restarts one pod of each namespace, that of the system first, and a namespace whose
// delete is refused does not hold up another.
func TestAPassRestartsOnePodOfEachNamespace(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		for _, name := range []string{"x", "y", "refused"} {
			b.pod(name, "n1", 9*time.Hour, inNamespace("bb"))
		}
		b.pod("coredns", "n1", time.Hour, inNamespace("kube-system"))
		b.pod("dns", "n1", 2*time.Hour, inNamespace("aa"))
		b.pod("refused", "n1", 10*time.Hour, inNamespace("cc"))
		b.refuse["refused"] = apierrors.NewForbidden(pods.Resource().GroupResource(), "refused", fmt.Errorf("webhook"))
		defer b.start(nil)()
		synctest.Wait()
		b.deleted("coredns after 0s", "x after 0s", "dns after 0s")
		time.Sleep(16 * time.Second)
		b.deleted("coredns after 0s", "x after 0s", "dns after 0s", "y after 15s")
	})
}

// NUNM-3, NUNM-6; number 7.3 of the contract's tenants.md: with --unmanaged-pods-one-at-a-time a pass restarts one pod, the oldest of all namespaces, and
// the next one if its delete is refused, as in the original.
func TestOneOfAllNamespaces(t *testing.T) {
	in(t, func(t *testing.T, b *bubble) {
		b.pod("coredns", "n1", time.Hour, inNamespace("kube-system"))
		b.pod("refused", "n1", 10*time.Hour, inNamespace("bb"))
		b.pod("x", "n1", 9*time.Hour, inNamespace("bb"))
		b.pod("dns", "n1", 2*time.Hour, inNamespace("aa"))
		b.refuse["refused"] = apierrors.NewForbidden(pods.Resource().GroupResource(), "refused", fmt.Errorf("webhook"))
		defer b.start(func(c *Config) { c.UnmanagedPodsOneAtATime = true })()
		b.deleted("x after 0s")
		b.mu.Lock()
		b.refuse = map[string]error{}
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.deleted("x after 0s", "refused after 15s", "dns after 30s", "coredns after 45s")
	})
}
