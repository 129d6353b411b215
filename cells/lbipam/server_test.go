// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// server is a real API server without pools and LoadBalancer Services.
type server struct {
	t          *testing.T
	proxy      *clustertest.Proxy
	env        *operatortest.Env
	pools      dynamic.ResourceInterface
	core       kubernetes.Interface
	namespace  string
	kubeconfig string
}

func newServer(t *testing.T) *server {
	t.Helper()
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumLoadBalancerIPPool")
	env.CreateNamespace()
	s := &server{t: t, proxy: env.Proxy, env: env, pools: env.Dynamic.Resource(v2.CiliumLoadBalancerIPPoolResource), core: env.Core, namespace: env.Namespace}
	env.Clear(v2.CiliumLoadBalancerIPPoolResource)
	t.Cleanup(s.clear)
	return s
}

// clear deletes the Services of the test and all pools.
func (s *server) clear() {
	ctx := context.WithoutCancel(s.t.Context())
	list, err := s.core.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, svc := range list.Items {
		if svc.Name != "kubernetes" {
			_ = s.core.CoreV1().Services(svc.Namespace).Delete(ctx, svc.Name, metav1.DeleteOptions{})
		}
	}
	_ = s.pools.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// least is the role that the duty asks for, and what any operator does.
var least = []rbacv1.PolicyRule{
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumloadbalancerippools"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumloadbalancerippools/status"}, Verbs: []string{"patch"}},
	{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"patch"}},
	{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
}

func (s *server) start(args ...string) *operatortest.Operator {
	s.t.Helper()
	if s.kubeconfig == "" {
		s.kubeconfig = s.env.As("lbipam", least...)
	}
	return operatortest.Start(s.t, Cell, s.kubeconfig, args...)
}

// pool creates a pool with a spec in JSON.
func (s *server) pool(name, spec string) {
	s.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cilium.io/v2", "kind": "CiliumLoadBalancerIPPool", "metadata": map[string]any{"name": name}, "spec": parse(s.t, spec)}}
	if _, err := s.pools.Create(s.t.Context(), u, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) editPool(name, spec string) {
	s.t.Helper()
	operatortest.Eventually(s.t, name+" is edited", func() bool {
		u := s.getPool(name)
		u.Object["spec"] = parse(s.t, spec)
		_, err := s.pools.Update(s.t.Context(), u, metav1.UpdateOptions{})
		return err == nil
	})
}

func (s *server) deletePool(name string) {
	s.t.Helper()
	if err := s.pools.Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) getPool(name string) *unstructured.Unstructured {
	s.t.Helper()
	u, err := s.pools.Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return u
}

func parse(t *testing.T, text string) (content map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(text, err)
	}
	return content
}

// cidrs is the spec of a pool.
func cidrs(all ...string) string {
	var blocks []string
	for _, c := range all {
		blocks = append(blocks, fmt.Sprintf("{%q:%q}", "cidr", c))
	}
	return fmt.Sprintf("{%q:[%s]}", "blocks", strings.Join(blocks, ","))
}

// conditionOf is the status, reason and message of a condition of a pool.
func (s *server) conditionOf(name, kind string) string {
	s.t.Helper()
	conditions, _, _ := unstructured.NestedSlice(s.getPool(name).Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == "cilium.io/"+kind {
			return fmt.Sprint(c["status"], " ", c["reason"], " ", c["message"])
		}
	}
	return ""
}

func (s *server) wantPool(name, kind, want string) {
	s.t.Helper()
	got := ""
	defer func() {
		if s.t.Failed() {
			s.t.Logf("pool %s: %s is %q", name, kind, got)
		}
	}()
	operatortest.Eventually(s.t, fmt.Sprintf("%s of %s is %q", kind, name, want), func() bool {
		got = s.conditionOf(name, kind)
		return got == want
	})
}

// edit changes a Service before it is created or updated.
type edit func(*corev1.Service)

func annotate(name, value string) edit {
	return func(svc *corev1.Service) { metav1.SetMetaDataAnnotation(&svc.ObjectMeta, name, value) }
}

