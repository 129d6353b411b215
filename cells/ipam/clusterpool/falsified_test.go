// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// forNode matches requests of a method for a node or its subresource.
func forNode(method, path string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method == method && strings.HasSuffix(r.URL.Path, "/ciliumnodes/"+path)
	}
}

// POOL-24: one response that is not the API server's, to any request about a node, costs
// the node nothing but another attempt; no event is needed for that.
func TestAFalsifiedResponseIsRetried(t *testing.T) {
	s := newServer(t)
	liar := operatortest.NewInterceptor(t, clustertest.Shared(t).AdminConfig(t))
	o := s.startAs(liar.Kubeconfig, "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/16", "--cluster-pool-ipv4-mask-size=24")
	s.create("first")
	s.want("first", "10.0.0.0/24")
	nodes, errors := 1, 0
	lies := operatortest.BadResponses()
	for _, what := range slices.Sorted(maps.Keys(lies)) {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			name := fmt.Sprintf("n%03d", nodes)
			liar.Intercept(operatortest.Once(forNode(method, name), lies[what]))
			s.create(name)
			s.want(name, fmt.Sprintf("10.0.%d.0/24", nodes))
			if liar.Hits() != 1 {
				t.Errorf("%s: %d lies", what, liar.Hits())
			}
			nodes++
		}
		liar.Intercept(operatortest.Once(forNode(http.MethodPut, "bad/status"), lies[what]))
		s.create("bad", "10.0.0.0/24") // of another
		s.wantError("bad", "requested CIDR (10.0.0.0/24) is already allocated", "10.0.0.0/24")
		errors++
		s.delete("bad")
		operatortest.Eventually(t, what+": it recovers", func() bool { return o.Degraded("ipam") == "" })
	}
	operatortest.Eventually(t, "all writes are counted once", func() bool {
		return o.Metric("ipam_cluster_pool_writes_total", "success", "update") == float64(nodes+errors)
	})
}

// POOL-24: a write whose response lacks the change is none, is named, and is tried again
// until it is stored.
func TestACIDRThatIsNotStoredIsNotAllocated(t *testing.T) {
	s := newServer(t)
	liar := operatortest.NewInterceptor(t, clustertest.Shared(t).AdminConfig(t))
	o := s.startAs(liar.Kubeconfig, "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/16", "--cluster-pool-ipv4-mask-size=24")
	liar.Intercept(func(r *http.Request) http.HandlerFunc {
		if !forNode(http.MethodPut, "a")(r) {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request) { // as with a webhook that drops the field
			var sent unstructured.Unstructured
			if err := json.NewDecoder(r.Body).Decode(&sent.Object); err != nil {
				t.Error(err)
			}
			unstructured.RemoveNestedField(sent.Object, "spec", "ipam")
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(sent.Object)
		}
	})
	s.create("a")
	operatortest.Eventually(t, "it is tried again, and named", func() bool {
		d := o.Degraded("ipam")
		return liar.Hits() > 2 && strings.Contains(d, "ciliumnodes.cilium.io a") && strings.Contains(d, "spec.ipam.podCIDRs")
	})
	if n := o.Metric("ipam_cluster_pool_writes_total", "success", "update"); n != 0 {
		t.Errorf("%v writes are counted as successes", n)
	}
	operatortest.Eventually(t, "the node is counted as unstored", func() bool {
		return o.Metric("ipam_cluster_pool_nodes", "allocated") == 0 && o.Metric("ipam_cluster_pool_nodes", "unstored") == 1
	})
	if lines := o.Warnings("ipam"); len(lines) != 1 {
		t.Errorf("want one warning: %q", lines)
	}
	liar.Intercept(nil)
	s.want("a", "10.0.0.0/24")
	operatortest.Eventually(t, "it recovers", func() bool {
		return o.Degraded("ipam") == "" && o.Metric("ipam_cluster_pool_nodes", "allocated") == 1
	})
}
