// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	"github.com/skep-operator/skep/resources/operatortest"
)

const (
	noSchedule = corev1.TaintEffectNoSchedule
	noExecute  = corev1.TaintEffectNoExecute
)

// The examples that the options of the chart allow, under its role.
func TestTaintsAndConditions(t *testing.T) {
	w := newWorld(t)
	at := metav1.NewTime(time.Date(2024, 8, 20, 10, 0, 0, 0, time.UTC))
	timed := taint("t", noExecute)
	timed.TimeAdded = &at
	other := taint(agentKey, noExecute)
	other.Value = "other"

	w.node("e1", taint(agentKey, noExecute), taint("x", noSchedule))
	w.agent("e1", "e1", true)
	w.node("e2", taint(agentKey, noSchedule))
	w.agent("e2", "e2", true)
	w.node("e3", timed, taint("x", noSchedule))
	w.agent("e3", "e3", false)
	w.node("e3b")
	w.agent("e3b", "e3b", false)
	w.node("e5", taint(agentKey, noSchedule))
	w.node("e6")
	w.agent("e6-a", "e6", true)
	w.deletePod("e6-a", 3600)
	w.agent("e6-b", "e6", false)
	w.node("e7")
	w.condition("e7", "False", "RouteCreated")
	w.agent("e7", "e7", true)
	w.node("e7b")
	w.condition("e7b", "False", conditionReason)
	w.agent("e7b", "e7b", true)
	w.node("duplicates", timed, taint(agentKey, noExecute), taint("x", noSchedule), taint(agentKey, noSchedule))
	w.agent("duplicates-a", "duplicates", false)
	w.agent("duplicates-b", "duplicates", true)
	w.node("values", other)
	w.agent("values", "values", true)

	o := w.start(w.As("stock", stockchart.Role(t)...), "--set-cilium-node-taints=true")
	w.served("first")
	wait := map[string]string{
		"e1":         "x:NoSchedule",
		"e2":         "",
		"e3":         "t:NoExecute x:NoSchedule " + agentKey + ":NoSchedule",
		"e3b":        agentKey + ":NoSchedule",
		"e6":         agentKey + ":NoSchedule",
		"duplicates": "t:NoExecute x:NoSchedule",
		"values":     "",
	}
	for name, taints := range wait {
		w.has(name, taints)
	}
	w.isUp("e1", "e2", "e7", "e7b", "duplicates", "values")
	if n := w.get("e7"); len(n.Status.Conditions) != 2 || n.Status.Conditions[1].Reason != "KubeletReady" {
		t.Errorf("the conditions of e7 are %v", n.Status.Conditions)
	}
	if got := w.get("e3").Spec.Taints; !got[0].TimeAdded.Equal(&at) || got[0].Value != "true" || got[2].Value != "" {
		t.Errorf("the taints of e3 are %v", got)
	}
	o.Stop()
	for name, patches := range map[string][]string{
		"e1": {"nodes", "nodes/status"},   // NTNT-E1
		"e2": {"nodes", "nodes/status"},   // NTNT-E2
		"e3": {"nodes"}, "e3b": {"nodes"}, // NTNT-E3
		"e5":         nil,              // NTNT-E5
		"e6":         {"nodes"},        // NTNT-E6
		"e7":         {"nodes/status"}, // NTNT-E7
		"e7b":        nil,              // NTNT-E7
		"duplicates": {"nodes", "nodes/status"},
		"values":     {"nodes", "nodes/status"},
	} {
		w.patched(name, patches...)
	}
	if got := w.network("e3") + w.network("e5") + w.network("e6"); got != "" {
		t.Errorf("nodes without a ready agent have the condition %s", got)
	}
	w.CheckHealthy(o)
}

// NTNT-E4: nothing is set where that is off; NTNT-3: and nothing removed.
func TestSwitches(t *testing.T) {
	w := newWorld(t)
	w.node("e4")
	w.agent("e4", "e4", false)
	w.node("stays", taint(agentKey, noSchedule))
	w.agent("stays", "stays", true)
	o := w.start(w.Kubeconfig(), "--remove-cilium-node-taints=false")
	w.isUp("stays")
	o.Stop()
	w.patched("e4")
	w.patched("stays", "nodes/status")

	w.node("bare", taint(agentKey, noSchedule))
	w.agent("bare", "bare", true)
	o = w.start(w.Kubeconfig(), "--set-cilium-is-up-condition=false")
	w.has("stays", "")
	w.has("bare", "")
	o.Stop()
	w.patched("e4")
	w.patched("bare", "nodes")
}

// NTNT-E8: only the key of the option counts.
func TestOtherKey(t *testing.T) {
	w := newWorld(t)
	w.node("e8", taint(agentKey, noSchedule), taint("my.io/wait", noExecute))
	w.agent("e8", "e8", true)
	o := w.start(w.Kubeconfig(), "--agent-not-ready-taint-key=my.io/wait")
	w.has("e8", agentKey+":NoSchedule")
	w.isUp("e8")
	operatortest.Eventually(t, "no node waits", func() bool { return o.Metric("nodes_waiting") == 0 })
}

// NTNT-E9: a taint that another writer adds before the patch stays.
func TestForeignTaintAddedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.node("e9", taint(agentKey, noSchedule))
	w.agent("e9", "e9", false)
	o := w.start(w.Kubeconfig())
	w.served("first")
	hold := w.Proxy.HoldWatch(t, "nodes", 0)
	n := w.get("e9")
	n.Spec.Taints = append(n.Spec.Taints, taint("foreign", noExecute))
	w.update(n)
	w.ready("e9", true)
	operatortest.Eventually(t, "the test of a patch fails", func() bool { return o.Metric("node_taint_sync_total", "remove", "fail") > 0 })
	w.isUp("e9") // NTNT-4: it does not wait for the taint
	hold.Remove(t)
	w.has("e9", "foreign:NoExecute")
	operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("") == "" })
}

