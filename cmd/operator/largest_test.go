// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/skep-operator/skep/resources/api"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// K8S-23: the process lives within the memory of the manifests, and serves others within seconds, whatever object the API
// server accepts: the largest and most expensive one of each kind that a duty watches, one after the other. The long form is
// TestAHundredLargestObjects.
func TestLargestObjects(t *testing.T) {
	if seedtest.RaceEnabled {
		t.Skip("the race detector needs several times the memory")
	}
	l := newLargest(t)
	l.isComplete()
	l.start()
	l.servesOthers("nothing yet", servedWithin)
	l.alive()
	for _, g := range giants {
		only := os.Getenv("SKEP_LARGEST")
		if only == "" && !g.long || only != "" && strings.Contains(g.String(), only) {
			l.try(g)
		}
	}
	l.startsWith("Ingress", "CiliumNetworkPolicy")
}

// startsWith has an operator begin with the objects of some kinds, all at once. Numbers 3.1 and 3.2 of the contract's tenants.md: a policy that ends the
// process does so at each start.
func (l *largest) startsWith(kinds ...string) {
	l.t.Helper()
	if code := l.o.stop(); code != 0 {
		l.t.Fatalf("the operator ended with %d", code)
	}
	made := 0
	for i, g := range giants {
		if g.long || !slices.Contains(kinds, g.kind) {
			continue
		}
		for _, b := range g.beside {
			l.apply(b)
		}
		l.create(g, g.namespace(), fmt.Sprintf("start-%d", i), g.n)
		made++
	}
	what := fmt.Sprintf("a start with %d objects of %s", made, strings.Join(kinds, " and "))
	l.tries(what)
	if !l.begins() {
		l.t.Fatal(l.end())
	}
	l.servesOthers(what, startsWithin)
	l.rests(what, 3*mostWork)
	l.alive()
	_, peak := l.o.memory()
	if l.t.Logf("%s: peak %d MiB, CPU %.1f s", what, peak>>20, l.o.worked().Seconds()); l.o.worked() > 2*mostWork {
		l.t.Errorf("%s: it cost %s of CPU", what, l.o.worked())
	}
}

// giant makes objects of a kind as large or as expensive as the API server accepts.
type giant struct {
	resource schema.GroupVersionResource
	kind     string
	what     string
	global   bool // the kind is in no namespace
	long     bool // it is for the long form: another one of the kind costs as much
	// beside are objects that it needs.
	beside []beside
	// each are objects that the one of a number needs besides, where there are many.
	each func(i int) []beside
	// many is how many of them a crowd is, 0 for a hundred.
	many int
	// ours begins the names of objects of the operator that are edited, in place of others that are made. It writes these anew.
	ours string
	// stays says that their finalizers keep them.
	stays bool
	// n is the number of items that is tried first. It gets smaller until the API server accepts the object.
	n     int
	build func(n int) map[string]any
}

// beside is an object that an expensive one needs.
type beside struct {
	resource schema.GroupVersionResource
	object   map[string]any
}

func (g giant) String() string { return g.resource.Resource + ": " + g.what }

// name is that of the one of a number.
func (g giant) name(i int) string { return fmt.Sprint(g.ours, "giant-", i) }

// namespace is where the giants are, "" for those in none.
func (g giant) namespace() string {
	if g.global {
		return ""
	}
	return attacker
}

// largest is an operator with all duties in the memory of the manifests.
type largest struct {
	*world
	etcd       *kvstoretest.Etcd
	o          *operator
	soft, hard int64 // bytes
	args       []string
	bystander  string // another namespace
	without    string // what of others the operator does not serve, by its name among bystanders
	number     int

	mu     sync.Mutex
	killed string // why
	trying string
}

// attacker is the namespace that has all large objects.
const attacker = "attacker"

