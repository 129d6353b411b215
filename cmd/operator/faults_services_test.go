// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// servicesUnderFaults are Services that come, go, and become those of another type, pools that come, go and are edited,
// and a status that is edited by hand.
type servicesUnderFaults struct {
	*turmoil
	names []string

	mu      sync.Mutex
	has     map[types.UID]netip.Addr // of Services that get their addresses here
	foreign map[types.UID]string     // resourceVersions of Services of another controller
	emptied map[string]string        // what Services lost, by resourceVersion
	hands   map[string]bool          // resourceVersions that the test wrote
	given   int
}

const (
	mainPool, sidePool = "main", "side"
	mostServices       = 20
	foreignClass       = "example.com/other"
)

// mainBlock stays in the main pool: a Service that has an address of it keeps that.
var mainBlock = netip.MustParsePrefix("10.80.0.0/26")

func addressesUnderFaults(f *turmoil) underFaults {
	s := &servicesUnderFaults{
		turmoil: f, has: map[types.UID]netip.Addr{}, foreign: map[types.UID]string{}, emptied: map[string]string{}, hands: map[string]bool{},
	}
	s.pool(mainPool, nil, mainBlock.String())
	for i := range 3 {
		s.makeForeign(fmt.Sprint("foreign-", i))
	}
	f.witness(services, s.see)
	return underFaults{
		name: "addresses of Services",
		churn: []func(){
			s.come, s.come, s.come, s.leave, s.lookAt, s.move, s.retype, s.lose, s.blame, s.editMain, s.editSide, s.dropSide,
		},
		newTerm: func() { s.come(); s.editMain() },
		rest:    s.rest,
		missing: s.missing,
		end:     s.end,
	}
}

func (s *servicesUnderFaults) make(service *corev1.Service) *corev1.Service {
	s.t.Helper()
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	service.Spec.AllocateLoadBalancerNodePorts = ptr.To(false)
	service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	made, err := s.core.CoreV1().Services(s.namespace).Create(s.t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// makeForeign makes a Service of another controller, which has an address of the pool.
func (s *servicesUnderFaults) makeForeign(name string) {
	s.t.Helper()
	made := s.make(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{LoadBalancerClass: ptr.To(foreignClass)}})
	made.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: mainBlock.Addr().Next().String()}}
	made, err := s.core.CoreV1().Services(s.namespace).UpdateStatus(s.t.Context(), made, metav1.UpdateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.foreign[made.UID] = made.ResourceVersion
}

func (s *servicesUnderFaults) come() {
	if len(s.names) < mostServices {
		name := fmt.Sprint("service-", s.number())
		s.make(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"side": []string{"yes", "no"}[s.r.IntN(2)]}}})
		s.names = append(s.names, name)
	}
}

func (s *servicesUnderFaults) leave() {
	if i, ok := one(s.r, s.names); ok && len(s.names) > mostServices/2 {
		name := s.names[i]
		s.names = slices.Delete(s.names, i, i+1)
		if err := s.core.CoreV1().Services(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// edit patches one of the Services.
func (s *servicesUnderFaults) edit(patch string, subresources ...string) {
	i, ok := one(s.r, s.names)
	if !ok {
		return
	}
	s.mu.Lock() // before the event of the edit is judged
	defer s.mu.Unlock()
	made, err := s.core.CoreV1().Services(s.namespace).Patch(s.t.Context(), s.names[i], types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.hands[made.ResourceVersion] = true
}

func (s *servicesUnderFaults) lookAt() {
	s.edit(fmt.Sprintf(`{"metadata":{"annotations":{"example.com/seen":"%d"}}}`, s.number()))
}

// move has another pool select a Service, or not.
func (s *servicesUnderFaults) move() {
	s.edit(fmt.Sprintf(`{"metadata":{"labels":{"side":%q}}}`, []string{"yes", "no"}[s.r.IntN(2)]))
}

func (s *servicesUnderFaults) retype() {
	s.edit(fmt.Sprintf(`{"spec":{"type":%q}}`, []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer}[s.r.IntN(3)]))
}

func (s *servicesUnderFaults) lose() { s.edit(`{"status":{"loadBalancer":null}}`, "status") }

func (s *servicesUnderFaults) blame() { s.edit(`{"status":{"conditions":null}}`, "status") }

// pool makes a pool, or replaces its spec.
func (s *servicesUnderFaults) pool(name string, selector map[string]any, cidrs ...string) {
	s.t.Helper()
	var blocks []any
	for _, c := range cidrs {
		blocks = append(blocks, map[string]any{"cidr": c})
	}
	spec := map[string]any{"blocks": blocks}
	if selector != nil {
		spec["serviceSelector"] = map[string]any{"matchLabels": selector}
	}
	_, err := s.dynamic.Resource(v2.CiliumLoadBalancerIPPoolResource).Apply(s.t.Context(), name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v2.SchemeGroupVersion.String(), "kind": "CiliumLoadBalancerIPPool", "metadata": map[string]any{"name": name}, "spec": spec,
	}}, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		s.t.Error(err)
	}
}

// editMain adds a block to the main pool, or takes it away.
func (s *servicesUnderFaults) editMain() {
	blocks := []string{mainBlock.String(), "10.80.1.0/28"}
	s.pool(mainPool, nil, blocks[:1+s.r.IntN(2)]...)
}

// editSide makes or changes a pool that is a part of the Services' alone.
func (s *servicesUnderFaults) editSide() {
	s.pool(sidePool, map[string]any{"side": "yes"}, []string{"10.81.0.0/29", "10.81.0.0/28", "10.80.0.0/24"}[s.r.IntN(3)]) // the last is in conflict
}

func (s *servicesUnderFaults) dropSide() {
	err := s.dynamic.Resource(v2.CiliumLoadBalancerIPPoolResource).Delete(s.t.Context(), sidePool, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Error(err)
	}
}

// isOurs reports whether a Service gets its addresses here.
func isOurs(u *unstructured.Unstructured) bool {
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "type")
	class, _, _ := unstructured.NestedString(u.Object, "spec", "loadBalancerClass")
	return kind == string(corev1.ServiceTypeLoadBalancer) && class == ""
}

