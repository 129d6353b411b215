// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// world is an API server, an etcd of this cluster, and remote clusters with an etcd each.
type world struct {
	*operatortest.Env
	etcd   *kvstoretest.Etcd
	folder string
	peers  map[string]*kvstoretest.Etcd
}

func newWorld(t *testing.T, peers ...string) *world {
	t.Helper()
	w := &world{
		Env:  operatortest.NewEnv(t, clustertest.Shared(t), "ServiceExport", "ServiceImport"),
		etcd: kvstoretest.Start(t, 1), folder: t.TempDir(), peers: map[string]*kvstoretest.Etcd{},
	}
	w.Clear(exports.Resource(), imports.Resource())
	w.CreateNamespace()
	for i, name := range peers {
		w.peers[name] = kvstoretest.Start(t, 1)
		w.peers[name].Put("cilium/.heartbeat", "now", 0)
		w.peers[name].Put("cilium/cluster-config/"+name, fmt.Sprintf(`{"id":%d,"capabilities":{"serviceExportsEnabled":true}}`, i+2), 0)
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

// startAs runs an operator of the cluster c1.
func (w *world) startAs(kubeconfig string, args ...string) *operatortest.Operator {
	w.T.Helper()
	return operatortest.Start(w.T, cell.Set(kvstore.Cell, clustermesh.Cell, globalnamespace.Cell, Cell), kubeconfig, w.args(args...)...)
}

// asTheOriginal has the oldest export decide, and all labels and annotations of exports come here.
var asTheOriginal = []string{"--clustermesh-mcs-api-oldest-decides", "--clustermesh-mcs-api-labels=*", "--clustermesh-mcs-api-annotations=*"}

func (w *world) args(more ...string) []string {
	return append([]string{
		"--kvstore=etcd", "--kvstore-opt=etcd.qps=10000,etcd.address=" + w.etcd.Endpoints()[0], "--identity-allocation-mode=crd",
		"--cluster-name=c1", "--cluster-id=1", "--clustermesh-enable-mcs-api", "--clustermesh-config=" + w.folder,
	}, more...)
}

func (w *world) key(name string) slim.Key { return slim.Key{Namespace: w.Namespace, Name: name} }

// exportKey is the key of an export in etcd.
func (w *world) exportKey(cluster, name string) string {
	return "cilium/state/serviceexports/v1/" + cluster + "/" + w.Namespace + "/" + name
}

// value is the value of an export of this cluster in etcd, "" if there is none.
func (w *world) value(name string) string {
	if kv := w.etcd.Get(w.exportKey("c1", name)); kv != nil {
		return string(kv.Value)
	}
	return ""
}

// publish has a remote cluster export a Service, in the given year.
func (w *world) publish(cluster, name, kind string, year int, ports string) {
	w.T.Helper()
	w.peers[cluster].Put(w.exportKey(cluster, name), fmt.Sprintf(
		`{"cluster":%q,"name":%q,"namespace":%q,"exportCreationTimestamp":"%d-01-01T00:00:00Z","ports":[%s],"type":%q,"sessionAffinity":"None","other":{"a":"b"}}`,
		cluster, name, w.Namespace, year, ports, kind), 0)
}

const httpPort = `{"name":"http","protocol":"TCP","port":80}`

// service creates the Service of a name with the port 80/http, which leads to the port web of pods.
func (w *world) service(name string, change func(*corev1.Service)) *corev1.Service {
	w.T.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web")}}},
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

func (w *world) deleteService(name string) {
	w.T.Helper()
	if err := w.Core.CoreV1().Services(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// derived is the Service with the name of the derived one, nil if there is none.
func (w *world) derived(name string) *corev1.Service {
	w.T.Helper()
	s, err := w.Core.CoreV1().Services(w.Namespace).Get(w.T.Context(), derivedKey(w.key(name)).Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return s
}

// create creates a ServiceExport, or a ServiceImport with a spec.
func (w *world) create(of schema.GroupVersionResource, kind, name string, spec map[string]any) {
	w.T.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": of.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name, "annotations": map[string]any{"team": "red"}},
	}}
	if spec != nil {
		u.Object["spec"] = spec
	}
	if _, err := w.Dynamic.Resource(of).Namespace(w.Namespace).Create(w.T.Context(), u, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) export(name string) {
	w.T.Helper()
	w.create(exports.Resource(), "ServiceExport", name, nil)
}

func (w *world) delete(of schema.GroupVersionResource, name string) {
	w.T.Helper()
	if err := w.Dynamic.Resource(of).Namespace(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) patchImport(name, patch string) {
	w.T.Helper()
	if _, err := w.Dynamic.Resource(imports.Resource()).Namespace(w.Namespace).Patch(w.T.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// read reads an object; it reports whether there is one.
func read[T any](w *world, of schema.GroupVersionResource, name string) (obj T, exists bool) {
	w.T.Helper()
	u, err := w.Dynamic.Resource(of).Namespace(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return obj, false
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &obj)
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return obj, true
}

// imported is the ServiceImport of a name as text: its type, ports and clusters; "" if there is none.
func (w *world) imported(name string) string {
	w.T.Helper()
	i, exists := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), name)
	if !exists {
		return ""
	}
	parts := []string{string(i.Spec.Type)}
	for _, p := range i.Spec.Ports {
		parts = append(parts, portText(p))
	}
	for _, c := range i.Status.Clusters {
		parts = append(parts, c.Cluster)
	}
	return strings.Join(parts, ", ")
}

func (w *world) awaitImport(name, want string) {
	w.T.Helper()
	var got string
	defer func() {
		if w.T.Failed() {
			w.T.Logf("the ServiceImport %s is %q, want %q", name, got, want)
		}
	}()
	operatortest.Eventually(w.T, "the ServiceImport is as wanted", func() bool { got = w.imported(name); return got == want })
}

// conditions are those of a ServiceExport, as Type=Status/Reason.
func (w *world) conditions(name string) string {
	w.T.Helper()
	e, _ := read[mcsv1alpha1.ServiceExport](w, exports.Resource(), name)
	var texts []string
	for _, c := range e.Status.Conditions {
		texts = append(texts, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(texts, " ")
}

func (w *world) awaitConditions(name, want string) {
	w.T.Helper()
	var got string
	defer func() {
		if w.T.Failed() {
			w.T.Logf("the conditions of %s are %q, want %q", name, got, want)
		}
	}()
	operatortest.Eventually(w.T, "the conditions are as wanted", func() bool { got = w.conditions(name); return got == want })
}

// awaitReady waits until the condition of a ServiceImport is as wanted: status/reason.
func (w *world) awaitReady(name, want string) {
	w.T.Helper()
	var got string
	defer func() {
		if w.T.Failed() {
			w.T.Logf("the ServiceImport %s is %q, want %q", name, got, want)
		}
	}()
	operatortest.Eventually(w.T, "the ServiceImport is "+want, func() bool {
		i, _ := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), name)
		got = ""
		if c := meta.FindStatusCondition(i.Status.Conditions, string(mcsv1alpha1.ServiceImportConditionReady)); c != nil {
			got = string(c.Status) + "/" + c.Reason
		}
		return got == want
	})
}

// awaitDerived waits until the derived Service is as wanted, and returns it.
func (w *world) awaitDerived(name, what string, holds func(*corev1.Service) bool) (s *corev1.Service) {
	w.T.Helper()
	operatortest.Eventually(w.T, "the derived Service "+what, func() bool { s = w.derived(name); return holds(s) })
	return s
}

func exists(s *corev1.Service) bool { return s != nil }
func isGone(s *corev1.Service) bool { return s == nil }

// writes are the requests that change objects of the test's namespace.
func (w *world) writes() (n int) {
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if r.Namespace == w.Namespace && r.Mutates() {
			n++
		}
	}
	return n
}

// awaitHealthy waits until nothing is degraded, and checks that no request was forbidden.
func (w *world) awaitHealthy(o *operatortest.Operator) {
	w.T.Helper()
	operatortest.Eventually(w.T, "nothing is degraded", func() bool { return o.Degraded("") == "" })
	w.CheckHealthy(o)
}

// specOf is the spec of a ServiceImport of a user.
func specOf(kind string) map[string]any {
	return map[string]any{"type": kind, "ports": []any{map[string]any{"name": "http", "port": int64(80), "protocol": "TCP"}}}
}

// MCS-11 and MCS-16 to MCS-21; MCS-E3 to MCS-E6: a ServiceImport of a user without exports, and a Service in the way of the derived one.
func TestImportOfUser(t *testing.T) {
	w := newWorld(t)
	o := w.start("--clustermesh-config=") // MCS-1: without remote clusters
	w.create(imports.Resource(), "ServiceImport", "web", specOf("ClusterSetIP"))
	s := w.awaitDerived("web", "exists", exists)
	if a := s.Annotations; a[globalAnnotation] != "true" || a[sharedAnnotation] != "false" || a["team"] != "red" || a[supportedFamilies] != "IPv4,IPv6" || len(a) != 4 {
		t.Errorf("annotations %v", a)
	}
	if l := s.Labels; l[mcsv1alpha1.LabelServiceName] != "web" || l[mcsv1alpha1.LabelSourceCluster] != "c1" || len(l) != 2 {
		t.Errorf("labels %v", l)
	}
	if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].Kind != "ServiceImport" || s.OwnerReferences[0].Controller != nil || s.Spec.Selector != nil {
		t.Errorf("owners %v, selector %v", s.OwnerReferences, s.Spec.Selector)
	}
	addresses := func(want string) {
		t.Helper()
		operatortest.Eventually(t, "the ServiceImport has the address "+want, func() bool {
			i, _ := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), "web")
			return strings.Join(i.Spec.IPs, " ") == want && i.Annotations[derivedAnnotation] == derivedKey(w.key("web")).Name
		})
	}
	addresses(strings.Join(s.Spec.ClusterIPs, " "))
	w.awaitReady("web", "True/Ready") // MCS-31

	w.patchImport("web", `{"spec":{"type":"Headless"}}`)
	w.awaitDerived("web", "is headless", func(s *corev1.Service) bool { return s != nil && s.Spec.ClusterIP == "None" })
	addresses("")
	w.patchImport("web", `{"spec":{"type":"ClusterSetIP"},"metadata":{"annotations":{"team":null,"service.cilium.io/affinity":"local"}}}`)
	s = w.awaitDerived("web", "has an address and other annotations", func(s *corev1.Service) bool {
		return s != nil && s.Spec.ClusterIP != "None" && len(s.Annotations) == 4 && s.Annotations["service.cilium.io/affinity"] == "local"
	})
	addresses(strings.Join(s.Spec.ClusterIPs, " "))
	s.Spec.Ports[0].Port, s.Labels = 81, nil // what others change is restored, but for what makes it ours
	s.Labels = map[string]string{mcsv1alpha1.LabelServiceName: "web"}
	if _, err := w.Core.CoreV1().Services(w.Namespace).Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitDerived("web", "is restored", func(s *corev1.Service) bool { return s.Spec.Ports[0].Port == 80 && len(s.Labels) == 2 })
	w.awaitHealthy(o)
	operatortest.Eventually(t, "the metric has it", func() bool { // each reconcile sets it anew
		return o.Metric("mcsapi_serviceimport_info", w.Namespace, "web", "ClusterSetIP") == 1
	})

	// A Service of the name that is not the derived one is left alone.
	name := derivedKey(w.key("other")).Name
	w.service(name, nil)
	w.create(imports.Resource(), "ServiceImport", "other", specOf("ClusterSetIP"))
	operatortest.Eventually(t, "an Event says so", func() bool { return w.hasEvent("other", "DerivedServiceRefused", "exists and is not the derived one") })
	w.awaitReady("other", "False/Failed")
	if s := w.derived("other"); len(s.Labels)+len(s.Annotations)+len(s.OwnerReferences) > 0 {
		t.Errorf("it was written: %+v", s)
	}
	w.deleteService(name)
	w.awaitDerived("other", "is created once the other is gone", exists)
	w.awaitReady("other", "True/Ready")
	w.delete(imports.Resource(), "web")
	w.awaitDerived("web", "goes with the ServiceImport", isGone)

	// MCS-20: what the API server does not accept is said on the object.
	w.create(imports.Resource(), "ServiceImport", "none", map[string]any{"type": "ClusterSetIP", "ports": []any{}})
	operatortest.Eventually(t, "an Event says so", func() bool { return w.hasEvent("none", "DerivedServiceRefused", "does not accept") })
	w.awaitReady("none", "False/Failed")
	w.awaitHealthy(o)
}

// hasEvent reports whether an Event about an object says something.
func (w *world) hasEvent(name, reason, text string) bool {
	list, err := w.Core.CoreV1().Events(w.Namespace).List(w.T.Context(), metav1.ListOptions{})
	return err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.Name == name && e.Reason == reason && strings.Contains(e.Message, text)
	})
}

