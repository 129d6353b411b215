// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// acme is Acme's cloud.
type acme struct {
	mu       sync.Mutex
	machines map[string]*instance
	number   int
	changes  int
	breaker  cloudtest.Breaker
}

func newAcme(ids ...string) *acme {
	a := &acme{machines: map[string]*instance{}}
	for _, id := range ids {
		a.number++
		a.machines[id] = &instance{ID: id, Interfaces: []nic{{ID: fmt.Sprintf("nic-%d", a.number), Subnet: "s", Addresses: []string{}}}, MaxInterfaces: 3, MaxAddresses: 10}
	}
	return a
}

func (a *acme) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var request struct {
		Count     int      `json:"count"`
		Addresses []string `json:"addresses"`
	}
	_ = json.NewDecoder(r.Body).Decode(&request)
	i := a.machines[r.PathValue("id")]
	switch {
	case a.breaker.Fails():
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case r.Method == http.MethodGet:
		a.list(w, r.URL.Query()["id"])
		return
	case i == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	a.changes++
	at := slices.IndexFunc(i.Interfaces, func(n nic) bool { return n.ID == r.PathValue("nic") })
	if at < 0 {
		a.number++
		i.Interfaces = append(i.Interfaces, nic{ID: fmt.Sprintf("nic-%d", a.number), Subnet: "s"})
		at = len(i.Interfaces) - 1
	}
	n := &i.Interfaces[at]
	n.Addresses = slices.DeleteFunc(slices.Clone(n.Addresses), func(address string) bool { return slices.Contains(request.Addresses, address) })
	for range request.Count {
		a.number++
		n.Addresses = append(n.Addresses, fmt.Sprintf("10.1.%d.%d", a.number/250, a.number%250))
	}
	_ = json.NewEncoder(w).Encode(n)
}

func (a *acme) list(w http.ResponseWriter, ids []string) {
	all := instances{Subnets: []subnet{{ID: "s", Free: 1000 - a.number}}}
	for id, i := range a.machines {
		if ids == nil || slices.Contains(ids, id) {
			all.Instances = append(all.Instances, *i)
		}
	}
	_ = json.NewEncoder(w).Encode(all)
}

// serve returns the URL of a cloud.
func serve(t *testing.T, a *acme) string {
	mux := http.NewServeMux()
	for _, pattern := range []string{"GET /v1/instances", "POST /v1/instances/{id}/interfaces", "/v1/instances/{id}/interfaces/{nic}/addresses"} {
		mux.Handle(pattern, a)
	}
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return front.URL
}

func (a *acme) locked(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (a *acme) changed() (n int) {
	a.locked(func() { n = a.changes })
	return n
}

// region check

func TestProvider(t *testing.T) {
	cloudtest.Check(t, func(t *testing.T) cloudtest.Subject {
		a := newAcme("i-1", "i-2")
		api := serve(t, a)
		return cloudtest.Subject{
			New:   func(d *outside.Door) cloudipam.Provider { return newProvider(Config{AcmeAPI: api}, d) },
			Node:  &cloudipam.Node{Name: "a", InstanceID: "i-1", Spec: &v2.CiliumNodeSpec{InstanceID: "i-1"}, Status: &v2.CiliumNodeStatus{}},
			Other: "i-2", Changes: a.changed, Breaker: &a.breaker,
		}
	})
}

// endregion

// Nodes get addresses, and a restart changes nothing.
func TestOperator(t *testing.T) {
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
	env.Clear(v2.CiliumNodeResource)
	nodes := env.Dynamic.Resource(v2.CiliumNodeResource)
	a := newAcme("i-1")
	api := serve(t, a)
	start := func() *operatortest.Operator {
		o := operatortest.Setup{Process: []cell.Cell{cloudipam.Cell}}.Start(t, Cell, env.Kubeconfig(), "--ipam=alibabacloud", "--acme-api="+api)
		o.Log().Wait(t, "caches synced, allocating addresses of the cloud")
		return o
	}
	o := start()
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"instance-id": "i-1"},
	}}
	if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pool := func() (map[string]any, string) {
		u, err := nodes.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pool, _, _ := unstructured.NestedMap(u.Object, "spec", "ipam", "pool")
		return pool, u.GetResourceVersion()
	}
	operatortest.Eventually(t, "the node has addresses", func() bool { has, _ := pool(); return len(has) == 8 })
	env.CheckHealthy(o)
	o.Stop()
	_, before := pool()
	o = start()
	operatortest.Eventually(t, "it is processed again", func() bool { return o.Metric("ipam_nodes", "total") == 1 && o.Metric("ipam_ips", "available") == 8 })
	if _, after := pool(); after != before || a.changed() != 1 {
		t.Errorf("a restart wrote the node, %s and then %s, or changed the cloud: %d changes", before, after, a.changed())
	}
	env.CheckHealthy(o)
}
