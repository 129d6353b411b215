// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/operatortest"
)

const plainGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: CLASS
  listeners: [%s]
`

const config = "cilium-gateway-edge"

// remoteAddresses says of each connection manager of a CiliumEnvoyConfig whether the address of a client is that of its connection.
func (w *world) remoteAddresses(name string) (all []bool) {
	w.T.Helper()
	for _, l := range w.config(name).Listeners {
		for _, chain := range l.FilterChains {
			m := &hcmv3.HttpConnectionManager{}
			w.must(chain.Filters[0].GetTypedConfig().UnmarshalTo(m))
			all = append(all, m.GetUseRemoteAddress().GetValue())
		}
	}
	return all
}

// GW-E4 to GW-E8, GW-E11, GW-E15, GW-F3: what is said of routes, and what is served of them. ENV-36 and number 32 of the contract's
// gateway-api.md: which address counts as that of the client.
func TestRoutes(t *testing.T) {
	w := newWorld(t)
	w.secret(w.Namespace, "cert", testPEM)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, `
  {name: http, port: 80, protocol: HTTP}, {name: https, port: 443, protocol: HTTPS, hostname: "*.example.com", tls: {certificateRefs: [{name: cert}]}}`))
	b := w.namespace("b")
	foreign := w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("foreign", "", "v1"), "name: edge", "name: elsewhere", 1))
	w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("inb", "www.example.com", "v1"), "name: inb}", "name: inb, namespace: "+b+"}", 1))
	o := w.start("--gateway-api-use-remote-address=false")

	w.apply(httpRoutes.Resource(), httpRouteTo("www", "www.example.com", "v1"))
	w.awaitAccepted(httpRoutes.Resource(), "www", httpOK)
	for _, table := range []string{"insecure", "secure"} {
		w.awaitRoutes(config, table, "www.example.com/ → NS:v1:80")
	}
	if got := w.remoteAddresses(config); !slices.Equal(got, []bool{false, false}) {
		t.Errorf("number 32: connection managers have useRemoteAddress %v", got)
	}
	// GW-E15: the younger one has the same requests.
	operatortest.Eventually(t, "the clock goes on", func() bool {
		u := w.apply(httpRoutes.Resource(), httpRouteTo("younger", "www.example.com", "v2"))
		has, err := w.Dynamic.Resource(httpRoutes.Resource()).Namespace(w.Namespace).Get(t.Context(), "www", metav1.GetOptions{})
		w.must(err)
		created, is := has.GetCreationTimestamp(), u.GetCreationTimestamp()
		if created.Before(&is) {
			return true
		}
		w.delete(httpRoutes.Resource(), "younger")
		return false
	})
	w.awaitAccepted(httpRoutes.Resource(), "younger", httpOK)
	w.awaitRoutes(config, "insecure", "www.example.com/ → NS:v1:80")

	// GW-E4: another namespace, in the namespace of which the status is.
	operatortest.Eventually(t, "GW-E4: the route of another namespace is not allowed", func() bool {
		u, err := w.Dynamic.Resource(httpRoutes.Resource()).Namespace(b).Get(t.Context(), "inb", metav1.GetOptions{})
		w.must(err)
		parents, _, _ := unstructured.NestedSlice(u.Object, "status", "parents")
		return len(parents) == 0 // its Gateway is in its own namespace, and does not exist
	})
	_, err := w.Dynamic.Resource(httpRoutes.Resource()).Namespace(b).Patch(t.Context(), "inb", "application/merge-patch+json",
		[]byte(fmt.Sprintf(`{"spec":{"parentRefs":[{"name":"edge","namespace":%q}]}}`, w.Namespace)), metav1.PatchOptions{})
	w.must(err)
	operatortest.Eventually(t, "GW-E4: the route of another namespace is not allowed", func() bool {
		u, err := w.Dynamic.Resource(httpRoutes.Resource()).Namespace(b).Get(t.Context(), "inb", metav1.GetOptions{})
		w.must(err)
		return strings.Contains(fmt.Sprint(u.Object["status"]), "HTTPRoute is not allowed to attach to this Gateway due to namespace restrictions")
	})
	w.awaitRoutes(config, "insecure", "www.example.com/ → NS:v1:80")

	// GW-E5: a backend of another namespace.
	w.service(b, "svc")
	w.patch(httpRoutes.Resource(), "www", fmt.Sprintf(`{"spec":{"rules":[{"backendRefs":[{"name":"svc","namespace":%q,"port":80}]}]}}`, b))
	w.awaitResolved(httpRoutes.Resource(), "www", "False RefNotPermitted: Cross namespace references are not allowed")
	w.awaitRoutes(config, "insecure", "www.example.com/ → 500")
	w.apply(grants.Resource(), fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: %s}
spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: NS}], to: [{group: "", kind: Service}]}`, b))
	w.awaitResolved(httpRoutes.Resource(), "www", resolvedOK)
	w.awaitRoutes(config, "insecure", "www.example.com/ → "+strings.ReplaceAll(b, w.Namespace, "NS")+":svc:80")
	w.must(w.Dynamic.Resource(grants.Resource()).Namespace(b).Delete(t.Context(), "g", metav1.DeleteOptions{}))
	w.awaitRoutes(config, "insecure", "www.example.com/ → 500")

	// GW-E6: a Service that does not exist yet.
	w.patch(httpRoutes.Resource(), "www", `{"spec":{"rules":[{"backendRefs":[{"name":"late","port":80}]}]}}`)
	w.awaitResolved(httpRoutes.Resource(), "www", `False BackendNotFound: Service "late" not found`)
	w.awaitRoutes(config, "insecure", "www.example.com/ → 500")
	w.service(w.Namespace, "late")
	w.awaitResolved(httpRoutes.Resource(), "www", resolvedOK)
	w.awaitRoutes(config, "insecure", "www.example.com/ → NS:late:80")
	w.delete(httpRoutes.Resource(), "younger")

	// GW-E7, GW-E8: host names.
	w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("hosts", "a.example.com", "v1"), `["a.example.com"]`, `["a.example.com", "other.org"]`, 1))
	w.awaitRoutes(config, "insecure", "a.example.com/ → NS:v1:80; other.org/ → NS:v1:80; www.example.com/ → NS:late:80")
	w.awaitRoutes(config, "secure", "a.example.com/ → NS:v1:80; www.example.com/ → NS:late:80")
	w.patch(httpRoutes.Resource(), "hosts", `{"spec":{"parentRefs":[{"name":"edge","sectionName":"https"}],"hostnames":["other.org"]}}`)
	w.awaitAccepted(httpRoutes.Resource(), "hosts", "False NoMatchingListenerHostname: No matching listener hostname")
	w.awaitRoutes(config, "secure", "www.example.com/ → NS:late:80")

	// GW-E11: a listener that does not exist; and a parent that is not ours any more.
	w.patch(httpRoutes.Resource(), "hosts", `{"spec":{"parentRefs":[{"name":"edge","sectionName":"nope"}]}}`)
	w.awaitAccepted(httpRoutes.Resource(), "hosts", "False NoMatchingParent: No matching listener with sectionName nope")
	operatortest.Eventually(t, "explain has the words of the status", func() bool {
		for _, d := range o.Book.For("HTTPRoute", w.Namespace, "hosts").Decisions {
			if strings.Contains(d.Outcome, "No matching listener with sectionName nope") {
				return true
			}
		}
		return false
	})
	w.patch(httpRoutes.Resource(), "hosts", `{"spec":{"parentRefs":[{"name":"elsewhere"}]}}`)
	w.awaitAccepted(httpRoutes.Resource(), "hosts", "none")

	after, err := w.Dynamic.Resource(httpRoutes.Resource()).Namespace(w.Namespace).Get(t.Context(), "foreign", metav1.GetOptions{})
	w.must(err)
	if after.GetResourceVersion() != foreign.GetResourceVersion() {
		t.Error("GW-F3: a route of another controller was written")
	}
	w.CheckHealthy(o)
}

