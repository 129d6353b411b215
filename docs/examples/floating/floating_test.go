// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// fjord is the address API.
type fjord struct {
	mu        sync.Mutex
	addresses map[string]string // by uid
	changes   int
}

func (f *fjord) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	uid := path.Base(r.URL.Path)
	switch r.Method {
	case http.MethodPut:
		f.changes++
		f.addresses[uid] = fmt.Sprintf("203.0.113.%d", f.changes)
	case http.MethodDelete:
		f.changes++
		delete(f.addresses, uid)
		return
	}
	if f.addresses[uid] == "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	fmt.Fprintf(w, `{"address":%q}`, f.addresses[uid])
}

func (f *fjord) state() (addresses map[string]string, changes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.addresses), f.changes
}

// Services get addresses, a restart writes nothing and asks for nothing, and no address is lost after a deletion.
func TestFloating(t *testing.T) {
	env := operatortest.NewEnv(t, clustertest.Shared(t))
	env.CreateNamespace()
	server := &fjord{addresses: map[string]string{}}
	front := httptest.NewServer(server)
	defer front.Close()
	services := env.Core.CoreV1().Services(env.Namespace)
	get := func(name string) *corev1.Service {
		s, err := services.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return s
	}
	var uids []types.UID
	for _, name := range []string{"a", "b", "c"} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}}
		made, err := services.Create(t.Context(), s, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uids = append(uids, made.UID)
	}

	o := operatortest.Start(t, Cell, env.Kubeconfig(), "--fjord-api="+front.URL)
	hasAddress := func(name string) bool {
		s := get(name)
		addresses, _ := server.state()
		return s != nil && len(s.Status.LoadBalancer.Ingress) == 1 && s.Status.LoadBalancer.Ingress[0].IP == addresses[string(s.UID)]
	}
	operatortest.Eventually(t, "all Services have addresses", func() bool { return hasAddress("a") && hasAddress("b") && hasAddress("c") })
	if _, changes := server.state(); changes != len(uids) {
		t.Errorf("%d changes at the address API for %d Services", changes, len(uids))
	}
	env.CheckHealthy(o)
	versions := func() (all []string) {
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, get(name).ResourceVersion)
		}
		return all
	}
	before := versions()
	o.Stop()

	again := operatortest.Start(t, Cell, env.Kubeconfig(), "--fjord-api="+front.URL)
	for _, name := range []string{"b", "c"} {
		if err := services.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	operatortest.Eventually(t, "deleted Services are gone", func() bool { return get("b") == nil && get("c") == nil })
	if addresses, changes := server.state(); len(addresses) != 1 || changes != len(uids)+2 {
		t.Errorf("addresses %v after %d changes", addresses, changes)
	}
	if after := get("a").ResourceVersion; after != before[0] {
		t.Errorf("a restart wrote Service a: %s, then %s", before[0], after)
	}
	env.CheckHealthy(again)
}
