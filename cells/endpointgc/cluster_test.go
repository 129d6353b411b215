// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/health"
)

// fill makes what EPGC-E1 to EPGC-E11 start from, but for EPGC-E10.
func (w *world) fill() {
	w.T.Helper()
	w.pod("p-run", corev1.PodRunning)
	w.pod("p-done", corev1.PodSucceeded)
	w.pod("p-fail", corev1.PodFailed)
	w.node("node1")
	for i, x := range examples[:11] {
		if i == 9 { // EPGC-E10 has the name of EPGC-E4
			continue
		}
		var owners []ownerRef
		for _, o := range x.owners {
			kind, name, _ := strings.Cut(o, "/")
			owners = append(owners, ownerRef{kind: kind, name: name})
		}
		w.endpoint(x.name, nil, owners...)
	}
}

// EPGC-E1 to EPGC-E11, under the role that the duty asks for and under that of the
// original's chart.
func TestExamples(t *testing.T) {
	t.Run("own role", func(t *testing.T) { testExamples(t, func(*testing.T) []rbacv1.PolicyRule { return least }) })
	t.Run("role of the chart", func(t *testing.T) {
		testExamples(t, func(t *testing.T) []rbacv1.PolicyRule { return stockchart.Role(t) })
	})
}

func testExamples(t *testing.T, rules func(*testing.T) []rbacv1.PolicyRule) {
	w := newWorld(t, clustertest.Shared(t))
	kubeconfig := w.As("examples", rules(t)...)
	w.fill()
	o := operatortest.Start(t, Cell, kubeconfig, quick)
	w.gone("x1", "x3", "x5", "x7", "p-fail")
	w.remove(w.Namespace, "p-run")
	w.endpoint("p-run", nil, ownerRef{kind: "Pod", name: "gone"}) // EPGC-E10
	w.gone("p-run")
	w.endpoint("p-run", nil) // EPGC-E4 again
	w.endpoint("last", nil)
	w.gone("last")
	want := []string{"p-run", "x11", "x2", "x6", "x9"}
	if got := slices.Sorted(maps.Keys(w.names())); !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
	operatortest.Eventually(t, "deletes are counted", func() bool { return o.Metric("endpoint_gc_objects", "success") == 7 })
	if n := o.Metric("endpoint_gc_objects", "fail"); n != 0 {
		t.Errorf("%v failures", n)
	}
	w.CheckHealthy(o)
}

// least is the role that the periodic duty asks for, and what any operator does.
var least = []rbacv1.PolicyRule{
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumendpoints"}, Verbs: []string{"list", "watch", "delete"}},
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumnodes"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
}

// EPGC-E12: what a delete says.
func TestDeleteRequest(t *testing.T) {
	c := clustertest.Start(t, clustertest.AuditLevel("Request"))
	w := newWorld(t, c)
	e := w.endpoint("x1", nil)
	audit := c.Audit(t)
	w.start(quick)
	w.gone("x1")
	var bodies []string
	operatortest.Eventually(t, "the delete is in the audit log", func() bool {
		for event := range audit.Events(t) {
			if event.Verb == "delete" && event.ObjectRef.Resource == "ciliumendpoints" {
				bodies = append(bodies, string(event.RequestObject))
			}
		}
		return len(bodies) > 0
	})
	var got metav1.DeleteOptions
	if err := json.Unmarshal([]byte(bodies[0]), &got); err != nil || len(bodies) != 1 {
		t.Fatalf("%v: %v", bodies, err)
	}
	if *got.PropagationPolicy != metav1.DeletePropagationBackground || *got.Preconditions.UID != e.GetUID() ||
		*got.Preconditions.ResourceVersion != e.GetResourceVersion() || got.GracePeriodSeconds != nil {
		t.Errorf("the delete says %s", bodies[0])
	}
}

// EPGC-E13, and EPGC-7.
func TestDeleteOfWhatIsGone(t *testing.T) {
	for code, what := range map[int]string{404: "gone", 409: "changed"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, clustertest.Shared(t))
			w.endpoint("x1", nil)
			w.endpoint("x5", nil)
			w.Proxy.Rule(t, clustertest.Rule{
				Match: clustertest.Match{Verbs: []string{"delete"}, Names: []string{"x1"}}, Times: 1, Status: &clustertest.Status{Code: code},
			})
			o := w.start(quick)
			w.gone("x1", "x5")
			operatortest.Eventually(t, "all is counted", func() bool { return o.Metric("endpoint_gc_objects", "success") == 2 })
			operatortest.Eventually(t, "one is "+what, func() bool { return o.Metric("sweep_objects_total", "endpointgc.periodic", what) == 1 })
			if o.Metric("endpoint_gc_objects", "fail") != 0 || o.Degraded("") != "" {
				t.Errorf("it counts as a failure: %s", o.Degraded(""))
			}
		})
	}
}