func label(name, value string) edit {
	return func(svc *corev1.Service) { metav1.SetMetaDataLabel(&svc.ObjectMeta, name, value) }
}

func port(numbers ...int32) edit {
	return func(svc *corev1.Service) {
		svc.Spec.Ports = nil
		for _, n := range numbers {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", n), Port: n})
		}
	}
}

func families(policy corev1.IPFamilyPolicy, all ...corev1.IPFamily) edit {
	return func(svc *corev1.Service) { svc.Spec.IPFamilyPolicy, svc.Spec.IPFamilies = &policy, all }
}

func class(name string) edit { return func(svc *corev1.Service) { svc.Spec.LoadBalancerClass = &name } }

func in(namespace string) edit { return func(svc *corev1.Service) { svc.Namespace = namespace } }

// service creates a Service of type LoadBalancer.
func (s *server) service(name string, edits ...edit) {
	s.t.Helper()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	port(80)(svc)
	for _, e := range edits {
		e(svc)
	}
	if _, err := s.core.CoreV1().Services(svc.Namespace).Create(s.t.Context(), svc, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) get(name string) *corev1.Service {
	s.t.Helper()
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = s.namespace, name
	}
	svc, err := s.core.CoreV1().Services(namespace).Get(s.t.Context(), short, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return svc
}

func (s *server) editService(name string, edits ...edit) {
	s.t.Helper()
	operatortest.Eventually(s.t, name+" is edited", func() bool {
		svc := s.get(name)
		for _, e := range edits {
			e(svc)
		}
		_, err := s.core.CoreV1().Services(svc.Namespace).Update(s.t.Context(), svc, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			s.t.Fatal(err)
		}
		return err == nil
	})
}

// setStatus is what an earlier operator has written.
func (s *server) setStatus(name string, edits ...edit) {
	s.t.Helper()
	operatortest.Eventually(s.t, "the status of "+name+" is set", func() bool {
		svc := s.get(name)
		for _, e := range edits {
			e(svc)
		}
		_, err := s.core.CoreV1().Services(svc.Namespace).UpdateStatus(s.t.Context(), svc, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			s.t.Fatal(err)
		}
		return err == nil
	})
}

func shown(ips ...string) edit {
	return func(svc *corev1.Service) {
		svc.Status.LoadBalancer.Ingress = nil
		for _, ip := range ips {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
}

func satisfied() edit { return finding(metav1.ConditionTrue, "satisfied", "") }

func finding(status metav1.ConditionStatus, reason, message string) edit {
	return func(svc *corev1.Service) {
		meta.SetStatusCondition(&svc.Status.Conditions, metav1.Condition{Type: conditionSatisfied, Status: status, Reason: reason, Message: message, ObservedGeneration: svc.Generation})
	}
}

func (s *server) delete(name string) {
	s.t.Helper()
	if err := s.core.CoreV1().Services(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func ips(svc *corev1.Service) (all []string) {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		all = append(all, in.IP+in.Hostname)
	}
	return all
}

func findingOf(svc *corev1.Service) string {
	c := meta.FindStatusCondition(svc.Status.Conditions, conditionSatisfied)
	if c == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprint(c.Reason, " ", c.Message))
}

// want waits until a Service has all that it wants, and these addresses.
func (s *server) want(name string, all ...string) {
	s.t.Helper()
	s.wantFinding(name, "satisfied", all...)
}

func (s *server) wantFinding(name, found string, all ...string) {
	s.t.Helper()
	var got []string
	var text string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("service %s has %v, %q", name, got, text)
		}
	}()
	operatortest.Eventually(s.t, fmt.Sprintf("service %s has %v, %q", name, all, found), func() bool {
		svc := s.get(name)
		got, text = ips(svc), findingOf(svc)
		return slices.Equal(got, all) && text == found
	})
}

// writes are the mutating requests for Services and pools since the request numbered after.
func (s *server) writes(after int64) (all []string, last int64) {
	s.t.Helper()
	last = after
	for _, r := range s.proxy.Answered(s.t, after) {
		last = r.Seq
		if r.Resource != "services" && r.Resource != "ciliumloadbalancerippools" || slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
			continue
		}
		all = append(all, fmt.Sprintf("%s %s: %d", r.Verb, r.Name, r.Status))
	}
	return all, last
}

