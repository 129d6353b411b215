// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// world is all Ingresses of the cluster.
type world struct{ *operatortest.Env }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{operatortest.NewEnv(t, clustertest.Shared(t), "CiliumEnvoyConfig")}
	w.Clear(ingresses.Resource(), classes.Resource())
	w.CreateNamespace()
	for _, name := range []string{"front", "api", "auth", "img", "fallback"} {
		w.service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	}
	return w
}

func (w *world) args(more ...string) []string {
	return append([]string{"--enable-ingress-controller", "--kube-proxy-replacement=true", "--k8s-namespace=" + w.Namespace}, more...)
}

func (w *world) start(more ...string) *operatortest.Operator {
	return operatortest.Start(w.T, Cell, w.Kubeconfig(), w.args(more...)...)
}

func (w *world) must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) service(s *corev1.Service) {
	w.T.Helper()
	_, err := w.Core.CoreV1().Services(w.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{})
	w.must(err)
}

// apply creates an Ingress.
func (w *world) apply(text string) *networkingv1.Ingress {
	w.T.Helper()
	i := &networkingv1.Ingress{}
	w.must(yaml.UnmarshalStrict([]byte(text), i))
	i.Namespace = ""
	i, err := w.Core.NetworkingV1().Ingresses(w.Namespace).Create(w.T.Context(), i, metav1.CreateOptions{})
	w.must(err)
	return i
}

func (w *world) patch(name, patch string) {
	w.T.Helper()
	_, err := w.Core.NetworkingV1().Ingresses(w.Namespace).Patch(w.T.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	w.must(err)
}

func (w *world) annotate(name, annotation, value string) {
	w.T.Helper()
	w.patch(name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, prefix+annotation, value))
}

// config is the configuration of a CiliumEnvoyConfig, nil if there is none. It is valid.
func (w *world) config(name string) *envoytest.Config {
	w.T.Helper()
	u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	text, err := json.Marshal(u.Object["spec"])
	w.must(err)
	c, err := envoytest.VerifyJSON(text)
	w.must(err)
	return c
}

func (w *world) dedicated(name string) *envoytest.Config {
	return w.config(namePrefix + w.Namespace + "-" + name)
}

func (w *world) shared() *envoytest.Config { return w.config("cilium-ingress") }

// awaitRoutes waits for the routes of a host in plain HTTP.
func (w *world) awaitRoutes(of func() *envoytest.Config, host string, want ...string) {
	w.T.Helper()
	var got []string
	operatortest.Eventually(w.T, fmt.Sprint(host, " has the routes ", want), func() bool {
		c := of()
		if c == nil {
			return len(want) == 0
		}
		got = nil
		for _, r := range routes(c, "insecure", host) {
			got = append(got, strings.ReplaceAll(r, w.Namespace, "NS"))
		}
		return cmp.Equal(got, want)
	})
}

func (w *world) loadBalancer(name string) *corev1.Service {
	w.T.Helper()
	s, err := w.Core.CoreV1().Services(w.Namespace).Get(w.T.Context(), namePrefix+name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return s
}

// slice is the placeholder of an Ingress as an EndpointSlice.
func (w *world) slice(name string) *discoveryv1.EndpointSlice {
	w.T.Helper()
	s, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Get(w.T.Context(), namePrefix+name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return s
}

func (w *world) awaitDedicated(name string, exists bool) {
	w.T.Helper()
	operatortest.Eventually(w.T, fmt.Sprintf("%s has a load balancer of its own: %t", name, exists), func() bool {
		return (w.loadBalancer(name) != nil) == exists && (w.slice(name) != nil) == exists && (w.dedicated(name) != nil) == exists
	})
}

func (w *world) event(reason, about string) bool {
	events, err := w.Core.CoreV1().Events(w.Namespace).List(w.T.Context(), metav1.ListOptions{})
	w.must(err)
	for _, e := range events.Items {
		if e.Reason == reason && e.InvolvedObject.Name == about {
			return true
		}
	}
	return false
}

// writes are the requests of the operator that change objects of the namespace, Events aside.
func (w *world) writes() (all []string) {
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if r.Namespace == w.Namespace && r.Resource != "events" && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			all = append(all, r.Verb+" "+r.Resource+" "+r.Name)
		}
	}
	return all
}