// see judges each state of each Service: no address is given twice, none is taken that is valid, and no Service of another
// controller is written.
func (s *servicesUnderFaults) see(kind watch.EventType, u *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid, what := u.GetUID(), "Service "+u.GetName()
	if before, is := s.foreign[uid]; is && kind != watch.Deleted && u.GetResourceVersion() != before {
		s.t.Errorf("%s of another controller was written", what)
	}
	if kind == watch.Deleted || !isOurs(u) {
		delete(s.has, uid)
		return
	}
	had, now := s.has[uid], netip.Addr{}
	if ips := ipsOf(u); len(ips) > 0 {
		now = netip.MustParseAddr(ips[0])
	}
	if now == had {
		return
	}
	switch {
	case !mainBlock.Contains(had):
	case now.IsValid():
		s.t.Errorf("%s had %s and has %s", what, had, now)
	default:
		s.emptied[u.GetResourceVersion()] = fmt.Sprintf("%s lost %s", what, had)
	}
	delete(s.has, uid)
	if !now.IsValid() {
		return
	}
	for other, addr := range s.has {
		if addr == now {
			s.t.Errorf("%s is given %s, which Service %s has", what, now, other)
		}
	}
	s.has[uid] = now
	s.given++
}

// rest: every Service has an address of a pool that selects it, and pools count what is in use.
func (s *servicesUnderFaults) rest() error {
	var errs []error
	used := map[netip.Addr]bool{}
	list, err := s.core.CoreV1().Services("").List(s.t.Context(), metav1.ListOptions{}) // those of Ingresses among them
	if err != nil {
		return err
	}
	for _, service := range list.Items {
		if service.Spec.LoadBalancerClass != nil {
			continue
		}
		ours, want := service.Spec.Type == corev1.ServiceTypeLoadBalancer, 0
		if ours {
			want = 1
		}
		var conditions []string
		for _, c := range service.Status.Conditions {
			conditions = append(conditions, c.Type+"="+string(c.Status))
		}
		// A Service of an Ingress prefers both families, and no pool has addresses of IPv6.
		satisfied := ours && !slices.Contains(service.Spec.IPFamilies, corev1.IPv6Protocol)
		ok := len(service.Status.LoadBalancer.Ingress) == want && slices.Contains(conditions, "cilium.io/IPAMRequestSatisfied=True") == satisfied
		for _, in := range service.Status.LoadBalancer.Ingress {
			used[netip.MustParseAddr(in.IP)] = true
		}
		if !ok {
			errs = append(errs, fmt.Errorf("service %s/%s of type %s has %v and %q", service.Namespace, service.Name, service.Spec.Type, service.Status.LoadBalancer.Ingress, conditions))
		}
	}
	return errors.Join(append(errs, s.counted(used))...)
}

// counted compares the counts of pools with the addresses in use.
func (s *servicesUnderFaults) counted(used map[netip.Addr]bool) error {
	for _, p := range s.list(v2.CiliumLoadBalancerIPPoolResource).Items {
		blocks, _, _ := unstructured.NestedSlice(p.Object, "spec", "blocks")
		n := 0
		for _, b := range blocks {
			prefix := netip.MustParsePrefix(b.(map[string]any)["cidr"].(string))
			for addr := range used {
				if prefix.Contains(addr) {
					n++
				}
			}
		}
		conditions, _, _ := unstructured.NestedSlice(p.Object, "status", "conditions")
		i := slices.IndexFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "cilium.io/IPsUsed" })
		if i < 0 || conditions[i].(map[string]any)["message"] != strconv.Itoa(n) {
			return fmt.Errorf("pool %s counts %v, and %d of its addresses are in use", p.GetName(), conditions, n)
		}
	}
	return nil
}

func (s *servicesUnderFaults) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for revision, what := range s.emptied {
		if !s.hands[revision] {
			s.t.Errorf("%s at %s, which nobody took by hand", what, revision)
		}
	}
}

func (s *servicesUnderFaults) missing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given < 10 {
		return fmt.Errorf("%d of 10 addresses were given", s.given)
	}
	return nil
}
