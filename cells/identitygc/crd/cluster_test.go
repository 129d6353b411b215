// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// world is all CiliumIdentities, a namespace, and a door to the API server.
type world struct{ *operatortest.Env }

func newWorld(t *testing.T, c *clustertest.Cluster) *world {
	t.Helper()
	w := &world{operatortest.NewEnv(t, c, "CiliumIdentity", "CiliumEndpoint", "CiliumEndpointSlice")}
	w.Clear(identities, v2.CiliumEndpointResource, v2alpha1.CiliumEndpointSliceResource)
	w.CreateNamespace()
	w.identity("999") // something is always in use
	w.endpoint("always", 999)
	return w
}

// identity creates a CiliumIdentity with labels of its own, as agents from 1.18 on do, and a field that the
// operator does not know.
func (w *world) identity(name string) *unstructured.Unstructured {
	w.T.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumIdentity",
		"metadata": map[string]any{
			"name": name, "labels": map[string]any{"io.kubernetes.pod.namespace": w.Namespace}, "annotations": map[string]any{"example.com/note": "kept"},
		},
		"security-labels": map[string]any{"k8s:app": "web-" + name, "k8s:io.kubernetes.pod.namespace": w.Namespace},
	}}
	made, err := w.Dynamic.Resource(identities).Create(w.T.Context(), u, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return made
}