// EPGC-E14.
func TestDeleteFails(t *testing.T) {
	w := newWorld(t, clustertest.Shared(t))
	w.endpoint("x1", nil)
	w.endpoint("x5", nil)
	fails := w.Proxy.Answer(t, 500, clustertest.Match{Verbs: []string{"delete"}, Names: []string{"x1"}})
	o := w.start(quick)
	w.gone("x5") // others go on
	operatortest.Eventually(t, "it is tried again, and counted", func() bool { return o.Metric("endpoint_gc_objects", "fail") >= 2 })
	operatortest.Eventually(t, "it is told", func() bool {
		return strings.Contains(o.Degraded("endpointgc"), "deleting CiliumEndpoint "+w.Namespace+"/x1")
	})
	fails.Remove(t)
	w.gone("x1")
	operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("") == "" })
	warnings := 0
	for _, line := range o.Messages("endpointgc") {
		if strings.HasPrefix(line, "warning") {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("%d warnings:\n%s", warnings, strings.Join(o.Messages("endpointgc"), "\n"))
	}
}

// without are the options of a cluster whose endpoints are told to a kvstore.
var without = []string{"--kvstore=etcd", "--identity-allocation-mode=kvstore", "--cilium-endpoint-gc-interval=0"}

// noPolicies are the options of a cluster whose agents enforce no policies, and make no endpoints.
var noPolicies = []string{
	"--disable-endpoint-crd", "--enable-policy=never", "--identity-allocation-mode=crd",
	"--enable-k8s-networkpolicy=false", "--enable-cilium-network-policy=false", "--enable-cilium-clusterwide-network-policy=false",
}

// Number 23 of the contract's endpoint-gc.md, endpoints of any age; EPGC-E15, with either option that switches endpoints off, and under the role
// of the original's chart.
func TestOnce(t *testing.T) {
	t.Run("no interval", func(t *testing.T) { testOnce(t, nil, without...) })
	t.Run("no endpoints", func(t *testing.T) { testOnce(t, nil, "--kvstore=etcd", "--disable-endpoint-crd") })
	t.Run("no policies, number 21 of the contract's endpoint-gc.md", func(t *testing.T) { testOnce(t, nil, noPolicies...) })
	t.Run("role of the chart", func(t *testing.T) { testOnce(t, stockchart.Role(t), without...) })
}

func testOnce(t *testing.T, role []rbacv1.PolicyRule, args ...string) {
	w := newWorld(t, clustertest.Shared(t))
	kubeconfig := w.Proxy.Kubeconfig()
	if role != nil {
		kubeconfig = w.As("once", role...)
	}
	w.fill()
	for i := range 20 {
		w.endpoint(fmt.Sprint("more-", i), nil, ownerRef{kind: "Pod", name: "p-run"})
	}
	w.Proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"delete"}, Names: []string{"x2"}}, Times: 2, Status: &clustertest.Status{Code: 503},
	})
	o := operatortest.Start(t, Cell, kubeconfig, args...)
	operatortest.Eventually(t, "all are gone", func() bool { return len(w.endpoints()) == 0 })
	operatortest.Eventually(t, "it has ended", func() bool { return o.Level("endpointgc.once.job-clean") == health.Stopped })
	w.endpoint("later", nil)
	before := len(w.requests("delete"))
	if n := o.Metric("endpoint_gc_objects", "success"); n != 30 || before != 32 {
		t.Errorf("%v deleted in %d requests", n, before)
	}
	w.CheckHealthy(o)
	reads := len(w.requests("get")) + len(w.requests("list"))
	o.ReenterTerm()
	operatortest.Eventually(t, "it has ended again", func() bool { return o.Level("endpointgc.once.job-clean") == health.Stopped })
	if n := len(w.requests("get")) + len(w.requests("list")); n != reads {
		t.Errorf("%d more reads in the next term", n-reads)
	}
	o.Stop()
	if !w.names()["later"] || len(w.requests("delete")) != before {
		t.Error("what came later is gone, too")
	}
	if n := len(w.requests("watch")); n != 0 {
		t.Errorf("%d watches", n)
	}
}