const example = `
metadata: {name: web}
spec:
  ingressClassName: cilium
  tls: [{hosts: [shop.example.com], secretName: shop-tls}]
  rules:
  - host: shop.example.com
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}
      - {path: /api/, pathType: Prefix, backend: {service: {name: api, port: {number: 8080}}}}
      - {path: /login, pathType: Exact, backend: {service: {name: auth, port: {number: 8080}}}}
      - {path: "/img/.*[.]png", pathType: ImplementationSpecific, backend: {service: {name: img, port: {number: 80}}}}
  - host: "*.tenant.example.com"
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}
`

func simple(name, host, backend string) string {
	return fmt.Sprintf(`
metadata: {name: %s}
spec:
  ingressClassName: cilium
  rules: [{host: %s, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %s, port: {number: 80}}}}]}}]`, name, host, backend)
}

// roleOfTheDuty are the permissions that docs/wire/ingress.md has.
var roleOfTheDuty = []rbacv1.PolicyRule{
	{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses", "ingressclasses"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses/status"}, Verbs: []string{"update"}},
	{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumenvoyconfigs"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
}

// ING-E1 and ING-E5; ING-18: the worked example, its status, and a restart that writes nothing.
func TestDedicated(t *testing.T) {
	w := newWorld(t)
	web := w.apply(example)
	o := operatortest.Start(t, Cell, w.As("skep", roleOfTheDuty...), w.args("--cilium-release=1.17")...)
	w.awaitDedicated("web", true)

	want, err := os.ReadFile("../../resources/domain/envoy/testdata/shop.yaml")
	w.must(err)
	text := strings.NewReplacer("namespace: shop", "namespace: "+w.Namespace, `"shop:`, `"`+w.Namespace+":", `"shop/`, `"`+w.Namespace+"/",
		"cilium-secrets/shop-", "cilium-secrets/"+w.Namespace+"-").Replace(string(want))
	u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(t.Context(), namePrefix+w.Namespace+"-web", metav1.GetOptions{})
	w.must(err)
	if diff := cmp.Diff(plain(t, []byte(text)), plain(t, asJSON(t, u.Object["spec"]))); diff != "" {
		t.Errorf("ING-E1: %s", diff)
	}
	if u.GetLabels()["cilium.io/use-original-source-address"] != "false" || u.GetAnnotations()["cec.cilium.io/use-original-source-address"] != "false" {
		t.Errorf("ING-E1: %v %v", u.GetLabels(), u.GetAnnotations())
	}
	s, e := w.loadBalancer("web"), w.slice("web")
	got := fmt.Sprintf("%s %s %s %s:%d %s:%d %d %s:%d %s", s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Labels, s.Spec.Ports[0].Name, s.Spec.Ports[0].Port,
		s.Spec.Ports[1].Name, s.Spec.Ports[1].Port, len(s.Spec.Selector), e.Endpoints[0].Addresses[0], *e.Ports[0].Port, e.Labels[ingressLabel])
	if got != "LoadBalancer Cluster map[cilium.io/ingress:true] http:80 https:443 0 192.192.192.192:9999 true" {
		t.Errorf("ING-E1: %s", got)
	}
	for _, obj := range []metav1.Object{s, e, u} {
		if c := metav1.GetControllerOf(obj); c == nil || c.UID != web.UID || (c.BlockOwnerDeletion != nil) != (obj == metav1.Object(u)) {
			t.Errorf("ING-E1: %v", c)
		}
	}

	setAddresses := func(ips ...string) {
		s := w.loadBalancer("web")
		s.Status.LoadBalancer.Ingress = nil
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		_, err := w.Core.CoreV1().Services(w.Namespace).UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
		w.must(err)
		operatortest.Eventually(t, fmt.Sprint("ING-E5: the Ingress has ", ips), func() bool {
			i, err := w.Core.NetworkingV1().Ingresses(w.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
			w.must(err)
			return len(i.Status.LoadBalancer.Ingress) == len(ips) && (len(ips) == 0 || i.Status.LoadBalancer.Ingress[0].IP == ips[0])
		})
	}
	setAddresses("203.0.113.7")
	setAddresses()
	setAddresses("203.0.113.8")
	w.CheckHealthy(o)
	o.Stop()

	before := len(w.writes())
	o = operatortest.Start(t, Cell, w.As("skep-2", roleOfTheDuty...), w.args("--cilium-release=1.17")...)
	w.apply(simple("last", "last.example.com", "front"))
	w.awaitDedicated("last", true)
	if after := w.writes()[before:]; len(after) != 3 {
		t.Errorf("ING-18: a restart writes %q", after)
	}
	w.CheckHealthy(o)
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func plain(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// ING-E3, ING-E11 and ING-E12: the shared load balancer.
func TestShared(t *testing.T) {
	w := newWorld(t)
	w.service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "cilium-ingress"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}},
	}})
	w.apply(simple("one", "one.example.com", "front"))
	w.apply(simple("two", "two.example.com", "api"))
	w.start("--ingress-default-lb-mode=shared")
	w.awaitRoutes(w.shared, "one.example.com", "/ → NS:front:80")
	w.awaitRoutes(w.shared, "two.example.com", "/ → NS:api:80")
	w.awaitDedicated("one", false)

	w.annotate("one", "loadbalancer-mode", "dedicated")
	w.awaitDedicated("one", true)
	w.awaitRoutes(w.shared, "one.example.com")
	w.annotate("one", "loadbalancer-mode", "shared")
	w.awaitDedicated("one", false)
	w.awaitRoutes(w.shared, "one.example.com", "/ → NS:front:80")

	s, err := w.Core.CoreV1().Services(w.Namespace).Get(t.Context(), "cilium-ingress", metav1.GetOptions{})
	w.must(err)
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}}
	_, err = w.Core.CoreV1().Services(w.Namespace).UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
	w.must(err)
	operatortest.Eventually(t, "ING-8: both have the address", func() bool {
		all, err := w.Core.NetworkingV1().Ingresses(w.Namespace).List(t.Context(), metav1.ListOptions{})
		w.must(err)
		for _, i := range all.Items {
			if len(i.Status.LoadBalancer.Ingress) != 1 || i.Status.LoadBalancer.Ingress[0].Hostname != "lb.example.com" {
				return false
			}
		}
		return true
	})

	configs := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace)
	w.must(configs.Delete(t.Context(), "cilium-ingress", metav1.DeleteOptions{}))
	w.awaitRoutes(w.shared, "two.example.com", "/ → NS:api:80")
	_, err = configs.Patch(t.Context(), "cilium-ingress", "application/merge-patch+json", []byte(`{"spec":{"resources":[],"services":[]}}`), metav1.PatchOptions{})
	w.must(err)
	operatortest.Eventually(t, "ING-E12: it is restored", func() bool {
		u, err := configs.Get(t.Context(), "cilium-ingress", metav1.GetOptions{})
		w.must(err)
		resources, _, _ := unstructured.NestedSlice(u.Object, "spec", "resources")
		return len(resources) == 4
	})

	// ING-16: a Service that goes and comes.
	w.must(w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), "api", metav1.DeleteOptions{}))
	w.awaitRoutes(w.shared, "two.example.com", "/ → 503")
	w.service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "api"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	w.awaitRoutes(w.shared, "two.example.com", "/ → NS:api:80")

	for _, name := range []string{"one", "two"} {
		w.must(w.Core.NetworkingV1().Ingresses(w.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	operatortest.Eventually(t, "ING-E11: it is deleted with the last Ingress", func() bool { return w.shared() == nil })
}

// ING-E4, ING-E15 and ING-F9: the class.
func TestClass(t *testing.T) {
	w := newWorld(t)
	w.apply(strings.ReplaceAll(simple("classless", "a.example.com", "front"), "ingressClassName: cilium", ""))
	nginx := w.apply(strings.ReplaceAll(simple("other", "b.example.com", "front"), "cilium", "nginx"))
	w.apply(simple("web", "c.example.com", "front"))
	w.start()
	w.awaitDedicated("web", true)
	w.awaitDedicated("classless", false)
	api := w.Core.NetworkingV1().IngressClasses()
	create := func(isDefault string) {
		_, err := api.Create(t.Context(), &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: class, Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}},
			Spec:       networkingv1.IngressClassSpec{Controller: "cilium.io/ingress-controller"},
		}, metav1.CreateOptions{})
		w.must(err)
	}
	create("true")
	w.awaitDedicated("classless", true)
	served := w.loadBalancer("classless").UID
	w.must(api.Delete(t.Context(), class, metav1.DeleteOptions{}))
	w.apply(strings.ReplaceAll(simple("later", "d.example.com", "front"), "ingressClassName: cilium", ""))
	w.awaitDedicated("later", true) // ING-30: what replaces the class has deleted it
	create("true")
	w.patch("later", `{"spec":{"ingressClassName":"nginx"}}`)
	w.awaitDedicated("later", false)
	if w.loadBalancer("classless").UID != served {
		t.Error("an Ingress without a class has lost its load balancer while its class was replaced")
	}
	w.must(api.Delete(t.Context(), class, metav1.DeleteOptions{}))
	create("false")
	w.awaitDedicated("classless", false)

	w.patch("web", `{"spec":{"ingressClassName":"nginx"}}`)
	w.awaitDedicated("web", false)
	for _, text := range w.writes() {
		if strings.Contains(text, "ingresses") {
			t.Errorf("ING-F9: %s", text)
		}
	}
	after, err := w.Core.NetworkingV1().Ingresses(w.Namespace).Get(t.Context(), "other", metav1.GetOptions{})
	w.must(err)
	if after.ResourceVersion != nginx.ResourceVersion {
		t.Error("ING-F9: an Ingress of another class was written")
	}
}