func (w *world) endpoint(name string, n int64) {
	w.T.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint", "metadata": map[string]any{"name": name},
		"status": map[string]any{"identity": map[string]any{"id": n}},
	}}
	if _, err := w.Dynamic.Resource(v2.CiliumEndpointResource).Namespace(w.Namespace).Create(w.T.Context(), u, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) slice(name string, n int64) {
	w.T.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2alpha1", "kind": "CiliumEndpointSlice", "metadata": map[string]any{"name": name},
		"namespace": w.Namespace, "endpoints": []any{map[string]any{"name": "p", "id": n}},
	}}
	if _, err := w.Dynamic.Resource(v2alpha1.CiliumEndpointSliceResource).Create(w.T.Context(), u, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) names() map[string]bool {
	w.T.Helper()
	list, err := w.Dynamic.Resource(identities).List(w.T.Context(), metav1.ListOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	names := map[string]bool{}
	for _, i := range list.Items {
		names[i.GetName()] = true
	}
	return names
}

func (w *world) gone(names ...string) {
	w.T.Helper()
	operatortest.Eventually(w.T, fmt.Sprint(names, " are gone"), func() bool {
		has := w.names()
		return !slices.ContainsFunc(names, func(n string) bool { return has[n] })
	})
}

func (w *world) get(name string) *unstructured.Unstructured {
	w.T.Helper()
	i, err := w.Dynamic.Resource(identities).Get(w.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return i
}

func (w *world) isMarked(name string) bool {
	w.T.Helper()
	return w.get(name).GetAnnotations()[annotation] != ""
}

// quick makes runs follow each other; what is unused goes by the third.
var quick = []string{"--identity-gc-interval=1s", "--identity-heartbeat-timeout=1s", "--sweep-max-share=1"}

// patient marks, and does not delete.
var patient = []string{"--identity-gc-interval=1s", "--identity-heartbeat-timeout=1h", "--sweep-max-share=1"}

// least is the role that the duty asks for, and what any operator does.
var least = []rbacv1.PolicyRule{
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumidentities"}, Verbs: []string{"list", "watch", "update", "delete"}},
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumendpoints", "ciliumendpointslices"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
}

func (w *world) start(args ...string) *operatortest.Operator {
	w.T.Helper()
	return operatortest.Start(w.T, duty, w.Proxy.Kubeconfig(), args...)
}

// requests are those of the duty with a verb, as "delete 1001: 200".
func (w *world) requests(verb string) []string {
	w.T.Helper()
	var all []string
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if strings.Contains(r.UserAgent, "(identitygc") && r.Verb == verb {
			all = append(all, fmt.Sprintf("%s %s: %d", r.Verb, r.Name, r.Status))
		}
	}
	return all
}

// Number 21 of the contract's identity-gc.md; IDGC-E1, IDGC-E2, IDGC-E3 and IDGC-E6, IDGC-3 and IDGC-9, under the role that the duty asks for,
// which has neither get nor patch, and under that of the original's chart. A mark
// changes nothing else of an object.
func TestExamples(t *testing.T) {
	t.Run("own role", func(t *testing.T) { testExamples(t, func(*testing.T) []rbacv1.PolicyRule { return least }) })
	t.Run("role of the chart", func(t *testing.T) {
		testExamples(t, func(t *testing.T) []rbacv1.PolicyRule { return stockchart.Role(t) })
	})
}

func testExamples(t *testing.T, rules func(*testing.T) []rbacv1.PolicyRule) {
	w := newWorld(t, clustertest.Shared(t))
	kubeconfig := w.As("user", rules(t)...)
	w.identity("1000")
	w.endpoint("web", 1000)
	w.identity("1002")
	w.slice("slice", 1002)
	for _, name := range []string{"1001", "1003", "70000", "foo"} {
		w.identity(name)
	}
	before := w.get("1003")
	start := func(args []string) *operatortest.Operator {
		return w.StartKnowing("ciliumidentities", func() *operatortest.Operator {
			return operatortest.Start(t, duty, kubeconfig, append(args, "--enable-cilium-endpoint-slice")...)
		})
	}
	o := start(patient)
	operatortest.Eventually(t, "the unused are marked", func() bool { return w.isMarked("1001") && w.isMarked("1003") })
	after := w.get("1003")
	unstructured.RemoveNestedField(after.Object, "metadata", "annotations", annotation)
	for _, field := range [][]string{{"metadata", "resourceVersion"}, {"metadata", "managedFields"}, {"metadata", "generation"}} {
		unstructured.RemoveNestedField(before.Object, field...)
		unstructured.RemoveNestedField(after.Object, field...)
	}
	if fmt.Sprint(after.Object) != fmt.Sprint(before.Object) {
		t.Errorf("it was\n%v\nand is\n%v", before.Object, after.Object)
	}
	w.endpoint("again", 1003)
	operatortest.Eventually(t, "its mark is taken off", func() bool { return !w.isMarked("1003") })
	w.CheckHealthy(o)
	o.Stop()

	o = start(quick)
	w.gone("1001")
	operatortest.Eventually(t, "it is counted", func() bool {
		return o.Metric("sweep_objects_total", "identitygc.crd", "deleted") == 1 && o.Metric("identity_gc_entries", "crd", "alive") == 6
	})
	want := []string{"1000", "1002", "1003", "70000", "999", "foo"}
	if got := slices.Sorted(maps.Keys(w.names())); !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
	for _, name := range want {
		if w.isMarked(name) {
			t.Errorf("%s is marked", name)
		}
	}
	w.CheckHealthy(o)
	if n := len(w.requests("get")) + len(w.requests("patch")); n != 0 {
		t.Errorf("%d requests that the role does not have", n)
	}
}

// IDGC-E14: what a delete says.
func TestDeleteRequest(t *testing.T) {
	c := clustertest.Start(t, clustertest.AuditLevel("Request"))
	w := newWorld(t, c)
	uid := w.identity("1001").GetUID()
	audit := c.Audit(t)
	w.start(quick...)
	w.gone("1001")
	var puts, deletes []clustertest.AuditEvent
	operatortest.Eventually(t, "the delete is in the audit log", func() bool {
		for event := range audit.Events(t) {
			switch {
			case event.ObjectRef.Resource != "ciliumidentities" || event.ObjectRef.Name != "1001":
			case event.Verb == "update":
				puts = append(puts, event)
			case event.Verb == "delete":
				deletes = append(deletes, event)
			}
		}
		return len(deletes) > 0
	})
	var got metav1.DeleteOptions
	if err := json.Unmarshal(deletes[0].RequestObject, &got); err != nil || len(deletes) != 1 || len(puts) != 1 {
		t.Fatalf("%d marks, %d deletes: %v", len(puts), len(deletes), err)
	}
	var put unstructured.Unstructured
	if err := json.Unmarshal(puts[0].RequestObject, &put.Object); err != nil {
		t.Fatal(err)
	}
	if *got.Preconditions.UID != uid || got.Preconditions.ResourceVersion == nil || *got.Preconditions.ResourceVersion == put.GetResourceVersion() {
		t.Errorf("the delete says %s", deletes[0].RequestObject)
	}
	if put.GetUID() != uid || put.GetResourceVersion() == "" || put.GetAnnotations()[annotation] == "" {
		t.Errorf("the mark says %s", puts[0].RequestObject)
	}
}

// IDGC-E9, IDGC-E4 and IDGC-E10; IDGC-12 and IDGC-13: what the API server answers to a delete.
func TestDeleteIsAnswered(t *testing.T) {
	for code, c := range map[int]struct {
		outcome string
		fails   bool
	}{404: {"gone", false}, 409: {"changed", false}, 500: {"failed", true}, 403: {"failed", true}, 429: {"failed", true}} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			w := newWorld(t, clustertest.Shared(t))
			w.identity("1001")
			w.identity("1002")
			w.Proxy.Rule(t, clustertest.Rule{
				Match: clustertest.Match{Verbs: []string{"delete"}, Names: []string{"1001"}}, Times: 1, Status: &clustertest.Status{Code: code},
			})
			o := w.start(quick...)
			w.gone("1001", "1002")
			operatortest.Eventually(t, "all is counted", func() bool { return o.Metric("sweep_objects_total", "identitygc.crd", "deleted") == 2 })
			operatortest.Eventually(t, "one is "+c.outcome, func() bool { return o.Metric("sweep_objects_total", "identitygc.crd", c.outcome) > 0 })
			operatortest.Eventually(t, fmt.Sprint("a run has failed: ", c.fails), func() bool { return o.Metric("identity_gc_runs", "crd", "fail") > 0 == c.fails })
			operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("") == "" })
		})
	}
}