const noPool = "no_pool There are no enabled CiliumLoadBalancerIPPools that match this service"

// Number 46 of the contract's lb-ipam.md, with pools of v2; LBIP-E1 and LBIP-E2.
func TestServerAddressesInOrderAndFamilies(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/24", "FF::0/48"))
	o := s.start()
	s.service("a")
	s.want("a", "10.0.10.0")
	s.service("b")
	s.want("b", "10.0.10.1")
	if in := s.get("a").Status.LoadBalancer.Ingress[0]; in.Hostname != "" || len(in.Ports) != 0 {
		t.Errorf("the entry is %+v", in)
	}
	s.service("c", families(corev1.IPFamilyPolicySingleStack, corev1.IPv4Protocol))
	s.want("c", "10.0.10.2")
	s.delete("c")
	s.service("c", families(corev1.IPFamilyPolicySingleStack, corev1.IPv6Protocol))
	s.want("c", "ff::")
	s.service("d")
	s.want("d", "10.0.10.2")
	s.service("both", families(corev1.IPFamilyPolicyRequireDualStack))
	s.want("both", "10.0.10.3", "ff::1")
	s.env.CheckHealthy(o)
	operatortest.Eventually(t, "six are used", func() bool {
		return o.Metric("lbipam_ips_used", "blue") == 6 && o.Metric("lbipam_ips_used_total", "blue") == 6
	})
}

// LBIP-E3 and LBIP-E4; LBIP-13, LBIP-14 and LBIP-16.
func TestServerRestartKeepsWhatServicesShow(t *testing.T) {
	s := newServer(t)
	s.service("b")
	s.service("a")
	s.setStatus("a", shown("10.0.10.123"), satisfied())
	s.service("c")
	s.setStatus("c", shown("10.0.10.0"), satisfied())
	s.service("foreign")
	s.setStatus("foreign", shown("192.168.1.12"))
	s.pool("blue", cidrs("10.0.10.0/24"))
	s.start()
	s.want("b", "10.0.10.1")
	s.want("foreign", "10.0.10.2")
	s.want("a", "10.0.10.123")
	s.want("c", "10.0.10.0")
	s.wantPool("blue", "IPsUsed", "Unknown noreason 4")
	all, _ := s.writes(0)
	all = slices.DeleteFunc(all, func(w string) bool { return w == "patch blue: 200" })
	slices.Sort(all)
	if want := []string{"patch b: 200", "patch foreign: 200"}; !slices.Equal(all, want) {
		t.Errorf("writes are %v, want %v", all, want)
	}
}

// LBIP-E5 and LBIP-E6; LBIP-10 and LBIP-11.
func TestServerConflicts(t *testing.T) {
	s := newServer(t)
	s.pool("a", cidrs("10.0.10.0/24"))
	s.start()
	s.wantPool("a", "PoolConflict", "False resolved ")
	s.pool("b", cidrs("10.0.10.0/24", "10.0.11.0/24")) // created in the same second or later, and later by name
	s.wantPool("b", "PoolConflict", "True cidr_overlap Pool conflicts since range '10.0.10.0 - 10.0.10.255' overlaps range '10.0.10.0 - 10.0.10.255' from IP Pool 'a'")
	s.service("one", annotate(requestAnnotation, "10.0.11.7"))
	s.wantFinding("one", "no_pool No pool exists with a CIDR containing '10.0.11.7'")
	s.editPool("b", cidrs("10.0.11.0/24"))
	s.wantPool("b", "PoolConflict", "False resolved ")
	s.want("one", "10.0.11.7")
	s.deletePool("a")
	s.deletePool("b")
	s.pool("self", cidrs("10.0.10.0/24", "10.0.10.64/28"))
	s.wantPool("self", "PoolConflict", "True cidr_overlap Pool conflicts since range '10.0.10.0 - 10.0.10.255' overlaps range '10.0.10.64 - 10.0.10.79' from IP Pool 'self'")
	s.service("two")
	s.wantFinding("two", noPool)
}