// ING-4, ING-7, ING-F2, ING-F3: the Service follows the annotations, and what others set stays; the external traffic policy among it, number 26
// of the contract's ingress.md.
func TestServiceFollows(t *testing.T) {
	w := newWorld(t)
	w.apply(simple("web", "a.example.com", "front"))
	o := w.start()
	w.awaitDedicated("web", true)
	first := w.loadBalancer("web")
	_, err := w.Core.CoreV1().Services(w.Namespace).Patch(t.Context(), first.Name, "application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"team":"net"}},"spec":{"ports":[{"name":"http","port":81}]}}`), metav1.PatchOptions{})
	w.must(err)
	is := func(kind corev1.ServiceType, policy corev1.ServiceExternalTrafficPolicy) func() bool {
		return func() bool {
			s := w.loadBalancer("web")
			return s.Spec.Type == kind && s.Spec.ExternalTrafficPolicy == policy && len(s.Spec.Ports) == 2 && s.Spec.Ports[0].Port == 80
		}
	}
	operatortest.Eventually(t, "ING-7: the ports are restored", is("LoadBalancer", "Cluster"))
	_, err = w.Core.CoreV1().Services(w.Namespace).Patch(t.Context(), first.Name, "application/merge-patch+json",
		[]byte(`{"spec":{"externalTrafficPolicy":"Local","ports":[{"name":"http","port":81}]}}`), metav1.PatchOptions{})
	w.must(err)
	operatortest.Eventually(t, "number 26: a policy that was set by hand stays", is("LoadBalancer", "Local"))
	w.annotate("web", "service-external-traffic-policy", "Cluster")
	operatortest.Eventually(t, "ING-4: the annotation sets it back", is("LoadBalancer", "Cluster"))
	w.annotate("web", "service-external-traffic-policy", "Local")
	operatortest.Eventually(t, "traffic stays on the node", is("LoadBalancer", "Local"))
	w.annotate("web", "service-type", "NodePort")
	w.annotate("web", "secure-node-port", "30043")
	operatortest.Eventually(t, "ING-F2: the node port is that of HTTPS", func() bool {
		return is("NodePort", "Local")() && w.loadBalancer("web").Spec.Ports[1].NodePort == 30043
	})
	if s := w.loadBalancer("web"); s.UID != first.UID || s.Spec.ClusterIP != first.Spec.ClusterIP || s.Annotations["team"] != "net" {
		t.Error("ING-7: what others have set is gone")
	}
	o.Stop()
	w.annotate("web", "service-type", "LoadBalancer")
	o = w.start("--ingress-hostnetwork-enabled")
	operatortest.Eventually(t, "ING-F3: an address of the cluster", is("ClusterIP", ""))
	w.must(w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	w.awaitDedicated("web", true)
	w.CheckHealthy(o)
}

// ING-27: an Ingress whose Service the API server refuses says so; it is served when the port of the nodes is free.
func TestNodePortOfAnother(t *testing.T) {
	w := newWorld(t)
	taken := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30777}},
	}}
	w.service(taken)
	o := w.start()
	w.apply(strings.Replace(simple("web", "a.example.com", "front"), "{name: web}",
		`{name: web, annotations: {ingress.cilium.io/service-type: NodePort, ingress.cilium.io/insecure-node-port: "30777"}}`, 1))
	operatortest.Eventually(t, "an Event says so", func() bool { return w.event("NotWritten", "web") })
	if text := o.Degraded("ingress"); !strings.Contains(text, "provided port is already allocated") {
		t.Errorf("health says %q", text)
	}
	w.must(w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), "other", metav1.DeleteOptions{}))
	w.awaitDedicated("web", true)
	w.CheckHealthy(o)
}

