// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/metrics"
)

// ID-36: a term that begins knows why pods have no identity, whenever they were
// seen first.
func TestExplainsPodsOfBefore(t *testing.T) {
	tb, _ := plan(t)
	tb.synced = false
	m := &controller{
		params: params{Metrics: newMetrics(metrics.Factory{}), Log: slog.New(slog.DiscardHandler), Deps: reconcile.Deps{Module: cell.ModuleInfo{ID: "identity"}, Book: explain.NewHistory()}},
		table:  tb, synced: make(chan struct{}), unsynced: 1,
	}
	enqueued := map[slim.Labels][]k8s.Trigger{}
	m.enqueue = func(of slim.Labels, triggers ...k8s.Trigger) { enqueued[of] = append(enqueued[of], triggers...) }
	see := func(name string, change func(*slim.Pod)) {
		p := podOf("n", name, pairs{"app": name})
		change(p)
		m.update(func(t *table) { t.upsertPod(p) })
	}
	for i := range 5000 {
		see(fmt.Sprint("host-", i), func(p *slim.Pod) { p.Spec.HostNetwork = true })
	}
	see("host-0", func(*slim.Pod) {}) // made anew
	see("lost", func(p *slim.Pod) { p.Namespace = slim.MakeString("unknown") })
	see("found", func(p *slim.Pod) { p.Spec.NodeName = slim.MakeString("late") })
	see("far", func(p *slim.Pod) { p.Spec.NodeName = slim.MakeString("virtual") })
	see("gone", func(p *slim.Pod) { p.Spec.NodeName = slim.MakeString("virtual") })
	see("stuck", func(*slim.Pod) {})
	see("has", func(*slim.Pod) {})
	m.update(func(t *table) {
		t.deletePod(slim.Key{Namespace: "n", Name: "gone"})
		t.upsertNamespace(namespaceOf("n", nil))
		t.addNode("late")
		t.upsertObject(identityOf(300, labelsOf(t, "has"), 1))
	})
	m.markSourceSynced()
	outcome := func(namespace, name string) string {
		all := m.Deps.Book.For("Pod", namespace, name).Decisions
		if len(all) != 1 {
			return fmt.Sprint(len(all), " decisions")
		}
		return all[0].Outcome
	}
	const none = "0 decisions"
	for pod, want := range map[types.NamespacedName]string{
		podName("unknown", "lost"): noNamespace, podName("n", "far"): unmanagedNode, podName("n", "host-1"): hostNetwork,
		podName("n", "host-0"): none, podName("n", "found"): none, podName("n", "gone"): none, podName("n", "has"): none,
	} {
		if got := outcome(pod.Namespace, pod.Name); got != want {
			t.Errorf("of %s is remembered %q, want %q", pod, got, want)
		}
	}
	known := 0
	for i := range 5000 {
		if outcome("n", fmt.Sprint("host-", i)) == hostNetwork {
			known++
		}
	}
	if known != maxEarlyReasons-1 {
		t.Errorf("%d are remembered of many in the network of their node, want %d", known, maxEarlyReasons-1)
	}
	// What becomes of a set of labels is told of the pods that wait for it.
	for name, want := range map[string]string{"stuck": "[Pod n/stuck]", "has": "[]"} {
		if got := fmt.Sprint(enqueued[labelsOf(tb, name)]); got != want {
			t.Errorf("the labels of %s are looked at because of %s, want %s", name, got, want)
		}
	}
}