func newLargest(t *testing.T) *largest {
	t.Helper()
	w := newWorldIn(t, clustertest.Start(t))
	l := &largest{world: w, etcd: kvstoretest.Start(t, 1), bystander: "bystander"}
	for _, name := range []string{attacker, l.bystander, "cilium-secrets"} {
		if _, err := w.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitAccount(attacker)
	l.awaitAccount(l.bystander)
	balancer := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: sharedLB}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("example.com/none"), Ports: []corev1.ServicePort{{Port: 80}},
	}}
	balancer, err := w.core.CoreV1().Services(w.namespace).Create(t.Context(), balancer, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	balancer.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}} // each Ingress is written a status
	if _, err := w.core.CoreV1().Services(w.namespace).UpdateStatus(t.Context(), balancer, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	definitions := operatortest.NewDefinitions(t, w.Cluster)
	definitions.InstallGatewayAPI("standard",
		"gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants", "tlsroutes", "tcproutes", "udproutes", "listenersets", "backendtlspolicies")
	definitions.InstallGatewayAPI("experimental", "httproutes") // which have servers that are asked
	w.define("CiliumGatewayClassConfig", "ServiceExport", "ServiceImport", "CiliumNode", "CiliumEndpointSlice", "CiliumEnvoyConfig", "CiliumLoadBalancerIPPool", "CiliumNetworkPolicy")
	resources := readManifests(t).container().Resources
	l.soft, l.hard = resources.Requests.Memory().Value(), resources.Limits.Memory().Value()
	l.args = withEtcd(l.etcd,
		"--k8s-namespace="+w.namespace, "--enable-ipv6=false", "--ipam=multi-pool", "--identity-allocation-mode=crd",
		"--identity-management-mode=operator", "--enable-cilium-endpoint-slice", "--set-cilium-node-taints=true",
		"--enable-envoy-config", "--enable-ingress-controller", "--ingress-default-lb-mode=shared", "--kube-proxy-replacement=true",
		"--envoy-max-regex-program-size=0", // expressions are as large as they may be
		"--loadbalancer-l7=envoy", "--enable-gateway-api", "--enable-node-ipam", "--enable-bgp-control-plane", "--enable-ztunnel",
		"--clustermesh-config="+t.TempDir(), "--clustermesh-enable-endpoint-sync", "--clustermesh-enable-mcs-api",
	)
	return l
}