// ING-F4, ING-F10, ING-17: empty Ingresses, names that are taken, names that no Service can have.
func TestConflicts(t *testing.T) {
	w := newWorld(t)
	w.service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: namePrefix + "taken"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}})
	before := w.loadBalancer("taken")
	w.apply(simple("taken", "a.example.com", "front"))
	w.apply(simple("a.b", "b.example.com", "front"))
	w.apply(simple("web", "c.example.com", "front"))
	o := w.start()
	w.awaitDedicated("web", true)
	operatortest.Eventually(t, "ING-F10: an Event reports the conflict", func() bool { return w.event("NotWritten", "taken") })
	operatortest.Eventually(t, "ING-17: an Event reports the name", func() bool { return w.event("InvalidName", "a.b") })
	operatortest.Eventually(t, "health shows both", func() bool { return strings.Contains(o.Degraded("ingress"), "and 1 more") })
	w.patch("taken", `{"spec":{"ingressClassName":"nginx"}}`)
	operatortest.Eventually(t, "it is no Ingress of ours", func() bool { return !strings.Contains(o.Degraded("ingress"), "and 1 more") })
	if after := w.loadBalancer("taken"); after == nil || after.ResourceVersion != before.ResourceVersion {
		t.Error("ING-F10: the Service of another was changed")
	}
	w.patch("web", `{"spec":{"rules":[{"host":"c.example.com"}]}}`)
	w.awaitDedicated("web", false)
	operatortest.Eventually(t, "ING-F4: an Event says so", func() bool { return w.event("NothingToServe", "web") })
	w.patch("web", `{"spec":{"defaultBackend":{"service":{"name":"fallback","port":{"number":80}}}}}`)
	w.awaitDedicated("web", true)
}
