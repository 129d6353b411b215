// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
)

// meshUnderFaults are two remote clusters, of which one has an etcd that refuses, is silent, is slow and loses all its data, with
// Services and exports that come, go and contradict each other here and there, a Namespace that is global and ceases to be, and
// objects of the operator that are edited and deleted by hand.
type meshUnderFaults struct {
	*turmoil
	*mesh
	a, b  *peer
	door  *clustertest.Proxy // of the etcd of a
	empty string             // a snapshot of it without any key
	beats time.Time          // the last one
	terms int
	hands map[string]int
	waits []func() // repair what was garbled, in the end

	steady bool // what must stay is wanted

	mu     sync.Mutex
	states map[string]int // of objects that were seen, by resource
	count  struct{ away, slow, lost int }
}

const (
	shop  = "shop"  // is always global
	aside = "aside" // is not
	// steadyName is a service that is not touched, but for what happens to the etcds.
	steadyName = "steady"
	// passingName is one whose Service comes and goes.
	passingName = "name-0"
	mostNames   = 3 // of each namespace
	// mostByHand is less than is taken for contention (K8S-9).
	mostByHand = 2
)

func remoteClustersUnderFaults(f *turmoil) underFaults {
	m := &meshUnderFaults{turmoil: f, hands: map[string]int{}, states: map[string]int{}}
	for _, name := range []string{shop, aside} {
		if _, err := f.core.CoreV1().Namespaces().Create(f.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
	m.mesh = newMesh(f.world, f.etcd, shop, aside)
	etcd := kvstoretest.Start(f.t, 1)
	m.empty = snapshotOf(f.t, etcd)
	m.door = etcd.Proxy(f.t, etcd.Members(f.t)[0].Name)
	m.a = m.join("a", etcd, etcd.ProxyEndpoints()[0])
	m.b = m.join("b", f.etcd, f.etcd.Endpoints()[0])
	m.makeSteady()
	for _, resource := range []schema.GroupVersionResource{endpointSlices, services, api.ServiceImportResource} {
		f.follows(resource)
		f.witness(resource, func(_ watch.EventType, u *unstructured.Unstructured) { m.see(resource, u) })
	}
	return underFaults{
		name: "remote clusters",
		args: m.mesh.args(),
		churn: []func(){
			m.oneService, m.oneService, m.synchronize, m.oneExport, m.oneExport, m.oneImport, m.scope,
			m.remoteService, m.remoteService, m.remoteService, m.dropRemoteService, m.remoteExport, m.remoteExport, m.dropRemoteExport, m.garble,
			m.spoil, m.drop, m.takeOver, m.away, m.slow, m.heal, m.heal, m.refill, m.refill,
		},
		note:    m.beat,
		newTerm: m.newTerm,
		last:    m.last,
		rest:    m.rest,
		missing: m.missing,
		end:     m.end,
	}
}

// makeSteady makes a service of this cluster and both others, which has ports and a type that no other export changes.
func (m *meshUnderFaults) makeSteady() {
	m.t.Helper()
	key := types.NamespacedName{Namespace: shop, Name: steadyName}
	m.service(shop, steadyName, "10.30.0.1", true)
	m.serviceExport(shop, steadyName)
	for i, p := range m.peers {
		p.serve(key, 80, fmt.Sprintf("10.3%d.0.1", i+1), fmt.Sprintf("10.3%d.0.2", i+1))
		p.export(key, 2001+i, "ClusterSetIP", 80)
	}
}

// keep has the objects of the steady service stay, once they are there: its slices, its ServiceImport, and the derived Service
// with its address.
func (m *meshUnderFaults) keep() error {
	o, err := m.objects(shop)
	if err != nil || m.steady {
		return err
	}
	m.steady = true
	for _, slice := range o.slices {
		if slice.Labels["kubernetes.io/service-name"] == steadyName && slice.Labels[sourceCluster] != "" {
			m.want(slice.UID, "the slice "+slice.Name)
		}
	}
	m.want(o.imports[steadyName].UID, "the steady ServiceImport")
	m.want(o.services[derivedServiceName(o.key(steadyName))].UID, "the Service derived of the steady one")
	return nil
}

// see counts states of objects that are the operator's.
func (m *meshUnderFaults) see(resource schema.GroupVersionResource, u *unstructured.Unstructured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if resource == api.ServiceImportResource || u.GetLabels()[sourceCluster] != "" {
		m.states[resource.Resource]++
	}
}

// pick is a name in a namespace.
func (m *meshUnderFaults) pick() types.NamespacedName {
	return types.NamespacedName{Namespace: []string{shop, shop, aside}[m.r.IntN(3)], Name: fmt.Sprint("name-", m.r.IntN(mostNames))}
}

func (m *meshUnderFaults) peer() *peer { return m.peers[m.r.IntN(2)] }

// toggle deletes an object, or makes it.
func (m *meshUnderFaults) toggle(resource schema.GroupVersionResource, key types.NamespacedName, create func()) {
	err := m.dynamic.Resource(resource).Namespace(key.Namespace).Delete(m.t.Context(), key.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		create()
	} else if err != nil {
		m.t.Error(err)
	}
}

// oneService makes a Service, or deletes the one that no other cluster serves: where the garbage collector of Kubernetes deletes
// slices before the operator sees that the Service is gone, they are created and deleted several times, which is contention (K8S-9).
func (m *meshUnderFaults) oneService() {
	key, headless, address := m.pick(), m.r.IntN(2) == 0, fmt.Sprintf("10.30.1.%d", m.number()%200)
	create := func() { m.service(key.Namespace, key.Name, address, headless) }
	if key.Name == passingName {
		m.toggle(services, key, create)
		return
	}
	_, err := m.core.CoreV1().Services(key.Namespace).Get(m.t.Context(), key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		create()
	}
}

func (m *meshUnderFaults) oneExport() {
	key := m.pick()
	m.toggle(api.ServiceExportResource, key, func() { m.serviceExport(key.Namespace, key.Name) })
}

// oneImport deletes a ServiceImport by hand, or has a user make it.
func (m *meshUnderFaults) oneImport() {
	key, kind := m.pick(), m.kind()
	if m.byHand("import " + key.String()) {
		m.toggle(api.ServiceImportResource, key, func() { m.serviceImport(key.Namespace, key.Name, kind) })
	}
}

func (m *meshUnderFaults) kind() string { return []string{"ClusterSetIP", "Headless"}[m.r.IntN(2)] }

// synchronize has a Service get slices, or not, whatever its type is.
func (m *meshUnderFaults) synchronize() {
	key, value := m.pick(), []string{`"true"`, `"false"`, "null"}[m.r.IntN(3)]
	m.patchIfThere(services, key.Namespace, key.Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, syncedService, value))
}

// scope makes the Namespace global, or not, or says nothing that can be read.
func (m *meshUnderFaults) scope() {
	value := []string{`"true"`, `"false"`, `"false"`, `"maybe"`, "null"}[m.r.IntN(5)]
	m.patchIfThere(corev1.SchemeGroupVersion.WithResource("namespaces"), "", aside, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, globalNamespace, value))
}

