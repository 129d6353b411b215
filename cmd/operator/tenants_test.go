// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/domain/identity"
)

// tenants is a world of its own in which pods of some namespaces come and go. Its
// methods are for one goroutine.
type tenants struct {
	*world
	cluster    string                                     // its name, which identities have
	numbers    identity.Range                             // of the cluster's identities
	node       string                                     // that pods are on, if not empty
	namespaces map[string]map[string]string               // labels by name
	pods       map[types.NamespacedName]map[string]string // labels by name
}

// managed makes the operator make identities, and slices of CiliumEndpoints, and
// look for garbage all the time.
var managed = []string{
	"--identity-management-mode=operator", "--enable-cilium-endpoint-slice", "--ces-slice-mode=fcfs",
	"--identity-gc-interval=1s", "--identity-heartbeat-timeout=2s", "--cilium-endpoint-gc-interval=1s", "--sweep-max-share=1",
}

func newTenants(t *testing.T, opts ...clustertest.Option) *tenants {
	t.Helper()
	return &tenants{
		world: newWorldIn(t, clustertest.Start(t, opts...)), cluster: "default", numbers: identity.RangeOf(0, 255),
		namespaces: map[string]map[string]string{}, pods: map[types.NamespacedName]map[string]string{},
	}
}

// define creates the definitions of what tenants have.
func (w *tenants) define() {
	w.t.Helper()
	w.world.define(
		"CiliumNode", "CiliumIdentity", "CiliumEndpoint", "CiliumEndpointSlice", "CiliumLoadBalancerIPPool", "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy", "CiliumCIDRGroup",
	)
}

// ctx outlives the test by what it has to clear up.
func (w *tenants) ctx() context.Context { return context.WithoutCancel(w.t.Context()) }

// label makes a namespace, or gives it other labels.
func (w *tenants) label(name string, labels map[string]string) {
	w.t.Helper()
	all := maps.Clone(labels)
	if all == nil {
		all = map[string]string{}
	}
	all["kubernetes.io/metadata.name"] = name
	mine := metav1.ApplyOptions{FieldManager: "tenants", Force: true}
	_, err := w.core.CoreV1().Namespaces().Apply(w.ctx(), applyv1.Namespace(name).WithLabels(all), mine)
	if err == nil && w.namespaces[name] == nil {
		_, err = w.core.CoreV1().ServiceAccounts(name).Apply(w.ctx(), applyv1.ServiceAccount("default", name), mine)
	}
	if err != nil {
		w.t.Error(err)
		return
	}
	w.namespaces[name] = all
}

// begin makes a pod.
func (w *tenants) begin(namespace, name string, labels map[string]string) types.UID {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: w.node, ServiceAccountName: "default", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	made, err := w.core.CoreV1().Pods(namespace).Create(w.ctx(), pod, metav1.CreateOptions{})
	if err != nil {
		w.t.Error(err)
		return ""
	}
	// A pod on a node has that node's labels of its place, too.
	w.pods[types.NamespacedName{Namespace: namespace, Name: name}] = made.Labels
	return made.UID
}

func (w *tenants) end(namespace, name string) {
	w.t.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	if err := w.core.CoreV1().Pods(namespace).Delete(w.ctx(), name, now); err != nil {
		w.t.Error(err)
	}
	delete(w.pods, types.NamespacedName{Namespace: namespace, Name: name})
}

// finish lets a pod succeed.
func (w *tenants) finish(namespace, name string) {
	w.t.Helper()
	w.patchPod(namespace, name, `{"status":{"phase":"Succeeded"}}`, "status")
	delete(w.pods, types.NamespacedName{Namespace: namespace, Name: name})
}

// runs is what the kubelet tells about a pod.
func (w *tenants) runs(namespace, name, ip string) {
	w.t.Helper()
	status := fmt.Sprintf(`{"status":{"phase":"Running","hostIP":%q,"podIP":%q,"podIPs":[{"ip":%q}]}}`, hostIP, ip, ip)
	w.patchPod(namespace, name, status, "status")
}