// EPGC-E16, and EPGC-12.
func TestOnceWithoutDefinition(t *testing.T) {
	w := newWorld(t, clustertest.Shared(t))
	definition := w.Dynamic.Resource(definitions)
	const name = "ciliumendpoints.cilium.io"
	if err := definition.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "it is gone", func() bool {
		_, err := definition.Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	w.Proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"get"}, Names: []string{name}}, Times: 2, Status: &clustertest.Status{Code: 503},
	})
	o := w.start(without...)
	operatortest.Eventually(t, "it has ended", func() bool { return o.Level("endpointgc.once.job-clean") == health.Stopped })
	got := strings.Join(w.requests("get"), ", ")
	if want := "get " + name + ": 503, get " + name + ": 503, get " + name + ": 404"; got != want {
		t.Errorf("the duty asked %s", got)
	}
	for _, r := range w.Proxy.Requests(t, 0) {
		if r.Resource == "ciliumendpoints" {
			t.Errorf("%s %s", r.Verb, r.Path)
		}
	}
}

// EPGC-E17, without a collection of identities; with one it is refused.
func TestNoIntervalWithObjects(t *testing.T) {
	for _, args := range [][]string{nil, {"--kvstore=etcd", "--identity-allocation-mode=doublewrite-readcrd"}} {
		args = append(args, "--cilium-endpoint-gc-interval=0", "--k8s-api-server=http://127.0.0.1:1")
		o, err := operatortest.New(t, Cell, "", args...)
		if err != nil {
			t.Errorf("%v: %v", args, err)
			continue
		}
		g := o.Graph()
		for _, id := range []string{"endpointgc.periodic", "endpointgc.once"} {
			if g.Module(id).Enabled {
				t.Errorf("%v: %s is on", args, id)
			}
		}
	}
	if _, err := operatortest.New(t, Cell, "/nonexistent", "--cilium-endpoint-gc-interval=-1s"); err == nil || !strings.Contains(err.Error(), "cilium-endpoint-gc-interval") {
		t.Errorf("a negative interval: %v", err)
	}
}

// EPGC-11: the API server is asked. The pod's events come late, so the view says
// that it is gone.
func TestPodNotSeenYet(t *testing.T) {
	w := newWorld(t, clustertest.Shared(t))
	o := w.start(quick)
	w.endpoint("first", nil)
	w.gone("first") // all streams are synced
	w.Proxy.HoldWatch(t, "pods", 0)
	w.pod("late", corev1.PodRunning)
	uid := w.endpoint("late", nil, ownerRef{kind: "Pod", name: "late"}).GetUID()
	operatortest.Eventually(t, "the endpoint is spared", func() bool { return o.Metric("sweep_objects_total", "endpointgc.periodic", "spared") >= 2 })
	w.endpoint("second", nil)
	w.gone("second")
	if w.get("late").GetUID() != uid {
		t.Error("the endpoint of a pod that runs is gone")
	}
	operatortest.Eventually(t, "what was garbage is counted, and no more", func() bool { return o.Metric("endpoint_gc_objects", "success") == 2 })
}

// EPGC-11: a 404 of a server that does not serve the resource is no answer.
func TestNodesNotServed(t *testing.T) {
	w := newWorld(t, clustertest.Shared(t))
	w.node("node1")
	w.endpoint("x6", nil, ownerRef{kind: "CiliumNode", name: "node1"})
	o := w.start(quick)
	w.endpoint("first", nil)
	w.gone("first")
	held := w.Proxy.HoldWatch(t, "ciliumnodes", 0) // the node goes before its definition, and is rightly missed then
	operatortest.Eventually(t, "the watch is held", func() bool { return held.Hits(t) > 0 })
	definition := w.Dynamic.Resource(definitions)
	if err := definition.Delete(t.Context(), "ciliumnodes.cilium.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "nodes are not served", func() bool {
		_, err := w.Dynamic.Resource(v2.CiliumNodeResource).List(t.Context(), metav1.ListOptions{})
		return apierrors.IsNotFound(err)
	})
	held.Remove(t)
	operatortest.Eventually(t, "it is told", func() bool {
		return strings.Contains(o.Degraded("endpointgc"), "finding out whether CiliumEndpoint "+w.Namespace+"/x6") &&
			strings.Contains(o.Degraded("endpointgc"), "the server could not find the requested resource")
	})
	w.get("x6")
}