// MCS-5 to MCS-8, MCS-10, MCS-16, MCS-17, MCS-21 and MCS-22; MCS-E1, MCS-E9 and MCS-E10; invariant 1.
func TestExport(t *testing.T) {
	w := newWorld(t)
	w.follow(w.Kubeconfig(), "1.20", true)
}

// MCS-26: the role of the original's chart is enough for all but conditions and Events. MCS-17: the derived Service of 1.17.
func TestRoleOfTheChart(t *testing.T) {
	role := stockchart.RoleOf(t, "all-features")
	w := newWorld(t)
	w.follow(w.As("stock", role...), "1.17", false)
}

func (w *world) follow(kubeconfig, release string, conditions bool) {
	w.T.Helper()
	t, option := w.T, "--cilium-release="+release
	w.etcd.Put(w.exportKey("c1", "stale"), "{}", 0)
	o := w.startAs(kubeconfig, option)
	operatortest.Eventually(t, "the synced marker", func() bool { return w.etcd.Get("cilium/synced/c1/cilium/state/serviceexports/v1") != nil })
	operatortest.Eventually(t, "a stale key is deleted", func() bool { return w.value("stale") == "" })
	w.export("web")
	if conditions {
		w.awaitConditions("web", "Valid=False/NoService Ready=False/Pending")
	}
	w.service("web", nil)
	e, _ := read[mcsv1alpha1.ServiceExport](w, exports.Resource(), "web")
	want := fmt.Sprintf(`{"cluster":"c1","name":"web","namespace":%q,"exportCreationTimestamp":%q,"ports":[{"name":"http","protocol":"TCP","port":80}],"type":"ClusterSetIP","sessionAffinity":"None"}`,
		w.Namespace, e.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z"))
	if release != "1.17" { // MCS-36
		want = strings.TrimSuffix(want, "}") + `,"ipFamilies":["IPv4"],"internalTrafficPolicy":"Cluster"}`
	}
	operatortest.Eventually(t, "the key has the value "+want, func() bool { return w.value("web") == want })
	if kv := w.etcd.Get(w.exportKey("c1", "web")); kv.Lease == 0 {
		t.Error("the key has no lease")
	}
	s := w.awaitDerived("web", "exists", exists)
	if s.Annotations[sharedAnnotation] != "true" || s.Spec.Ports[0].TargetPort != intstr.FromString("web") {
		t.Errorf("%+v", s)
	}
	if selects := s.Spec.Selector["app"] == "web"; selects != (release == "1.17") || len(s.OwnerReferences) == 1 == selects { // MCS-40
		t.Errorf("selector %v, owners %v", s.Spec.Selector, s.OwnerReferences)
	}
	clusters, valid := "", ""
	if conditions {
		clusters, valid = ", c1", "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts"
	}
	w.awaitImport("web", "ClusterSetIP, http 80/TCP"+clusters)
	w.awaitConditions("web", valid)
	operatortest.Eventually(t, "the ServiceImport has the address", func() bool {
		i, _ := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), "web")
		return slices.Equal(i.Spec.IPs, []string{s.Spec.ClusterIP})
	})
	w.awaitHealthy(o)
	o.Stop()

	before, revision := w.writes(), w.etcd.Revision()
	o = w.startAs(kubeconfig, option)
	operatortest.Eventually(t, "the objects are reconciled", func() bool { return o.Metric("mcsapi_serviceimport_info", w.Namespace, "web", "ClusterSetIP") == 1 })
	w.create(imports.Resource(), "ServiceImport", "later", specOf("Headless")) // what is known is reconciled before
	w.awaitDerived("later", "exists", exists)
	operatortest.Eventually(t, "it names its Service", func() bool {
		later, _ := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), "later")
		return later.Annotations[derivedAnnotation] != ""
	})
	most := 2 // the Service, and the ServiceImport that names it
	if conditions {
		most++ // and its status
	}
	if n := w.writes() - before; n > most {
		t.Errorf("%d writes after a restart, want those of the later one", n)
	}
	if kv := w.etcd.Get(w.exportKey("c1", "web")); kv.ModRevision > revision {
		t.Error("the key was written after a restart")
	}

	w.deleteService("web")
	operatortest.Eventually(t, "the key is gone", func() bool { return w.value("web") == "" })
	w.awaitImport("web", "")
	w.awaitDerived("web", "is gone", isGone)
	if conditions {
		w.awaitConditions("web", "Valid=False/NoService Ready=False/Pending")
	}
	w.service("web", func(s *corev1.Service) { s.Spec.ClusterIP = "None" })
	w.awaitImport("web", "Headless, http 80/TCP"+clusters)
	w.awaitDerived("web", "is headless", func(s *corev1.Service) bool { return s != nil && s.Spec.ClusterIP == "None" })
	w.delete(exports.Resource(), "web")
	operatortest.Eventually(t, "the key is gone", func() bool { return w.value("web") == "" })
	w.awaitImport("web", "")
	w.awaitDerived("web", "is gone", isGone)
	w.awaitHealthy(o)
}

