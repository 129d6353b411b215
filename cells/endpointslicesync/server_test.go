// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// world is an API server, and remote clusters with an etcd each.
type world struct {
	*operatortest.Env
	folder string
	peers  map[string]*kvstoretest.Etcd
}

func newWorld(t *testing.T, peers ...string) *world {
	t.Helper()
	w := &world{Env: operatortest.NewEnv(t, clustertest.Shared(t)), folder: t.TempDir(), peers: map[string]*kvstoretest.Etcd{}}
	w.CreateNamespace()
	for i, name := range peers {
		w.peers[name] = kvstoretest.Start(t, 1)
		w.peers[name].Put("cilium/.heartbeat", "now", 0)
		w.peers[name].Put("cilium/cluster-config/"+name, fmt.Sprintf(`{"id":%d}`, i+2), 0)
		w.configure(name, w.peers[name].ProxyEndpoints()[0])
	}
	return w
}

// configure writes the configuration of a cluster; without an endpoint it is removed.
func (w *world) configure(name, endpoint string) {
	w.T.Helper()
	file := filepath.Join(w.folder, name)
	err := os.Remove(file)
	if endpoint != "" {
		next := filepath.Join(w.T.TempDir(), name)
		if err = os.WriteFile(next, []byte("endpoints: ["+endpoint+"]"), 0o600); err == nil {
			err = os.Rename(next, file)
		}
	}
	if err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) start(args ...string) *operatortest.Operator {
	w.T.Helper()
	return w.startAs(w.Kubeconfig(), args...)
}

func (w *world) startAs(kubeconfig string, args ...string) *operatortest.Operator {
	w.T.Helper()
	return operatortest.Start(w.T, cell.Set(clustermesh.Cell, Cell), kubeconfig, append([]string{
		"--cluster-name=here", "--cluster-id=1", "--clustermesh-enable-endpoint-sync", "--clustermesh-config=" + w.folder,
		"--clustermesh-endpoint-updates-batch-period=20ms", "--clustermesh-sync-timeout=100ms",
	}, args...)...)
}

// serve publishes the service web of the test's namespace in a cluster.
func (w *world) serve(cluster string, hostname string, ips ...string) {
	w.T.Helper()
	backends, hostnames := []string{}, []string{}
	for i, ip := range ips {
		backends = append(backends, fmt.Sprintf(`%q:{"http":{"Protocol":"TCP","Port":80}}`, ip))
		if hostname != "" {
			hostnames = append(hostnames, fmt.Sprintf(`%q:"%s-%d"`, ip, hostname, i))
		}
	}
	w.peers[cluster].Put(w.key(cluster), fmt.Sprintf(
		`{"cluster":%q,"namespace":%q,"name":"web","frontends":{},"backends":{%s},"hostnames":{%s},"includeExternal":true,"shared":true,"clusterID":2}`,
		cluster, w.Namespace, strings.Join(backends, ","), strings.Join(hostnames, ",")), 0)
}

func (w *world) key(cluster string) string {
	return "cilium/state/services/v1/" + cluster + "/" + w.Namespace + "/web"
}

// service creates the Service web, which is headless and global.
func (w *world) service() *corev1.Service {
	w.T.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{globalAnnotation: "true"}},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	s, err := w.Core.CoreV1().Services(w.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return s
}

func (w *world) annotate(text string) {
	w.T.Helper()
	if _, err := w.Core.CoreV1().Services(w.Namespace).Patch(w.T.Context(), "web", "application/merge-patch+json", []byte(`{"metadata":{"annotations":`+text+`}}`), metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) list() []discoveryv1.EndpointSlice {
	w.T.Helper()
	list, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).List(w.T.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy + "=" + manager})
	if err != nil {
		w.T.Fatal(err)
	}
	return list.Items
}

