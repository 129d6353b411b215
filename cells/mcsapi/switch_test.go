// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/cells/servicesync"
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// startAll runs an operator that writes global Services to etcd, too.
func (w *world) startAll(args ...string) *operatortest.Operator {
	w.T.Helper()
	return operatortest.Start(w.T, cell.Set(kvstore.Cell, clustermesh.Cell, globalnamespace.Cell, Cell, servicesync.Cell), w.Kubeconfig(), w.args(args...)...)
}

// slice makes an EndpointSlice of a Service as Kubernetes does, with an endpoint for each address.
func (w *world) slice(of, name string, addresses ...string) {
	w.T.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of, discoveryv1.LabelManagedBy: kubernetesManager}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
	}
	for i, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Hostname: new(fmt.Sprintf("%s-%d", of, i)), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	if _, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) deleteSlice(name string) {
	w.T.Helper()
	if err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// follower sees each state of the EndpointSlices of a derived Service.
type follower struct {
	w       *world
	address string
	mu      sync.Mutex
	slices  map[string][]string // addresses by name
	without int                 // states without the address
	from    int64               // the revision of etcd before
	stop    func()
}

// followEndpoints counts the states in which no EndpointSlice of the derived Service has an address.
func (w *world) followEndpoints(name, address string) *follower {
	w.T.Helper()
	f := &follower{w: w, address: address, slices: map[string][]string{}, from: w.etcd.Revision()}
	of := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + derivedKey(w.key(name)).Name}
	list, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).List(w.T.Context(), of)
	if err != nil {
		w.T.Fatal(err)
	}
	for i := range list.Items {
		f.slices[list.Items[i].Name] = addressesOf(&list.Items[i])
	}
	of.ResourceVersion = list.ResourceVersion
	events, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Watch(w.T.Context(), of)
	if err != nil {
		w.T.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for e := range events.ResultChan() {
			f.see(e)
		}
	})
	f.stop = func() { events.Stop(); done.Wait() }
	w.T.Cleanup(f.stop)
	return f
}

func addressesOf(s *discoveryv1.EndpointSlice) (all []string) {
	for _, e := range s.Endpoints {
		all = append(all, e.Addresses...)
	}
	return all
}

func (f *follower) see(e watch.Event) {
	s, is := e.Object.(*discoveryv1.EndpointSlice)
	if !is {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slices[s.Name] = addressesOf(s); e.Type == watch.Deleted {
		delete(f.slices, s.Name)
	}
	if !f.has(f.address) {
		f.without++
	}
}

func (f *follower) has(address string) bool {
	for _, addresses := range f.slices {
		if slices.Contains(addresses, address) {
			return true
		}
	}
	return false
}

// await waits until the EndpointSlices of the derived Service are those of the names.
func (f *follower) await(names ...string) {
	f.w.T.Helper()
	var has []string
	defer func() {
		if f.w.T.Failed() {
			f.w.T.Logf("the EndpointSlices are %v, want %v", has, names)
		}
	}()
	operatortest.Eventually(f.w.T, "the EndpointSlices of the derived Service are as wanted", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		has = slices.Sorted(maps.Keys(f.slices))
		return slices.Equal(has, names)
	})
}

// check ends it, and checks that the address was never missing, in EndpointSlices and in etcd.
func (f *follower) check(name string) {
	f.w.T.Helper()
	if f.stop(); f.without > 0 {
		f.w.T.Errorf("%d states of the EndpointSlices are without %s", f.without, f.address)
	}
	ctx, w := f.w.T.Context(), f.w
	key := "cilium/state/services/v1/c1/" + w.Namespace + "/" + derivedKey(w.key(name)).Name
	operatortest.Eventually(w.T, "the derived Service is in etcd", func() bool { return w.etcd.Get(key) != nil })
	last := w.etcd.Get(key).ModRevision
	if last <= f.from {
		return
	}
	for response := range w.etcd.Client.Watch(ctx, key, clientv3.WithRev(f.from+1)) {
		for _, e := range response.Events {
			var value struct{ Backends map[string]any }
			_ = json.Unmarshal(e.Kv.Value, &value) // a deleted key has no backends
			if value.Backends[f.address] == nil {
				w.T.Errorf("in etcd it was without %s: %s", f.address, e.Kv.Value)
			}
			if e.Kv.ModRevision == last {
				return
			}
		}
	}
}

