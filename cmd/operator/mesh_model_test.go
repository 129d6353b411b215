// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// MCS-10 to MCS-42 in random meshes: three remote clusters of any release export services with any ports, types and IP families, cease to,
// and change their releases, while this cluster does so, too, under operators of other releases and options, which are stopped or killed.
// When all is quiet, what serves is reachable from this cluster (its ServiceImport and derived Service are there) and from the others (its keys
// and backends are in etcd), and the conditions of each export are what the API has. What serves all the time is never away for the others.
func TestRandomMeshes(t *testing.T) {
	rounds := 3
	if seedtest.Soak() {
		rounds = 60
	}
	m := newRandomMesh(t)
	for i := range rounds {
		m.before119, m.oldestDecides = m.r.IntN(3) == 0, m.r.IntN(2) == 0
		o, _ := m.run(fmt.Sprint("user-", i), nil, m.options()...)
		o.leads()
		for range 6 {
			for range 6 {
				m.step()
			}
			m.reports("what clusters export is there")
		}
		if m.r.IntN(3) == 0 {
			o.kill()
		} else if code := o.stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		for range 5 {
			m.step() // what a start finds
		}
	}
	m.checkSteady()
}

// randomMesh is a mesh whose clusters do what they like, but for a service that all of them export all the time.
type randomMesh struct {
	*mesh
	r *rand.Rand
	// saysFamilies are the remote clusters of 1.19 and later.
	saysFamilies map[string]bool

	mu     sync.Mutex
	steady []string // the values of the key of the Service that is derived of the steady one, each with its backends
}

func newRandomMesh(t *testing.T) *randomMesh {
	w := newWorld(t)
	m := &randomMesh{mesh: newMesh(w, kvstoretest.Start(t, 1), w.namespace), r: rand.New(rand.NewPCG(seedtest.Seed(t), 9)), saysFamilies: map[string]bool{}}
	others := kvstoretest.Start(t, 1)
	for i, name := range []string{"a", "b", "c"} {
		p := m.join(name, others, others.Endpoints()[0])
		m.saysFamilies[name] = i > 0
		p.export(m.key(steadyName), 2001+i, "ClusterSetIP", 80)
	}
	m.service(w.namespace, steadyName, "10.30.0.1", false)
	m.serviceExport(w.namespace, steadyName)
	go m.follow(m.own.Client.Watch(t.Context(), m.derivedKey(steadyName)))
	return m
}

func (m *randomMesh) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: m.namespace, Name: name}
}

// derivedKey is the key in etcd of the Service that is derived of a name.
func (m *randomMesh) derivedKey(name string) string {
	return "cilium/state/services/v1/c1/" + m.namespace + "/" + derivedServiceName(m.key(name))
}

func (m *randomMesh) options() []string {
	of := "1.20"
	if m.before119 {
		of = "1.18"
	} else if m.r.IntN(2) == 0 {
		of = "1.19"
	}
	m.t.Logf("release %s, the oldest export decides: %t", of, m.oldestDecides)
	return append(m.args(),
		"--kvstore=etcd", "--kvstore-opt=etcd.qps=10000,etcd.address="+m.own.Endpoints()[0], "--identity-allocation-mode=crd",
		"--cilium-release="+of, "--clustermesh-mcs-api-oldest-decides="+strconv.FormatBool(m.oldestDecides))
}

// step is one change of this cluster or of another one.
func (m *randomMesh) step() {
	m.t.Helper()
	name := fmt.Sprint("name-", m.r.IntN(mostNames))
	p := m.peers[m.r.IntN(len(m.peers))]
	p.beat()
	switch m.r.IntN(10) {
	case 0, 1:
		m.toggle(services, name, func() { m.anyService(name) })
	case 2:
		m.toggle(api.ServiceExportResource, name, func() { m.serviceExport(m.namespace, name) })
	case 3:
		m.toggle(api.ServiceImportResource, name, func() { m.serviceImport(m.namespace, name, m.kind()) })
	case 4, 5, 6, 7:
		p.export(m.key(name), []int{2020, 2021, 2040}[m.r.IntN(3)], m.kind(), [][]int32{{80}, {8080}, {80, 9090}}[m.r.IntN(3)]...)
		m.giveFamilies(p, m.key(name))
	case 8:
		delete(p.exports, m.key(name))
		p.putExport(m.key(name))
	case 9: // its operator is another one
		m.saysFamilies[p.name] = !m.saysFamilies[p.name]
		for of := range p.exports {
			m.giveFamilies(p, of)
		}
	}
}

