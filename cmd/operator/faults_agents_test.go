// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// readinessUnderFaults are nodes whose agents come, go, and become ready and unready, with taints and conditions that are
// edited by hand; and pods of DNS on them that agents do not manage.
type readinessUnderFaults struct {
	*turmoil
	tenants *tenants
	names   []string // of the nodes

	mu      sync.Mutex
	foreign map[string]map[string]bool // the values of the foreign taint that the test wrote, by node
	freed   int                        // nodes that lost the taint
	tainted map[string]bool
}

const (
	agentTaint   = "node.cilium.io/agent-not-ready"
	foreignTaint = "example.com/foreign"
	agentNodes   = 6
	mostDNSPods  = 4
)

// dnsLabels are the labels of pods that are restarted if no agent manages them.
var dnsLabels = map[string]string{"k8s-app": "kube-dns"}

func taintsUnderFaults(f *turmoil) underFaults {
	a := &readinessUnderFaults{turmoil: f, tenants: f.pods.tenants, foreign: map[string]map[string]bool{}, tainted: map[string]bool{}}
	f.follows(corev1.SchemeGroupVersion.WithResource("pods"))
	for i := range agentNodes {
		a.addNode(fmt.Sprint("tainted-", i))
	}
	a.setAgent(a.names[0], corev1.ConditionTrue)
	managed := a.dns("dns-managed", a.names[0])
	f.want(managed, "pod dns-managed, which has an endpoint,")
	f.want(f.pods.tenants.endpoint(home, "dns-managed", managed, 0, ""), "the endpoint of pod dns-managed")
	f.want(a.dns("dns-waiting", always), "pod dns-waiting, whose node has no agent,")
	f.witness(corev1.SchemeGroupVersion.WithResource("nodes"), a.see)
	return underFaults{
		name: "taints, conditions and pods of DNS",
		args: []string{"--set-cilium-node-taints=true", "--unmanaged-pod-watcher-interval=1s"},
		churn: []func(){
			a.toggle, a.toggle, a.toggle, a.toggle, a.leave, a.taint, a.taint, a.editForeign, a.spoilCondition, a.dnsComes,
		},
		newTerm: func() { a.toggle(); a.taint() },
		last:    a.recover,
		rest:    a.rest,
		missing: a.missing,
	}
}