// IDGC-13: what it answers to a mark.
func TestMarkIsAnswered(t *testing.T) {
	for _, code := range []int{500, 429, 409, 403} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			w := newWorld(t, clustertest.Shared(t))
			w.identity("1001")
			w.identity("1002")
			rule := w.Proxy.Rule(t, clustertest.Rule{
				Match: clustertest.Match{Verbs: []string{"update"}, Names: []string{"1001"}}, Times: 2, Status: &clustertest.Status{Code: code},
			})
			o := w.start(patient...)
			operatortest.Eventually(t, "both are marked", func() bool { return w.isMarked("1001") && w.isMarked("1002") })
			if n := rule.Hits(t); n != 2 {
				t.Errorf("%d answers", n)
			}
			operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("") == "" })
		})
	}
}

// IDGC-15; IDGC-E8: the process dies between the mark and the delete, and the
// next one finds the mark. The answer to the mark is lost, too.
func TestDiesBetween(t *testing.T) {
	w := newWorld(t, clustertest.Shared(t))
	w.identity("1001")
	w.Proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"update"}, Names: []string{"1001"}}, Times: 1, LoseAnswer: &clustertest.LoseAnswer{},
	})
	o := w.start(patient...)
	operatortest.Eventually(t, "it is marked", func() bool { return w.isMarked("1001") })
	o.Stop()
	revision := w.get("1001").GetResourceVersion()
	marks := len(w.requests("update"))
	audit := clustertest.Shared(t).Audit(t)
	w.start(quick...)
	w.gone("1001")
	for event := range audit.Events(t) {
		if event.Verb == "update" && event.ObjectRef.Name == "1001" {
			t.Error("it was marked again")
		}
	}
	if n := len(w.requests("update")); n != marks {
		t.Errorf("%d more marks, after revision %s", n-marks, revision)
	}
}