// MCS-10, MCS-12, MCS-13, MCS-15, MCS-23 and MCS-24; MCS-E7, MCS-E8, MCS-E11 and MCS-E12: exports of all clusters, conflicts, and a cluster that is away.
func TestClustersOfTheMesh(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.publish("a", "web", "ClusterSetIP", 2020, httpPort)
	o := w.start(asTheOriginal...)
	w.awaitImport("web", "ClusterSetIP, http 80/TCP, a")
	if s := w.awaitDerived("web", "exists", exists); s.Annotations[sharedAnnotation] != "false" {
		t.Errorf("annotations %v", s.Annotations)
	}
	w.publish("b", "web", "Headless", 2021, httpPort+`,{"name":"metrics","port":9090}`)
	w.service("web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 8080 })
	w.export("web")
	w.awaitImport("web", "ClusterSetIP, http 80/TCP, metrics 9090/TCP, a, b, c1")
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=True/PortConflict,TypeConflict")
	w.awaitDerived("web", "is shared", func(s *corev1.Service) bool {
		return s.Annotations[sharedAnnotation] == "true" && len(s.Spec.Ports) == 2
	})
	operatortest.Eventually(t, "the metrics", func() bool {
		return o.Metric("clustermesh_global_service_exports", "c1") == 1 && o.Metric("mcsapi_serviceimport_status_clusters", w.Namespace, "web") == 3
	})
	w.awaitHealthy(o)
	o.Stop()

	// a is away: what follows from its export stays, and what others export is known.
	proxy := w.peers["a"].Proxy(t, w.peers["a"].Members(t)[0].Name)
	proxy.Refuse(t)
	proxy.Cut(t)
	w.peers["a"].Delete(w.exportKey("a", "web"))
	o = w.start(append(asTheOriginal, "--clustermesh-sync-timeout=100ms")...)
	w.delete(exports.Resource(), "web")
	w.deleteService("web")
	w.awaitDerived("web", "is not shared", func(s *corev1.Service) bool { return s != nil && s.Annotations[sharedAnnotation] == "false" })
	w.awaitImport("web", "ClusterSetIP, http 80/TCP, metrics 9090/TCP, a, b")
	w.publish("b", "new", "Headless", 2022, httpPort)
	w.awaitImport("new", "Headless, http 80/TCP, b")
	w.peers["b"].Delete(w.exportKey("b", "new"))
	w.awaitImport("new", "") // a has had no part in it
	proxy.Heal(t)
	w.awaitImport("web", "Headless, http 80/TCP, metrics 9090/TCP, b") // MCS-E12
	w.awaitDerived("web", "is headless", func(s *corev1.Service) bool { return s != nil && s.Spec.ClusterIP == "None" })
	w.configure("b", "")
	w.awaitImport("web", "")
	w.awaitDerived("web", "is gone", isGone)
	w.awaitHealthy(o)
}

// MCS-14: a service of a namespace that this cluster does not have is imported when the namespace is created.
func TestNamespaceThatComes(t *testing.T) {
	w := newWorld(t, "a")
	o := w.start()
	w.publish("a", "probe", "Headless", 2020, httpPort)
	w.Namespace += "-2"
	w.publish("a", "web", "Headless", 2020, httpPort)
	operatortest.Eventually(t, "both exports are read", func() bool { return o.Metric("clustermesh_global_service_exports", "c1") == 2 })
	w.awaitHealthy(o)
	w.CreateNamespace()
	w.awaitImport("web", "Headless, http 80/TCP, a")
	w.awaitHealthy(o)
}

// annotateNamespace says whether the test's Namespace is global.
func (w *world) annotateNamespace(value string) {
	w.T.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, globalnamespace.Annotation, value)
	if _, err := w.Core.CoreV1().Namespaces().Patch(w.T.Context(), w.Namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// MCS-28, MCS-29 and MCS-30; MCS-E14 and MCS-E15: in a Namespace that is not global nothing is exported, and what others export has no
// derived Service; all is back when it is global again.
func TestGlobalNamespaces(t *testing.T) {
	w := newWorld(t, "a")
	const exported = "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts"
	o := w.start()
	w.service("web", nil)
	w.export("web")
	w.awaitConditions("web", exported)
	w.awaitDerived("web", "exists", exists)
	w.create(imports.Resource(), "ServiceImport", "mine", specOf("ClusterSetIP"))
	w.awaitDerived("mine", "exists", exists)

	w.annotateNamespace("false")
	operatortest.Eventually(t, "the key is gone", func() bool { return w.value("web") == "" })
	w.awaitConditions("web", "Valid=False/NamespaceNotGlobal Ready=False/Pending")
	w.awaitImport("web", "")
	w.awaitDerived("web", "is gone", isGone)
	w.awaitDerived("mine", "is gone", isGone)
	w.publish("a", "web", "ClusterSetIP", 2020, httpPort)
	w.awaitImport("web", "ClusterSetIP, http 80/TCP, a")
	operatortest.Eventually(t, "the ServiceImport of a user has no derived Service", func() bool {
		i, _ := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), "mine")
		return len(i.Spec.IPs) == 0 && i.Annotations[derivedAnnotation] == ""
	})
	w.awaitReady("mine", "False/NamespaceNotGlobal")
	w.awaitReady("web", "False/NamespaceNotGlobal")
	if !isGone(w.derived("web")) {
		t.Error("what others export has a derived Service")
	}
	o.Stop()

	before := w.writes() // invariant 1
	o = w.start("--clustermesh-default-global-namespace=false")
	operatortest.Eventually(t, "the objects are reconciled", func() bool { return o.Metric("mcsapi_serviceimport_info", w.Namespace, "web", "ClusterSetIP") == 1 })
	w.export("later") // what is known is reconciled before
	w.awaitConditions("later", "Valid=False/NamespaceNotGlobal Ready=False/Pending")
	if n := w.writes() - before; n > 1 {
		t.Errorf("%d writes after a restart, want that of the later one", n)
	}
	w.annotateNamespace("true")
	operatortest.Eventually(t, "the key is back", func() bool { return w.value("web") != "" })
	w.awaitDerived("web", "is shared", func(s *corev1.Service) bool { return s != nil && s.Annotations[sharedAnnotation] == "true" })
	w.awaitImport("web", "ClusterSetIP, http 80/TCP, a, c1")
	w.awaitConditions("web", exported)
	w.awaitDerived("mine", "is back", exists)
	w.awaitReady("mine", "True/Ready")
	w.annotateNamespace("truthy")
	operatortest.Eventually(t, "the key is gone", func() bool { return w.value("web") == "" })
	w.awaitDerived("web", "is gone", isGone)
	w.awaitHealthy(o)
}