// stalls takes its address from a pod.
func (w *tenants) stalls(namespace, name string) {
	w.t.Helper()
	w.patchPod(namespace, name, `{"status":{"podIP":null,"podIPs":null}}`, "status")
}

// relabel gives a pod another value of a label.
func (w *tenants) relabel(pod types.NamespacedName, label, value string) {
	w.t.Helper()
	w.patchPod(pod.Namespace, pod.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, label, value))
	labels := maps.Clone(w.pods[pod])
	labels[label] = value
	w.pods[pod] = labels
}

func (w *tenants) patchPod(namespace, name, patch string, subresources ...string) {
	w.t.Helper()
	_, err := w.core.CoreV1().Pods(namespace).Patch(w.ctx(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		w.t.Errorf("pod %s: %v", name, err)
	}
}

// identity makes one, as an agent does, unless there is one of that name. It returns
// the uid of what it made.
func (w *tenants) identity(name string, set map[string]string) types.UID {
	w.t.Helper()
	identity := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumIdentity", "metadata": map[string]any{"name": name},
	}}
	_ = unstructured.SetNestedStringMap(identity.Object, set, "security-labels")
	made, err := w.dynamic.Resource(v2.CiliumIdentityResource).Create(w.ctx(), identity, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return ""
	case err != nil:
		w.t.Error(err)
		return ""
	}
	return made.GetUID()
}

// endpoint makes what the agent tells about a pod, "" for none, that has this
// identity, 0 while the agent does not know.
func (w *tenants) endpoint(namespace, name string, pod types.UID, identity int64, ip string) types.UID {
	w.t.Helper()
	e := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint", "metadata": map[string]any{"name": name},
	}}
	if identity != 0 {
		e.Object["status"] = endpointStatus(identity, ip)
	}
	if pod != "" {
		e.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod}})
	}
	made, err := w.dynamic.Resource(v2.CiliumEndpointResource).Namespace(namespace).Create(w.ctx(), e, metav1.CreateOptions{})
	if err != nil {
		w.t.Error(err)
		return ""
	}
	return made.GetUID()
}

// hostIP is the address of all nodes.
const hostIP = "192.168.0.1"

func endpointStatus(identity int64, ip string) map[string]any {
	return map[string]any{
		"identity":   map[string]any{"id": identity},
		"networking": map[string]any{"addressing": []any{map[string]any{"ipv4": ip}}, "node": hostIP},
	}
}

// wanted are the label sets of all pods, as identities have them.
func (w *tenants) wanted() []string {
	sets := map[string]bool{}
	for pod, labels := range w.pods {
		sets[written(w.set(pod.Namespace, labels))] = true
	}
	return slices.Sorted(maps.Keys(sets))
}

// set is the label set of a pod with these labels, as agents of the newest release have it: the API server copies the topology of nodes
// to pods, and they leave it out.
func (w *tenants) set(namespace string, labels map[string]string) map[string]string {
	set := map[string]string{
		"k8s:io.cilium.k8s.policy.cluster":        w.cluster,
		"k8s:io.cilium.k8s.policy.serviceaccount": "default",
		"k8s:io.kubernetes.pod.namespace":         namespace,
	}
	for k, v := range w.namespaces[namespace] {
		set["k8s:io.cilium.k8s.namespace.labels."+k] = v
	}
	for k, v := range labels {
		if !strings.HasPrefix(k, "topology.kubernetes.io/") {
			set["k8s:"+k] = v
		}
	}
	return set
}

func written(set map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(set)) {
		fmt.Fprintf(&b, "%s=%s;", k, set[k])
	}
	return b.String()
}

func labelSet(identity *unstructured.Unstructured) string {
	set, _, _ := unstructured.NestedStringMap(identity.Object, "security-labels")
	return written(set)
}

// stands reports whether an identity stands for something: it has a number of the
// cluster, and labels that no webhook has changed.
func (w *tenants) stands(i *unstructured.Unstructured) bool {
	return w.isNumber(i.GetName()) && labelSet(i) != "" && !tampered(i)
}

