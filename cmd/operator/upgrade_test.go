// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/referencetest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// A cluster goes from 1.18 to 1.20 and back: the chart of each release first, with which the operator starts anew, then the agents, that of
// one node before those of the others. The definitions are those that the original of 1.18 has registered. After each step nothing is
// degraded, the status has the releases of the agents, an object but the status of a pool was written twice at most, and what users wrote
// is as it was. In the end what was made of it is as at first.
func TestUpgradeAndBack(t *testing.T) {
	charts := map[string]*chart{}
	for _, of := range []string{"1.18", "1.19", "1.20"} {
		charts[of] = readWholeChart(t, of)
	}
	s := newTakeover(t, "1.18", charts["1.19"], charts["1.20"])
	s.load(referencetest.Inputs(t, "1.20", "common", "nodes-cluster-pool", "gateway-plain", "gateway-https", "gamma", "ingress", "l7-services", "lb-ipam", "policies"))
	s.deleteAgents()
	nodes := []string{"n1", "n2", "n3"}
	for _, node := range nodes {
		s.createAgent(node)
	}
	wrote := s.specs(s.loaded)
	var first map[string]any
	steps := []string{"1.18", "1.20", "1.18"}
	if seedtest.Soak() {
		steps = []string{"1.18", "1.19", "1.20", "1.19", "1.18"}
	}
	were := steps[0] // the agents, before a step
	for _, of := range steps {
		s.chart = charts[of]
		audit := s.Audit(t)
		o := s.chart.run(s.world)
		o.leads()
		s.isAtRest(o, "the chart of "+of, audit, agentsOf(were, were, were))
		s.setAgent(nodes[0], of)
		s.isAtRest(o, "one agent of "+of, audit, agentsOf(of, were, were))
		for _, node := range nodes[1:] {
			s.setAgent(node, of)
		}
		s.isAtRest(o, "all agents of "+of, audit, agentsOf(of, of, of))
		were = of
		if diff := cmp.Diff(wrote, s.specs(s.now())); diff != "" {
			t.Errorf("with %s, what users wrote is not as it was:\n%s", of, diff)
		}
		if first == nil {
			first = s.made()
		}
		if code := o.stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	if diff := cmp.Diff(first, s.made()); diff != "" {
		t.Errorf("after the way back, what was made is not as at first:\n%s", diff)
	}
}

// agentsOf are the rows of the status for agents of these releases.
func agentsOf(releases ...string) (rows [][]string) {
	slices.Sort(releases)
	for _, of := range slices.Backward(slices.Compact(slices.Clone(releases))) {
		nodes := slices.DeleteFunc(slices.Clone(releases), func(other string) bool { return other != of })
		rows = append(rows, []string{of, strconv.Itoa(len(nodes)), "the image of the container cilium-agent"})
	}
	return rows
}

// isAtRest checks what was written in a step, and that nothing is degraded after it.
func (s *takeover) isAtRest(o *operator, step string, audit *clustertest.Audit, agents [][]string) {
	s.t.Helper()
	written, total := s.rests(o, audit, 5*time.Second), 0
	for _, w := range slices.Sorted(maps.Keys(written)) {
		most := 2
		if strings.Contains(w, "ciliumloadbalancerippools/status") {
			most = 5 // it has the numbers of addresses, which change as Services get theirs
		}
		if total += written[w]; written[w] > most {
			s.t.Errorf("%s: %d times: %s", step, written[w], w)
		}
	}
	s.t.Logf("%s: %d writes of %d objects", step, total, len(written))
	status, ok := o.status()
	if !ok || len(status.Degraded) > 0 {
		s.t.Errorf("%s: degraded: %v", step, status.Degraded)
	}
	if diff := cmp.Diff(agents, status.rows("Agents")); diff != "" {
		s.t.Errorf("%s: the agents in the status:\n%s", step, diff)
	}
	for _, row := range agents {
		if !s.chart.serves(s.world, row[0]) {
			s.t.Errorf("%s: an agent of %s would not be ready", step, row[0])
		}
	}
}

// deleteAgents deletes the agents of the state, which have no release.
func (s *takeover) deleteAgents() {
	s.t.Helper()
	for name, u := range s.loaded {
		if u.GetKind() != "Pod" || u.GetLabels()["k8s-app"] != "cilium" {
			continue
		}
		if err := s.core.CoreV1().Pods(u.GetNamespace()).Delete(s.t.Context(), u.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			s.t.Fatal(err)
		}
		delete(s.loaded, name)
	}
}

// createAgent makes the pod of an agent of 1.18.
func (s *takeover) createAgent(node string) {
	s.t.Helper()
	pods := s.core.CoreV1().Pods("kube-system")
	p, err := pods.Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node, Labels: map[string]string{"k8s-app": "cilium"}},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, ServiceAccountName: "cilium", Containers: []corev1.Container{{Name: "cilium-agent", Image: "example.com/cilium:v1.18.4"}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		_, err = pods.UpdateStatus(s.t.Context(), p, metav1.UpdateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// setAgent has the agent of a node be one of a release.
func (s *takeover) setAgent(node, of string) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":"cilium-agent","image":"example.com/cilium:v%s.2"}]}}`, of)
	if _, err := s.core.CoreV1().Pods("kube-system").Patch(s.t.Context(), "agent-"+node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// now are the objects that were loaded, as they are now.
func (s *takeover) now() map[string]*unstructured.Unstructured {
	s.t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for name, was := range s.loaded {
		_, objects := s.objects(was)
		is, err := objects.Get(s.t.Context(), was.GetName(), metav1.GetOptions{})
		if err != nil {
			s.t.Errorf("%s: %v", name, err)
			continue
		}
		all[name] = is
	}
	return all
}

// specs are those of objects that users write, by name.
func (s *takeover) specs(all map[string]*unstructured.Unstructured) map[string]any {
	specs := map[string]any{}
	for name, u := range all {
		switch u.GetKind() {
		case "CiliumNode", "Node", "Pod", "ServiceAccount": // of agents and Kubernetes
		case "Service": // the API server has parts of it
			ports, _, _ := unstructured.NestedSlice(u.Object, "spec", "selector")
			specs[name] = ports
		default:
			specs[name] = u.Object["spec"]
		}
	}
	return specs
}

// made is what the operator makes of objects of users, by name.
func (s *takeover) made() map[string]any {
	s.t.Helper()
	all := map[string]any{}
	for _, of := range []schema.GroupVersionResource{
		v2.CiliumEnvoyConfigResource, corev1.SchemeGroupVersion.WithResource("services"), discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		corev1.SchemeGroupVersion.WithResource("endpoints"),
	} {
		list, err := s.dynamic.Resource(of).List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			if name := of.Resource + " " + nameOf(u); s.loaded[name] == nil {
				all[name] = referencetest.Content(u)
			}
		}
	}
	return all
}