// MCS-30: while Namespaces are not known nothing is withdrawn, and nothing stale is deleted.
func TestUnknownNamespaces(t *testing.T) {
	w := newWorld(t)
	const localByDefault = "--clustermesh-default-global-namespace=false"
	w.annotateNamespace("true")
	o := w.start(localByDefault)
	w.service("web", nil)
	w.export("web")
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts")
	operatortest.Eventually(t, "the Service is exported", func() bool { return w.value("web") != "" })
	o.Stop()
	before, revision := w.writes(), w.etcd.Get(w.exportKey("c1", "web")).ModRevision
	w.etcd.Put(w.exportKey("c1", "stale"), "{}", 0)
	block := w.Proxy.Answer(t, http.StatusServiceUnavailable, clustertest.Match{Resources: []string{"namespaces"}})
	o = w.start(localByDefault)
	operatortest.Eventually(t, "health says that Namespaces are missing", func() bool { return strings.Contains(o.Degraded(""), "namespaces") })
	operatortest.Eventually(t, "etcd is reached", func() bool { return o.Degraded("kvstore") == "" })
	check := func() {
		t.Helper()
		if n := w.writes() - before; n > 0 || w.derived("web") == nil {
			t.Errorf("%d writes", n)
		}
		if kv := w.etcd.Get(w.exportKey("c1", "web")); kv == nil || kv.ModRevision != revision {
			t.Errorf("the key is %v", kv)
		}
	}
	check()
	if w.value("stale") == "" {
		t.Error("a stale key was deleted")
	}
	block.Remove(t)
	operatortest.Eventually(t, "the stale key is deleted", func() bool { return w.value("stale") == "" })
	check()
	w.awaitHealthy(o)
}