func (w *tenants) isNumber(name string) bool {
	n, ok := identity.ParseNumber(name)
	return ok && w.numbers.Contains(n)
}

// identities are the label sets of all identities, by number.
func (w *tenants) identities() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, i := range w.list(v2.CiliumIdentityResource).Items {
		if w.stands(&i) {
			all[i.GetName()] = labelSet(&i)
		}
	}
	return all
}

// numbersBySet are the numbers of all identities, by label set: of several with one label
// set the oldest, then the lowest (docs/wire/identity.md, ID-18).
func (w *tenants) numbersBySet() map[string]string {
	w.t.Helper()
	all := slices.DeleteFunc(w.list(v2.CiliumIdentityResource).Items, func(i unstructured.Unstructured) bool { return !w.stands(&i) })
	slices.SortFunc(all, func(a, b unstructured.Unstructured) int {
		x, _ := identity.ParseNumber(a.GetName())
		y, _ := identity.ParseNumber(b.GetName())
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(x, y))
	})
	numbers := map[string]string{}
	for _, i := range all {
		if set := labelSet(&i); numbers[set] == "" {
			numbers[set] = i.GetName()
		}
	}
	return numbers
}

// identityOf waits for the identity of a label set of a pod.
func (w *tenants) identityOf(namespace string, labels map[string]string) (number string) {
	w.t.Helper()
	set := written(w.set(namespace, labels))
	eventually(w.t, "there is an identity of "+set, func() bool {
		for _, i := range w.list(v2.CiliumIdentityResource, "io.kubernetes.pod.namespace="+namespace).Items {
			if w.stands(&i) && labelSet(&i) == set {
				number = i.GetName()
			}
		}
		return number != ""
	})
	return number
}

// eachHasOne waits until there is one identity for each label set of a pod, and
// no other.
func (w *tenants) eachHasOne() {
	w.t.Helper()
	var has []string
	want := w.wanted()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("want\n%s\nhas\n%s", strings.Join(want, "\n"), strings.Join(has, "\n"))
		}
	}()
	eventually(w.t, fmt.Sprintf("there is one identity for each of %d label sets, and no other", len(want)), func() bool {
		has = slices.Sorted(maps.Values(w.identities()))
		return slices.Equal(has, want)
	})
}

// slicedIn are the slices that have each endpoint, by its namespace and name.
func (w *tenants) slicedIn() map[string][]string {
	w.t.Helper()
	in := map[string][]string{}
	for _, slice := range w.list(v2alpha1.CiliumEndpointSliceResource).Items {
		for _, endpoint := range endpointsOf(&slice) {
			in[endpoint] = append(in[endpoint], slice.GetName())
		}
	}
	return in
}

func entriesOf(slice *unstructured.Unstructured) []any {
	entries, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
	return entries
}

func endpointsOf(slice *unstructured.Unstructured) (names []string) {
	namespace, _, _ := unstructured.NestedString(slice.Object, "namespace")
	for _, e := range entriesOf(slice) {
		entry, _ := e.(map[string]any) // or any value that a user has written
		if name, ok, _ := unstructured.NestedString(entry, "name"); ok {
			names = append(names, namespace+"/"+name)
		}
	}
	return names
}

// registrar sees every identity that ever was, and that none changes its meaning.
// A number that was free may come to mean something else: that it does not soon is
// kept by the leader that saw it freed, and tested in cells/identity.
type registrar struct {
	*tenants

	mu    sync.Mutex
	means map[string]string // label set by number
	now   map[string]int    // identities by label set
	tally tally
}

// tally is how many identities were made, beside another of their label set, and
// deleted; and how many there were at most of one label set.
type tally struct{ made, twins, deleted, most int }

func (w *tenants) registrar() *registrar {
	w.t.Helper()
	r := &registrar{tenants: w, means: map[string]string{}, now: map[string]int{}}
	w.witness(v2.CiliumIdentityResource, r.see)
	return r
}