// LBIP-E7; LBIP-6.
func TestServerFirstAndLast(t *testing.T) {
	s := newServer(t)
	s.pool("blue", `{"blocks":[{"cidr":"10.0.10.16/30"}],"allowFirstLastIPs":"No"}`)
	s.start()
	s.service("first", annotate(requestAnnotation, "10.0.10.16"))
	s.wantFinding("first", "reserved The IP '10.0.10.16' is the first or the last of its range, and the pool does not allow those")
	s.service("any")
	s.want("any", "10.0.10.17")
	s.wantPool("blue", "IPsTotal", "Unknown noreason 4")
	s.wantPool("blue", "IPsUsed", "Unknown noreason 3")
	s.wantPool("blue", "IPsAvailable", "Unknown noreason 1")
	s.editPool("blue", `{"blocks":[{"cidr":"10.0.10.16/30"}],"allowFirstLastIPs":"Yes"}`)
	s.want("first", "10.0.10.16")
}

// LBIP-E8 and LBIP-E9; LBIP-21 to LBIP-23.
func TestServerSharing(t *testing.T) {
	s := newServer(t)
	other := s.namespace + "-2"
	if _, err := s.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.pool("blue", cidrs("10.0.10.0/24"))
	o := s.start()
	s.service("a", annotate(sharingKeyAnnotation, "key-a"), port(80))
	s.want("a", "10.0.10.0")
	s.service("b", annotate(sharingKeyAlias, "key-a"), port(81))
	s.want("b", "10.0.10.0")
	s.service("c", annotate(sharingKeyAnnotation, "key-b"), port(80))
	s.want("c", "10.0.10.1")
	s.service("d", annotate(sharingKeyAnnotation, "key-b"), port(80))
	s.want("d", "10.0.10.2")
	s.service("e", annotate(sharingKeyAnnotation, "key-b"), port(81))
	s.want("e", "10.0.10.1")
	s.delete("c")
	s.service("f")
	s.want("f", "10.0.10.3")
	s.want("e", "10.0.10.1")

	s.service("g", in(other), annotate(sharingKeyAnnotation, "key-b"), port(82))
	s.want(other+"/g", "10.0.10.4")
	s.service("h", annotate(sharingKeyAnnotation, "key-c"), annotate(crossNamespaceAnnotation, "*"), port(80))
	s.want("h", "10.0.10.5")
	s.service("i", in(other), annotate(sharingKeyAnnotation, "key-c"), annotate(crossNamespaceAlias, "*"), port(81))
	s.want(other+"/i", "10.0.10.5")
	s.service("j", in(other), annotate(sharingKeyAnnotation, "key-c"), annotate(crossNamespaceAlias, "x,"+s.namespace), port(81), annotate(requestAnnotation, "10.0.10.5"))
	s.wantFinding(other+"/j", "already_allocated_incompatible_service The IP '10.0.10.5' is already allocated to an incompatible service. Reason: same port and protocol")

	// LBIP-15: a restart keeps shared addresses, and writes nothing.
	s.wantPool("blue", "IPsUsed", "Unknown noreason 6")
	o.Stop()
	_, last := s.writes(0)
	o = s.start()
	o.Log().Wait(t, "caches synced, allocating addresses")
	s.service("last")
	s.want("last", "10.0.10.6")
	s.wantPool("blue", "IPsUsed", "Unknown noreason 7")
	all, _ := s.writes(last)
	if want := []string{"patch last: 200", "patch blue: 200"}; !sameElements(all, want) {
		t.Errorf("a restart wrote %v, want %v", all, want)
	}
}

