// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/operatortest"
)

// K8S-9: an agent that clears the error text, or the CIDRs, as fast as they are written is
// named, and is not fought with at full speed.
func TestContentionOverANode(t *testing.T) {
	for name, test := range map[string]struct {
		cidrs []string
		clear []string
		has   func(*unstructured.Unstructured) bool
	}{
		"the error": {[]string{"10.0.0.0/24"}, []string{"status", "ipam", "operator-status", "error"}, func(u *unstructured.Unstructured) bool { _, text := says(u); return text != "" }},
		"the CIDRs": {nil, []string{"spec", "ipam", "podCIDRs"}, func(u *unstructured.Unstructured) bool { cidrs, _ := says(u); return len(cidrs) > 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.create("first", "10.0.0.0/24")
			o := s.start(24, "10.0.0.0/16")
			_, before := s.requests(0)
			other := operatortest.Revert(t, s.nodes, func(ctx context.Context, u *unstructured.Unstructured) bool {
				if u.GetName() != "fought" || !test.has(u) {
					return false
				}
				unstructured.RemoveNestedField(u.Object, test.clear...)
				if test.clear[0] == "status" {
					_, err := s.nodes.UpdateStatus(ctx, u, metav1.UpdateOptions{})
					return err == nil
				}
				_, err := s.nodes.Update(ctx, u, metav1.UpdateOptions{})
				return err == nil
			})
			s.create("fought", test.cidrs...)
			operatortest.Eventually(t, "it is named", func() bool {
				d := o.Degraded("ipam.clusterpool.contention")
				return strings.Contains(d, "ciliumnodes.cilium.io fought") && strings.Contains(d, strings.Join(test.clear, ".")) && other.Reverted() >= 5
			})
			all, _ := s.requests(before)
			writes := 0
			for _, r := range all {
				if strings.HasPrefix(r, "update") {
					writes++
				}
			}
			if writes > 10 {
				t.Errorf("%d writes, %d were undone", writes, other.Reverted())
			}
			other.Stop()
			operatortest.Eventually(t, "it is written in the end", func() bool { return test.has(s.get("fought")) })
		})
	}
}