// GW-2, GW-12, GW-13, GW-E9: a listener with a more specific host name has its requests alone; conflicts; the class moves away.
func TestListeners(t *testing.T) {
	w := newWorld(t)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, `
  {name: wild, port: 80, protocol: HTTP, hostname: "*.example.com"}, {name: foo, port: 80, protocol: HTTP, hostname: foo.example.com}`))
	w.apply(httpRoutes.Resource(), httpRouteTo("foo", "foo.example.com", "v1"))
	w.start()
	w.awaitRoutes(config, "insecure", "foo.example.com/ → NS:v1:80")
	w.await("GW-E9: the second has it", fmt.Sprintf(listenerOK, 1), func() string { return w.listener("edge", "foo") })
	w.await("GW-E9: the first has not", fmt.Sprintf(listenerOK, 0), func() string { return w.listener("edge", "wild") })

	w.patch(gateways.Resource(), "edge", `{"spec":{"listeners":[{"name":"a","port":80,"protocol":"TCP"}]}}`)
	w.awaitGateway("edge", "Accepted", "False ListenersNotValid: No Accepted Listeners")
	operatortest.Eventually(t, "GW-13: there is no configuration", func() bool { return w.config(config) == nil })
	if w.loadBalancer(config) == nil {
		t.Error("GW-13: the Service is gone")
	}
	w.patch(gateways.Resource(), "edge", `{"spec":{"listeners":[{"name":"a","port":80,"protocol":"HTTP"},{"name":"b","port":81,"protocol":"SCTP"}]}}`)
	w.awaitGateway("edge", "Accepted", "True ListenersNotValid: Some listeners are not valid")
	w.awaitRoutes(config, "insecure", "foo.example.com/ → NS:v1:80")

	w.apply(classes.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: NS-other}, spec: {controllerName: example.com/other}}`)
	w.patch(gateways.Resource(), "edge", fmt.Sprintf(`{"spec":{"gatewayClassName":"%s-other"}}`, w.Namespace))
	operatortest.Eventually(t, "GW-2: what it owned is deleted", func() bool { return w.config(config) == nil && w.loadBalancer(config) == nil })
	w.awaitAccepted(httpRoutes.Resource(), "foo", "none")
}

// GW-E10, GW-15; number 3.5 of the contract's tenants.md: long names, also the longest; an object of another in the place of one.
func TestNames(t *testing.T) {
	w := newWorld(t)
	longest := strings.Repeat("n", 253)
	w.apply(gateways.Resource(), strings.Replace(fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"), "edge", longest, 1))
	long := "test-long-long-long-long-long-long-long-long-long-long-long-long-name"
	w.apply(gateways.Resource(), strings.Replace(fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"), "edge", long, 1))
	w.service(w.Namespace, config)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	o := w.start()
	const short = "cilium-gateway-test-long-long-long-long-long-long-lo-8tfth549c6"
	operatortest.Eventually(t, "GW-E10: there is a Service", func() bool { return w.loadBalancer(short) != nil })
	if got := w.loadBalancer(short).Labels[gatewayLabel]; got != "test-long-long-long-long-long-long-long-long-long-lo-4bftbgh5ht" {
		t.Errorf("GW-E10: %s", got)
	}
	w.setAddresses(short, corev1.LoadBalancerIngress{IP: "203.0.113.9"})
	w.awaitGateway(long, "Programmed", "True Programmed: Gateway Programmed")
	operatortest.Eventually(t, "the longest name has a Service", func() bool { return w.loadBalancer(envoy.Shorten("cilium-gateway-"+longest)) != nil })
	w.setAddresses(envoy.Shorten("cilium-gateway-"+longest), corev1.LoadBalancerIngress{IP: "203.0.113.10"})
	w.awaitGateway(longest, "Programmed", "True Programmed: Gateway Programmed")

	w.awaitGateway("edge", "Programmed", "False NoResources: editing services "+w.Namespace+"/cilium-gateway-edge: the Service "+w.Namespace+"/cilium-gateway-edge exists and does not belong to the Gateway: delete or rename one of them")
	operatortest.Eventually(t, "health says so", func() bool { return strings.Contains(o.Degraded("gateway"), "does not belong to the Gateway") })
	if w.loadBalancer(config).Spec.Type != corev1.ServiceTypeClusterIP {
		t.Error("GW-15: the Service of another was changed")
	}
	w.must(w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), config, metav1.DeleteOptions{}))
	w.awaitGateway("edge", "Programmed", "False AddressNotAssigned: Gateway waiting for address")
	operatortest.Eventually(t, "health is well", func() bool { return o.Degraded("gateway") == "" })
}

// Numbers 37 and 38 of the contract's gateway-api.md; GW-E13, GW-39: definitions that come later, and go. Gateways are served with those of
// the Gateway API 1.3, which have no BackendTLSPolicies of v1, and TLSRoutes of v1alpha2.
func TestLateDefinitions(t *testing.T) {
	w := newWorld(t)
	var names []string
	for _, plural := range append(optional, required...) {
		names = append(names, plural+".gateway.networking.k8s.io")
	}
	w.crds.Delete(names...)
	o := w.start()
	operatortest.Eventually(t, "GW-E13: health names what is missing", func() bool { return strings.Contains(o.Degraded(""), "gateway.networking.k8s.io") })
	w.crds.InstallGatewayAPI("standard", required...)
	w.crds.InstallGatewayAPI("experimental", "backendtlspolicies")
	w.crds.Serve("backendtlspolicies.gateway.networking.k8s.io", "v1alpha3")
	w.crds.Serve("referencegrants.gateway.networking.k8s.io", "v1beta1")
	create := func() {
		w.apply(classes.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: CLASS}, spec: {controllerName: io.cilium/gateway-controller}}`)
		w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}, {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}"))
		w.apply(httpRoutes.Resource(), httpRouteTo("web", "", "v1"))
	}
	create()
	w.awaitRoutes(config, "insecure", "*/ → NS:v1:80")
	operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("") == "" })
	absent := portFeatures(false)
	absent[featureListenerSet] = true
	operatortest.Eventually(t, "number 38: there are no BackendTLSPolicies", func() bool { return slices.Equal(w.features(), supportedFeatures(absent)) })

	// The optional one comes later, first in an older version.
	tls := `
apiVersion: gateway.networking.k8s.io/%s
kind: TLSRoute
metadata: {name: pass}
spec: {parentRefs: [{name: edge}], hostnames: [pass.example.com], rules: [{backendRefs: [{name: v2, port: 80}]}]}`
	chains := func() (n int) {
		if c := w.config(config); c != nil {
			n = len(c.Listeners["listener"].FilterChains)
		}
		return n
	}
	w.crds.InstallGatewayAPI("experimental", "tlsroutes")
	w.crds.Serve("tlsroutes.gateway.networking.k8s.io", "v1alpha2")
	w.apply(tlsRoutesAlpha.Resource(), fmt.Sprintf(tls, "v1alpha2"))
	operatortest.Eventually(t, "a TLSRoute of v1alpha2 is served", func() bool { return chains() == 2 })
	w.awaitAccepted(tlsRoutesAlpha.Resource(), "pass", "True Accepted: Accepted TLSRoute")
	w.crds.Delete("tlsroutes.gateway.networking.k8s.io")
	operatortest.Eventually(t, "it goes", func() bool { return chains() == 1 })

	w.crds.Delete("httproutes.gateway.networking.k8s.io")
	w.awaitRoutes(config, "insecure")
	w.crds.InstallGatewayAPI("experimental", "httproutes")
	w.apply(httpRoutes.Resource(), httpRouteTo("web", "", "v2"))
	w.awaitRoutes(config, "insecure", "*/ → NS:v2:80")
}

