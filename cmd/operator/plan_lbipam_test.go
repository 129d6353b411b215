// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// A plan has the addresses of Services and the counts of their pools, and its writes are those of the next run.
func TestPlanHasAddressesOfServices(t *testing.T) {
	w := newWorld(t)
	w.define("CiliumLoadBalancerIPPool")
	pools := w.dynamic.Resource(v2.CiliumLoadBalancerIPPoolResource)
	services := w.core.CoreV1().Services(w.namespace)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = pools.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		for _, name := range []string{"a", "b", "c"} {
			_ = services.Delete(ctx, name, metav1.DeleteOptions{})
		}
	})
	if _, err := pools.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumLoadBalancerIPPool", "metadata": map[string]any{"name": "blue"},
		"spec": map[string]any{"blocks": []any{map[string]any{"cidr": "10.200.0.0/31"}}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	text, code := w.plan(w.UserKubeconfig(t, "planner", "system:masters"), "-o", "json")
	plan := parsePlan(t, text)
	if code != 2 || !plan.Stable {
		t.Fatalf("exit code %d, stable: %t\n%s", code, plan.Stable, text)
	}
	var names []string
	var bodies strings.Builder
	for _, p := range plan.Writes {
		if strings.HasPrefix(p.Rule, "lbipam ") {
			names = append(names, p.Verb+" "+p.Resource+" "+p.Name+" "+p.Subresource)
			bodies.Write(p.Request)
		}
	}
	slices.Sort(names)
	want := []string{"patch ciliumloadbalancerippools.cilium.io blue status", "patch services a status", "patch services b status", "patch services c status"}
	if !slices.Equal(slices.Compact(names), want) {
		t.Errorf("planned are %v", names)
	}
	for _, part := range []string{"10.200.0.0", "10.200.0.1", "out_of_ips"} {
		if !strings.Contains(bodies.String(), part) {
			t.Errorf("the plan does not have %q:\n%s", part, bodies.String())
		}
	}
}
