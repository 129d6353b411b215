// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

func clusterMatch(verb, resource, name string) clustertest.Match {
	return clustertest.Match{Verbs: []string{verb}, Resources: []string{resource}, Names: []string{name}}
}

// reader is what the duty needs besides the permissions to write.
var reader = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
}

func allowPatch(resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"patch"}}
}

// NTNT-4: one permission that is missing hurts one of the two writes, and is reported once.
func TestMissingPermission(t *testing.T) {
	for lacks, has := range map[string]string{"nodes": "nodes/status", "nodes/status": "nodes"} {
		t.Run(strings.ReplaceAll(lacks, "/", "-"), func(t *testing.T) {
			w := newWorld(t)
			w.node("a", taint(agentKey, noSchedule))
			w.agent("a", "a", true)
			w.node("b", taint(agentKey, noSchedule))
			w.agent("b", "b", true)
			o := w.start(w.As("user", append(reader, allowPatch(has))...), "--set-cilium-node-taints=true")
			for _, n := range []string{"a", "b"} {
				if lacks == "nodes" {
					w.isUp(n)
				} else {
					w.has(n, "")
				}
			}
			operatortest.Eventually(t, "it is degraded", func() bool {
				return strings.Contains(o.Degraded("nodes.taints"), "the role lacks patch "+lacks)
			})
			// The other write follows changes all the same.
			if lacks == "nodes" {
				w.condition("a", "True", "NoRouteCreated")
				w.isUp("a")
			} else {
				w.ready("a", false)
				w.has("a", agentKey+":NoSchedule")
			}
			warnings := 0
			for _, line := range o.Messages("") {
				if strings.HasPrefix(line, "warning") && strings.Contains(line, "lacks a permission") {
					warnings++
				}
			}
			if warnings > 1 {
				t.Errorf("it is logged %d times", warnings)
			}
		})
	}
}

// NTNT-9: a webhook that denies the patch of the taint is visible, and the condition is set.
func TestWebhookDenies(t *testing.T) {
	w := newWorld(t)
	w.node("n", taint(agentKey, noSchedule))
	w.agent("n", "n", true)
	deny := clustertest.Shared(t).Admit(t, clustertest.Admission{
		Match:  clustertest.AdmissionMatch{Operations: []string{"UPDATE"}, Resources: []string{"nodes"}, Names: []string{w.full("n")}},
		Reject: &clustertest.Reject{Message: "no"},
	})
	o := w.start(w.Kubeconfig())
	w.isUp("n")
	operatortest.Eventually(t, "it is degraded", func() bool {
		d := o.Degraded("nodes.taints")
		return strings.Contains(d, "removing the taint "+agentKey+" of Node "+w.full("n")) && strings.Contains(d, "denied the request")
	})
	deny.Remove(t)
	w.has("n", "")
	operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("") == "" })
	if n := o.Metric("node_taint_sync_total", "remove", "fail"); n == 0 {
		t.Error("failures are not counted")
	}
}

// NTNT-10: another writer that restores the taint again and again is not fought at full speed.
func TestContention(t *testing.T) {
	w := newWorld(t)
	w.node("n", taint(agentKey, noSchedule))
	w.agent("n", "n", true)
	nodes := w.Dynamic.Resource(agents.Nodes.Resource())
	other := operatortest.Revert(t, nodes, func(ctx context.Context, n *unstructured.Unstructured) bool {
		if n.GetName() != w.full("n") || storesTaint(n, agentKey) {
			return false
		}
		patch := []byte(`{"spec":{"taints":[{"key":"` + agentKey + `","effect":"NoSchedule"}]}}`)
		_, err := nodes.Patch(ctx, n.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "cloud"})
		return err == nil
	})
	o := w.start(w.Kubeconfig())
	operatortest.Eventually(t, "it is degraded", func() bool {
		return strings.Contains(o.Degraded("nodes.taints"), "undoes the change of spec.taints of "+agentKey)
	})
	w.isUp("n")
	w.condition("n", "True", "NoRouteCreated")
	w.isUp("n") // NTNT-4
	if n := other.Reverted(); n > 10 {
		t.Errorf("it was reverted %d times", n)
	}
	other.Stop()
	w.has("n", "")
}
