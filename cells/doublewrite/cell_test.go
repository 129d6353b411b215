// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package doublewrite

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

func TestCell(t *testing.T) {
	for _, mode := range []string{"doublewrite-readkvstore", "doublewrite-readcrd"} {
		celltest.Check(t, Cell, kvstoretest.Unreachable("--identity-allocation-mode="+mode)...)
	}
}

// DBLW-1.
func TestEnabled(t *testing.T) {
	for mode, want := range map[string]bool{"crd": false, "kvstore": false, "doublewrite-readkvstore": true, "doublewrite-readcrd": true} {
		for store, want := range map[string]bool{"": false, "etcd": want} {
			if got := enabled(cluster.Config{KVStore: store, IdentityAllocationMode: mode}); got != want {
				t.Errorf("%s with kvstore %q: %t", mode, store, got)
			}
		}
	}
}

// DBLW-2: numbers of all clusters count, names that are none do not.
func TestCompare(t *testing.T) {
	r := compare(func(yield func(string) bool) {
		for _, name := range []string{"300", "301", "302", "70000", "web"} {
			if !yield(name) {
				return
			}
		}
	}, []kvstore.Entry{{Key: prefix + "301"}, {Key: prefix + "302"}, {Key: prefix + "303"}, {Key: prefix + "80000"}, {Key: prefix + "foo"}, {Key: prefix + "303/x"}})
	if got := fmt.Sprint(r); got != "{4 4 [300 70000] [303 80000] [web "+prefix+"foo "+prefix+"303/x]}" {
		t.Errorf("%s", got)
	}
}

const prefix = "cilium/state/identities/v1/id/"

// Number 13 of the contract's kvstore-identities.md; DBLW-2 to DBLW-5, DBLW-E1 and DBLW-E2: on a real API server and etcd. Nothing is written.
func TestReport(t *testing.T) {
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumIdentity")
	env.Clear(v2.CiliumIdentityResource)
	e := kvstoretest.Start(t, 1)
	object := func(name string) {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cilium.io/v2", "kind": "CiliumIdentity", "metadata": map[string]any{"name": name},
			"security-labels": map[string]any{"k8s:app": "web-" + name},
		}}
		if _, err := env.Dynamic.Resource(v2.CiliumIdentityResource).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		object(fmt.Sprint(300 + i))
		e.Put(prefix+fmt.Sprint(301+i), fmt.Sprintf("k8s:app=web-%d;", 301+i), 0)
	}
	revision := e.Revision()
	args := []string{"--kvstore=etcd", "--kvstore-opt=etcd.qps=10000,etcd.address=" + e.Endpoints()[0], "--identity-allocation-mode=doublewrite-readcrd"}
	o := operatortest.Start(t, cell.Set(kvstore.Cell, Cell), env.Kubeconfig(), append(args, "--double-write-metric-reporter-interval=100ms")...)
	pairs := func(yield func(name, later string) bool) {
		_ = yield("crd_total", "crd_") && yield("kvstore_total", "kvstore_") && yield("crd_only", "crd_only_") && yield("kvstore_only", "kvstore_only_")
	}
	counts := func() string {
		var all []string
		for name, later := range pairs {
			count := o.Metric("doublewrite_identity_" + name + "_count")
			if o.Metric("doublewrite_"+later+"identities") != count {
				return "the names of 1.17 and of later releases differ"
			}
			all = append(all, fmt.Sprintf("%s %v", name, count))
		}
		return strings.Join(all, ", ")
	}
	shows := func(want string) {
		t.Helper()
		operatortest.Eventually(t, want, func() bool { return counts() == want })
	}
	shows("crd_total 3, kvstore_total 3, crd_only 1, kvstore_only 1")
	operatortest.Eventually(t, "one line has the samples", func() bool {
		return o.Log().Count("CiliumIdentities differ", `"crdOnlySamples":[300]`, `"kvstoreOnlySamples":[303]`) == 1
	})
	object("303")
	e.Put(prefix+"300", "k8s:app=web-300;", 0)
	shows("crd_total 4, kvstore_total 4, crd_only 0, kvstore_only 0")
	object("304")
	shows("crd_total 5, kvstore_total 4, crd_only 1, kvstore_only 0")
	o.LeaveTerm()
	shows("crd_total 0, kvstore_total 0, crd_only 0, kvstore_only 0")
	o.Stop()
	for text, want := range map[string]int{"CiliumIdentities are the same": 1, "CiliumIdentities differ": 2} {
		if n := o.Log().Count(text); n < want || n > want+1 {
			t.Errorf("%d lines of %s, want %d", n, text, want)
		}
	}
	changes := e.Follow("cilium/state/", revision+1)
	e.Put("cilium/state/end", "", 0)
	operatortest.Eventually(t, "the end is seen", func() bool { return changes.Puts() == 2 })
	if all := changes.Events(); len(all) != 2 {
		t.Errorf("%d changes, want those of the test", len(all))
	}

	// DBLW-E3: an interval of 0 compares once.
	o = operatortest.Start(t, cell.Set(kvstore.Cell, Cell), env.Kubeconfig(), append(args, "--double-write-metric-reporter-interval=0")...)
	shows("crd_total 5, kvstore_total 4, crd_only 1, kvstore_only 0")
}