func (m *randomMesh) kind() string { return []string{"ClusterSetIP", "Headless"}[m.r.IntN(2)] }

// giveFamilies has a remote cluster publish IP families of an export, if its release does.
func (m *randomMesh) giveFamilies(p *peer, of types.NamespacedName) {
	e := p.exports[of]
	e.families = nil
	if m.saysFamilies[p.name] {
		e.families = [][]string{{"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}, {"IPv6", "IPv4"}}[m.r.IntN(4)]
		if of.Name == steadyName {
			e.families = []string{"IPv4"}
		}
	}
	p.exports[of] = e
	p.putExport(of)
}

// anyService makes a Service of any type. A headless one without a selector may have two families where the API server has one.
func (m *randomMesh) anyService(name string) {
	m.t.Helper()
	address, spec := fmt.Sprintf("10.30.1.%d", 1+m.r.IntN(200)), map[string]any{"ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack"}
	switch m.r.IntN(3) {
	case 0:
		spec["clusterIP"] = corev1.ClusterIPNone
	case 1:
		spec = map[string]any{"clusterIP": corev1.ClusterIPNone, "ipFamilies": []any{"IPv4", "IPv6"}, "ipFamilyPolicy": "RequireDualStack"}
	}
	m.serviceOf(m.namespace, name, address, spec)
}

// toggle deletes an object, or makes it.
func (m *randomMesh) toggle(resource schema.GroupVersionResource, name string, create func()) {
	m.t.Helper()
	err := m.dynamic.Resource(resource).Namespace(m.namespace).Delete(m.t.Context(), name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		create()
	} else if err != nil {
		m.t.Error(err)
	}
}

// reports waits until all follows from what clusters export.
func (m *randomMesh) reports(what string) {
	m.t.Helper()
	eventually(m.t, what, func() bool {
		m.last = errors.Join(m.rest(), m.servicesRest())
		return m.last == nil
	})
}

// servicesRest: each Service of this cluster that others may reach is in etcd, with the endpoints of this cluster, and no other one is.
func (m *randomMesh) servicesRest() error {
	o, err := m.objects(m.namespace)
	if err != nil {
		return err
	}
	want, has := map[string]string{}, map[string]string{}
	for name, s := range o.services {
		if s.Annotations[globalService] == "true" && s.Annotations[sharedService] != "false" {
			want[name] = fmt.Sprint(o.backends(name))
		}
	}
	folder := "cilium/state/services/v1/c1/" + m.namespace + "/"
	resp, err := m.own.Client.Get(m.t.Context(), folder, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		has[string(kv.Key)[len(folder):]] = fmt.Sprint(backendsOf(kv.Value))
	}
	if !maps.Equal(has, want) {
		return fmt.Errorf("the Services in etcd are %v, and are to be %v", has, want)
	}
	return nil
}

// backends are the addresses of this cluster's endpoints of a Service.
func (o *meshObjects) backends(name string) (all []string) {
	for _, slice := range o.slices {
		if slice.Labels[discoveryv1.LabelServiceName] == name && slice.Labels[discoveryv1.LabelManagedBy] != meshManager {
			for _, e := range slice.Endpoints {
				all = append(all, e.Addresses...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// backendsOf are the addresses of the backends in the value of a Service.
func backendsOf(value []byte) []string {
	var s struct{ Backends map[string]any }
	_ = json.Unmarshal(value, &s) // what is no JSON has none
	return slices.Sorted(maps.Keys(s.Backends))
}

// follow keeps the states of the key of the steady service.
func (m *randomMesh) follow(events clientv3.WatchChan) {
	for resp := range events {
		m.mu.Lock()
		for _, e := range resp.Events {
			m.steady = append(m.steady, fmt.Sprint(backendsOf(e.Kv.Value)))
		}
		m.mu.Unlock()
	}
}

// checkSteady checks that the endpoint of the steady service was there for other clusters from the time on at which it came.
func (m *randomMesh) checkSteady() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	states := slices.Clone(m.steady)
	if i := slices.Index(states, "[10.30.0.1]"); i < 0 || slices.ContainsFunc(states[i:], func(s string) bool { return s != "[10.30.0.1]" }) {
		m.t.Errorf("the backends of the steady service in etcd were %q", states)
	}
}