// awaitAccount waits until there can be pods in a namespace.
func (l *largest) awaitAccount(namespace string) {
	l.t.Helper()
	eventually(l.t, namespace+" has an account for pods", func() bool {
		_, err := l.core.CoreV1().ServiceAccounts(namespace).Get(l.t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
}

// isComplete holds the table to the kinds that duties watch with these options.
func (l *largest) isComplete() {
	l.t.Helper()
	has := map[string]bool{}
	for _, g := range giants {
		has[g.resource.Resource] = has[g.resource.Resource] || !g.long
	}
	for _, rule := range k8s.LeastRole("largest", l.graph(), true).Rules {
		for _, resource := range rule.Resources {
			if !slices.Contains(rule.Verbs, "watch") || has[resource] || noGiants[resource] != "" {
				continue
			}
			l.t.Errorf("%s are watched: add the largest object of that kind to giants, or to noGiants why there is none", resource)
		}
	}
	// Duties that are off with these options are in the reference.
	reference, err := os.ReadFile("../../docs/reference/rbac.md")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, row := range watchedInReference.FindAllStringSubmatch(string(reference), -1) {
		if resource := row[1]; !has[resource] && noGiants[resource] == "" {
			l.t.Errorf("%s are watched by a duty: add the largest object of that kind to giants, or to noGiants why there is none", resource)
		}
	}
}

// watchedInReference is a row of the permissions of duties.
var watchedInReference = regexp.MustCompile("(?m)^\\| `[^`]+` \\| [^|]*\\bwatch\\b[^|]* \\| `([a-z]+)")

// graph is that of an operator with the options.
func (l *largest) graph() *graph.Graph {
	l.t.Helper()
	h := hive.New("operator", withClouds, hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := errors.Join(flags.Parse(l.args), h.Configure(flags), h.Select()); err != nil {
		l.t.Fatal(err)
	}
	return h.Graph()
}

// in is where objects of a resource are made; the namespace is "" for a kind that is in none.
func (l *largest) in(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return l.dynamic.Resource(resource)
	}
	return l.dynamic.Resource(resource).Namespace(namespace)
}

// start runs the operator with the memory of the manifests.
func (l *largest) start() {
	l.t.Helper()
	// The collector has to hold the limit by itself: that the heap may grow to four times is for tests that measure nothing.
	l.launch(l.softLimit())
	go l.limit(l.o)
}

// softLimit is what the manifests have the collector hold.
func (l *largest) softLimit() string { return fmt.Sprint("GOMEMLIMIT=", l.soft) }

// launch runs the operator, and makes what others share.
func (l *largest) launch(env ...string) {
	l.t.Helper()
	l.o, _ = l.run("largest", env, l.args...)
	l.o.leads()
	l.apply(beside{gatewayAPIResource("gatewayclasses"), map[string]any{
		"metadata": map[string]any{"name": "cilium"}, "spec": map[string]any{"controllerName": "io.cilium/gateway-controller"},
	}})
	l.awaitDefinition("CiliumLoadBalancerIPPool")
	l.apply(beside{v2.CiliumLoadBalancerIPPoolResource, map[string]any{
		"metadata": map[string]any{"name": "bystanders"}, "spec": map[string]any{"blocks": []any{map[string]any{"cidr": "10.99.0.0/16"}}},
	}})
}

// limit kills an operator as the kernel does where its container has that limit: what is resident is sampled, since tests may
// not have a cgroup of their own.
func (l *largest) limit(o *operator) {
	for o.running() {
		now, peak := o.memory()
		if now <= l.hard && peak <= l.hard {
			time.Sleep(2 * time.Millisecond) // between two samples
			continue
		}
		l.mu.Lock()
		l.killed = fmt.Sprintf("%s: it has %d MiB of memory, and the limit is %d MiB", l.trying, max(now, peak)>>20, l.hard>>20)
		l.mu.Unlock()
		o.signal(syscall.SIGKILL)
		return
	}
}

// memory is what the process has resident, and the most that it had since the last reset, without the pages of its program: the
// kernel has these from a file, and drops them before it kills a process.
func (o *operator) memory() (now, peak int64) {
	var file int64
	text, _ := os.ReadFile(o.proc("status"))
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		case "RssFile:":
			file = kib << 10
		}
	}
	return now - file, peak - file
}

// forgetPeak has the peak of its memory begin now.
func (o *operator) forgetPeak() { _ = os.WriteFile(o.proc("clear_refs"), []byte("5"), 0) }

func (o *operator) proc(file string) string {
	return fmt.Sprintf("/proc/%d/%s", o.cmd.Process.Pid, file)
}

// worked is the CPU time of the process.
func (o *operator) worked() time.Duration {
	text, _ := os.ReadFile(o.proc("stat"))
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

const (
	// mostWork is the CPU time that one object may cost.
	mostWork = 10 * time.Second
	// servedWithin is how long another namespace may wait beside it.
	servedWithin = 10 * time.Second
)

// try makes an object, and has the operator work on it and serve others. Then it goes.
func (l *largest) try(g giant) {
	l.t.Helper()
	l.tries(g.String())
	l.o.forgetPeak()
	began, before := time.Now(), l.o.worked()
	for _, b := range g.beside {
		l.apply(b)
	}
	n, size := l.create(g, g.namespace(), g.name(0), g.n)
	l.servesOthers(g.String(), servedWithin)
	l.rests(g.String(), 3*mostWork)
	l.alive()
	_, peak := l.o.memory()
	work := l.o.worked() - before
	l.t.Logf("%-70s %6d items %8d bytes  peak %4d MiB  CPU %5.1f s  took %5.1f s", g, n, size, peak>>20, work.Seconds(), time.Since(began).Seconds())
	if work > mostWork {
		l.t.Errorf("%s: it cost %s of CPU", g, work)
	}
	l.delete(g, g.namespace(), g.name(0))
	for _, b := range g.beside {
		u := unstructured.Unstructured{Object: b.object}
		l.remove(b.resource, u.GetNamespace(), u.GetName())
	}
	l.clean(attacker)
	l.alive()
}

// tries says what the operator is to live with from now on.
func (l *largest) tries(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trying, l.killed = what, ""
}

// clean deletes what the operator has made for the objects: no controller of this cluster collects what has no owner any more.
func (l *largest) clean(namespace string) {
	l.t.Helper()
	for _, resource := range []schema.GroupVersionResource{v2.CiliumEnvoyConfigResource, services, endpointSlices} {
		err := l.in(resource, namespace).DeleteCollection(l.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			l.t.Error(err)
		}
	}
}

// alive fails the test if the operator has ended.
func (l *largest) alive() {
	l.t.Helper()
	if !l.o.running() {
		l.t.Fatal(l.end())
	}
}

// end is why the operator has ended.
func (l *largest) end() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed != "" {
		return l.killed
	}
	return fmt.Sprintf("%s: it has ended: %s", l.trying, l.o.cmd.ProcessState)
}

// create makes an object with as many of n items as the API server accepts, and returns how many these are, and its size.
func (l *largest) create(g giant, namespace, name string, n int) (items, size int) {
	l.t.Helper()
	for ; n > 0; n = n * 9 / 10 {
		u := &unstructured.Unstructured{Object: g.build(n)}
		u.SetGroupVersionKind(g.resource.GroupVersion().WithKind(g.kind))
		u.SetName(name)
		made, err := l.write(g, namespace, u)
		switch {
		case err == nil:
			text, _ := made.MarshalJSON()
			return n, len(text)
		case !isTooLarge(err):
			l.t.Errorf("%s with %d items: %.1000v", g, n, err)
			return 0, 0
		}
	}
	l.t.Fatalf("%s: the API server accepts none", g)
	return 0, 0
}

// write makes an object, or edits the one that the operator makes.
func (l *largest) write(g giant, namespace string, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	in := l.in(g.resource, namespace)
	if g.ours == "" {
		return in.Create(l.t.Context(), u, metav1.CreateOptions{})
	}
	text, err := u.MarshalJSON()
	if err != nil {
		l.t.Fatal(err)
	}
	var made *unstructured.Unstructured
	eventually(l.t, u.GetName()+" is there", func() bool {
		made, err = in.Patch(l.t.Context(), u.GetName(), types.MergePatchType, text, metav1.PatchOptions{})
		return !apierrors.IsNotFound(err) || !l.o.running()
	})
	return made, err
}

// delete deletes a giant, whatever its finalizers. That of the operator goes with what it is made of.
func (l *largest) delete(g giant, namespace, name string) {
	l.t.Helper()
	if g.ours != "" {
		return
	}
	l.remove(g.resource, namespace, name)
	if !g.stays {
		return
	}
	_, err := l.in(g.resource, namespace).Patch(l.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		l.t.Error(err)
	}
}

// isTooLarge reports whether the API server or etcd refused an object for its size.
func isTooLarge(err error) bool {
	if apierrors.IsRequestEntityTooLargeError(err) {
		return true
	}
	return slices.ContainsFunc([]string{"too large", "larger than max", "limit is", "Too long", "may not be more"}, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// apply makes an object that others need.
func (l *largest) apply(b beside) {
	l.t.Helper()
	u := (&unstructured.Unstructured{Object: b.object}).DeepCopy()
	if u.GetKind() == "" {
		u.SetKind(kindsBeside[b.resource.Resource])
	}
	u.SetAPIVersion(b.resource.GroupVersion().String())
	_, err := l.in(b.resource, u.GetNamespace()).Create(l.t.Context(), u, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		l.t.Fatal(err)
	}
}

func (l *largest) remove(resource schema.GroupVersionResource, namespace, name string) {
	l.t.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := l.in(resource, namespace).Delete(l.t.Context(), name, now); err != nil && !apierrors.IsNotFound(err) {
		l.t.Error(err)
	}
}

// rests waits until the process works on nothing any more, or has ended.
func (l *largest) rests(beside string, most time.Duration) {
	l.t.Helper()
	for began, quiet, last := time.Now(), 0, l.o.worked(); quiet < 3 && l.o.running(); {
		time.Sleep(60 * time.Millisecond) // a sample of its work
		now := l.o.worked()
		if quiet++; now-last > 20*time.Millisecond {
			quiet = 0
		}
		last = now
		if time.Since(began) > most {
			l.t.Errorf("%s: it still works after %s", beside, most)
			return
		}
	}
}

// servesOthers makes small objects in another namespace, waits until they are served, or the process has ended, and returns how
// long that took.
func (l *largest) servesOthers(beside string, within time.Duration) time.Duration {
	l.t.Helper()
	l.number++
	began := time.Now()
	left := slices.DeleteFunc(l.bystanders(fmt.Sprint("small-", l.number)), func(b bystander) bool { return b.what == l.without })
	for l.o.running() {
		if left = slices.DeleteFunc(left, func(b bystander) bool { return b.isServed() }); len(left) == 0 {
			break
		}
		if time.Since(began) > within {
			l.t.Errorf("%s: after %s not served in another namespace: %s", beside, within, left)
			break
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	return time.Since(began)
}

// bystander is a small object in another namespace.
type bystander struct {
	what     string
	isServed func() bool
}

func (b bystander) String() string { return b.what }

// bystanders makes one object of each kind of what operators do for people.
func (l *largest) bystanders(name string) []bystander {
	l.t.Helper()
	host := name + ".example.com"
	create := func(resource schema.GroupVersionResource, kind string, object map[string]any) {
		object["apiVersion"], object["kind"] = resource.GroupVersion().String(), kind
		u := &unstructured.Unstructured{Object: object}
		u.SetName(name)
		if _, err := l.dynamic.Resource(resource).Namespace(l.bystander).Create(l.t.Context(), u, metav1.CreateOptions{}); err != nil {
			l.t.Fatal(err)
		}
	}
	get := func(resource schema.GroupVersionResource) map[string]any {
		u, err := l.dynamic.Resource(resource).Namespace(l.bystander).Get(l.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			l.t.Fatal(err)
		}
		return u.Object
	}
	create(services, "Service", map[string]any{"metadata": map[string]any{"annotations": map[string]any{globalService: "true"}}, "spec": map[string]any{"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports(80)}})
	create(ingressResource, "Ingress", map[string]any{"spec": ingressSpec(rule(host, pathOf("/", "Prefix")))})
	create(v2.CiliumNetworkPolicyResource, "CiliumNetworkPolicy", map[string]any{"spec": map[string]any{"endpointSelector": map[string]any{}, "ingress": []any{map[string]any{}}}})
	create(gatewayAPIResource("gateways"), "Gateway", map[string]any{"spec": map[string]any{
		"gatewayClassName": "cilium", "listeners": []any{map[string]any{"name": "a", "protocol": "HTTP", "port": int64(80)}},
	}})
	pod := aPod(nil)
	pod["metadata"] = map[string]any{"labels": map[string]any{"app": name}}
	create(core("pods"), "Pod", pod)
	create(api.ServiceExportResource, "ServiceExport", map[string]any{})
	return []bystander{
		{"key of a Service", func() bool { return l.etcd.Get(serviceKeys+l.bystander+"/"+name) != nil }},
		{"Pod", func() bool { return l.hasIdentity(name) }},
		{"ServiceExport", func() bool {
			derived := derivedServiceName(types.NamespacedName{Namespace: l.bystander, Name: name})
			_, err := l.core.CoreV1().Services(l.bystander).Get(l.t.Context(), derived, metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				l.t.Fatal(err)
			}
			return err == nil
		}},
		{"Service", func() bool {
			all, _, _ := unstructured.NestedSlice(get(services), "status", "loadBalancer", "ingress")
			return len(all) > 0
		}},
		{"Ingress", func() bool { return l.sharedHas(host) }},
		{"CiliumNetworkPolicy", func() bool {
			all, _, _ := unstructured.NestedSlice(get(v2.CiliumNetworkPolicyResource), "status", "conditions")
			return len(all) > 0
		}},
		{"Gateway", func() bool {
			all, _, _ := unstructured.NestedSlice(get(gatewayAPIResource("gateways")), "status", "conditions")
			return slices.ContainsFunc(all, func(c any) bool {
				condition, _ := c.(map[string]any)
				return condition["type"] == "Accepted" && condition["status"] == "True"
			})
		}},
	}
}

// hasIdentity reports whether there is an identity for the label app of a pod in the other namespace.
func (l *largest) hasIdentity(app string) bool {
	list, err := l.dynamic.Resource(v2.CiliumIdentityResource).List(l.t.Context(), metav1.ListOptions{LabelSelector: "io.kubernetes.pod.namespace=" + l.bystander})
	return err == nil && slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool { // the kind may be new
		is, _, _ := unstructured.NestedString(u.Object, "security-labels", "k8s:app")
		return is == app
	})
}

// sharedHas reports whether the shared load balancer serves a host.
func (l *largest) sharedHas(host string) bool {
	u, err := l.dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(l.namespace).Get(l.t.Context(), sharedLB, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	if err != nil {
		l.t.Fatal(err)
	}
	text, _ := u.MarshalJSON()
	return strings.Contains(string(text), `"`+host+`"`)
}
