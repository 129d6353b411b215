// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/operatortest"
)

// K8S-9: slices that another writer deletes, or empties, are written less and less often.
func TestContentionOverASlice(t *testing.T) {
	for name, undo := range map[string]func(context.Context, *world, *unstructured.Unstructured) bool{
		"deleted": func(ctx context.Context, w *world, u *unstructured.Unstructured) bool {
			return w.slices.Delete(ctx, u.GetName(), metav1.DeleteOptions{}) == nil
		},
		"emptied": func(ctx context.Context, w *world, u *unstructured.Unstructured) bool {
			if len(names(u)) == 0 {
				return false
			}
			u.Object["endpoints"] = []any{}
			_, err := w.slices.Update(ctx, u, metav1.UpdateOptions{})
			return err == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.start("fcfs")
			other := operatortest.Revert(t, w.slices, func(ctx context.Context, u *unstructured.Unstructured) bool { return undo(ctx, w, u) })
			w.endpoint("shop", "web-1", status(7))
			operatortest.Eventually(t, "it is named", func() bool { return strings.Contains(o.Degraded("endpointslice"), "contention") })
			if n := other.Reverted(); n > 10 {
				t.Errorf("it was undone %d times", n)
			}
			other.Stop()
			w.sizes(1)
		})
	}
}