// left makes what an original of 1.20 leaves of the Service web, which this cluster exports: its ServiceImport, the derived Service, and
// the copy of an EndpointSlice that has the address 10.0.1.40.
func (w *world) left() (copyName string) {
	w.T.Helper()
	derived, ctx := derivedKey(w.key("web")).Name, w.T.Context()
	w.service("web", nil)
	w.slice("web", "web-1", "10.0.1.40")
	w.export("web")
	annotations := map[string]string{derivedAnnotation: derived, supportedFamilies: "IPv4"}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": imports.Resource().GroupVersion().String(), "kind": "ServiceImport", "metadata": map[string]any{"name": "web"}, "spec": specOf("ClusterSetIP"),
	}}
	u.SetAnnotations(annotations)
	i, err := w.Dynamic.Resource(imports.Resource()).Namespace(w.Namespace).Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	annotations[globalAnnotation] = "true"
	s := w.service(derived, func(s *corev1.Service) {
		s.Labels, s.Annotations, s.Spec.Selector = map[string]string{mcsv1alpha1.LabelServiceName: "web"}, annotations, nil
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: mcsv1alpha1.GroupName + "/v1alpha1", Kind: "ServiceImport", Name: "web", UID: i.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true)}}
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
		s.Spec.Ports[0].TargetPort = intstr.IntOrString{}
	})
	w.patchImport("web", fmt.Sprintf(`{"spec":{"ips":[%q]}}`, s.Spec.ClusterIP))
	source, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Get(ctx, "web-1", metav1.GetOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	of := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: derived + "-1", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: derived, UID: s.UID, Controller: new(true), BlockOwnerDeletion: new(true)}},
			Labels: map[string]string{
				discoveryv1.LabelServiceName: derived, discoveryv1.LabelManagedBy: copyManager, copyLabel: "web-1",
				mcsv1alpha1.LabelServiceName: "web", mcsv1alpha1.LabelSourceCluster: "c1",
			},
		},
		AddressType: source.AddressType, Endpoints: source.Endpoints, Ports: source.Ports,
	}
	if _, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(ctx, of, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
	return of.Name
}

// slowly has the API server answer writes late.
func (w *world) slowly() {
	w.T.Helper()
	w.Proxy.Rule(w.T, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"create", "update", "delete"}, Resources: []string{"services", "endpointslices"}}, Delay: &clustertest.Delay{For: 300 * time.Millisecond},
	})
}

// written are the names of objects of a resource that were written in the test's namespace. A view that is behind creates what exists, which is
// refused, a moment later.
func (w *world) written(resource string) (names []string) {
	w.T.Helper()
	operatortest.Eventually(w.T, "all writes are answered", func() bool {
		names = nil
		for _, r := range w.Proxy.Requests(w.T, 0) {
			if r.Namespace != w.Namespace || r.Resource != resource || !r.Mutates() {
				continue
			}
			if r.Status == 0 {
				return false
			}
			if r.Status < 300 {
				names = append(names, r.Verb+" "+r.Name)
			}
		}
		return true
	})
	return names
}

// MCS-27, MCS-40 and MCS-41; number B23 of the contract's bgp.md: what an original has left stays as it is. When an EndpointSlice takes the
// place of another one, its copy is there before the other's is deleted, however slow the API server is.
func TestSwitchFromOriginal(t *testing.T) {
	w := newWorld(t)
	first := w.left()
	f := w.followEndpoints("web", "10.0.1.40")
	w.slowly()
	o := w.startAll()
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts")
	w.slice("web", "web-2", "10.0.1.41")
	derived := derivedKey(w.key("web")).Name
	f.await(first, derived+"-2")
	if services, slices := w.written("services"), w.written("endpointslices"); len(services) > 0 || len(slices) != 1 {
		t.Errorf("writes after the switch: Services %v, EndpointSlices %v", services, slices)
	}
	held := w.Proxy.HoldWatch(t, "endpointslices", 0) // both changes are seen at once
	w.slice("web", "web-3", "10.0.1.40")
	w.deleteSlice("web-1")
	held.Remove(t)
	f.await(derived+"-2", derived+"-3")
	if d := w.derived("web"); d.Spec.Selector != nil || *d.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyPreferDualStack {
		t.Errorf("%+v", d.Spec)
	}
	f.check("web")
	w.awaitHealthy(o)
}