// endpoints are the endpoints of the slices: cluster ip hostname.
func (w *world) endpoints() []string {
	w.T.Helper()
	all := map[string]bool{}
	for _, s := range w.list() {
		for _, e := range s.Endpoints {
			text := s.Labels[clusterLabel] + " " + e.Addresses[0]
			if e.Hostname != nil {
				text += " " + *e.Hostname
			}
			all[text] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func (w *world) await(want ...string) {
	w.T.Helper()
	var got []string
	defer func() {
		if w.T.Failed() {
			w.T.Logf("got  %q\nwant %q", got, want)
		}
	}()
	operatortest.Eventually(w.T, "the endpoints are as wanted", func() bool { got = w.endpoints(); return slices.Equal(got, want) })
}

// ESS-E2 to ESS-E5, and ESS-14: endpoints follow the remote clusters, the annotations, and the Service, also in a Namespace that is
// not global.
func TestFollow(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.follow(w.Kubeconfig())
}

// ESS-12: the role of the original's chart is enough.
func TestRoleOfTheChart(t *testing.T) {
	role := stockchart.RoleOf(t, "all-features")
	w := newWorld(t, "a", "b")
	w.follow(w.As("stock", role...))
}

func (w *world) follow(kubeconfig string) {
	w.T.Helper()
	patch := []byte(`{"metadata":{"annotations":{"clustermesh.cilium.io/global":"false"}}}`)
	if _, err := w.Core.CoreV1().Namespaces().Patch(w.T.Context(), w.Namespace, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
	w.serve("a", "web", "10.2.0.1", "10.2.0.2")
	w.serve("b", "", "10.3.0.1")
	o := w.startAs(kubeconfig, "--clustermesh-endpoints-per-slice=2")
	w.service()
	w.await("a 10.2.0.1 web-0", "a 10.2.0.2 web-1", "b 10.3.0.1")
	w.serve("a", "", "10.2.0.2", "10.2.0.3", "10.2.0.4") // ESS-E3: no hostname is left
	w.await("a 10.2.0.2", "a 10.2.0.3", "a 10.2.0.4", "b 10.3.0.1")
	if n := len(w.list()); n != 3 {
		w.T.Errorf("%d slices", n)
	}
	operatortest.Eventually(w.T, "metrics", func() bool {
		return o.Metric("clustermesh_endpoints_desired") == 4 && o.Metric("clustermesh_desired_endpoint_slices") == 3
	})
	w.peers["b"].Delete(w.key("b"))
	w.await("a 10.2.0.2", "a 10.2.0.3", "a 10.2.0.4")
	w.annotate(`{"` + syncAnnotation + `":"false"}`) // ESS-E4
	w.await()
	w.annotate(`{"` + syncAnnotation + `":"TRUE"}`)
	w.await("a 10.2.0.2", "a 10.2.0.3", "a 10.2.0.4")
	w.configure("a", "") // ESS-E5
	w.await()
	w.configure("a", w.peers["a"].ProxyEndpoints()[0])
	w.await("a 10.2.0.2", "a 10.2.0.3", "a 10.2.0.4")
	operatortest.Eventually(w.T, "nothing is degraded", func() bool { return o.Degraded("") == "" })
	w.CheckHealthy(o)
	if err := w.Core.CoreV1().Services(w.Namespace).Delete(w.T.Context(), "web", metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
	w.await()
}

// ESS-E6, invariants 1 and 5: a restart writes nothing, with all clusters reachable or one of them lost; what a lost
// cluster has stays, and its changes arrive when it is back.
func TestLostCluster(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.serve("a", "", "10.2.0.1")
	w.serve("b", "", "10.3.0.1")
	w.service()
	o := w.start()
	w.await("a 10.2.0.1", "b 10.3.0.1")
	o.Stop()
	began, stored := w.writes(), w.stored()
	o = w.start()
	w.awaitCounted(o)
	o.Stop()

	proxy := w.peers["a"].Proxy(t, w.peers["a"].Members(t)[0].Name)
	proxy.Refuse(t)
	proxy.Cut(t)
	o = w.start()
	operatortest.Eventually(t, "a is reported", func() bool {
		return strings.Contains(o.Degraded("clustermesh.a"), "not read") || strings.Contains(o.Degraded("clustermesh.a"), "endpoint")
	})
	w.awaitCounted(o)
	if n := w.writes() - began; n > 0 {
		t.Errorf("%d writes", n)
	}
	w.serve("b", "", "10.3.0.2")
	w.await("a 10.2.0.1", "b 10.3.0.2")
	w.peers["a"].Delete(w.key("a"))
	proxy.Heal(t)
	w.await("b 10.3.0.2")
	if n := w.stored() - stored; n != 2 {
		t.Errorf("%d writes, want an update and a delete", n)
	}
}

// awaitCounted waits until the operator has reconciled the Service and its slices.
func (w *world) awaitCounted(o *operatortest.Operator) {
	w.T.Helper()
	operatortest.Eventually(w.T, "both slices are counted", func() bool { return o.Metric("clustermesh_desired_endpoint_slices") == 2 })
}

// writes are the requests that change slices of the namespace.
func (w *world) writes() (n int) {
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if r.Resource == "endpointslices" && r.Namespace == w.Namespace && r.Mutates() {
			n++
		}
	}
	return n
}

// stored are the writes that were stored: a slice whose end is not seen yet may be deleted once more.
func (w *world) stored() (n int) {
	for _, r := range w.Proxy.Answered(w.T, 0) {
		if r.Resource == "endpointslices" && r.Namespace == w.Namespace && r.Mutates() && r.Status/100 == 2 {
			n++
		}
	}
	return n
}

// ESS-9, ESS-10: what others do to a slice is undone, and slices of others are left alone.
func TestEditedAndForeign(t *testing.T) {
	w := newWorld(t, "a")
	w.serve("a", "", "10.2.0.1")
	w.service()
	foreign := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "mine", Labels: map[string]string{discoveryv1.LabelManagedBy: manager, discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.9.9.9"}}},
	}
	if _, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.await(" 10.9.9.9", "a 10.2.0.1")
	for _, s := range w.list() {
		if s.Name == "mine" {
			continue
		}
		s.Endpoints[0].Addresses[0] = "10.8.8.8"
		if _, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Update(t.Context(), &s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.await(" 10.9.9.9", "a 10.2.0.1")
		if err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.await(" 10.9.9.9", "a 10.2.0.1")
}

// ESS-19: K9 of the contract's tenants.md. A slice whose name another one has gets another name, and that one is left as it is.
func TestNamesThatOthersHave(t *testing.T) {
	w := newWorld(t, "a")
	w.serve("a", "", "10.2.0.1")
	s := w.service()
	var others []string
	for n := range 3 { // the names that the slice would have, in their order
		want := newSlice(decode[service](t, s), "a", &clustermesh.Service{}, group{family: discoveryv1.AddressTypeIPv4}, []string{"10.2.0.1"})
		taken := map[string]bool{}
		for _, name := range others {
			taken[name] = true
		}
		name := freeName(want, taken)
		other := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{}}
		if n == 1 { // which is that of another cluster
			other.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
		}
		if _, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		others = append(others, name)
	}
	w.start()
	w.await("a 10.2.0.1")
	creates := 0
	for _, r := range w.Proxy.Requests(t, 0) {
		if r.Namespace == w.Namespace && r.Verb == "create" && r.Resource == "endpointslices" {
			creates++
		}
	}
	if creates != len(others)+1 {
		t.Errorf("%d slices are created", creates)
	}
	for _, name := range others {
		if other, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil || len(other.OwnerReferences) > 0 {
			t.Errorf("%s is changed: %v, %v", name, other, err)
		}
	}
}

// ESS-9: slices that are deleted with their Service, by a garbage collector that is faster than the stream of Services, are
// not created for it once more: the operator waits for a period before it creates one.
func TestDeletedWithTheService(t *testing.T) {
	w := newWorld(t, "a")
	w.service()
	w.serve("a", "", "10.2.0.1")
	w.start("--clustermesh-endpoint-updates-batch-period=2s")
	w.await("a 10.2.0.1")
	requests, slice, deleted := w.Proxy.Answered(t, 0), w.list()[0].Name, time.Now()
	if err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Delete(t.Context(), slice, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s := w.service() // another one of the same name
	operatortest.Eventually(t, "it has a slice", func() bool {
		list := w.list()
		return len(list) == 1 && metav1.IsControlledBy(&list[0], s)
	})
	for _, r := range w.Proxy.Answered(t, requests[len(requests)-1].Seq) {
		if after := r.Received.Sub(deleted); r.Resource == "endpointslices" && r.Namespace == w.Namespace && r.Verb == "create" && after < 2*time.Second {
			t.Errorf("a slice was created %s after the one before was deleted", after)
		}
	}
}

// ESS-3: changes of a service are gathered.
func TestGathering(t *testing.T) {
	w := newWorld(t, "a")
	w.service()
	w.serve("a", "", "10.2.0.1")
	w.start("--clustermesh-endpoint-updates-batch-period=2s")
	w.await("a 10.2.0.1")
	began, since := w.writes(), time.Now()
	for i := range 20 {
		w.serve("a", "", fmt.Sprintf("10.2.1.%d", i))
		time.Sleep(time.Millisecond) // a pace, not a wait
	}
	w.await("a 10.2.1.19")
	periods := 1 + int(time.Since(since)/(2*time.Second))
	if n := w.writes() - began; n > 1+periods {
		t.Errorf("%d writes for 20 changes in %d periods", n, periods)
	}
}

// ESS-17; numbers 8.1 of the contract's tenants.md: what is left out is in health and in the metric, and comes when there is space.
func TestTooManySlices(t *testing.T) {
	w := newWorld(t, "a")
	w.service()
	w.serve("a", "", "10.2.0.1", "10.2.0.2", "10.2.0.3", "10.2.0.4", "10.2.0.5")
	o := w.start("--clustermesh-endpoints-per-slice=1", "--clustermesh-max-slices-per-service=2")
	operatortest.Eventually(t, "health says so", func() bool {
		return strings.Contains(o.Degraded("endpointslicesync"), "3 endpoints of 1 Services, beginning with 3 of "+w.Namespace+"/web") && o.Metric("clustermesh_left_out_endpoints") == 3
	})
	operatortest.Eventually(t, "two slices", func() bool { return len(w.list()) == 2 })
	w.serve("a", "", "10.2.0.4", "10.2.0.5")
	operatortest.Eventually(t, "the others have slices", func() bool {
		return o.Degraded("endpointslicesync") == "" && len(w.list()) == 2 && o.Metric("clustermesh_left_out_endpoints") == 0
	})
	w.CheckHealthy(o)
}