func sameElements(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// LBIP-E10; LBIP-20 and LBIP-29.
func TestServerRequestedAddressIsTaken(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/24"))
	s.start()
	s.service("a", func(svc *corev1.Service) { svc.Spec.LoadBalancerIP = "10.0.10.5" })
	s.want("a", "10.0.10.5")
	s.service("b", annotate(requestAlias, "10.0.10.5 , 10.0.10.6"))
	s.wantFinding("b", "already_allocated The IP '10.0.10.5' is already allocated to another service", "10.0.10.6")
	operatortest.Eventually(t, "there is an Event", func() bool {
		list, err := s.core.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == "b" && e.Reason == "AlreadyAllocated" && e.Type == corev1.EventTypeWarning
		})
	})
	s.delete("a")
	s.want("b", "10.0.10.6", "10.0.10.5")
}

// LBIP-E11; LBIP-3.
func TestServerSelectors(t *testing.T) {
	s := newServer(t)
	s.pool("blue", fmt.Sprintf(`{"blocks":[{"cidr":"10.0.10.0/24"}],"serviceSelector":{"matchLabels":{"io.kubernetes.service.namespace":%q}}}`, s.namespace))
	s.pool("red", `{"blocks":[{"cidr":"10.0.20.0/24"}],"serviceSelector":{"matchExpressions":[{"key":"color","operator":"In","values":["red"]}]}}`)
	s.start()
	s.service("a")
	s.want("a", "10.0.10.0")
	s.service("b", in("default"))
	s.wantFinding("default/b", noPool)
	s.service("c", annotate(requestAnnotation, "10.0.20.9"))
	s.wantFinding("c", "pool_selector_mismatch The pool with the CIDR containing '10.0.20.9', doesn't select this service")
	s.editService("c", label("color", "red"))
	s.want("c", "10.0.20.9")
	s.editPool("red", `{"blocks":[{"cidr":"10.0.20.0/24"}],"serviceSelector":{"matchLabels":{"io.kubernetes.service.name":"b"}}}`)
	s.want("default/b", "10.0.20.0")
	s.wantFinding("c", "pool_selector_mismatch The pool with the CIDR containing '10.0.20.9', doesn't select this service")
}

// LBIP-E12; LBIP-12. As the original leaves it, a disabled pool with allocations is written nothing.
func TestServerDisabledPool(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/24"))
	o := s.start()
	s.service("a")
	s.want("a", "10.0.10.0")
	s.editPool("blue", `{"blocks":[{"cidr":"10.0.10.0/24"}],"disabled":true}`)
	// Services come by another watch: what is seen of a later pool says that the edit was seen.
	s.pool("later", `{"blocks":[{"cidr":"10.0.99.0/24"}],"serviceSelector":{"matchLabels":{"of":"nobody"}}}`)
	s.wantPool("later", "PoolConflict", "False resolved ")
	s.service("b")
	s.wantFinding("b", noPool)
	s.service("c", annotate(requestAnnotation, "10.0.10.7"))
	s.wantFinding("c", "no_pool No pool exists with a CIDR containing '10.0.10.7'")
	s.want("a", "10.0.10.0")
	s.wantPool("blue", "IPsUsed", "Unknown noreason 1")
	o.Stop()
	_, last := s.writes(0)
	o = s.start()
	o.Log().Wait(t, "caches synced, allocating addresses")
	s.editPool("blue", cidrs("10.0.10.0/24"))
	s.want("b", "10.0.10.1")
	s.want("c", "10.0.10.7")
	s.want("a", "10.0.10.0")
	all, _ := s.writes(last)
	if slices.Contains(all, "patch a: 200") {
		t.Errorf("a was written: %v", all)
	}
}