// MCS-17, MCS-40 and MCS-41: from a release with selectors to one with copies, and back, endpoints are there all the time. The test does what
// the controller of EndpointSlices of Kubernetes does.
func TestReleasesOfDerivedServices(t *testing.T) {
	w := newWorld(t)
	w.service("web", nil)
	w.slice("web", "web-1", "10.0.1.40")
	w.export("web")
	o := w.startAll("--cilium-release=1.17")
	derived := derivedKey(w.key("web")).Name
	w.awaitDerived("web", "has a selector", func(s *corev1.Service) bool { return s != nil && s.Spec.Selector["app"] == "web" })
	w.slice(derived, derived+"-x", "10.0.1.40")
	operatortest.Eventually(t, "etcd has the endpoint", func() bool {
		kv := w.etcd.Get("cilium/state/services/v1/c1/" + w.Namespace + "/" + derived)
		return kv != nil && len(kv.Value) > 0 && slices.Contains(backendsIn(kv.Value), "10.0.1.40")
	})
	o.Stop()

	f := w.followEndpoints("web", "10.0.1.40")
	w.slowly()
	o = w.startAll("--cilium-release=1.18")
	w.awaitDerived("web", "selects no pods", func(s *corev1.Service) bool { return maps.Equal(s.Spec.Selector, noPods) })
	f.await(derived+"-1", derived+"-x")
	empty, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Get(t.Context(), derived+"-x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	empty.Endpoints = []discoveryv1.Endpoint{}
	if _, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Update(t.Context(), empty, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitDerived("web", "has no selector", func(s *corev1.Service) bool { return len(s.Spec.Selector) == 0 })
	w.deleteSlice(derived + "-x")
	w.awaitHealthy(o)
	o.Stop()

	o = w.startAll("--cilium-release=1.17")
	w.awaitDerived("web", "has a selector", func(s *corev1.Service) bool { return s.Spec.Selector["app"] == "web" })
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts")
	w.slice(derived, derived+"-y", "10.0.1.40")
	f.await(derived + "-y")
	f.check("web")
	w.awaitHealthy(o)
}

// backendsIn are the addresses of the backends in the value of a Service in etcd.
func backendsIn(text []byte) []string {
	var value struct{ Backends map[string]any }
	_ = json.Unmarshal(text, &value)
	return slices.Collect(maps.Keys(value.Backends))
}

// MCS-27; number B16 of the contract's bgp.md: the endpoints of a headless Service keep their hostnames, in EndpointSlices and in etcd, also
// those that Kubernetes counts as ready though their pods are not (publishNotReadyAddresses).
func TestHostnames(t *testing.T) {
	w := newWorld(t)
	o := w.startAll()
	w.service("pg", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.PublishNotReadyAddresses = "None", true })
	w.slice("pg", "pg-abcde", "10.0.1.40", "10.0.1.41")
	w.export("pg")
	key := "cilium/state/services/v1/c1/" + w.Namespace + "/" + derivedKey(w.key("pg")).Name
	operatortest.Eventually(t, "etcd has both hostnames", func() bool {
		var value struct{ Hostnames map[string]string }
		if kv := w.etcd.Get(key); kv != nil {
			_ = json.Unmarshal(kv.Value, &value)
		}
		return maps.Equal(value.Hostnames, map[string]string{"10.0.1.40": "pg-0", "10.0.1.41": "pg-1"})
	})
	w.awaitHealthy(o)
}

// MCS-42; numbers B9 and B10 of the contract's bgp.md: a ServiceImport that an original has left follows the exports, and goes with the last
// one. MCS-11: one of a user stays, also after an operator has served it.
func TestImportsOfOriginals(t *testing.T) {
	w := newWorld(t)
	w.left()
	o := w.start()
	w.create(imports.Resource(), "ServiceImport", "mine", specOf("Headless"))
	w.awaitReady("mine", "True/Ready")
	s, err := w.Core.CoreV1().Services(w.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "metrics", Port: 9090})
	if _, err := w.Core.CoreV1().Services(w.Namespace).Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitImport("web", "ClusterSetIP, http 80/TCP, metrics 9090/TCP, c1")
	w.awaitDerived("web", "has both ports", func(s *corev1.Service) bool { return len(s.Spec.Ports) == 2 })
	if i, _ := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), "mine"); i.Annotations[madeHere] != ofUser {
		t.Errorf("annotations %v", i.Annotations)
	}
	w.service("mine", nil)
	w.export("mine")
	w.awaitImport("mine", "Headless, http 80/TCP, c1")
	w.delete(exports.Resource(), "web")
	w.delete(exports.Resource(), "mine")
	w.awaitImport("web", "")
	w.awaitDerived("web", "is gone", isGone)
	w.awaitImport("mine", "Headless, http 80/TCP")
	w.awaitHealthy(o)
}
