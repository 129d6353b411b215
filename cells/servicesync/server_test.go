// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

const (
	folder1  = "cilium/state/services/v1/cluster1/"
	marker1  = "cilium/synced/cluster1/cilium/state/services/v1"
	exports1 = "cilium/synced/cluster1/cilium/state/serviceexports/v1"

	proxyName = "service.kubernetes.io/service-proxy-name"
)

// world is a real API server and an etcd of the test's own. Services of other tests do not count: those of the test have
// a proxy of their own.
type world struct {
	*operatortest.Env
	etcd *kvstoretest.Etcd
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{operatortest.NewEnv(t, clustertest.Shared(t)), kvstoretest.Start(t, 1)}
	w.CreateNamespace()
	return w
}

// start runs an operator of cluster1.
func (w *world) start(args ...string) *operatortest.Operator {
	w.T.Helper()
	return w.startAs("cluster1", "1", args...)
}

func (w *world) startAs(name, id string, args ...string) *operatortest.Operator {
	w.T.Helper()
	return operatortest.Start(w.T, cell.Set(kvstore.Cell, Cell), w.Kubeconfig(), w.args(name, id, args...)...)
}

func (w *world) args(name, id string, args ...string) []string {
	return append([]string{
		"--kvstore=etcd", "--kvstore-opt=etcd.qps=10000,etcd.address=" + w.etcd.Endpoints()[0], "--identity-allocation-mode=crd",
		"--cluster-name=" + name, "--cluster-id=" + id, "--k8s-service-proxy-name=" + w.proxy(),
	}, args...)
}

// proxy is the value of the label that selects the test's Services.
func (w *world) proxy() string { return w.Namespace }

var global = map[string]string{globalAnnotation: "true"}

// service creates a Service with the port 80/http.
func (w *world) service(name string, annotations map[string]string, change func(*corev1.Service)) *corev1.Service {
	w.T.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"app": name, proxyName: w.proxy()}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	if change != nil {
		change(s)
	}
	s, err := w.Core.CoreV1().Services(w.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return s
}

func (w *world) annotate(service, text string) {
	w.T.Helper()
	w.patch(service, `{"metadata":{"annotations":`+text+`}}`)
}

