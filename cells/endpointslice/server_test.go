// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// world is the CiliumEndpoints and CiliumEndpointSlices of a real API server.
type world struct {
	t         *testing.T
	proxy     *clustertest.Proxy
	core      kubernetes.Interface
	endpoints dynamic.NamespaceableResourceInterface
	slices    dynamic.ResourceInterface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumEndpoint", "CiliumNode", "CiliumEndpointSlice")
	w := &world{t: t, proxy: s.Proxy, core: s.Core, endpoints: s.Dynamic.Resource(v2.CiliumEndpointResource), slices: s.Dynamic.Resource(resource)}
	w.clear()
	for _, name := range []string{"shop", "bank", "farm"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := w.core.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return w
}

// clear deletes what an earlier test left.
func (w *world) clear() {
	w.t.Helper()
	list, err := w.endpoints.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range list.Items {
		w.remove(e.GetNamespace(), e.GetName())
	}
	if err := w.slices.DeleteCollection(w.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(namespace, name string) {
	w.t.Helper()
	if err := w.endpoints.Namespace(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// status is that of an endpoint with an identity, -1 for none.
func status(identity int) string {
	id := fmt.Sprintf(`"identity":{"id":%d},`, identity)
	if identity < 0 {
		id = ""
	}
	return fmt.Sprintf(`{%s"networking":{"addressing":[{"ipv4":"10.0.1.5","ipv6":"fd00:1::5"}],"node":"192.168.0.2"},"encryption":{"key":3},"named-ports":[{"name":"http","port":8080,"protocol":"TCP"}]}`, id)
}

// endpoint makes an endpoint, or changes it.
func (w *world) endpoint(namespace, name, status string) {
	w.t.Helper()
	obj := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"cilium.io/v2","kind":"CiliumEndpoint","metadata":{"name":%q,"namespace":%q},"status":%s}`, name, namespace, status)
	if err := json.Unmarshal([]byte(text), obj); err != nil {
		w.t.Fatal(err)
	}
	api := w.endpoints.Namespace(namespace)
	_, err := api.Create(w.t.Context(), obj, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var now *unstructured.Unstructured
		if now, err = api.Get(w.t.Context(), name, metav1.GetOptions{}); err == nil {
			obj.SetResourceVersion(now.GetResourceVersion())
			_, err = api.Update(w.t.Context(), obj, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) many(namespace string, n, identity int) {
	w.t.Helper()
	for i := range n {
		w.endpoint(namespace, fmt.Sprintf("web-%d-%d", identity, i), status(identity))
	}
}

// slice makes a slice by hand.
func (w *world) slice(name, namespace string, entries ...string) {
	w.t.Helper()
	var endpoints []any
	for _, e := range entries {
		entry := map[string]any{}
		if err := json.Unmarshal([]byte(strings.Replace(status(7), `"identity":{"id":7}`, fmt.Sprintf(`"id":7,"name":%q`, e), 1)), &entry); err != nil {
			w.t.Fatal(err)
		}
		endpoints = append(endpoints, entry)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2alpha1", "kind": "CiliumEndpointSlice", "metadata": map[string]any{"name": name}, "namespace": namespace, "endpoints": endpoints,
	}}
	if _, err := w.slices.Create(w.t.Context(), obj, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// list is the slices that there are.
func (w *world) list() []unstructured.Unstructured {
	w.t.Helper()
	list, err := w.slices.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// names are the endpoints of a slice, sorted.
func names(s *unstructured.Unstructured) (all []string) {
	entries, _, _ := unstructured.NestedSlice(s.Object, "endpoints")
	for _, e := range entries {
		name, _, _ := unstructured.NestedString(e.(map[string]any), "name")
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// sizes waits until there are slices of so many endpoints, and none else.
func (w *world) sizes(want ...int) {
	w.t.Helper()
	slices.Sort(want)
	var got []int
	defer func() {
		if w.t.Failed() {
			w.t.Logf("slices have %v endpoints", got)
		}
	}()
	operatortest.Eventually(w.t, fmt.Sprint("slices have ", want, " endpoints"), func() bool {
		got = nil
		for _, s := range w.list() {
			got = append(got, len(names(&s)))
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

func (w *world) start(mode string, args ...string) *operatortest.Operator {
	w.t.Helper()
	return operatortest.Start(w.t, Cell, w.proxy.Kubeconfig(), append([]string{
		"--enable-cilium-endpoint-slice", "--ces-slice-mode=" + mode, `--ces-rate-limits=[{"nodes":0,"limit":50,"burst":100}]`,
	}, args...)...)
}

// writes are those of slices by the duty, as "create: 201".
func (w *world) writes(after int) (all []string) {
	w.t.Helper()
	for _, r := range w.proxy.Answered(w.t, 0) {
		if strings.Contains(r.UserAgent, "(endpointslice") && slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb) {
			all = append(all, fmt.Sprintf("%s: %d", r.Verb, r.Status))
		}
	}
	return all[min(after, len(all)):]
}

// CES-E1, CES-E8, CES-E9, CES-E10 and CES-E16, and what is said of them.
func TestSliceOfOne(t *testing.T) {
	w := newWorld(t)
	o := w.start("fcfs")
	w.endpoint("shop", "web-1", status(12345))
	w.sizes(1)
	s := w.list()[0]
	if !regexp.MustCompile(`^ces-[bcdfghjklmnpqrstvwxyz2456789]{9}-[bcdfghjklmnpqrstvwxyz2456789]{5}$`).MatchString(s.GetName()) {
		t.Errorf("the slice has the name %s", s.GetName())
	}
	text, err := json.Marshal(map[string]any{"namespace": s.Object["namespace"], "endpoints": s.Object["endpoints"]})
	want := `{"endpoints":[{"encryption":{"key":3},"id":12345,"name":"web-1","named-ports":[{"name":"http","port":8080,"protocol":"TCP"}],` +
		`"networking":{"addressing":[{"ipv4":"10.0.1.5","ipv6":"fd00:1::5"}],"node":"192.168.0.2"}}],"namespace":"shop"}`
	if diff := cmp.Diff(want, string(text)); err != nil || diff != "" {
		t.Error(diff, err)
	}
	if len(s.GetLabels())+len(s.GetOwnerReferences())+len(s.GetAnnotations()) > 0 {
		t.Errorf("it has labels, owners or annotations: %v", s.Object["metadata"])
	}

	// CES-E10.
	edited := s.DeepCopy()
	edited.Object["endpoints"] = []any{}
	if _, err := w.slices.Update(t.Context(), edited, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sizes(1)
	// CES-E9.
	if err := w.slices.Delete(t.Context(), s.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "it is there again", func() bool {
		list := w.list()
		return len(list) == 1 && list[0].GetName() == s.GetName() && list[0].GetUID() != s.GetUID() && len(names(&list[0])) == 1
	})
	// A slice of another writer is deleted (CES-15).
	w.slice("stranger", "shop", "web-1")
	operatortest.Eventually(t, "the stranger is gone", func() bool { return len(w.list()) == 1 })
	// CES-E16, and no encryption.
	w.endpoint("shop", "web-1", `{"identity":{"id":0},"networking":{"addressing":[{"ipv6":"fd00:1::5"}]}}`)
	wantEntry := map[string]any{"name": "web-1", "encryption": map[string]any{}, "networking": map[string]any{"addressing": []any{map[string]any{"ipv6": "fd00:1::5"}}}}
	operatortest.Eventually(t, "only IPv6 is left", func() bool { return cmp.Equal([]any{wantEntry}, w.list()[0].Object["endpoints"]) })
	// CES-E8.
	w.remove("shop", "web-1")
	w.sizes()
	if d := o.Degraded("endpointslice"); d != "" {
		t.Errorf("it is degraded:\n%s", d)
	}
	if n := o.Metric("ces_sync_total", "fatal", "fail"); n != 0 {
		t.Errorf("%v failures", n)
	}
}

// CES-E2, CES-E3, CES-E11 and CES-E12.
func TestFill(t *testing.T) {
	w := newWorld(t)
	w.many("shop", 250, 7)
	w.endpoint("bank", "web", status(7))
	w.endpoint("farm", "web", status(7))
	o := w.start("fcfs")
	w.sizes(100, 100, 50, 1, 1)
	o.Stop()

	before := len(w.writes(0))
	again := w.start("fcfs")
	w.endpoint("bank", "web-2", status(7))
	w.sizes(100, 100, 50, 2, 1)
	if all := w.writes(before); !slices.Equal(all, []string{"update: 200"}) {
		t.Errorf("a restart and a new endpoint made the writes %v", all)
	}
	again.Stop()

	w.remove("farm", "web")
	w.remove("shop", "web-7-0")
	w.start("fcfs")
	w.sizes(100, 99, 50, 2)
	w.endpoint("shop", "more", status(7))
	w.sizes(100, 100, 50, 2)
}

// CES-E4: the fullest slice with room.
func TestFullest(t *testing.T) {
	w := newWorld(t)
	lists := map[string][]string{}
	for name, n := range map[string]int{"a": 40, "b": 70, "c": 100} {
		for i := range n {
			endpoint := fmt.Sprint("web-", name, i)
			w.endpoint("shop", endpoint, status(7))
			lists[name] = append(lists[name], endpoint)
		}
		w.slice("ces-"+name, "shop", lists[name]...)
	}
	w.slice("ces-gone", "bank", "gone") // is deleted when all slices are compared: those that wait for that are taken first
	w.start("fcfs")
	w.sizes(40, 70, 100)
	w.endpoint("shop", "new", status(7))
	w.sizes(40, 71, 100)
	if all := w.writes(0); !slices.Equal(all, []string{"delete: 200", "update: 200"}) {
		t.Errorf("the writes are %v", all)
	}
}

// CES-E5, CES-E6 and CES-E15.
func TestIdentities(t *testing.T) {
	w := newWorld(t)
	w.many("shop", 3, 1)
	w.many("shop", 2, 2)
	w.endpoint("shop", "late", status(-1))
	w.start("identity")
	w.sizes(3, 2)
	watch, err := w.slices.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	missing := make(chan int)
	go func() { missing <- timesMissing(watch, "web-1-0") }()
	w.endpoint("shop", "late", status(2)) // CES-E15
	w.sizes(3, 3)
	w.endpoint("shop", "web-1-0", status(2)) // CES-E6
	w.sizes(2, 4)
	w.endpoint("shop", "end", status(3)) // the watch has come so far
	if n := <-missing; n != 0 {
		t.Errorf("web-1-0 was in no slice %d times", n)
	}
	w.sizes(2, 4, 1)
	w.remove("shop", "end")
	w.endpoint("shop", "late", status(-1))
	w.sizes(2, 3)
}

// timesMissing counts how often an endpoint has dropped out of all slices, until
// there is a slice of one named end.
func timesMissing(watch watch.Interface, name string) (n int) {
	defer watch.Stop()
	in := map[string]bool{}
	for e := range watch.ResultChan() {
		s := e.Object.(*unstructured.Unstructured)
		if slices.Contains(names(s), "end") {
			return n
		}
		was := len(in) > 0
		if delete(in, s.GetName()); e.Type != "DELETED" && slices.Contains(names(s), name) {
			in[s.GetName()] = true
		}
		if was && len(in) == 0 {
			n++
		}
	}
	return -1
}

// What comes in one list makes one write. CES-E7 by the clock: TestWhenASliceIsWritten.
func TestBatch(t *testing.T) {
	w := newWorld(t)
	w.endpoint("shop", "web-1", status(7))
	w.start("fcfs")
	w.sizes(1)
	before := len(w.writes(0))
	// They come at once, however long it takes to make them.
	held := w.proxy.HoldWatch(t, "ciliumendpoints", 0)
	operatortest.Eventually(t, "the watch is held", func() bool { return held.Hits(t) > 0 })
	for i := range 10 {
		w.endpoint("shop", fmt.Sprint("web-more-", i), status(7))
	}
	w.proxy.ExpireWatches(t, clustertest.Match{Resources: []string{"ciliumendpoints"}}) // they come in one list
	held.Remove(t)
	w.sizes(11)
	if all := w.writes(before); len(all) != 1 {
		t.Errorf("the writes are %v", all)
	}
}

// Number 24 of the contract's endpoint-slices.md, and CES-E18: a conflict passes without a warning.
func TestConflict(t *testing.T) {
	w := newWorld(t)
	w.endpoint("shop", "web-1", status(7))
	o := w.start("fcfs")
	w.sizes(1)
	rule := w.proxy.Rule(t, clustertest.Rule{Match: clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumendpointslices"}}, Delay: &clustertest.Delay{For: -1}, Times: 1})
	w.endpoint("shop", "web-2", status(7))
	operatortest.Eventually(t, "the write is held", func() bool { return rule.Hits(t) > 0 })
	s := w.list()[0]
	s.SetAnnotations(map[string]string{"somebody": "else"})
	if _, err := w.slices.Update(t.Context(), &s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	rule.Remove(t)
	w.sizes(2)
	if all := w.writes(0); !slices.Contains(all, "update: 409") {
		t.Errorf("the writes are %v: none was refused", all)
	}
	operatortest.Eventually(t, "two writes have succeeded", func() bool { return o.Metric("ces_sync_total", "", "success") == 2 })
	if transient, fatal := o.Metric("ces_sync_total", "transient", "fail"), o.Metric("ces_sync_total", "fatal", "fail"); transient != 1 || fatal != 0 {
		t.Errorf("%v transient failures and %v fatal ones", transient, fatal)
	}
	if all := o.Warnings("endpointslice"); len(all) > 0 {
		t.Errorf("there are warnings: %v", all)
	}
}

// Number 24 of the contract's endpoint-slices.md: what the API server cannot do is fatal in the metric, and tried again.
func TestErrorOfTheServer(t *testing.T) {
	w := newWorld(t)
	o := w.start("fcfs")
	creates := clustertest.Match{Verbs: []string{"create"}, Resources: []string{"ciliumendpointslices"}}
	w.proxy.Rule(t, clustertest.Rule{Match: creates, Status: &clustertest.Status{Code: 500}, Times: 1})
	w.endpoint("shop", "web-1", status(7))
	w.sizes(1)
	if all := w.writes(0); !slices.Equal(all, []string{"create: 500", "create: 201"}) {
		t.Errorf("the writes are %v", all)
	}
	operatortest.Eventually(t, "the second write is counted", func() bool { return o.Metric("ces_sync_total", "", "success") == 1 })
	if transient, fatal := o.Metric("ces_sync_total", "transient", "fail"), o.Metric("ces_sync_total", "fatal", "fail"); transient != 0 || fatal != 1 {
		t.Errorf("%v transient failures and %v fatal ones", transient, fatal)
	}
}

// CES-19: a slice of the wrong namespace goes when its endpoints are elsewhere,
// and one that has too many gives some away.
func TestOddSlices(t *testing.T) {
	w := newWorld(t)
	w.endpoint("shop", "web-1", status(7))
	w.endpoint("shop", "web-2", status(7))
	w.endpoint("shop", "web-3", status(7))
	w.slice("ces-wrong", "bank", "web-1")
	w.slice("ces-much", "shop", "web-2", "web-3")
	w.slice("ces-twice", "shop", "web-3")
	w.start("fcfs", "--ces-max-ciliumendpoints-per-ces=1")
	var all []string
	operatortest.Eventually(t, "each endpoint is in one slice of its namespace", func() bool {
		all = nil
		for _, s := range w.list() {
			if s.GetName() == "ces-wrong" {
				return false
			}
			all = append(all, names(&s)...)
		}
		slices.Sort(all)
		return slices.Equal(all, []string{"web-1", "web-2", "web-3"})
	})
	w.sizes(1, 1, 1)
}

// Number 25 of the contract's endpoint-slices.md; CES-26: slices that are not in use are left alone for a while, and then go; a role that
// does not allow it is asked for nothing.
func TestCleanUp(t *testing.T) {
	w := newWorld(t)
	w.slice("ces-old", "shop", "web-1")
	user := "ces-nobody"
	operatortest.Allow(t, w.core, user)
	idle := operatortest.Start(t, Cell, w.proxy.UserKubeconfig(t, user), "--ces-cleanup-grace=240ms")
	o := operatortest.Start(t, Cell, w.proxy.Kubeconfig(), "--ces-cleanup-grace=3s")
	w.sizes()
	operatortest.Eventually(t, "the other knows its role", func() bool { return idle.Log().Count("connected to the API server") > 0 })
	idle.Stop()
	o.Stop()
	for _, r := range w.proxy.Requests(t, 0) {
		if r.Status == 403 && strings.Contains(r.UserAgent, "(endpointslice") {
			t.Errorf("forbidden: %s %s", r.Verb, r.Path)
		}
	}
	if all := w.writes(0); !slices.Equal(all, []string{"delete: 200"}) {
		t.Errorf("the writes are %v", all)
	}
}

// CES-29: a slice that waits for a finalizer of others is deleted once.
func TestCleanUpOfTerminating(t *testing.T) {
	w := newWorld(t)
	w.slice("ces-held", "shop", "web-1")
	finalizers := func(list string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"finalizers":%s}}`, list)
		if _, err := w.slices.Patch(t.Context(), "ces-held", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	finalizers(`["example.com/hold"]`)
	defer finalizers(`null`) // a failed test holds up no others
	operatortest.Start(t, Cell, w.proxy.Kubeconfig(), "--ces-cleanup-grace=480ms")
	lists := func() (n int) {
		for _, r := range w.proxy.Requests(t, 0) {
			if r.Verb == "list" && r.Resource == "ciliumendpointslices" && strings.Contains(r.UserAgent, "(endpointslice") {
				n++
			}
		}
		return n
	}
	operatortest.Eventually(t, "it is deleted", func() bool { return len(w.writes(0)) > 0 })
	looks := lists() + 40 // more than a grace
	operatortest.Eventually(t, "it is looked at again and again", func() bool { return lists() > looks })
	if all := w.writes(0); !slices.Equal(all, []string{"delete: 200"}) {
		t.Errorf("the writes are %v", all)
	}
	finalizers(`null`)
	w.sizes()
}