// publishWith has a remote cluster export the Service web since 2020, with further fields.
func (w *world) publishWith(cluster, fields string) {
	w.T.Helper()
	w.peers[cluster].Put(w.exportKey(cluster, "web"), fmt.Sprintf(
		`{"cluster":%q,"name":"web","namespace":%q,"exportCreationTimestamp":"2020-01-01T00:00:00Z","ports":[%s],"type":"ClusterSetIP","sessionAffinity":"None",%s}`,
		cluster, w.Namespace, httpPort, fields), 0)
}

// awaitMetadata waits until the ServiceImport web and its derived Service have some labels and annotations, without those that
// this duty sets.
func (w *world) awaitMetadata(labels, annotations string) {
	w.T.Helper()
	var got []string
	defer func() {
		if w.T.Failed() {
			w.T.Logf("got %q, want %q and %q", got, labels, annotations)
		}
	}()
	without := func(m map[string]string, keys ...string) string {
		for _, key := range keys {
			delete(m, key)
		}
		return slim.MakeLabels(m).String()
	}
	operatortest.Eventually(w.T, "the labels and annotations are as wanted", func() bool {
		i, _ := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), "web")
		d := w.derived("web")
		if d == nil {
			return false
		}
		got = []string{
			without(i.Labels), without(i.Annotations, madeHere, derivedAnnotation, labelsOfExports, annotationsOfExports),
			without(d.Labels, mcsv1alpha1.LabelServiceName, mcsv1alpha1.LabelSourceCluster), without(d.Annotations, globalAnnotation, sharedAnnotation, supportedFamilies),
		}
		return slices.Equal(got, []string{labels, annotations, labels, annotations})
	})
}