func (w *world) patch(service, patch string) {
	w.T.Helper()
	if _, err := w.Core.CoreV1().Services(w.Namespace).Patch(w.T.Context(), service, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) deleteService(name string) {
	w.T.Helper()
	if err := w.Core.CoreV1().Services(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// slice creates an EndpointSlice of a Service with the port 8080/http.
func (w *world) slice(name, service string, change func(*discoveryv1.EndpointSlice), addresses ...string) {
	w.T.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	if change != nil {
		change(s)
	}
	if _, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// key is a Service's key in cluster1, as etcd's own client reads it; nil if it does not exist.
func (w *world) key(service string) *mvccpb.KeyValue {
	return w.etcd.Get(folder1 + w.Namespace + "/" + service)
}

// value is the value of a Service's key; "" if it does not exist.
func (w *world) value(service string) string {
	if kv := w.key(service); kv != nil {
		return string(kv.Value)
	}
	return ""
}

func (w *world) awaitValue(service, want string) {
	w.T.Helper()
	operatortest.Eventually(w.T, fmt.Sprintf("%s is %q", service, want), func() bool { return w.value(service) == want })
}

func (w *world) awaitMarker() *mvccpb.KeyValue {
	w.T.Helper()
	operatortest.Eventually(w.T, "the synced marker", func() bool { return w.etcd.Get(marker1) != nil })
	return w.etcd.Get(marker1)
}

// json is the value of a Service that slice and service make.
func (w *world) json(s *corev1.Service, backends string) string {
	return fmt.Sprintf(`{"cluster":"cluster1","namespace":%q,"name":%q,"frontends":{%q:{"http":{"Protocol":"TCP","Port":80}}},"backends":{%s},`+
		`"labels":{"app":%q,%q:%q},"selector":{},"includeExternal":true,"shared":true,"clusterID":1}`,
		w.Namespace, s.Name, s.Spec.ClusterIP, backends, s.Name, proxyName, w.proxy())
}

// at is a backend of the port 8080/http.
func at(ip string) string { return fmt.Sprintf(`%q:{"http":{"Protocol":"TCP","Port":8080}}`, ip) }

// SSYNC-E1 to SSYNC-E10, on a real API server and a real etcd.
func TestExamples(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.start() // charts from 1.18 on do not have enable-k8s-terminating-endpoint
	marker := w.awaitMarker()
	if _, err := time.Parse(time.RFC3339, string(marker.Value)); err != nil || marker.Lease == 0 {
		t.Errorf("the marker is %q on lease %x", marker.Value, marker.Lease)
	}
	operatortest.Eventually(t, "the marker of the service exports", func() bool { return w.etcd.Get(exports1) != nil })
	t.Run("examples", func(t *testing.T) {
		t.Run("1", func(t *testing.T) {
			t.Parallel()
			s := w.service("echo", global, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "none-of-these"} })
			w.slice("echo-x", "echo", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = new("echo-0") }, "10.0.1.5")
			w.awaitValue("echo", strings.NewReplacer(
				`"cluster1","namespace":"test"`, fmt.Sprintf(`"cluster1","namespace":%q`, w.Namespace), "10.96.0.10", s.Spec.ClusterIP,
				`"labels":{"app":"echo"}`, fmt.Sprintf(`"labels":{"app":"echo",%q:%q}`, proxyName, w.proxy()), `"selector":{"app":"echo"}`, `"selector":{"app":"none-of-these"}`,
			).Replace(echo))
			if ttl, err := w.etcd.Client.TimeToLive(t.Context(), clientv3.LeaseID(w.key("echo").Lease)); err != nil || ttl.GrantedTTL != 900 {
				t.Errorf("the lease: %+v, %v", ttl, err)
			}
		})
		t.Run("2 to 4, 10 and un-shared", func(t *testing.T) {
			t.Parallel()
			s := w.service("flip", nil, nil)
			w.slice("flip-x", "flip", nil, "10.0.1.6")
			want := w.json(s, at("10.0.1.6"))
			for _, step := range []struct{ annotations, value string }{
				{`{"service.cilium.io/global":"True"}`, want},
				{`{"service.cilium.io/shared":"false"}`, ""},
				{`{"service.cilium.io/shared":"true"}`, want},
				{`{"service.cilium.io/shared":null,"service.cilium.io/global":null,"io.cilium/global-service":"true"}`, want},
				{`{"service.cilium.io/global":"false"}`, ""},
				{`{"service.cilium.io/global":"true"}`, want},
			} {
				w.annotate("flip", step.annotations)
				w.awaitValue("flip", step.value)
			}
			before := w.key("flip").ModRevision // SSYNC-E10
			w.annotate("flip", `{"unrelated":"x"}`)
			w.service("flip-probe", global, nil)
			operatortest.Eventually(t, "a later Service is exported", func() bool { return w.key("flip-probe") != nil })
			if after := w.key("flip").ModRevision; after != before {
				t.Errorf("the key was written at %d, after %d", after, before)
			}
			// SSYNC-2; number 21 of the contract's service-sync.md: a Service that becomes an ExternalName loses its key, also when its slices are gone.
			if err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Delete(t.Context(), "flip-x", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			w.awaitValue("flip", w.json(s, "")) // SSYNC-9
			w.patch("flip", `{"spec":{"type":"ExternalName","externalName":"example.com","clusterIP":null,"clusterIPs":null}}`)
			w.awaitValue("flip", "")
			w.deleteService("flip-probe")
			operatortest.Eventually(t, "a deleted Service has no key", func() bool { return w.key("flip-probe") == nil })
		})
		t.Run("5", func(t *testing.T) {
			t.Parallel()
			s := w.service("headless", global, func(s *corev1.Service) { s.Spec.ClusterIP = "None" })
			w.slice("headless-x", "headless", nil, "10.0.1.7", "10.0.1.8")
			w.awaitValue("headless", strings.Replace(w.json(s, at("10.0.1.7")+","+at("10.0.1.8")), `"frontends":{"None":{"http":{"Protocol":"TCP","Port":80}}}`, `"frontends":{}`, 1))
		})
		t.Run("6 and 8", func(t *testing.T) {
			t.Parallel()
			s := w.service("ports", global, nil)
			w.slice("ports-a", "ports", nil, "10.0.1.9")
			w.slice("ports-b", "ports", func(s *discoveryv1.EndpointSlice) {
				s.Ports = []discoveryv1.EndpointPort{{Name: new("metrics"), Port: new(int32(9090))}}
			}, "10.0.1.9")
			w.slice("ports-c", "ports", func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }, "example.com")
			w.awaitValue("ports", w.json(s, `"10.0.1.9":{"http":{"Protocol":"TCP","Port":8080},"metrics":{"Protocol":"TCP","Port":9090}}`))
		})
		t.Run("7", func(t *testing.T) {
			t.Parallel()
			s := w.service("ending", global, nil)
			w.slice("ending-x", "ending", func(s *discoveryv1.EndpointSlice) {
				s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
			}, "10.0.1.10")
			w.awaitValue("ending", w.json(s, at("10.0.1.10")))
		})
		t.Run("slices of other clusters", func(t *testing.T) { // SSYNC-5
			t.Parallel()
			s := w.service("mesh", global, nil)
			w.slice("mesh-remote", "mesh", func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = meshManager }, "10.9.9.9")
			w.slice("mesh-x", "mesh", nil, "10.0.1.11")
			w.awaitValue("mesh", w.json(s, at("10.0.1.11")))
		})
		t.Run("Services of other proxies", func(t *testing.T) { // SSYNC-O2
			t.Parallel()
			w.service("other", global, func(s *corev1.Service) { s.Labels[proxyName] = "other" })
			w.service("own", global, nil)
			operatortest.Eventually(t, "a later Service is exported", func() bool { return w.key("own") != nil })
			if w.key("other") != nil {
				t.Error("a Service of another proxy is exported")
			}
		})
	})
	operatortest.Eventually(t, "etcd's health is known", func() bool { return op.Degraded("kvstore") == "" })
	w.CheckHealthy(op)
}

