// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

const agentKey = "node.cilium.io/agent-not-ready"

// world is a namespace of agents, and the nodes of one test. Nodes of other tests have no agent in the namespace.
type world struct{ *operatortest.Env }

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{operatortest.NewEnv(t, clustertest.Shared(t))}
	w.CreateNamespace()
	return w
}

func (w *world) start(kubeconfig string, args ...string) *operatortest.Operator {
	w.T.Helper()
	return operatortest.Start(w.T, Cell, kubeconfig, append([]string{"--cilium-pod-namespace=" + w.Namespace}, args...)...)
}

// full is the name of a node in the cluster.
func (w *world) full(node string) string { return node + "." + w.Namespace }

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: "true", Effect: effect}
}

// node creates a Node with no other taints, or none.
func (w *world) node(name string, taints ...corev1.Taint) {
	w.T.Helper()
	n, err := w.Core.CoreV1().Nodes().Create(w.T.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.full(name)}}, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	n.Spec.Taints = taints // the API server has added one
	w.update(n)
}

func (w *world) update(n *corev1.Node) {
	w.T.Helper()
	if _, err := w.Core.CoreV1().Nodes().Update(w.T.Context(), n, metav1.UpdateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// condition sets the condition NetworkUnavailable of a node.
func (w *world) condition(name, status, reason string) {
	w.T.Helper()
	operatortest.Eventually(w.T, "the conditions of "+name+" are set", func() bool {
		n := w.get(name)
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionStatus(status), Reason: reason},
			corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"})
		_, err := w.Core.CoreV1().Nodes().UpdateStatus(w.T.Context(), n, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) { // as the operator writes the Node, too
			w.T.Fatal(err)
		}
		return err == nil
	})
}

func (w *world) get(name string) *corev1.Node {
	w.T.Helper()
	n, err := w.Core.CoreV1().Nodes().Get(w.T.Context(), w.full(name), metav1.GetOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return n
}

// agent creates the pod of an agent on a node.
func (w *world) agent(pod, node string, ready bool) {
	w.T.Helper()
	w.pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: map[string]string{"k8s-app": "cilium"}}}, node, ready)
}

func (w *world) pod(p *corev1.Pod, node string, ready bool) {
	w.T.Helper()
	p.Spec = corev1.PodSpec{NodeName: w.full(node), Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	operatortest.Eventually(w.T, "pod "+p.Name+" is created", func() bool { // when the service account exists
		_, err := w.Core.CoreV1().Pods(w.Namespace).Create(w.T.Context(), p, metav1.CreateOptions{})
		return err == nil
	})
	w.ready(p.Name, ready)
}

// ready sets the condition of a pod.
func (w *world) ready(pod string, ready bool) {
	w.T.Helper()
	p, err := w.Core.CoreV1().Pods(w.Namespace).Get(w.T.Context(), pod, metav1.GetOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: status}, {Type: corev1.PodReady, Status: status}}
	if _, err := w.Core.CoreV1().Pods(w.Namespace).UpdateStatus(w.T.Context(), p, metav1.UpdateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// deletePod deletes a pod, at once or with its grace period.
func (w *world) deletePod(pod string, grace int64) {
	w.T.Helper()
	if err := w.Core.CoreV1().Pods(w.Namespace).Delete(w.T.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		w.T.Fatal(err)
	}
}

// taints are those of a node, as key:effect.
func (w *world) taints(name string) string {
	w.T.Helper()
	var texts []string
	for _, t := range w.get(name).Spec.Taints {
		texts = append(texts, t.Key+":"+string(t.Effect))
	}
	return strings.Join(texts, " ")
}

// network is the condition NetworkUnavailable of a node.
func (w *world) network(name string) string {
	w.T.Helper()
	for _, c := range w.get(name).Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// has waits for the taints of a node.
func (w *world) has(name, taints string) {
	w.T.Helper()
	operatortest.Eventually(w.T, name+" has the taints ["+taints+"]", func() bool { return w.taints(name) == taints })
}

const up = "False CiliumIsUp"

// isUp waits for the condition of nodes.
func (w *world) isUp(names ...string) {
	w.T.Helper()
	for _, name := range names {
		operatortest.Eventually(w.T, name+" is up", func() bool { return w.network(name) == up })
	}
}

// patches are the resources of the patches that the operator has sent for a node, in their order.
func (w *world) patches(name string) (resources []string) {
	w.T.Helper()
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if r.Verb == "patch" && r.Resource == "nodes" && r.Name == w.full(name) {
			resources = append(resources, strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/"))
		}
	}
	return resources
}

func (w *world) patched(name string, want ...string) {
	w.T.Helper()
	got := w.patches(name)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.T.Errorf("patches of %s are %v, want %v", name, got, want)
	}
}

// served waits until the operator has handled a node that is new.
func (w *world) served(name string) {
	w.T.Helper()
	w.node(name, taint(agentKey, corev1.TaintEffectNoSchedule))
	w.agent("agent-"+name, name, true)
	w.has(name, "")
	w.isUp(name)
}
