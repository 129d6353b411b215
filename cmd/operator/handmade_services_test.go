// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// plainPool is the pool that plain Services have their addresses from. Of pools that overlap it is the first one.
const plainPool = "a-plain-pool"

func (h *handwork) makePool(name, cidr string) {
	h.t.Helper()
	_, err := h.dynamic.Resource(v2.CiliumLoadBalancerIPPoolResource).Create(h.ctx(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v2.SchemeGroupVersion.String(), "kind": "CiliumLoadBalancerIPPool", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"blocks": []any{map[string]any{"cidr": cidr}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *handwork) makeService(name string) {
	h.t.Helper()
	_, err := h.core.CoreV1().Services(h.namespace).Create(h.ctx(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: ptr.To(false), Ports: []corev1.ServicePort{{Port: 80}},
	}}, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *handwork) addressOf(name string) string {
	h.t.Helper()
	service, err := h.core.CoreV1().Services(h.namespace).Get(h.ctx(), name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	if ingress := service.Status.LoadBalancer.Ingress; len(ingress) > 0 {
		return ingress[0].IP
	}
	return ""
}

func (h *handwork) hasAddress(name string) bool { return h.addressOf(name) != "" }

// makeAgent makes a ready agent on a node, which waits for it.
func (h *handwork) makeAgent(node string) (pod string) {
	h.t.Helper()
	pod = "agent-" + node
	eventually(h.t, "node "+node+" is tainted", func() bool {
		n, err := h.core.CoreV1().Nodes().Get(h.ctx(), node, metav1.GetOptions{})
		if err != nil {
			h.t.Fatal(err)
		}
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: agentTaint, Effect: corev1.TaintEffectNoSchedule})
		_, err = h.core.CoreV1().Nodes().Update(h.ctx(), n, metav1.UpdateOptions{})
		return err == nil
	})
	eventually(h.t, "pod "+pod+" is made", func() bool { // when the service account is there
		_, err := h.core.CoreV1().Pods(h.namespace).Create(h.ctx(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: map[string]string{"k8s-app": "cilium"}},
			Spec:       corev1.PodSpec{NodeName: node, HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		return err == nil
	})
	h.patchPod(h.namespace, pod, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, "status")
	return pod
}

// isReady reports whether a node has no taint, and has the condition.
func (h *handwork) isReady(node string) bool {
	h.t.Helper()
	n, err := h.core.CoreV1().Nodes().Get(h.ctx(), node, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == agentTaint })
	return !tainted && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Reason == "CiliumIsUp" })
}

// reported reports whether a node, a pool, a Service or a policy has a status that says what is wrong with it.
func (h *handwork) reported(m *handmade) bool {
	h.t.Helper()
	if policyKinds[m.resource] != "" {
		return h.policyReports(m)
	}
	wrong := map[string]string{"cilium.io/PoolConflict": "True", "cilium.io/PoolInvalid": "True", "cilium.io/IPAMRequestSatisfied": "False"}
	if m.resource != v2.CiliumNodeResource && m.resource != services && m.resource != v2.CiliumLoadBalancerIPPoolResource {
		return false
	}
	u, err := h.client(m).Get(h.ctx(), m.name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			h.t.Error(err)
		}
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return nodeError(u) != "" || slices.ContainsFunc(conditions, func(c any) bool {
		is, _ := c.(map[string]any)
		return wrong[fmt.Sprint(is["type"])] != "" && wrong[fmt.Sprint(is["type"])] == is["status"]
	})
}

// markOdd has nothing be said of the addresses of a Service any more.
func (h *handwork) markOdd(m *handmade) {
	h.t.Helper()
	u, err := h.client(m).Get(h.ctx(), m.name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.odd[u.GetUID()] = true
}

// judgeService sees that a Service that is not odd keeps its address, and that it is no other's.
func (h *handwork) judgeService(kind watch.EventType, u *unstructured.Unstructured) {
	h.mu.Lock()
	defer h.mu.Unlock()
	uid, now := u.GetUID(), ""
	if ips := ipsOf(u); len(ips) > 0 && kind != watch.Deleted && isOurs(u) {
		now = ips[0]
	}
	had := h.addrs[uid]
	h.addrs[uid] = now
	if h.odd[uid] || now == had {
		return
	}
	if had != "" && kind != watch.Deleted {
		h.t.Errorf("Service %s had %s and has %q", u.GetName(), had, now)
	}
	for other, addr := range h.addrs {
		if other != uid && now != "" && addr == now {
			h.t.Errorf("Service %s is given %s, which another has", u.GetName(), now)
		}
	}
}