func (m *meshUnderFaults) remoteService() {
	p, key, n, port := m.peer(), m.pick(), m.r.IntN(2*mostInSlice+1), []int32{80, 8080}[m.r.IntN(2)]
	var ips []string
	for _, last := range m.r.Perm(20)[:n] {
		ips = append(ips, fmt.Sprintf("10.3%d.1.%d", p.id, last+1))
	}
	if key.Name != passingName {
		p.serve(key, port, ips...)
	}
}

func (m *meshUnderFaults) dropRemoteService() {
	p, key := m.peer(), m.pick()
	delete(p.services, key)
	p.putService(key)
}

func (m *meshUnderFaults) remoteExport() {
	p, key, kind := m.peer(), m.pick(), m.kind()
	year, ports := []int{2020, 2021, 2040}[m.r.IntN(3)], [][]int32{{80}, {8080}, {80, 9090}}[m.r.IntN(3)]
	p.export(key, year, kind, ports...)
}

func (m *meshUnderFaults) dropRemoteExport() {
	p, key := m.peer(), m.pick()
	delete(p.exports, key)
	p.putExport(key)
}

// garble has a remote cluster publish what cannot be used, until the end.
func (m *meshUnderFaults) garble() {
	p, key := m.peer(), m.pick()
	value := []any{"nonsense", map[string]any{"cluster": "c1"}, []int{1}, map[string]any{"cluster": p.name, "namespace": key.Namespace, "name": key.Name, "type": "Odd", "backends": map[string]any{"x": nil}}}[m.r.IntN(4)]
	if m.r.IntN(2) == 0 {
		p.put(p.serviceKey(key), value)
	} else {
		p.put(p.exportKey(key), value)
	}
	m.waits = append(m.waits, func() { p.putService(key); p.putExport(key) })
}

// byHand reports whether an object may be edited by hand once more.
func (m *meshUnderFaults) byHand(what string) bool {
	m.hands[what]++
	return m.hands[what] <= mostByHand
}