func (a *readinessUnderFaults) addNode(name string) {
	a.t.Helper()
	a.names = append(a.names, name)
	a.foreign[name] = map[string]bool{"0": true}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: foreignTaint, Value: "0", Effect: corev1.TaintEffectPreferNoSchedule}, {Key: agentTaint, Effect: corev1.TaintEffectNoSchedule},
	}}}
	if _, err := a.core.CoreV1().Nodes().Create(a.t.Context(), node, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

// makePod makes a pod on a node that goes at once when it is deleted, as no kubelet ends it.
func (a *readinessUnderFaults) makePod(pod *corev1.Pod, node string, hostNetwork bool) types.UID {
	a.t.Helper()
	pod.Spec = corev1.PodSpec{
		NodeName: node, HostNetwork: hostNetwork, ServiceAccountName: "default", TerminationGracePeriodSeconds: ptr.To(int64(0)),
		Containers: []corev1.Container{{Name: "c", Image: "i"}}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	var made *corev1.Pod
	eventually(a.t, "pod "+pod.Name+" is made", func() (ok bool) { // when the service account is there
		var err error
		made, err = a.core.CoreV1().Pods(pod.Namespace).Create(a.t.Context(), pod, metav1.CreateOptions{})
		return err == nil
	})
	return made.UID
}

// setAgent makes the agent of a node, or tells whether it is ready.
func (a *readinessUnderFaults) setAgent(node string, ready corev1.ConditionStatus) {
	a.t.Helper()
	name := "agent-" + node
	if _, err := a.core.CoreV1().Pods(a.namespace).Get(a.t.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		a.makePod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.namespace, Labels: map[string]string{"k8s-app": "cilium"}}}, node, true)
	}
	a.tenants.patchPod(a.namespace, name, fmt.Sprintf(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q}]}}`, ready), "status")
}

func (a *readinessUnderFaults) some() string { return a.names[a.r.IntN(len(a.names))] }

func (a *readinessUnderFaults) toggle() {
	a.setAgent(a.some(), []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse}[a.r.IntN(3)])
}

func (a *readinessUnderFaults) leave() {
	err := a.core.CoreV1().Pods(a.namespace).Delete(a.t.Context(), "agent-"+a.some(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		a.t.Error(err)
	}
}

// editNode edits the taints of a node by hand.
func (a *readinessUnderFaults) editNode(name string, edit func(*corev1.Node)) {
	a.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := a.core.CoreV1().Nodes().Get(a.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(node)
		_, err = a.core.CoreV1().Nodes().Update(a.t.Context(), node, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsConflict(err) {
		a.t.Error(err)
	}
}

func (a *readinessUnderFaults) taint() {
	a.editNode(a.some(), func(node *corev1.Node) {
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == agentTaint }) {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: agentTaint, Effect: corev1.TaintEffectNoSchedule})
		}
	})
}

func (a *readinessUnderFaults) editForeign() {
	name, value := a.some(), fmt.Sprint(a.number())
	a.mu.Lock()
	a.foreign[name][value] = true
	a.mu.Unlock()
	a.editNode(name, func(node *corev1.Node) {
		i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == foreignTaint })
		if i < 0 {
			a.t.Errorf("node %s has lost its foreign taint: %v", name, node.Spec.Taints)
			return
		}
		node.Spec.Taints[i].Value = value
	})
}

func (a *readinessUnderFaults) spoilCondition() {
	patch := `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"True","reason":"ByHand"}]}}`
	_, err := a.core.CoreV1().Nodes().Patch(a.t.Context(), a.some(), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		a.t.Error(err)
	}
}

// dns makes a pod that has run for years.
func (a *readinessUnderFaults) dns(name, node string) types.UID {
	a.t.Helper()
	uid := a.makePod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: home, Labels: maps.Clone(dnsLabels)}}, node, false)
	a.tenants.patchPod(home, name, `{"status":{"phase":"Running","startTime":"2000-01-01T00:00:00Z"}}`, "status")
	// All have the same labels, and one stays: what stands for these is always needed.
	a.tenants.pods[types.NamespacedName{Namespace: home, Name: name}] = dnsLabels
	return uid
}

// dnsComes makes a pod that no agent manages. It is to be deleted when its node has a ready agent.
func (a *readinessUnderFaults) dnsComes() {
	if a.unmanaged() < mostDNSPods {
		name, node := fmt.Sprint("dns-", a.number()), a.some()
		a.condemn(a.dns(name, node), fmt.Sprintf("pod %s on node %s, which no agent manages,", name, node))
	}
}

// unmanaged counts the pods that are to be deleted.
func (a *readinessUnderFaults) unmanaged() int {
	list, err := a.core.CoreV1().Pods(home).List(a.t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	if err != nil {
		a.t.Error(err)
		return mostDNSPods
	}
	return len(list.Items) - 2
}

// recover makes all agents ready, so that all is to be written that was not.
func (a *readinessUnderFaults) recover() {
	for _, name := range a.names {
		a.setAgent(name, corev1.ConditionTrue)
	}
	a.dnsComes()
}

// see judges each state of each node: foreign taints stay.
func (a *readinessUnderFaults) see(kind watch.EventType, u *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := u.GetName()
	values, ours := a.foreign[name]
	if !ours || kind == watch.Deleted {
		return
	}
	found, waits := 0, false
	taints, _, _ := unstructured.NestedSlice(u.Object, "spec", "taints")
	for _, t := range taints {
		switch t := t.(map[string]any); t["key"] {
		case foreignTaint:
			if found++; !values[fmt.Sprint(t["value"])] {
				a.t.Errorf("node %s has the taint %v, which nobody wrote", name, t)
			}
		case agentTaint:
			waits = true
		}
	}
	if found != 1 {
		a.t.Errorf("node %s has %d foreign taints: %v", name, found, taints)
	}
	if a.tainted[name] && !waits {
		a.freed++
	}
	a.tainted[name] = waits
}

// endPods removes pods that are terminating, as a kubelet does: the API server marks a pod before it removes it, and a request
// that is cut off in between leaves the mark.
func (a *readinessUnderFaults) endPods() {
	list, err := a.core.CoreV1().Pods(home).List(a.t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	if err != nil {
		a.t.Error(err)
		return
	}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			continue
		}
		err := a.core.CoreV1().Pods(home).Delete(a.t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			a.t.Error(err)
		}
	}
}

// rest: nodes with a ready agent have the condition and no taint; those with another agent are tainted.
func (a *readinessUnderFaults) rest() error {
	a.endPods()
	var errs []error
	for _, name := range a.names {
		node, err := a.core.CoreV1().Nodes().Get(a.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		agent, err := a.core.CoreV1().Pods(a.namespace).Get(a.t.Context(), "agent-"+name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(agent.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
		tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == agentTaint })
		up := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionFalse && c.Reason == "CiliumIsUp"
		})
		if tainted == ready || ready && !up {
			errs = append(errs, fmt.Errorf("node %s, whose agent is ready: %t, is tainted: %t, and has the condition: %t", name, ready, tainted, up))
		}
	}
	return errors.Join(errs...)
}

func (a *readinessUnderFaults) missing() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.freed == 0 {
		return errors.New("no node has lost its taint")
	}
	return nil
}