// GW-E14 and GW-58: routes of a Service, and its conditions. Number 24 of the contract's gateway-api.md: connections to its backends come
// from the address of the client, which is what agents do where nothing is said.
func TestMesh(t *testing.T) {
	w := newWorld(t)
	_, err := w.Core.CoreV1().Services(w.Namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, AppProtocol: new("http")}}},
	}, metav1.CreateOptions{})
	w.must(err)
	route := func(name, path, service string) string {
		return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s}
spec: {parentRefs: [{group: "", kind: Service, name: web}], hostnames: [ignored.example.com], rules: [{matches: [{path: {type: PathPrefix, value: %s}}], backendRefs: [{name: %s, port: 80}]}]}`, name, path, service)
	}
	w.apply(httpRoutes.Resource(), route("one", "/", "v1"))
	w.apply(httpRoutes.Resource(), route("two", "/two", "v2"))
	o := w.start()
	w.awaitRoutes("web", "insecure", "*/two → NS:v2:80", "*/ → NS:v1:80")
	w.awaitAccepted(httpRoutes.Resource(), "one", httpOK)
	if s := w.config("web").Spec.Services; len(s) != 1 || s[0].Name != "web" || fmt.Sprint(s[0].Ports) != "[80]" {
		t.Errorf("GW-E14: %v", s)
	}
	u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
	w.must(err)
	if c := metav1.GetControllerOf(u); c == nil || c.Kind != "Service" || len(u.GetLabels()) != 1 {
		t.Errorf("GW-E14: %v %v", c, u.GetLabels())
	}
	if _, labelled := u.GetLabels()["cilium.io/use-original-source-address"]; labelled || len(u.GetAnnotations()) > 0 {
		t.Errorf("number 24: it has the labels %v and the annotations %v", u.GetLabels(), u.GetAnnotations())
	}
	conditions := func() (all []string) {
		s, err := w.Core.CoreV1().Services(w.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
		w.must(err)
		for _, c := range s.Status.Conditions {
			all = append(all, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		return all
	}
	operatortest.Eventually(t, "GW-58: the Service has conditions", func() bool {
		return slices.Equal(conditions(), []string{
			"gamma.cilium.io/GammaRoutesAttached True Accepted: Gamma Service has routes attached",
			"gamma.cilium.io/GammaRoutesProgrammed True Programmed: Gamma Service has been programmed",
		})
	})
	w.patch(httpRoutes.Resource(), "two", `{"spec":{"parentRefs":[{"group":"","kind":"Service","name":"absent"}]}}`)
	w.awaitAccepted(httpRoutes.Resource(), "two", `False InvalidHTTPRoute: service "absent" does not exist`)
	w.awaitRoutes("web", "insecure", "*/ → NS:v1:80")
	if _, err := w.Core.CoreV1().Services(w.Namespace).Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"spec":{"ports":[{"port":81,"appProtocol":"tcp"}]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitAccepted(httpRoutes.Resource(), "one", "False NoMatchingParent: The Service has no port with appProtocol http")
	operatortest.Eventually(t, "GW-22: nothing is left", func() bool { return w.config("web") == nil && len(conditions()) == 0 })
	w.patch(httpRoutes.Resource(), "one", `{"spec":{"parentRefs":[{"group":"","kind":"Service","name":"web","port":81}]}}`)
	w.awaitRoutes("web", "insecure", "*/ → NS:v1:80")
	w.delete(httpRoutes.Resource(), "one")
	w.delete(httpRoutes.Resource(), "two")
	operatortest.Eventually(t, "GW-E14: it is deleted with the last route", func() bool { return w.config("web") == nil })
	if _, err := w.Core.CoreV1().Services(w.Namespace).Get(t.Context(), "cilium-gateway-web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error("GW-22: a Service was written")
	}
	w.CheckHealthy(o)
}

// GW-48; number 23 of the contract's gateway-api.md: the configuration of a Service that the original has left to one of its routes is
// taken over, with all routes; one of something else is not.
func TestMeshOfTheOriginal(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"web", "other"} {
		_, err := w.Core.CoreV1().Services(w.Namespace).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, AppProtocol: new("http")}}},
		}, metav1.CreateOptions{})
		w.must(err)
	}
	route := func(name, path, parent string) *unstructured.Unstructured {
		return w.apply(httpRoutes.Resource(), fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s}
spec: {parentRefs: [{group: "", kind: Service, name: %s}], rules: [{matches: [{path: {type: PathPrefix, value: %s}}], backendRefs: [{name: v1, port: 80}]}]}`, name, parent, path))
	}
	one, foreign := route("one", "/", "web"), route("foreign", "/", "other")
	left := func(name string, owner *unstructured.Unstructured) {
		w.apply(v2.CiliumEnvoyConfigResource, fmt.Sprintf(`
apiVersion: cilium.io/v2
kind: CiliumEnvoyConfig
metadata: {name: %s, ownerReferences: [{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, name: %s, uid: %s, controller: true}]}
spec: {services: [{name: %s, namespace: %s, ports: [80]}], resources: []}`, name, owner.GetName(), owner.GetUID(), name, w.Namespace))
	}
	left("web", one)
	left("other", one) // that is no route of it
	route("two", "/two", "web")
	o := w.start()
	controller := func(name string) string {
		u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		w.must(err)
		return fmt.Sprint(len(u.GetOwnerReferences()), " ", metav1.GetControllerOf(u).Kind)
	}
	operatortest.Eventually(t, "the Service is its only owner", func() bool { return controller("web") == "1 Service" })
	w.awaitRoutes("web", "insecure", "*/two → NS:v1:80", "*/ → NS:v1:80")
	w.awaitAccepted(httpRoutes.Resource(), foreign.GetName(), httpOK)
	operatortest.Eventually(t, "that of another is reported", func() bool { return strings.Contains(o.Degraded("gateway"), "other") })
	if got := controller("other"); got != "1 HTTPRoute" {
		t.Errorf("that of another has the owners %s", got)
	}
}