// ours is an object of the operator, a slice of a remote cluster or a derived Service, or one that does not exist.
func (m *meshUnderFaults) ours() (resource schema.GroupVersionResource, key types.NamespacedName) {
	key, resource = m.pick(), []schema.GroupVersionResource{endpointSlices, services}[m.r.IntN(2)]
	list, err := m.dynamic.Resource(resource).Namespace(key.Namespace).List(m.t.Context(), metav1.ListOptions{LabelSelector: sourceCluster})
	if err != nil {
		m.t.Error(err)
		return resource, key
	}
	var names []string
	for _, u := range list.Items {
		if name := u.GetName(); u.GetLabels()["kubernetes.io/service-name"] != steadyName && u.GetLabels()[serviceOfSet] != steadyName {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if i, ok := one(m.r, names); ok {
		key.Name = names[i]
	}
	return resource, key
}

// spoil edits an object of the operator.
func (m *meshUnderFaults) spoil() {
	resource, key := m.ours()
	if !m.byHand("spoil " + key.String()) {
		return
	}
	patch := `{"spec":{"ports":[{"name":"odd","port":7,"protocol":"TCP"}]}}`
	if resource == endpointSlices {
		patch = `{"endpoints":[{"addresses":["10.39.0.1"]}]}`
	}
	m.patchIfThere(resource, key.Namespace, key.Name, `{"metadata":{"labels":{"by":"hand"}},`+strings.TrimPrefix(patch, "{"))
}

func (m *meshUnderFaults) drop() {
	resource, key := m.ours()
	if strings.HasPrefix(key.Name, "name-") && resource == services || !m.byHand("drop "+key.String()) {
		return
	}
	err := m.dynamic.Resource(resource).Namespace(key.Namespace).Delete(m.t.Context(), key.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		m.t.Error(err)
	}
}

// takeOver makes a ServiceImport its user's, or the operator's.
func (m *meshUnderFaults) takeOver() {
	key, value := m.pick(), []string{`"true"`, "null"}[m.r.IntN(2)]
	m.patchIfThere(api.ServiceImportResource, key.Namespace, key.Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, madeFromExports, value))
}

// away has the etcd of a refuse connections, or be silent.
func (m *meshUnderFaults) away() {
	m.count.away++
	if m.door.Refuse(m.t); m.r.IntN(2) == 0 {
		m.door.BlackHole(m.t)
	}
	m.door.Cut(m.t)
}

// slow has the etcd of a answer late.
func (m *meshUnderFaults) slow() {
	m.count.slow++
	m.door.Heal(m.t)
	m.door.Delay(m.t, 100*time.Millisecond, 300*time.Millisecond)
}

func (m *meshUnderFaults) heal() { m.door.Heal(m.t) }

// lose has the etcd of a lose all its data. It has them again when it is filled.
func (m *meshUnderFaults) lose() {
	m.count.lost++
	m.a.Restore(m.t, m.empty)
	m.a.lost = true
}

// refill has a publish again what its etcd has lost: its configuration first, and the markers last.
func (m *meshUnderFaults) refill() {
	if !m.a.lost {
		return
	}
	m.a.fill()
}

func (m *meshUnderFaults) beat() {
	if time.Since(m.beats) > 10*time.Second {
		m.beats = time.Now()
		m.a.beat()
	}
}

// newTerm has a term begin while an etcd has lost all, or refuses.
func (m *meshUnderFaults) newTerm() {
	if m.terms++; m.terms%2 == 1 {
		m.heal()
		m.lose()
	} else {
		m.away()
	}
}

func (m *meshUnderFaults) last() {
	m.heal()
	m.refill()
	for _, repair := range m.waits {
		repair()
	}
	m.waits = nil
}

func (m *meshUnderFaults) rest() error {
	if err := m.mesh.rest(); err != nil {
		return err
	}
	return m.keep()
}

func (m *meshUnderFaults) missing() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.count
	if c.away == 0 || c.slow == 0 || c.lost == 0 {
		return fmt.Errorf("the etcd of a remote cluster was away %d times, slow %d, and lost its data %d", c.away, c.slow, c.lost)
	}
	for _, resource := range []string{"endpointslices", "services", "serviceimports"} {
		if n := m.states[resource]; n < 10 {
			return fmt.Errorf("%d of 10 states of %s were seen", n, resource)
		}
	}
	return nil
}

func (m *meshUnderFaults) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.t.Logf("remote clusters: %v; states seen: %v", m.count, m.states)
}