// MCS-32 to MCS-35 and MESH-17; MCS-E16 and MCS-E17: labels and annotations of exports, of this cluster and of a remote one, which
// also publishes garbage.
func TestExportedMetadata(t *testing.T) {
	w := newWorld(t, "a")
	o := w.start(asTheOriginal...)
	w.service("web", nil)
	w.create(exports.Resource(), "ServiceExport", "web", map[string]any{
		"exportedLabels":      map[string]any{"tier": "one", "no label": "x", "service.kubernetes.io/service-proxy-name": "x"},
		"exportedAnnotations": map[string]any{"service.cilium.io/affinity": "local", globalAnnotation: "false"},
	})
	w.awaitMetadata("tier=one", "service.cilium.io/affinity=local")
	const want = `"sessionAffinity":"None","annotations":{"service.cilium.io/affinity":"local"},"labels":{"tier":"one"},"ipFamilies":["IPv4"],"internalTrafficPolicy":"Cluster","Annotations":{"service.cilium.io/affinity":"local"},"Labels":{"tier":"one"}}`
	operatortest.Eventually(t, "the key has them", func() bool { return strings.HasSuffix(w.value("web"), want) })
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts")
	if e, _ := read[mcsv1alpha1.ServiceExport](w, exports.Resource(), "web"); !strings.Contains(e.Status.Conditions[1].Message, "2 labels are not exported") {
		t.Errorf("the condition says %q", e.Status.Conditions[1].Message)
	}
	w.patchImport("web", `{"metadata":{"labels":{"mine":"1","tier":"edited"}}}`) // what is of a user stays, what is of exports is restored
	w.awaitMetadata("mine=1,tier=one", "service.cilium.io/affinity=local")

	w.publishWith("a", `"Labels":{"tier":"two","bad key":"x","multicluster.kubernetes.io/service-name":"x"},"annotations":{"note":"x","skep.dev/imported-from-exports":"false","`+strings.Repeat("y", 100)+`":""}`)
	w.awaitMetadata("mine=1,tier=two", "note=x")
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=True/LabelsConflict,AnnotationsConflict")
	w.publishWith("a", `"labels":{"tier":7}`) // the value before stays in effect
	operatortest.Eventually(t, "the value is counted", func() bool { return o.Metric("clustermesh_unreadable_values", "c1", "a") == 1 })
	w.awaitMetadata("mine=1,tier=two", "note=x")
	w.publishWith("a", `"labels":{"tier":"three"},"annotations":{"huge":"`+strings.Repeat("x", 500_000)+`"}`)
	w.awaitMetadata("mine=1,tier=three", "")
	w.awaitHealthy(o)
	o.Stop()

	before := w.writes() // invariant 1
	o = w.start(asTheOriginal...)
	operatortest.Eventually(t, "the export of a is known", func() bool { return o.Metric("clustermesh_global_service_exports", "c1") == 1 })
	w.create(imports.Resource(), "ServiceImport", "later", specOf("Headless"))
	w.awaitReady("later", "True/Ready")
	if n := w.writes() - before; n > 3 { // the derived Service, the ServiceImport, and its status
		t.Errorf("%d writes after a restart, want those of the later one", n)
	}
	w.peers["a"].Delete(w.exportKey("a", "web"))
	w.awaitMetadata("mine=1,tier=one", "service.cilium.io/affinity=local")
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts")
	w.awaitHealthy(o)
}

