// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// CES-36: a CiliumNode that is away takes no pod of its node out of its slice, neither later nor at a start; nor does the status of a pod
// change where it is meanwhile.
func TestSlicesWithoutTheCiliumNode(t *testing.T) {
	s := setups[slices.IndexFunc(setups, func(s setup) bool { return s.name == "slices of pods" })]
	n1, web := slim.Key{Name: "n1"}, slim.Key{Namespace: "shop", Name: "web-1"}
	bubble(t, func(t *testing.T) {
		base := s.converge(t)
		before := networkings(base)
		if len(before) != 3 || before["web-1"] != "map[addressing:[map[ipv4:10.0.0.7]] node:192.0.2.1]" {
			t.Fatalf("the entries are %v", before)
		}
		m := base.server(t)
		o := s.start(m)
		m.settle()
		m.mu.Lock()
		m.stream.Delete(kindNamed("CiliumNode").gvr, n1)
		delete(m.objects["ciliumnodes"], n1)
		m.mu.Unlock()
		m.settle()
		forged := runtime.DeepCopyJSON(base["pods"][web])
		if err := unstructured.SetNestedField(forged, "203.0.113.9", "status", "hostIP"); err != nil {
			t.Fatal(err)
		}
		m.put(kindNamed("Pod"), forged)
		m.settle()
		o.stop(t)
		unchanged := func(when string) {
			t.Helper()
			if got := networkings(m.snapshot()); !maps.Equal(got, before) {
				t.Errorf("%s: the entries are %v, and were %v; it wrote %v", when, got, before, m.written())
			}
		}
		unchanged("later")
		o = s.start(m)
		m.settle()
		unchanged("after a start")
		m.put(kindNamed("CiliumNode"), base["ciliumnodes"][n1])
		m.settle()
		o.stop(t)
		unchanged("after it came back")
		if w := slices.DeleteFunc(m.written(), func(w string) bool { return !strings.Contains(w, "ciliumendpointslices") }); len(w) > 0 {
			t.Errorf("it wrote %v", w)
		}
	})
}

// networkings are where slices have endpoints.
func networkings(all objects) map[string]string {
	found := map[string]string{}
	for _, slice := range all["ciliumendpointslices"] {
		entries, _, _ := unstructured.NestedSlice(slice, "endpoints")
		for _, e := range entries {
			entry := e.(map[string]any)
			found[fmt.Sprint(entry["name"])] = fmt.Sprint(entry["networking"])
		}
	}
	return found
}