// mutations are the keys that an operator put or deleted, and how often.
func mutations(op *operatortest.Operator) map[string]int {
	n := map[string]int{}
	for _, write := range op.Book.Writes(0) {
		if (write.Module == "servicesync" || write.Module == "servicesync.exports") && write.Verb != "grant" {
			n[write.Verb+" "+write.Resource+"/"+write.Name]++
		}
	}
	return n
}

// SSYNC-13; SSYNC-E11 and invariant 1: a restart writes nothing where nothing changed, not even leases; what went meanwhile is
// deleted right after the initial sync, what came is written.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.service("stays", global, nil)
	w.service("goes", global, nil)
	w.slice("stays-x", "stays", nil, "10.0.1.5")
	first := w.start()
	w.awaitMarker()
	w.awaitValue("stays", w.json(s, at("10.0.1.5")))
	operatortest.Eventually(t, "the marker of the service exports", func() bool { return w.etcd.Get(exports1) != nil })
	first.Stop()

	before := w.etcd.Revision()
	second := w.start()
	operatortest.Eventually(t, "the initial sync", func() bool { return second.MetricSum("kvstore_initial_sync_completed") >= 2 })
	second.Stop()
	if n := mutations(second); len(n) > 0 {
		t.Errorf("the second operator wrote %v", n)
	}
	if after := w.etcd.Revision(); w.key("stays").ModRevision > before || w.etcd.Get(marker1).ModRevision > before {
		t.Errorf("etcd was written, from revision %d to %d", before, after)
	}

	w.deleteService("goes")
	came := w.service("came", global, nil)
	third := w.start()
	operatortest.Eventually(t, "the stale key is deleted", func() bool { return w.key("goes") == nil })
	w.awaitValue("came", w.json(came, ""))
	third.Stop()
	if w.key("stays").ModRevision > before {
		t.Error("the unchanged key was written")
	}
	if n := mutations(third); len(n) != 2 {
		t.Errorf("the third operator wrote %v", n)
	}
}