// MCS-36 to MCS-38 and MESH-17; MCS-E18 and MCS-E19: IP families and where traffic goes.
func TestExportedTraffic(t *testing.T) {
	w := newWorld(t, "a")
	o := w.start(append(asTheOriginal, "--enable-ipv6=false")...)
	w.service("web", func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution = new(corev1.ServiceInternalTrafficPolicyLocal), new("PreferClose")
	})
	w.export("web")
	operatortest.Eventually(t, "the key has them", func() bool {
		return strings.HasSuffix(w.value("web"), `"sessionAffinity":"None","ipFamilies":["IPv4"],"internalTrafficPolicy":"Local","trafficDistribution":"PreferClose"}`)
	})
	is := func(policy corev1.ServiceInternalTrafficPolicy, distribution string) func(*corev1.Service) bool {
		return func(s *corev1.Service) bool {
			has := ""
			if s != nil && s.Spec.TrafficDistribution != nil {
				has = *s.Spec.TrafficDistribution
			}
			return s != nil && *s.Spec.InternalTrafficPolicy == policy && has == distribution
		}
	}
	s := w.awaitDerived("web", "has them", is("Local", "PreferClose"))
	w.publishWith("a", `"ipFamilies":["IPv4","IPv6"]`)
	w.awaitDerived("web", "has those of the older export", is("Cluster", ""))
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=True/InternalTrafficPolicyConflict,TrafficDistributionConflict")
	w.awaitReady("web", "True/Ready")
	if i, _ := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), "web"); fmt.Sprint(i.Spec.IPFamilies) != "[IPv4]" || i.Spec.InternalTrafficPolicy != nil {
		t.Errorf("%+v", i.Spec)
	}
	w.publishWith("a", `"ipFamilies":["IPv9"],"internalTrafficPolicy":"Global","trafficDistribution":"PreferEarth"`) // none of them counts
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=True/InternalTrafficPolicyConflict,TrafficDistributionConflict")
	if is := w.derived("web"); is == nil || is.UID != s.UID {
		t.Errorf("the derived Service was created again: %v", is)
	}
	w.publishWith("a", `"ipFamilies":["IPv6"]`)
	w.awaitReady("web", "False/IPFamilyNotSupported")
	w.awaitDerived("web", "is gone", isGone)
	operatortest.Eventually(t, "an Event says so", func() bool { return w.hasEvent("web", "DerivedServiceRefused", "the IP families [IPv6]") })
	w.peers["a"].Delete(w.exportKey("a", "web"))
	w.awaitDerived("web", "is back", is("Local", "PreferClose"))
	w.awaitReady("web", "True/Ready")
	w.awaitHealthy(o)
}

// MCS-36 to MCS-38; MCS-E20; numbers B12 and B14 of the contract's bgp.md: a derived Service keeps its IP families whatever exports say, on an
// API server that has both. The ServiceImport has the addresses of those that are supported.
func TestIPFamilies(t *testing.T) {
	w := newWorld(t, "a")
	o := w.start()
	w.service("own", func(s *corev1.Service) { s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack) })
	w.export("own")
	operatortest.Eventually(t, "the key has the families", func() bool {
		return strings.HasSuffix(w.value("own"), `,"ipFamilies":["IPv4","IPv6"],"internalTrafficPolicy":"Cluster"}`)
	})
	for _, families := range []string{"", "IPv6 IPv4", "IPv4", "IPv6"} {
		w.publishWith("a", `"ipFamilies":[`+quoted(families)+`]`)
		w.awaitFamilies(families)
	}
	d := w.derived("web")
	w.awaitReady("web", "True/Ready")
	w.publishWith("a", `"ipFamilies":["IPv4"]`)
	w.awaitFamilies("IPv4")
	if is := w.derived("web"); is.UID != d.UID || is.Annotations[supportedFamilies] != "IPv4" || *is.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyPreferDualStack {
		t.Errorf("%+v", is)
	}
	w.awaitHealthy(o)
	o.Stop()

	// One of an earlier release has one IP family. It gets the other one if that is all that is supported, and keeps its address.
	w.delete(imports.Resource(), "web")
	w.awaitDerived("web", "is gone", isGone)
	w.publishWith("a", `"other":1`)
	o = w.start("--cilium-release=1.18")
	d = w.awaitDerived("web", "has one family", func(s *corev1.Service) bool { return s != nil && fmt.Sprint(s.Spec.IPFamilies) == "[IPv4]" })
	w.publishWith("a", `"ipFamilies":["IPv6"]`)
	w.awaitFamilies("IPv6")
	if is := w.derived("web"); is.UID != d.UID || is.Spec.ClusterIP != d.Spec.ClusterIP || len(is.Spec.ClusterIPs) != 2 {
		t.Errorf("%+v", is.Spec)
	}
	w.awaitReady("web", "True/Ready")
	w.awaitHealthy(o)
}

