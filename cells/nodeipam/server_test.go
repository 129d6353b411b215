// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// world is all Nodes and Services of the cluster.
type world struct{ *operatortest.Env }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{operatortest.NewEnv(t, clustertest.Shared(t))}
	w.Clear(nodes.Resource(), endpointSlices.Resource())
	all, err := w.Core.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Items {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		if err := w.Core.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.CreateNamespace()
	return w
}

func (w *world) start(args ...string) *operatortest.Operator {
	return operatortest.Start(w.T, Cell, w.Kubeconfig(), append([]string{"--enable-node-ipam"}, args...)...)
}

// node creates a Node; "+" marks external addresses.
func (w *world) node(name string, labels map[string]string, addresses ...string) *corev1.Node {
	w.T.Helper()
	n, err := w.Core.CoreV1().Nodes().Create(w.T.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, text := range addresses {
		a := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: text}
		if external, ok := strings.CutPrefix(text, "+"); ok {
			a = corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: external}
		}
		n.Status.Addresses = append(n.Status.Addresses, a)
	}
	if n, err = w.Core.CoreV1().Nodes().UpdateStatus(w.T.Context(), n, metav1.UpdateOptions{}); err != nil {
		w.T.Fatal(err)
	}
	return n
}

func (w *world) patchNode(name, patch string) {
	w.T.Helper()
	if _, err := w.Core.CoreV1().Nodes().Patch(w.T.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// service creates a LoadBalancer Service of the class.
func (w *world) service(name string, change func(*corev1.Service)) *corev1.Service {
	w.T.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new(class), IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80}},
		},
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

func (w *world) patchService(name, patch string, subresources ...string) {
	w.T.Helper()
	if _, err := w.Core.CoreV1().Services(w.Namespace).Patch(w.T.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) addresses(name string) (ips []string) {
	w.T.Helper()
	s, err := w.Core.CoreV1().Services(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		ips = append(ips, i.IP+i.Hostname)
	}
	return ips
}

func (w *world) awaitAddresses(name string, want ...string) {
	w.T.Helper()
	operatortest.Eventually(w.T, fmt.Sprint(name, " has ", want), func() bool { return slices.Equal(w.addresses(name), want) })
}

// writes are the updates of a Service's status so far.
func (w *world) writes(name string) (n int) {
	w.T.Helper()
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if r.Verb == "update" && r.Resource == "services" && r.Namespace == w.Namespace && r.Name == name {
			n++
		}
	}
	return n
}

// NIPAM-1 and NIPAM-2; NIPAM-E1, under the role that the duty asks for and under that of the original's chart.
func TestAddressesOfNodes(t *testing.T) {
	for name, rules := range map[string]func(testing.TB) []rbacv1.PolicyRule{
		"own role": func(testing.TB) []rbacv1.PolicyRule {
			return []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch"}},
				{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"update"}},
				{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}},
				{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
				{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
			}
		},
		"role of the chart": stockchart.Role,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("node-1", nil, "10.0.0.1", "+2001::1")
			w.node("node-2", nil, "10.0.0.2")
			w.service("v4", nil)
			w.service("v6", func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} })
			w.service("foreign", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("foo.io/bar") })
			w.service("classless", func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil })
			o := operatortest.Start(t, Cell, w.As("skep", rules(t)...), "--enable-node-ipam")
			w.awaitAddresses("v4", "10.0.0.1", "10.0.0.2")
			w.awaitAddresses("v6", "2001::1")
			w.awaitAddresses("foreign")
			w.awaitAddresses("classless")
			operatortest.Eventually(t, "Services are counted", func() bool { return o.Metric("nodeipam_services", "served") == 2 })
			w.CheckHealthy(o)
			for _, r := range w.Proxy.Requests(t, 0) {
				if r.Resource == "endpointslices" {
					t.Errorf("NIPAM-9: %s without a Service that needs it", r.Path)
				}
			}
			o.Stop()

			// NIPAM-5: a restart writes nothing.
			before := w.writes("v4") + w.writes("v6")
			o = operatortest.Start(t, Cell, w.As("skep-2", rules(t)...), "--enable-node-ipam")
			w.service("last", nil)
			w.awaitAddresses("last", "10.0.0.1", "10.0.0.2")
			if after := w.writes("v4") + w.writes("v6"); after != before {
				t.Errorf("%d writes after a restart", after-before)
			}
		})
	}
}