// SSYNC-17: clusters that share an etcd do not touch keys of each other, nor foreign ones, whatever they are; and keys of
// the original are taken over without a write.
func TestNeighbors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.service("web", global, nil)
	lease := w.etcd.Grant(900 * time.Second)
	name := w.Namespace + "/web"
	w.etcd.Put(folder1+name, w.json(s, ""), lease) // as the original
	w.etcd.Put(marker1, "2024-08-20T14:02:57Z", lease)
	w.etcd.Put(kvstore.HeartbeatKey, "2024-08-20T14:02:57Z", lease)
	w.etcd.Put(folder1+"gone/service", "{", lease)
	foreign := []string{
		"cilium/state/services/v1/cluster10/shop/x", "cilium/state/services/v1/cluster", "cilium/state/services/v1/cluster1", "cilium/state/services/v1/unknown/a/b",
		"cilium/state/services/v1", "cilium/state/services/v10/cluster1/a/b", "cilium/state/nodes/v1/cluster1/n",
	}
	for _, key := range foreign {
		w.etcd.Put(key, "\xff{", 0)
	}
	before := w.etcd.Revision()

	one := w.start()
	operatortest.Eventually(t, "a key of a Service that does not exist is deleted", func() bool { return w.etcd.Get(folder1+"gone/service") == nil })
	ten := w.startAs("cluster10", "10")
	folder10 := "cilium/state/services/v1/cluster10/"
	operatortest.Eventually(t, "cluster10 exports the Service", func() bool { return w.etcd.Get(folder10+name) != nil })
	operatortest.Eventually(t, "cluster10 deletes its own stale key", func() bool { return w.etcd.Get(folder10+"shop/x") == nil })
	for _, key := range foreign[1:] {
		if kv := w.etcd.Get(key); kv == nil || kv.ModRevision > before {
			t.Errorf("the foreign key %s is %v", key, kv)
		}
	}
	if kv := w.key("web"); kv.ModRevision > before || clientv3.LeaseID(kv.Lease) != lease {
		t.Errorf("the key of the original was written: %v", kv)
	}
	if kv := w.etcd.Get(marker1); kv.ModRevision > before {
		t.Errorf("the marker of the original was written: %v", kv)
	}
	key10 := w.etcd.Get(folder10 + name).ModRevision
	one.Stop()
	w.annotate("web", `{"service.cilium.io/shared":"false"}`)
	operatortest.Eventually(t, "cluster10 deletes its key", func() bool { return w.etcd.Get(folder10+name) == nil })
	if kv := w.key("web"); kv == nil || kv.ModRevision > key10 {
		t.Errorf("cluster10 touched a key of cluster1: %v", kv)
	}
	ten.Stop()
}