func quoted(words string) string {
	var all []string
	for word := range strings.FieldsSeq(words) {
		all = append(all, strconv.Quote(word))
	}
	return strings.Join(all, ",")
}

// awaitFamilies waits until the ServiceImport web has IP families, and the addresses of the derived Service for these: all if there are none.
func (w *world) awaitFamilies(families string) {
	w.T.Helper()
	operatortest.Eventually(w.T, "the ServiceImport has the IP families "+families+", and their addresses", func() bool {
		i, _ := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), "web")
		d := w.derived("web")
		if d == nil || fmt.Sprint(i.Spec.IPFamilies) != "["+families+"]" {
			return false
		}
		ips := d.Spec.ClusterIPs
		if families != "" {
			ips = nil
			for f := range strings.FieldsSeq(families) {
				if at := slices.Index(d.Spec.IPFamilies, corev1.IPFamily(f)); at >= 0 {
					ips = append(ips, d.Spec.ClusterIPs[at])
				}
			}
		}
		return slices.Equal(i.Spec.IPs, ips)
	})
}

// exportEndpoints exports the Service web, which has no selector, and returns its EndpointSlice of the address 192.0.2.1.
func (w *world) exportEndpoints() *discoveryv1.EndpointSlice {
	w.T.Helper()
	w.service("web", func(s *corev1.Service) { s.Spec.Selector = nil })
	source, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(w.T.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "mine", Labels: map[string]string{discoveryv1.LabelServiceName: "web", "team": "red"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Hostname: new("one")}},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	w.export("web")
	return source
}

func (w *world) copies() []discoveryv1.EndpointSlice {
	w.T.Helper()
	list, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).List(w.T.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy + "=" + copyManager})
	if err != nil {
		w.T.Fatal(err)
	}
	return list.Items
}

// awaitCopy waits for the one copy to have an address, and returns it.
func (w *world) awaitCopy(address string) (c discoveryv1.EndpointSlice) {
	w.T.Helper()
	operatortest.Eventually(w.T, "the copy has the address "+address, func() bool {
		all := w.copies()
		if len(all) == 1 {
			c = all[0]
		}
		return len(all) == 1 && c.Endpoints[0].Addresses[0] == address
	})
	return c
}

// MCS-27; MCS-E13: the EndpointSlices of a Service without a selector have copies for the derived Service.
func TestEndpointsOfUsers(t *testing.T) {
	w := newWorld(t)
	o := w.start()
	source, slices := w.exportEndpoints(), w.Core.DiscoveryV1().EndpointSlices(w.Namespace)
	c := w.awaitCopy("192.0.2.1")
	if l := c.Labels; l[discoveryv1.LabelServiceName] != derivedKey(w.key("web")).Name || l[copyLabel] != "mine" || len(l) != 5 {
		t.Errorf("labels %v", l)
	}
	if *c.Endpoints[0].Hostname != "one" || *c.Ports[0].Port != 8080 || c.OwnerReferences[0].Name != derivedKey(w.key("web")).Name {
		t.Errorf("%+v", c)
	}
	source.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.2"}}}
	if _, err := slices.Update(t.Context(), source, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitCopy("192.0.2.2")
	if err := slices.Delete(t.Context(), c.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "another copy", func() bool { all := w.copies(); return len(all) == 1 && all[0].UID != c.UID })
	w.delete(exports.Resource(), "web")
	operatortest.Eventually(t, "no copy is left", func() bool { return len(w.copies()) == 0 })
	w.awaitHealthy(o)
}

// MCS-27: a copy that the garbage collector deletes with the derived Service, faster than the stream of Services, is not created
// for it once more.
func TestCopiesDeletedWithTheirService(t *testing.T) {
	w := newWorld(t)
	o := w.start()
	w.exportEndpoints()
	c := w.awaitCopy("192.0.2.1")
	held := w.Proxy.HoldWatch(t, "services", 0)
	requests := w.Proxy.Answered(t, 0)
	if err := w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), c.OwnerReferences[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	after := func(verb, resource string) (found bool) {
		for _, r := range w.Proxy.Answered(t, requests[len(requests)-1].Seq) {
			isStored := r.Status < http.StatusMultipleChoices // a copy that the operator has not seen yet is created once more, in vain
			found = found || r.Namespace == w.Namespace && r.Verb == verb && r.Resource == resource && (isStored || verb != "create")
		}
		return found
	}
	operatortest.Eventually(t, "the copy is deleted, and the Service is asked for", func() bool { return after("get", "services") || after("create", "endpointslices") })
	if after("create", "endpointslices") {
		t.Error("a copy was created for a Service that is gone")
	}
	held.Remove(t)
	operatortest.Eventually(t, "the copy is that of another Service", func() bool {
		all := w.copies()
		return len(all) == 1 && all[0].OwnerReferences[0].UID != c.OwnerReferences[0].UID
	})
	w.awaitHealthy(o)
}