// NIPAM-1: Services without a class, if they are node IPAM's by default.
func TestDefaultClass(t *testing.T) {
	w := newWorld(t)
	w.node("node-1", nil, "10.0.0.1")
	w.service("classless", func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil })
	operatortest.Start(t, Cell, w.Kubeconfig(), "--default-lb-service-ipam=nodeipam")
	w.awaitAddresses("classless", "10.0.0.1")
}

// NIPAM-3 and NIPAM-5; NIPAM-E4: a node that becomes ineligible or eligible, or goes, and one write for each.
func TestEligibilityChanges(t *testing.T) {
	w := newWorld(t)
	w.node("node-1", nil, "10.0.0.1")
	w.node("node-2", nil, "10.0.0.2")
	w.service("web", nil)
	w.start()
	w.awaitAddresses("web", "10.0.0.1", "10.0.0.2")
	for _, c := range []struct{ out, in string }{
		{`{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":""}}}`, `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":null}}}`},
		{`{"spec":{"taints":[{"key":"ToBeDeletedByClusterAutoscaler","effect":"NoSchedule"}]}}`, `{"spec":{"taints":null}}`},
		{`{"metadata":{"finalizers":["example.com/hold"],"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"x"}}}`, `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":null}}}`},
	} {
		w.patchNode("node-1", c.out)
		w.awaitAddresses("web", "10.0.0.2")
		w.patchNode("node-1", c.in)
		w.awaitAddresses("web", "10.0.0.1", "10.0.0.2")
	}
	if err := w.Core.CoreV1().Nodes().Delete(t.Context(), "node-1", metav1.DeleteOptions{}); err != nil { // it has a finalizer
		t.Fatal(err)
	}
	w.awaitAddresses("web", "10.0.0.2")
	w.patchNode("node-1", `{"metadata":{"finalizers":null}}`)
	w.node("node-3", nil, "10.0.0.3")
	w.awaitAddresses("web", "10.0.0.2", "10.0.0.3")
	if got, most := w.writes("web"), 1+6+1+2; got > most {
		t.Errorf("%d writes, want at most %d", got, most)
	}
}

// NIPAM-3 and NIPAM-6; NIPAM-E2 and NIPAM-E5: the selector of the Service, and one that cannot be parsed.
func TestNodeSelector(t *testing.T) {
	w := newWorld(t)
	w.node("node-1", map[string]string{"zone": "a"}, "10.0.0.1")
	w.node("node-2", map[string]string{"zone": "b"}, "10.0.0.2")
	selected := func(text string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Annotations = map[string]string{selectorAnnotation: text} }
	}
	w.service("web", selected("zone in (a)"))
	w.service("bad", selected("zone in (a"))
	o := w.start()
	w.awaitAddresses("web", "10.0.0.1")
	w.patchService("web", `{"metadata":{"annotations":{"io.cilium.nodeipam/match-node-labels":"zone in (a"}}}`)
	operatortest.Eventually(t, "health shows the selectors", func() bool {
		return strings.Contains(o.Degraded("nodeipam"), "/bad: the annotation") && strings.Contains(o.Degraded("nodeipam"), "and 1 more")
	})
	w.node("node-3", map[string]string{"zone": "a"}, "10.0.0.3")
	w.service("good", selected("zone=a"))
	w.awaitAddresses("good", "10.0.0.1", "10.0.0.3")
	w.awaitAddresses("web", "10.0.0.1") // as it was
	operatortest.Eventually(t, "Events tell the users", func() bool {
		events, err := w.Core.CoreV1().Events(w.Namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == "web" && e.Reason == "InvalidNodeSelector"
		})
	})
	var logged int
	for _, m := range o.Messages("nodeipam") {
		if strings.Contains(m, "/web") {
			logged++
		}
	}
	if logged != 1 {
		t.Errorf("%d messages about the Service", logged)
	}
	w.patchService("web", `{"metadata":{"annotations":null}}`)
	w.awaitAddresses("web", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	w.patchService("bad", `{"metadata":{"annotations":{"io.cilium.nodeipam/match-node-labels":"zone=none"}}}`)
	operatortest.Eventually(t, "health is OK", func() bool { return o.Degraded("nodeipam") == "" })
	operatortest.Eventually(t, "the Service without nodes is counted", func() bool { return o.Metric("nodeipam_services", "no_node") == 1 })
}