// LBIP-E13; LBIP-9.
func TestServerFullPool(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/31"))
	s.start()
	for i, name := range []string{"a", "b"} {
		s.service(name)
		s.want(name, fmt.Sprint("10.0.10.", i))
	}
	s.service("c")
	const full = "out_of_ips All enabled CiliumLoadBalancerIPPools that match this service ran out of allocatable IPs"
	s.wantFinding("c", full)
	s.service("d")
	s.wantFinding("d", full)
	s.delete("a")
	s.want("c", "10.0.10.0")
	s.editPool("blue", cidrs("10.0.10.0/31", "10.0.20.0/31"))
	s.want("d", "10.0.20.0")
}

// LBIP-E14; LBIP-1 and LBIP-2, and the option that selects Services by their proxy.
func TestServerClasses(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/24"))
	s.service("foreign", class("foo.io/bar"))
	s.setStatus("foreign", shown("10.0.10.0"))
	o := s.start("--enable-l2-announcements=true", "--lbipam-require-lb-class=true")
	s.service("none")
	s.service("proxied", class(classL2), label("service.kubernetes.io/service-proxy-name", "other"))
	s.service("bgp", class(classBGP))
	s.service("l2", class(classL2))
	s.want("l2", "10.0.10.0")
	s.editService("l2", func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
	})
	operatortest.Eventually(t, "the address is taken back", func() bool { svc := s.get("l2"); return len(ips(svc)) == 0 && findingOf(svc) == "" })
	s.service("l2-2", class(classL2))
	s.want("l2-2", "10.0.10.0")
	s.wantFinding("foreign", "", "10.0.10.0")
	s.wantFinding("none", "")
	s.wantFinding("bgp", "")
	s.wantFinding("proxied", "")
	o.Stop()
	s.start("--enable-l2-announcements=true", "--k8s-service-proxy-name=other")
	s.want("proxied", "10.0.10.0") // of Services with another proxy nothing is known
}

// LBIP-17: without pools nothing is watched; with the last pool all addresses go.
func TestServerDormant(t *testing.T) {
	s := newServer(t)
	s.service("foreign", class("foo.io/bar"))
	s.setStatus("foreign", shown("10.0.10.9"))
	s.start()
	s.service("a")
	operatortest.Eventually(t, "pools are watched", func() bool {
		return slices.ContainsFunc(s.proxy.Requests(t, 0), func(r clustertest.Request) bool {
			return r.Resource == "ciliumloadbalancerippools" && r.Verb == "watch"
		})
	})
	if slices.ContainsFunc(s.proxy.Requests(t, 0), func(r clustertest.Request) bool { return r.Resource == "services" }) {
		t.Error("Services are read without a pool")
	}
	s.pool("blue", cidrs("10.0.10.0/24"))
	s.want("a", "10.0.10.0")
	s.deletePool("blue")
	s.wantFinding("a", noPool)
	s.service("b")
	s.pool("red", cidrs("10.0.20.0/24"))
	s.want("a", "10.0.20.0")
	s.want("b", "10.0.20.1")
	s.wantFinding("foreign", "", "10.0.10.9")
}

// What others write stays: conditions, and the mode of an address.
func TestServerKeepsWhatOthersWrite(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/24"))
	mode := corev1.LoadBalancerIPModeProxy
	s.service("a")
	s.setStatus("a", func(svc *corev1.Service) {
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {IP: "10.0.10.4", IPMode: &mode}, {Hostname: "a.example.com"}}
		meta.SetStatusCondition(&svc.Status.Conditions, metav1.Condition{Type: "example.com/Checked", Status: metav1.ConditionTrue, Reason: "Fine"})
	})
	s.start()
	s.want("a", "10.0.10.4")
	svc := s.get("a")
	if in := svc.Status.LoadBalancer.Ingress[0]; in.IPMode == nil || *in.IPMode != mode {
		t.Errorf("the mode is lost: %+v", in)
	}
	if meta.FindStatusCondition(svc.Status.Conditions, "example.com/Checked") == nil {
		t.Error("the condition of another writer is lost")
	}
	u := s.getPool("blue")
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	foreign := map[string]any{"type": "example.com/Checked", "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": "2024-08-20T10:00:00Z"}
	s.wantPool("blue", "IPsUsed", "Unknown noreason 1")
	operatortest.Eventually(t, "the pool has a condition of another writer", func() bool {
		u = s.getPool("blue")
		conditions, _, _ = unstructured.NestedSlice(u.Object, "status", "conditions")
		_ = unstructured.SetNestedSlice(u.Object, append([]any{foreign}, conditions...), "status", "conditions")
		_, err := s.pools.UpdateStatus(t.Context(), u, metav1.UpdateOptions{})
		return err == nil
	})
	s.service("b")
	s.want("b", "10.0.10.0")
	s.wantPool("blue", "IPsUsed", "Unknown noreason 2")
	s.wantPool("blue", "Checked", "")
	if got, _, _ := unstructured.NestedSlice(s.getPool("blue").Object, "status", "conditions"); len(got) != 5 {
		t.Errorf("conditions are %v", got)
	}
}