// NTNT-E16 and NTNT-12: a node that is deleted while its patches fail is forgotten.
func TestNodeDeletedWhilePatchFails(t *testing.T) {
	w := newWorld(t)
	w.node("e16", taint(agentKey, noSchedule))
	w.agent("e16", "e16", true)
	fails := w.Proxy.Answer(t, 500, clusterMatch("patch", "nodes", w.full("e16")))
	failsToo := w.Proxy.Answer(t, 500, clusterMatch("patch", "nodes/status", w.full("e16")))
	o := w.start(w.Kubeconfig())
	operatortest.Eventually(t, "it fails", func() bool {
		return strings.Contains(o.Degraded("nodes.taints"), "2 failing")
	})
	if err := w.Core.CoreV1().Nodes().Delete(t.Context(), w.full("e16"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "it is forgotten", func() bool { return o.Degraded("") == "" })
	hits := fails.Hits(t) + failsToo.Hits(t)
	w.served("next")
	if now := fails.Hits(t) + failsToo.Hits(t); now != hits {
		t.Errorf("%d requests for a node that is gone", now-hits)
	}
}

// NTNT-7: whatever changes later is followed, the end of a pod included.
func TestChangesAreFollowed(t *testing.T) {
	w := newWorld(t)
	const agentKey = "follow.example.com/wait" // nodes of other tests do not wait
	w.node("n", taint(agentKey, noSchedule))
	w.agent("old", "n", true)
	w.agent("new", "n", false)
	o := w.start(w.Kubeconfig(), "--set-cilium-node-taints=true", "--agent-not-ready-taint-key="+agentKey)
	w.has("n", "")
	w.isUp("n")
	w.deletePod("old", 0) // the other is not ready
	w.has("n", agentKey+":NoSchedule")
	operatortest.Eventually(t, "one node waits", func() bool { return o.Metric("nodes_waiting") == 1 })
	w.ready("new", true)
	w.has("n", "")
	w.deletePod("new", 3600) // it is going to stop, ready or not
	w.has("n", agentKey+":NoSchedule")
	w.deletePod("new", 0) // NTNT-5: a node without agents is not touched
	n := w.get("n")
	n.Spec.Taints = append(n.Spec.Taints, taint("x", noSchedule))
	w.update(n)
	w.node("other", taint(agentKey, noSchedule))
	w.agent("other", "other", true)
	w.has("other", "")
	if got := w.taints("n"); got != agentKey+":NoSchedule x:NoSchedule" {
		t.Errorf("the taints without an agent are %s", got)
	}
	w.agent("newest", "n", true)
	w.has("n", "x:NoSchedule")
	n = w.get("n")
	n.Spec.Taints = append(n.Spec.Taints, taint(agentKey, noExecute)) // by hand, or by the cloud
	w.update(n)
	w.has("n", "x:NoSchedule")
	operatortest.Eventually(t, "no node waits", func() bool { return o.Metric("nodes_waiting") == 0 })
	w.isUp("other")
	operatortest.Eventually(t, "the condition was set for both", func() bool { return o.Metric("node_taint_sync_total", "condition", "success") == 2 })
	w.CheckHealthy(o)
}

// NTNT-11: a rollout of n agents costs two patches per node, three where the taint is set, and a restart none.
func TestWritesOfARollout(t *testing.T) {
	w := newWorld(t)
	const n = 20
	name := func(i int) string { return fmt.Sprint("n", i) }
	for i := range n {
		w.node(name(i), taint(agentKey, noSchedule), taint("x", noSchedule))
	}
	o := w.start(w.Kubeconfig(), "--set-cilium-node-taints=true")
	for i := range n {
		w.agent(name(i), name(i), i%2 == 0)
	}
	for i := range n {
		w.ready(name(i), true)
	}
	for i := range n {
		w.has(name(i), "x:NoSchedule")
		w.isUp(name(i))
	}
	for i := range n {
		w.ready(name(i), false)
	}
	for i := range n {
		w.has(name(i), "x:NoSchedule "+agentKey+":NoSchedule")
		w.ready(name(i), true)
	}
	for i := range n {
		w.has(name(i), "x:NoSchedule")
	}
	w.served("seen") // and with it all changes of Nodes before
	o.ReenterTerm()
	w.served("again")
	o.Stop()
	o = w.start(w.Kubeconfig(), "--set-cilium-node-taints=true")
	w.served("last")
	o.Stop()
	for i := range n { // the first two, and those of the agent's restart
		w.patched(name(i), "nodes", "nodes", "nodes", "nodes/status")
	}
}

// Options of the agents' pods that cannot be used name the flag.
func TestOptionsThatCannotBeUsed(t *testing.T) {
	for arg, flag := range map[string]string{
		"--cilium-pod-labels=a==b==c":        "cilium-pod-labels",
		"--cilium-pod-labels=a in (b":        "cilium-pod-labels",
		"--cilium-pod-labels=k8s-app=a b":    "cilium-pod-labels",
		"--cilium-pod-namespace=Kube_System": "cilium-pod-namespace",
		"--agent-not-ready-taint-key=a b":    "agent-not-ready-taint-key",
		"--agent-not-ready-taint-key=":       "agent-not-ready-taint-key",
		"--taint-sync-workers=0":             "taint-sync-workers",
	} {
		_, err := operatortest.New(t, Cell, "", arg)
		if err == nil || !strings.Contains(err.Error(), "--"+flag) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}