// annotateNamespace says whether the test's Namespace is global.
func (w *world) annotateNamespace(value string) {
	w.T.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, globalnamespace.Annotation, value)
	if _, err := w.Core.CoreV1().Namespaces().Patch(w.T.Context(), w.Namespace, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// SSYNC-19; SSYNC-E12 to SSYNC-E14: what is in a Namespace that is not global is withdrawn, and is back when it is global again, also
// by a restart with another default.
func TestGlobalNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.service("web", global, nil)
	w.service("local", nil, nil)
	w.slice("web-x", "web", nil, "10.0.1.5")
	want := w.json(s, at("10.0.1.5"))
	op := w.start()
	for _, step := range []struct{ annotation, value string }{
		{"true", want}, {"false", ""}, {"true", want}, {"False", ""}, {"TRUE", want}, {"yes", ""}, {"true", want}, {strings.Repeat("x", 200_000), ""},
	} {
		w.annotateNamespace(step.annotation)
		w.awaitValue("web", step.value)
	}
	if w.key("local") != nil {
		t.Error("a Service is exported that is not global")
	}
	w.annotateNamespace("true")
	w.awaitValue("web", want)
	before := w.key("web").ModRevision
	op.Stop()
	if _, err := w.Core.CoreV1().Namespaces().Patch(t.Context(), w.Namespace, "application/merge-patch+json", []byte(`{"metadata":{"annotations":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	op = w.start("--clustermesh-default-global-namespace=false")
	w.awaitMarker()
	w.awaitValue("web", "")
	w.annotateNamespace("TRUE")
	w.awaitValue("web", want)
	if after := w.key("web"); after.CreateRevision <= before {
		t.Errorf("the key was created at %d, and had been written at %d", after.CreateRevision, before)
	}
	if _, err := w.Core.CoreV1().Namespaces().Patch(t.Context(), w.Namespace, "application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitValue("web", "")
	operatortest.Eventually(t, "nothing is degraded", func() bool { return op.Degraded("") == "" })
	w.CheckHealthy(op)
}

// SSYNC-12 and SSYNC-20: an operator whose view of Kubernetes is empty or half complete deletes nothing, and writes nothing.
func TestIncompleteView(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.service("web", global, nil)
	w.slice("web-x", "web", nil, "10.0.1.5")
	w.annotateNamespace("true")
	const localByDefault = "--clustermesh-default-global-namespace=false"
	first := w.start(localByDefault)
	w.awaitMarker()
	want := w.json(s, at("10.0.1.5"))
	w.awaitValue("web", want)
	first.Stop()
	revision := w.key("web").ModRevision
	for _, resource := range []string{"services", "endpointslices", "namespaces"} {
		block := w.Proxy.Answer(t, http.StatusServiceUnavailable, clustertest.Match{Resources: []string{resource}})
		op := w.start(localByDefault)
		operatortest.Eventually(t, "health says that "+resource+" are missing", func() bool { return strings.Contains(op.Degraded(""), resource) })
		operatortest.Eventually(t, "etcd is reached", func() bool {
			return op.Metric("kvstore_initial_sync_completed", "write", "serviceexports/v1", "cluster1") == 1
		})
		if kv := w.key("web"); kv == nil || kv.ModRevision != revision {
			t.Errorf("without %s the key is %v", resource, kv)
		}
		block.Remove(t)
		operatortest.Eventually(t, "the initial sync", func() bool {
			return op.Metric("kvstore_initial_sync_completed", "write", "services/v1", "cluster1") == 1
		})
		if kv := w.key("web"); kv == nil || kv.ModRevision != revision {
			t.Errorf("later the key is %v", kv)
		}
		op.Stop()
	}
}

// SSYNC-12; SSYNC-E15: the marker is the last key that is written.
func TestMarkerIsLast(t *testing.T) {
	t.Parallel()
	const count = 500
	w := newWorld(t)
	for i := range count {
		w.service(fmt.Sprintf("s%d", i), global, func(s *corev1.Service) { s.Spec.ClusterIP = "None" })
	}
	before := w.ranges()
	o := w.start()
	operatortest.Eventually(t, "the initial sync", func() bool { // asking etcd for the marker would count
		return o.Metric("kvstore_initial_sync_completed", "write", "services/v1", "cluster1") == 1
	})
	marker := w.awaitMarker()
	keys, err := w.etcd.Client.Get(t.Context(), folder1, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(keys.Kvs) != count {
		t.Fatalf("%d keys, %v", len(keys.Kvs), err)
	}
	for _, kv := range keys.Kvs {
		if kv.ModRevision > marker.ModRevision || kv.Version != 1 {
			t.Errorf("%s was written at %d, %d times; the marker at %d", kv.Key, kv.ModRevision, kv.Version, marker.ModRevision)
		}
	}
	if ranges := w.ranges() - before; ranges > 100 { // pages, the marker and those of this test: none for each Service
		t.Errorf("%d reads of etcd", ranges)
	}
}

// ranges is the number of reads that etcd has answered.
func (w *world) ranges() (n int) {
	w.T.Helper()
	resp, err := http.Get(w.etcd.Endpoints()[0] + "/metrics")
	if err != nil {
		w.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.T.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "grpc_server_handled_total") && strings.Contains(line, `grpc_code="OK"`) && strings.Contains(line, `grpc_method="Range"`) {
			fields := strings.Fields(line)
			n, err = strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				w.T.Fatal(err)
			}
		}
	}
	return n
}

// SSYNC-18: without EndpointSlices by option they are read all the same, and a warning says so.
func TestEndpointSlicesInAnyCase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("echo", global, func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	w.slice("echo-1", "echo", nil, "10.0.1.5")
	o := w.start("--enable-k8s-endpoint-slice=false")
	operatortest.Eventually(t, "its backend is exported", func() bool { return strings.Contains(w.value("echo"), `"10.0.1.5"`) })
	if n := o.Log().Count(`"level":"warning"`, "reading EndpointSlices, and no Endpoints", "enable-k8s-endpoint-slice"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// SSYNC-21; K3 of the contract's tenants.md: of a Service that is larger than a key can be, as much is exported as fits; the Service has an
// Event, health names it, and the keys of others come and go.
func TestServiceLargerThanAKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	huge := w.service("huge", global, func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	const each = 1000
	for i := range 20 {
		w.slice(fmt.Sprintf("huge-%02d", i), huge.Name, func(s *discoveryv1.EndpointSlice) {
			for j := range each {
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i, j>>8, j&0xff)}, Hostname: new(fmt.Sprintf("%s-%d-%d", strings.Repeat("h", 50), i, j))})
			}
		})
	}
	gone := w.service("gone", global, func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	o := w.start()
	marker := w.awaitMarker()
	if kv := w.key(huge.Name); kv == nil || len(kv.Value) > kvstore.MaxValue || len(kv.Value) < kvstore.MaxValue/2 || kv.ModRevision > marker.ModRevision {
		t.Errorf("the key is %v", kv != nil)
	}
	operatortest.Eventually(t, "health names it", func() bool { return strings.Contains(o.Degraded("servicesync"), w.Namespace+"/huge") })
	operatortest.Eventually(t, "the Service has an Event", func() bool {
		events, err := w.Core.CoreV1().Events(w.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "BackendsNotExported" && e.InvolvedObject.UID == huge.UID
		})
	})
	w.service("new", global, func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	w.deleteService(gone.Name)
	operatortest.EventuallyWithin(t, 20*time.Second, "others come and go", func() bool { return w.key("new") != nil && w.key("gone") == nil })
	w.deleteService(huge.Name)
	operatortest.Eventually(t, "it is over", func() bool { return w.key(huge.Name) == nil && o.Degraded("servicesync") == "" })
}

const (
	sliceFolder1 = "cilium/state/endpointslices/v1/cluster1/"
	sliceMarker1 = "cilium/synced/cluster1/cilium/state/endpointslices/v1"
)

// SSYNC-24 to SSYNC-26; numbers 23 and 24 of the contract's service-sync.md, and B22 of its bgp.md: EndpointSlices of exported Services are in etcd as
// long as the Service is exported, beside Services or in their place; up to 1.19 there are none.
func TestSlicesInEtcd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slice := func(name string) *mvccpb.KeyValue { return w.etcd.Get(sliceFolder1 + w.Namespace + "/" + name) }
	w.service("echo", global, nil)
	w.slice("echo-x", "echo", nil, "10.0.1.5")
	w.service("local", nil, nil)
	w.slice("local-x", "local", nil, "10.0.1.6")
	o := w.start("--cilium-release=1.19")
	w.awaitMarker()
	o.Stop()
	if slice("echo-x") != nil || w.etcd.Get(sliceMarker1) != nil {
		t.Error("1.19 has EndpointSlices in etcd")
	}

	o = w.start()
	operatortest.Eventually(t, "the marker of EndpointSlices", func() bool { return w.etcd.Get(sliceMarker1) != nil })
	kv := slice("echo-x")
	if kv == nil || kv.Lease == 0 || slice("local-x") != nil {
		t.Fatalf("echo-x has %v, local-x %v", kv, slice("local-x"))
	}
	if e := readExported(t, kv.Value); e.ID != 1 || len(e.Endpoints) != 1 || e.Endpoints[0].Addresses[0] != "10.0.1.5" || e.Texts[fieldCluster] != "cluster1" {
		t.Errorf("echo-x has %+v", e)
	}
	w.slice("echo-y", "echo", nil, "10.0.1.7")
	operatortest.Eventually(t, "another slice", func() bool { return slice("echo-y") != nil })
	if err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Delete(t.Context(), "echo-y", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "it is deleted", func() bool { return slice("echo-y") == nil })
	w.annotate("echo", `{"service.cilium.io/shared":"false"}`)
	operatortest.Eventually(t, "a Service that is not shared has no slices", func() bool { return slice("echo-x") == nil })
	w.annotate("echo", `{"service.cilium.io/shared":"true"}`)
	operatortest.Eventually(t, "a Service that is shared again has them", func() bool { return slice("echo-x") != nil })
	o.Stop()

	before := slice("echo-x").ModRevision
	w.start("--clustermesh-service-v2=only-endpointslice")
	operatortest.Eventually(t, "Services have no keys, and no marker", func() bool { return w.key("echo") == nil && w.etcd.Get(marker1) == nil })
	if kv := slice("echo-x"); kv == nil || kv.ModRevision != before {
		t.Errorf("the slice was written again: %v, before at %d", kv, before)
	}
}
