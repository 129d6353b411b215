// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

var services = corev1.SchemeGroupVersion.WithResource("services")

// An address that a Service has once is kept, over restarts, crashes and edits of the pool that
// still has it; no address is given twice, no Service of another controller is written, and a
// restart makes no mutating call.
func TestInvariant1ServicesKeepTheirAddresses(t *testing.T) {
	n := 120
	if seedtest.Soak() {
		n = 1000
	}
	w := newWorld(t)
	w.define("CiliumLoadBalancerIPPool")
	s := &addressed{world: w, given: map[types.UID]string{}, owner: map[string]types.UID{}, foreign: map[types.UID]string{}}
	s.pool(spreadOver(n / 4))
	for i := range 5 {
		s.addForeign(fmt.Sprint("foreign-", i))
	}
	s.witness(services, s.judge)

	rounds := 4
	r := rand.New(rand.NewPCG(seedtest.Seed(t), 0))
	for i := range rounds {
		o, _ := w.run(fmt.Sprint("user-", i), nil, crashLease...)
		o.leads()
		for j := range n / rounds {
			s.add(fmt.Sprintf("svc-%d-%d", i, j))
		}
		s.pool(spreadOver(n / 4 * (i + 1))) // the bounds of its block change
		if r.IntN(2) == 0 {
			o.kill()
			continue
		}
		if code := o.stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	o, _ := w.run("last", nil, crashLease...)
	o.leads() // the Services may have their addresses already
	s.served(n)
	if code := o.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	audit := w.Audit(t)
	o, _ = w.run("restarted", nil, crashLease...)
	s.pool(append(spreadOver(n), "10.77.0.0/24"))
	s.add("sentinel")
	s.served(n + 1)
	if code := o.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	others := w.requests(audit, "restarted").writes().which(func(e clustertest.AuditEvent) bool {
		return e.ObjectRef.Name != "sentinel" && e.ObjectRef.Resource != "ciliumloadbalancerippools" // the counts of the pool
	})
	if len(others) > 0 {
		t.Errorf("a restart wrote:\n%s", others)
	}
}

// spreadOver are CIDRs with a few more addresses than n.
func spreadOver(n int) (cidrs []string) {
	bits := 32
	for 1<<(32-bits) < n+4 {
		bits--
	}
	return []string{fmt.Sprintf("10.76.0.0/%d", bits)}
}

// addressed are Services whose addresses are watched.
type addressed struct {
	*world

	mu      sync.Mutex
	given   map[types.UID]string // the addresses of a Service, once it has any
	owner   map[string]types.UID // of an address
	foreign map[types.UID]string // resourceVersions of Services of another controller
}

func (s *addressed) judge(event watch.EventType, u *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if event == watch.Deleted || u.GetNamespace() != s.namespace {
		return
	}
	uid := u.GetUID()
	if strings.HasPrefix(u.GetName(), "foreign-") {
		if before := s.foreign[uid]; u.GetResourceVersion() != before {
			s.t.Errorf("Service %s of another controller is written at %s", u.GetName(), u.GetResourceVersion())
		}
		return
	}
	now := strings.Join(ipsOf(u), ",")
	if before := s.given[uid]; before != "" && now != before {
		s.t.Errorf("Service %s had %s and has %q", u.GetName(), before, now)
	}
	if now == "" {
		return
	}
	if other, taken := s.owner[now]; taken && other != uid {
		s.t.Errorf("%s is given to %s and to another Service", now, u.GetName())
	}
	s.given[uid], s.owner[now] = now, uid
}

func ipsOf(u *unstructured.Unstructured) (ips []string) {
	ingress, _, _ := unstructured.NestedSlice(u.Object, "status", "loadBalancer", "ingress")
	for _, e := range ingress {
		ips = append(ips, fmt.Sprint(e.(map[string]any)["ip"]))
	}
	return ips
}

// served waits until n Services have an address.
func (s *addressed) served(n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d Services have addresses", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.given) == n
	})
}

// pool makes the pool, or replaces its blocks.
func (s *addressed) pool(cidrs []string) {
	s.t.Helper()
	var blocks []any
	for _, c := range slices.Sorted(slices.Values(cidrs)) {
		blocks = append(blocks, map[string]any{"cidr": c})
	}
	pools := s.dynamic.Resource(v2.CiliumLoadBalancerIPPoolResource)
	const name = "invariant1"
	_, err := pools.Apply(s.t.Context(), name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v2.SchemeGroupVersion.String(), "kind": "CiliumLoadBalancerIPPool",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"blocks": blocks},
	}}, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = pools.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

func (s *addressed) add(name string) *corev1.Service {
	s.t.Helper()
	return s.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}})
}

func (s *addressed) create(service *corev1.Service) *corev1.Service {
	s.t.Helper()
	service.Spec.AllocateLoadBalancerNodePorts = ptr.To(false)
	service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	api := s.core.CoreV1().Services(s.namespace)
	made, err := api.Create(s.t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = api.Delete(context.Background(), service.Name, metav1.DeleteOptions{}) })
	return made
}

// addForeign makes a Service that another controller serves, with an address of the pool.
func (s *addressed) addForeign(name string) {
	s.t.Helper()
	made := s.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("example.com/other"),
	}})
	made.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.76.0.1"}}
	made, err := s.core.CoreV1().Services(s.namespace).UpdateStatus(s.t.Context(), made, metav1.UpdateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.foreign[made.UID] = made.ResourceVersion
}