// Objects as the original writes them: nothing moves, and nothing is written.
func TestServerMigration(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/24"))
	s.pool("disabled", `{"blocks":[{"cidr":"10.0.20.0/24"},{"start":"fd00::10"}],"disabled":true}`)
	s.pool("overlap", cidrs("10.0.10.64/28", "10.0.30.0/24"))
	s.poolStatus("blue", "False resolved", "256", "253", "3")
	s.poolStatus("disabled", "False resolved", "257", "255", "2")
	s.poolStatus("overlap", "True cidr_overlap Pool conflicts since range '10.0.10.64 - 10.0.10.79' overlaps range '10.0.10.0 - 10.0.10.255' from IP Pool 'blue'", "272", "271", "1")
	for name, ips := range map[string][]string{"one": {"10.0.10.7"}, "off": {"10.0.20.3"}, "single": {"fd00::10"}, "conflicting": {"10.0.30.9"}} {
		if name == "single" {
			s.service(name, families(corev1.IPFamilyPolicySingleStack, corev1.IPv6Protocol))
		} else {
			s.service(name)
		}
		s.setStatus(name, shown(ips...), satisfied())
	}
	for i, name := range []string{"shared-1", "shared-2"} {
		s.service(name, annotate(sharingKeyAnnotation, "k"), port(int32(80+i)))
		s.setStatus(name, shown("10.0.10.0"), satisfied())
	}
	s.service("asks", annotate(requestAnnotation, "10.0.10.9"))
	s.setStatus("asks", shown("10.0.10.9"), satisfied())
	s.service("waits", annotate(requestAnnotation, "192.0.2.9"))
	s.setStatus("waits", finding(metav1.ConditionFalse, "no_pool", "No pool exists with a CIDR containing '192.0.2.9'"))
	before := s.shown()
	_, last := s.writes(0)
	o := s.start()
	o.Log().Wait(t, "caches synced, allocating addresses")
	s.service("last", annotate(requestAnnotation, "192.0.2.10"))
	s.wantFinding("last", "no_pool No pool exists with a CIDR containing '192.0.2.10'")
	if all, _ := s.writes(last); !slices.Equal(all, []string{"patch last: 200"}) {
		t.Errorf("it wrote %v", all)
	}
	s.delete("last")
	if after := s.shown(); before != after {
		t.Errorf("addresses were\n%s\nand are\n%s", before, after)
	}
	s.env.CheckHealthy(o)
}

// shown is what all Services of the test show.
func (s *server) shown() string {
	s.t.Helper()
	list, err := s.core.CoreV1().Services(s.namespace).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var b strings.Builder
	for _, svc := range list.Items {
		fmt.Fprintln(&b, svc.Name, ips(&svc), findingOf(&svc))
	}
	return b.String()
}