func (w *world) slice(name, service string, endpoints map[string]*bool) {
	w.T.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for node, ready := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.1.0.%d", len(s.Endpoints)+1)}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: ready},
		})
	}
	api := w.Core.DiscoveryV1().EndpointSlices(w.Namespace)
	if _, err := api.Update(w.T.Context(), s, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := api.Create(w.T.Context(), s, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// NIPAM-4, NIPAM-7 and NIPAM-9; NIPAM-E3: nodes with endpoints alone, and EndpointSlices are listed for such a Service only.
func TestLocal(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.node(fmt.Sprint("node-", i+1), nil, fmt.Sprint("10.0.0.", i+1))
	}
	w.slice("web-1", "web", map[string]*bool{"node-1": new(true), "node-2": new(false), "node-3": nil})
	w.slice("other-1", "other", map[string]*bool{"node-2": new(true)})
	w.service("cluster", nil)
	w.start()
	w.awaitAddresses("cluster", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	lists := func() (n int) {
		for _, r := range w.Proxy.Requests(t, 0) {
			if r.Resource == "endpointslices" {
				n++
			}
		}
		return n
	}
	if n := lists(); n > 0 {
		t.Errorf("%d requests for EndpointSlices without a Service that needs them", n)
	}
	local := func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	w.service("web", local)
	w.awaitAddresses("web", "10.0.0.1", "10.0.0.3")
	w.slice("web-2", "web", map[string]*bool{"node-2": new(true)})
	w.awaitAddresses("web", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	w.slice("web-1", "web", nil)
	w.awaitAddresses("web", "10.0.0.2")
	if err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Delete(t.Context(), "web-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitAddresses("web")
	w.patchService("cluster", `{"spec":{"externalTrafficPolicy":"Local"}}`)
	w.awaitAddresses("cluster")
	w.patchService("cluster", `{"spec":{"externalTrafficPolicy":"Cluster"}}`)
	w.awaitAddresses("cluster", "10.0.0.1", "10.0.0.2", "10.0.0.3")
}

// NIPAM-11: a Local Service keeps its addresses as long as EndpointSlices are not known.
func TestLocalWaitsForEndpointSlices(t *testing.T) {
	w := newWorld(t)
	w.node("node-1", nil, "10.0.0.1")
	w.slice("web-1", "web", map[string]*bool{"node-1": new(true)})
	w.service("web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	w.patchService("web", `{"status":{"loadBalancer":{"ingress":[{"ip":"10.0.0.9"}]}}}`, "status")
	fails := w.Proxy.Answer(t, 500, clustertest.Match{Resources: []string{"endpointslices"}})
	w.start()
	w.service("cluster", nil)
	w.awaitAddresses("cluster", "10.0.0.1")
	if got := w.addresses("web"); !slices.Equal(got, []string{"10.0.0.9"}) {
		t.Errorf("the addresses are %v before EndpointSlices are known", got)
	}
	fails.Remove(t)
	w.awaitAddresses("web", "10.0.0.1")
}

// NIPAM-8: a Service that has another type now is left to the API server, which removes the addresses.
func TestTypeChanges(t *testing.T) {
	w := newWorld(t)
	w.node("node-1", nil, "10.0.0.1")
	w.service("web", nil)
	o := w.start()
	w.awaitAddresses("web", "10.0.0.1")
	w.patchService("web", `{"spec":{"type":"ClusterIP","loadBalancerClass":null,"externalTrafficPolicy":null,"allocateLoadBalancerNodePorts":null}}`)
	w.awaitAddresses("web")
	operatortest.Eventually(t, "it is not counted any more", func() bool { return o.Metric("nodeipam_services", "served") == 0 })
	if n := w.writes("web"); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
}

// NIPAM-2: host names and addresses that others wrote are replaced.
func TestForeignIngress(t *testing.T) {
	w := newWorld(t)
	w.node("node-1", nil, "10.0.0.1")
	w.service("web", nil)
	w.start()
	w.awaitAddresses("web", "10.0.0.1")
	w.patchService("web", `{"status":{"loadBalancer":{"ingress":[{"hostname":"lb.example.com"},{"ip":"10.0.0.1"}]}}}`, "status")
	w.awaitAddresses("web", "10.0.0.1")
}

// NIPAM-12: a Service that has changed since it was read from the cache is not written.
func TestStaleService(t *testing.T) {
	w := newWorld(t)
	w.node("node-1", nil, "10.0.0.1")
	w.service("web", nil)
	w.start()
	w.awaitAddresses("web", "10.0.0.1")
	held := w.Proxy.HoldWatch(t, "services", 0)
	w.patchService("web", `{"metadata":{"annotations":{"io.cilium.nodeipam/match-node-labels":"zone=a"}}}`)
	w.node("node-2", nil, "10.0.0.2")
	gets := func() (n int) {
		for _, r := range w.Proxy.Requests(t, 0) {
			if r.Verb == "get" && r.Resource == "services" && r.Name == "web" {
				n++
			}
		}
		return n
	}
	seen := gets()
	operatortest.Eventually(t, "the Service is read", func() bool { return gets() > seen })
	if n := w.writes("web"); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	held.Remove(t)
	w.awaitAddresses("web")
}

// NIPAM-14, K1 of the contract's tenants.md: a port that a Service gets later is not its own because its selector cannot be parsed, or because it is being
// deleted and waits for a finalizer.
func TestPortsThatComeLater(t *testing.T) {
	w := newWorld(t)
	w.node("n", nil, "10.0.0.1")
	w.service("selector", nil)
	w.service("deleted", func(s *corev1.Service) { s.Finalizers = []string{"example.com/stays"} })
	w.service("stays", func(s *corev1.Service) { s.Finalizers = []string{"example.com/stays"} })
	o := w.start()
	for _, name := range []string{"selector", "deleted", "stays"} {
		w.awaitAddresses(name, "10.0.0.1")
	}
	for _, name := range []string{"deleted", "stays"} {
		if err := w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const kubelet = `"ports": [{"port": 10250, "protocol": "TCP"}]`
	w.patchService("selector", `{"metadata": {"annotations": {"`+selectorAnnotation+`": "zone in (a"}}, "spec": {`+kubelet+`}}`)
	w.patchService("deleted", `{"spec": {`+kubelet+`}}`)
	w.awaitAddresses("selector")
	w.awaitAddresses("deleted")
	if got := w.addresses("stays"); !slices.Equal(got, []string{"10.0.0.1"}) {
		t.Errorf("one that is being deleted, and whose ports are its own, has %q", got)
	}
	for _, name := range []string{"deleted", "stays"} {
		w.patchService(name, `{"metadata": {"finalizers": null}}`)
	}
	w.patchService("selector", `{"metadata": {"annotations": null}, "spec": {"ports": [{"port": 80, "protocol": "TCP"}]}}`)
	w.awaitAddresses("selector", "10.0.0.1")
	operatortest.Eventually(t, "nothing is degraded", func() bool { return o.Degraded("") == "" })
	w.CheckHealthy(o)
}
