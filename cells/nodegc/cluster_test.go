// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// Number 17 of the contract's nodes.md; NGC-2, NGC-3 and NGC-6; NGC-E1 and NGC-E2, under the role that the duty asks for
// and under that of the original's chart.
func TestOrphans(t *testing.T) {
	t.Run("own role", func(t *testing.T) { testOrphans(t, "own", least) })
	t.Run("role of the chart", func(t *testing.T) { testOrphans(t, "stock", stockchart.Role(t)) })
}

// least is the role that the duty asks for, and what any operator does.
var least = []rbacv1.PolicyRule{
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumnodes"}, Verbs: []string{"list", "watch", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
}

func testOrphans(t *testing.T, user string, rules []rbacv1.PolicyRule) {
	w := newWorld(t)
	operatortest.Allow(t, w.core, user, rules...)
	w.ciliumNode("one")
	o := operatortest.Start(t, Cell, w.proxy.UserKubeconfig(t, user), "--nodes-gc-interval=1s")
	o.Log().Wait(t, "connected to the API server") // it knows its role, and asks for nothing beyond
	w.ciliumNode("c1")
	w.ciliumNode("c2", owned)
	w.ciliumNode("c3", annotated("TRUE"))
	w.ciliumNode("c4", annotated("yes"))
	w.gone("c1", "c4")
	w.ciliumNode("last")
	w.gone("last")
	w.stay("one", "c2", "c3")
	operatortest.Eventually(t, "deletes are counted", func() bool { return became(o, "deleted") == 3 })
	if d := o.Degraded(""); d != "" {
		t.Errorf("it is degraded:\n%s", d)
	}
	for _, r := range w.proxy.Requests(t, 0) {
		if r.Status == 403 {
			t.Errorf("forbidden: %s %s", r.Verb, r.Path)
		}
	}
}

// Number 18 of the contract's nodes.md; NGC-5: one that fails does not keep others.
func TestDeleteFails(t *testing.T) {
	w := newWorld(t)
	w.ciliumNode("a")
	w.ciliumNode("b")
	fails := w.proxy.Answer(t, 500, clustertest.Match{Verbs: []string{"delete"}, Names: []string{"a"}})
	o := w.start()
	w.gone("b")
	operatortest.Eventually(t, "it is told", func() bool { return strings.Contains(o.Degraded("nodegc"), "deleting CiliumNode a") })
	fails.Remove(t)
	w.gone("a")
	operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("nodegc") == "" })
}

// NGC-7: a Node that is not seen yet.
func TestNodeNotSeenYet(t *testing.T) {
	w := newWorld(t)
	o := w.start()
	w.ciliumNode("first")
	w.gone("first") // all is synced
	w.proxy.HoldWatch(t, "nodes", 0)
	w.node("late")
	w.ciliumNode("late")
	operatortest.Eventually(t, "it is spared", func() bool { return became(o, "spared") >= 2 })
	w.stay("late")
}

// NGC-7: a CiliumNode that is made anew, or said to be wanted, and not seen so
// yet.
func TestCiliumNodeNotSeenYet(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"made anew": func(w *world) {
			if err := w.objects.Delete(w.t.Context(), "c", metav1.DeleteOptions{}); err != nil {
				w.t.Fatal(err)
			}
			w.ciliumNode("c")
		},
		"wanted": func(w *world) {
			u, err := w.objects.Get(w.t.Context(), "c", metav1.GetOptions{})
			if err != nil {
				w.t.Fatal(err)
			}
			annotated("true")(u)
			if _, err := w.objects.Update(w.t.Context(), u, metav1.UpdateOptions{}); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("c")
			w.ciliumNode("c")
			o := w.start()
			w.ciliumNode("first")
			w.gone("first")
			w.proxy.HoldWatch(t, "ciliumnodes", 0)
			change(w)
			w.removeNode("c")
			operatortest.Eventually(t, "the delete hits nothing", func() bool { return became(o, "changed") >= 2 })
			w.stay("c")
		})
	}
}

// NGC-8: a cluster without any Node is not believed. The CiliumNode of the last Node is
// garbage at the moment at which there are no Nodes: nothing depends on when that is seen.
func TestNoNodes(t *testing.T) {
	w := newWorld(t)
	w.ciliumNode("one")
	o := w.start()
	w.ciliumNode("first")
	w.gone("first")
	w.removeNode("one")
	runs := func() float64 { return o.Metric("sweep_runs_total", "nodegc.periodic", "success") }
	seen := runs()
	operatortest.Eventually(t, "there are sweeps", func() bool { return runs() >= seen+4 })
	w.stay("one")
	w.node("two")
	w.gone("one")
}

// NGC-8: nor is one that has lost most of its Nodes, unless the user allows it.
func TestBrake(t *testing.T) {
	w := newWorld(t)
	var names []string
	for i := range 11 {
		names = append(names, fmt.Sprint("c-", i))
		w.ciliumNode(names[i])
	}
	w.ciliumNode("one")
	o := w.start()
	operatortest.Eventually(t, "it is told", func() bool {
		return strings.Contains(o.Degraded("nodegc"), "11 of 12 objects look like garbage") && o.Metric("sweep_braked", "nodegc.periodic") == 1
	})
	w.stay(names...)
	o.Stop()
	w.start("--sweep-max-share=1")
	w.gone(names...)
	w.stay("one")
}