func (r *registrar) see(kind watch.EventType, identity *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := identity.GetName()
	before := r.means[number]
	switch {
	case kind == watch.Deleted:
		if before != "" {
			delete(r.means, number)
			r.tally.deleted++
			r.now[before]--
		}
	case r.stands(identity):
		set := labelSet(identity)
		r.means[number] = set
		if before != "" && before != set {
			r.t.Errorf("revision %s: %s means %s, and meant %s", identity.GetResourceVersion(), number, set, before)
		}
		if before == "" {
			r.tally.made++
			if r.now[set]++; r.now[set] > 1 {
				r.tally.twins++
			}
			r.tally.most = max(r.tally.most, r.now[set])
		}
	}
}

// count is what happened until now.
func (r *registrar) count() tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally
}

func (t tally) String() string {
	return fmt.Sprintf("%d identities made, %d of them beside another of the label set (of which there were at most %d), %d deleted", t.made, t.twins, t.most, t.deleted)
}

// places sees which slices each endpoint is in, and when it is in none any more.
type places struct {
	mu    sync.Mutex
	in    map[string]map[string]bool // slices that have an endpoint
	came  map[string]uint64          // when an endpoint came into a slice and was in none
	hands map[string]bool            // revisions of slices that another writer wrote, and uids of those that it deleted
	taken map[string]bool            // endpoints that another writer removed from a slice, and that are in no other since
	lost  []loss
	moves int
}

// loss is that an endpoint was in slices from one revision to another, and then in
// none.
type loss struct {
	endpoint, slice string
	since, at       uint64
}

func (l loss) String() string {
	return fmt.Sprintf("%s, since revision %d of slice %s", l.endpoint, l.at, l.slice)
}

func (w *tenants) watchPlaces() *places {
	w.t.Helper()
	p := &places{in: map[string]map[string]bool{}, came: map[string]uint64{}, hands: map[string]bool{}, taken: map[string]bool{}}
	w.witness(v2alpha1.CiliumEndpointSliceResource, p.see)
	return p
}

func (p *places) see(kind watch.EventType, slice *unstructured.Unstructured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, at, has := slice.GetName(), revisionOf(slice), endpointsOf(slice)
	hand := p.hands[slice.GetResourceVersion()]
	if kind == watch.Deleted {
		has, hand = nil, p.hands[string(slice.GetUID())]
	}
	for _, endpoint := range has {
		in := p.in[endpoint]
		if len(in) == 0 {
			in = map[string]bool{}
			p.in[endpoint], p.came[endpoint] = in, at
		}
		if !in[name] && !hand {
			delete(p.taken, endpoint)
		}
		in[name] = true
	}
	for endpoint, in := range p.in {
		if !in[name] || slices.Contains(has, endpoint) {
			continue
		}
		delete(in, name)
		if hand {
			p.taken[endpoint] = true
		}
		if len(in) == 0 {
			delete(p.in, endpoint)
		}
		switch {
		case len(in) > 0:
			p.moves++
		case !p.taken[endpoint]:
			p.lost = append(p.lost, loss{endpoint, name, p.came[endpoint], at})
		}
	}
}

// byHand writes a slice as another writer: places that endpoints lose by that are
// not counted against the operator. The write returns the revision that it made, or
// the uid of what it deleted, or nothing.
func (p *places) byHand(write func() (mark string)) {
	p.mu.Lock() // what it does is seen when it is known who did it
	defer p.mu.Unlock()
	p.hands[write()] = true
}

// show reports whether that is what has been seen last.
func (p *places) show(in map[string][]string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.EqualFunc(p.in, in, func(seen map[string]bool, names []string) bool {
		return slices.Equal(slices.Sorted(maps.Keys(seen)), slices.Sorted(slices.Values(names)))
	})
}

// moved is how often an endpoint left a slice and was in another.
func (p *places) moved() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moves
}

func (p *places) losses() []loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lost)
}