// poolStatus is what the original writes to a pool.
func (s *server) poolStatus(name, conflict, total, available, used string) {
	s.t.Helper()
	words := append(strings.SplitN(conflict, " ", 3), "")
	var conditions []any
	for _, c := range [][4]string{
		{"PoolConflict", words[0], words[1], words[2]}, {"IPsTotal", "Unknown", "noreason", total},
		{"IPsAvailable", "Unknown", "noreason", available}, {"IPsUsed", "Unknown", "noreason", used},
	} {
		conditions = append(conditions, map[string]any{
			"type": "cilium.io/" + c[0], "status": c[1], "reason": c[2], "message": c[3], "observedGeneration": int64(1), "lastTransitionTime": "2024-08-20T10:00:00Z",
		})
	}
	operatortest.Eventually(s.t, "the status of "+name+" is set", func() bool {
		u := s.getPool(name)
		_ = unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions")
		_, err := s.pools.UpdateStatus(s.t.Context(), u, metav1.UpdateOptions{})
		return err == nil
	})
}

// Bad input is reported on its object, and disturbs no other.
func TestServerBadInput(t *testing.T) {
	s := newServer(t)
	s.pool("good", cidrs("10.0.10.0/24"))
	s.pool("reversed", `{"blocks":[{"cidr":"10.0.20.0/24"},{"start":"10.0.30.9","stop":"10.0.30.1"}]}`)
	s.pool("selector", `{"blocks":[{"cidr":"10.0.40.0/24"}],"serviceSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`)
	s.pool("all", cidrs("0.0.0.0/0"))
	o := s.start()
	s.service("a")
	s.want("a", "10.0.10.0")
	s.wantPool("reversed", "PoolInvalid", `True invalid_block block 2 ("10.0.30.9" to "10.0.30.1"): the start is above the stop`)
	s.wantPool("all", "PoolInvalid", `True invalid_block block 1 (cidr "0.0.0.0/0"): it is all addresses of a family`)
	s.wantPool("good", "PoolInvalid", "")
	operatortest.Eventually(t, "a selector is invalid", func() bool {
		return strings.HasPrefix(s.conditionOf("selector", "PoolInvalid"), "True invalid_selector ")
	})
	s.service("garbage", annotate(requestAnnotation, "x"))
	s.wantFinding("garbage", "invalid_ip The requested IP 'x' is not valid")
	s.service("b", annotate(requestAnnotation, "10.0.20.7"))
	s.want("b", "10.0.20.7") // of the block that is valid
	s.service("c", annotate(requestAnnotation, "10.0.30.7"))
	s.wantFinding("c", "no_pool No pool exists with a CIDR containing '10.0.30.7'")
	operatortest.Eventually(t, "three pools are invalid", func() bool { return o.Metric("lbipam_invalid_pools") == 3 })
	s.editPool("reversed", cidrs("10.0.20.0/24"))
	s.want("b", "10.0.20.7")
	s.wantPool("reversed", "PoolInvalid", "")
	s.env.CheckHealthy(o)
}

// A writer that removes the addresses again and again is told, and does not keep the API server busy.
func TestServerContention(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/24"))
	s.service("a")
	o := operatortest.Start(t, Cell, s.env.Kubeconfig())
	for range 6 {
		s.want("a", "10.0.10.0")
		s.setStatus("a", shown("192.0.2.1"))
	}
	operatortest.Eventually(t, "it is told", func() bool { return strings.Contains(o.Degraded("lbipam"), "undoes the change") })
	s.service("b")
	s.want("b", "10.0.10.1")
}

// LBIP-13: a term that ends in the middle of its writes leaves nothing that the next one could contradict.
func TestServerNextTerm(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/24"))
	o := s.start()
	s.service("first")
	s.want("first", "10.0.10.0")
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint("s", i))
		s.service(names[i])
	}
	o.ReenterTerm()
	s.delete("first")
	addresses := map[string]string{}
	for _, name := range names {
		operatortest.Eventually(t, name+" has an address", func() bool { return len(ips(s.get(name))) == 1 })
		ip := ips(s.get(name))[0]
		if other := addresses[ip]; other != "" {
			t.Errorf("%s and %s have %s", name, other, ip)
		}
		addresses[ip] = name
	}
	s.wantPool("blue", "IPsUsed", "Unknown noreason 20")
	s.env.CheckHealthy(o)
}