// EPGC-7: an endpoint that was made anew, or taken over by a new pod, is not hit
// by a decision about the old one.
func TestEndpointNotSeenYet(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"made anew": func(w *world) {
			w.remove(w.Namespace, "web-0")
			w.endpoint("web-0", nil, ownerRef{kind: "Deployment", name: "d"})
		},
		"taken over": func(w *world) {
			e := w.get("web-0")
			e.SetLabels(map[string]string{"taken": "over"})
			if _, err := w.Dynamic.Resource(endpoints).Namespace(w.Namespace).Update(w.T.Context(), e, metav1.UpdateOptions{}); err != nil {
				w.T.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, clustertest.Shared(t))
			w.pod("web-0", corev1.PodRunning)
			w.endpoint("web-0", nil, ownerRef{kind: "Pod", name: "web-0"})
			o := w.start(quick)
			w.endpoint("first", nil)
			w.gone("first")
			w.Proxy.HoldWatch(t, "ciliumendpoints", 0)
			change(w)
			now := w.get("web-0").GetUID()
			w.removePod("web-0")
			operatortest.Eventually(t, "the delete hits nothing", func() bool { return o.Metric("sweep_objects_total", "endpointgc.periodic", "changed") >= 2 })
			if w.get("web-0").GetUID() != now {
				t.Error("it is gone")
			}
		})
	}
}

func (w *world) removePod(name string) {
	w.T.Helper()
	zero := int64(0)
	if err := w.Core.CoreV1().Pods(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		w.T.Fatal(err)
	}
}

// EPGC-5; EPGC-E19: without the permission it is told and counted.
func TestStaleOwnerIsKept(t *testing.T) {
	w := newWorld(t, clustertest.Shared(t))
	w.pod("web-0", corev1.PodRunning, "10.0.0.1")
	w.endpoint("web-0", []string{"10.0.0.1"}, ownerRef{kind: "Pod", name: "web-0"})
	w.endpoint("x5", nil)
	o := operatortest.Start(t, Cell, w.As("reader", least...), quick)
	operatortest.Eventually(t, "it is counted", func() bool { return o.Metric("endpoint_gc_odd_endpoints", "stale-owner") == 1 })
	w.gone("x5")
	w.get("web-0")
	if n := len(w.requests("patch")); n != 0 {
		t.Errorf("%d patches", n)
	}
	said := strings.Join(o.Messages("endpointgc"), "\n")
	if strings.Count(said, "have the uid of a deleted pod of the same name") != 1 || !strings.Contains(said, w.Namespace+"/web-0") {
		t.Errorf("told is\n%s", said)
	}
}

// EPGC-5, with the permission to patch: the pod that lives becomes the owner, if
// the addresses say that the endpoint is its own.
func TestStaleOwnerIsReplaced(t *testing.T) {
	w := newWorld(t, clustertest.Shared(t))
	uid := w.pod("web-0", corev1.PodRunning, "10.0.0.1")
	w.pod("web-1", corev1.PodRunning, "10.0.0.2")
	w.endpoint("web-0", []string{"10.0.0.1"}, ownerRef{kind: "CiliumNode", name: "gone"}, ownerRef{kind: "Pod", name: "web-0"})
	w.endpoint("web-1", []string{"10.9.9.9"}, ownerRef{kind: "Pod", name: "web-1"})
	rules := slices.Concat(least, []rbacv1.PolicyRule{{
		APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumendpoints"}, Verbs: []string{"patch"},
	}})
	o := operatortest.Start(t, Cell, w.As("patcher", rules...), quick)
	uids := func(name string) []types.UID {
		var all []types.UID
		for _, ref := range w.get(name).GetOwnerReferences() {
			all = append(all, ref.UID)
		}
		return all
	}
	operatortest.Eventually(t, "the pod is the owner", func() bool { return uids("web-0")[1] == uid })
	operatortest.Eventually(t, "one is left, and one is foreign", func() bool {
		return o.Metric("endpoint_gc_odd_endpoints", "stale-owner") == 1 && o.Metric("endpoint_gc_odd_endpoints", "foreign-address") == 1
	})
	if refs := w.get("web-0").GetOwnerReferences(); refs[0].Name != "gone" || refs[0].UID == uid || refs[1].Kind != "Pod" || refs[1].APIVersion != unresolved {
		t.Errorf("owners are %v", refs)
	}
	if uids("web-1")[0] == uid {
		t.Error("an endpoint with other addresses got an owner")
	}
	got := w.requests("patch")
	stored := slices.DeleteFunc(slices.Clone(got), func(r string) bool { return !strings.HasSuffix(r, ": 200") })
	if len(stored) != 1 { // what is not seen yet may be refused once more
		t.Errorf("patches: %v", got)
	}
}