// IDGC-10: a stream of users shows nothing new, while identities come into use.
// Without new lists it gets up to date before a delete.
func TestLateUsers(t *testing.T) {
	for resource, use := range map[string]func(*world, string, int64){
		"ciliumendpoints":      (*world).endpoint,
		"ciliumendpointslices": (*world).slice,
	} {
		t.Run(resource, func(t *testing.T) {
			w := newWorld(t, clustertest.Shared(t))
			w.identity("1001")
			o := w.start(append(quick, "--enable-cilium-endpoint-slice")...)
			w.gone("1001") // all streams are complete
			held := w.Proxy.HoldWatch(t, resource, 0)
			w.identity("2001")
			use(w, "late", 2001)
			operatortest.Eventually(t, "what looks unused is marked", func() bool { return w.isMarked("2001") })
			operatortest.Eventually(t, "a run could not get up to date, or did and has spared it", func() bool {
				return o.Metric("sweep_objects_total", "identitygc.crd", "spared") > 0 ||
					o.Metric("identity_gc_runs", "crd", "fail") > 0 || !w.isMarked("2001")
			})
			held.Remove(t)
			operatortest.Eventually(t, "its mark is taken off", func() bool { return !w.isMarked("2001") })
			w.identity("3001")
			w.gone("3001")
			if !w.names()["2001"] {
				t.Error("an identity that is in use is gone")
			}
		})
	}
}

// IDGC-E11 and IDGC-E12: nothing is asked.
func TestOff(t *testing.T) {
	for name, args := range map[string][]string{
		"no interval": {"--identity-gc-interval=0"},
		"kvstore":     {"--kvstore=etcd", "--identity-allocation-mode=kvstore"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, clustertest.Shared(t))
			w.identity("1001")
			o := w.start(append(slices.Clone(quick), args...)...)
			o.ReenterTerm()
			o.Stop()
			for _, r := range w.Proxy.Requests(t, 0) {
				if strings.HasPrefix(r.Resource, "ciliumi") || strings.HasPrefix(r.Resource, "ciliume") {
					t.Errorf("%s %s", r.Verb, r.Path)
				}
			}
			if w.isMarked("1001") {
				t.Error("it is marked")
			}
		})
	}
}

// IDGC-18.
func TestNotAllowed(t *testing.T) {
	w := newWorld(t, clustertest.Shared(t))
	rules := slices.Clone(least)
	rules[0].Verbs = []string{"list", "watch", "delete"}
	o := operatortest.Start(t, duty, w.As("user", rules...), quick...)
	operatortest.Eventually(t, "it knows its role", func() bool { return o.Log().Count("connected to the API server") > 0 })
	w.identity("1001")
	operatortest.Eventually(t, "some runs are over", func() bool { return o.Metric("identity_gc_runs", "crd", "success") >= 4 })
	if n := len(w.requests("update")) + len(w.requests("delete")); n != 0 {
		t.Errorf("%d writes", n)
	}
	if d := o.Degraded("identitygc"); !strings.Contains(d, "update ciliumidentities") {
		t.Errorf("degraded: %s", d)
	}
}

// IDGC-E5: made anew after it was judged.
func TestMadeAnewOnServer(t *testing.T) {
	w := newWorld(t, clustertest.Shared(t))
	w.identity("1001")
	w.Proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"delete"}, Names: []string{"1001"}}, Times: 1, Delay: &clustertest.Delay{For: -1},
	})
	o := w.start(quick...)
	operatortest.Eventually(t, "the delete is on its way", func() bool {
		return slices.ContainsFunc(w.Proxy.Requests(t, 0), func(r clustertest.Request) bool { return r.Verb == "delete" && r.Name == "1001" })
	})
	err := w.Dynamic.Resource(identities).Delete(t.Context(), "1001", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	uid := w.identity("1001").GetUID()
	w.endpoint("web", 1001)
	w.Proxy.Heal(t)
	operatortest.Eventually(t, "the delete hits nothing", func() bool { return o.Metric("sweep_objects_total", "identitygc.crd", "changed") == 1 })
	if w.get("1001").GetUID() != uid {
		t.Error("it is gone")
	}
}
