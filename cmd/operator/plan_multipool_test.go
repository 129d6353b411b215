// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
)

// A plan in multi-pool mode creates the pools of the flag and allocates their CIDRs: what it says is what the next run does,
// and then there is nothing left to do.
func TestPlanOfMultiPoolIsWhatARunDoes(t *testing.T) {
	w := newWorld(t)
	w.define("CiliumNode", "CiliumPodIPPool")
	pools := w.dynamic.Resource(v2alpha1.CiliumPodIPPoolResource)
	t.Cleanup(func() {
		_ = pools.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	for i, allocated := range []string{`[]`, `[{"pool":"auto","cidrs":["10.70.1.0/24"]}]`, `[{"pool":"gone","cidrs":["10.71.0.0/24"]}]`} {
		node := &unstructured.Unstructured{}
		text := fmt.Sprintf(`{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":"n%d"},"spec":{"ipam":{"pools":{
			"allocated":%s,"requested":[{"pool":"auto","needed":{"ipv4-addrs":300}},{"pool":"none","needed":{"ipv4-addrs":1}}]}}}}`, i, allocated)
		if err := node.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.dynamic.Resource(v2.CiliumNodeResource).Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--ipam=multi-pool", `--auto-create-cilium-pod-ip-pools={"auto":"ipv4-cidrs:10.70.0.0/16;ipv4-mask-size:24"}`, "--nodes-gc-interval=0"}
	user := func(name string) string { return w.UserKubeconfig(t, name, "system:masters") }
	text, code := w.plan(user("planner"), append(args, "-o", "json")...)
	plan := parsePlan(t, text)
	if code != 2 || !plan.Stable {
		t.Fatalf("exit code %d, stable: %t\n%s", code, plan.Stable, text)
	}
	planned, writes := map[string]string{}, []string{}
	for _, p := range plan.Writes {
		if !slices.Contains([]string{"ciliumnodes.cilium.io", "ciliumpodippools.cilium.io"}, p.Resource) {
			continue
		}
		writes = append(writes, p.Verb+" "+p.Resource+" "+p.Name+" "+p.Subresource)
		var body map[string]any
		if err := json.Unmarshal(p.Request, &body); err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: body}
		planned[p.Name+" "+p.Subresource] = stateOf(u, p.Subresource)
	}
	audit := w.Audit(t)
	o, _ := w.run("runner", nil, args...)
	o.leads()
	eventually(t, "there is nothing left to do", func() bool {
		_, code := w.plan(user("checker"), args...)
		return code == 0
	})
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for name, u := range w.nodes() {
		for _, subresource := range []string{"", "status"} {
			if want, ok := planned[name+" "+subresource]; ok && want != stateOf(u, subresource) {
				t.Errorf("the %s of %s is %s, planned is %s", subresource, name, stateOf(u, subresource), want)
			}
		}
	}
	var did []string
	for _, r := range w.requests(audit, "runner").writes() {
		if r.ObjectRef.Resource == "ciliumnodes" || r.ObjectRef.Resource == "ciliumpodippools" {
			did = append(did, r.Verb+" "+r.ObjectRef.Resource+".cilium.io "+r.ObjectRef.Name+" "+r.ObjectRef.Subresource)
		}
	}
	slices.Sort(writes)
	slices.Sort(did)
	if len(writes) < 5 || !slices.Equal(writes, did) {
		t.Errorf("planned are %q, done was %q", writes, did)
	}
}

// stateOf is what an operator writes of a CiliumNode in multi-pool mode.
func stateOf(u *unstructured.Unstructured, subresource string) string {
	if subresource == "status" {
		return nodeError(u)
	}
	allocated, _, _ := unstructured.NestedSlice(u.Object, "spec", "ipam", "pools", "allocated")
	return fmt.Sprint(allocated)
}
