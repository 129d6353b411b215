// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// GW-25: what GRPCRoutes match, and HTTP/2 to their backends.
func TestGRPCRoutes(t *testing.T) {
	w := newWorld(t)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.apply(grpcRoutes.Resource(), `
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: calls}
spec:
  parentRefs: [{name: edge}]
  hostnames: [g.example.com]
  rules:
  - matches: [{method: {service: foo.Bar, method: Get}}, {method: {service: foo.Bar}}, {method: {method: Ping}}]
    backendRefs: [{name: v1, port: 80}]
  - backendRefs: [{name: v2, port: 80}]`)
	o := w.start()
	w.awaitAccepted(grpcRoutes.Resource(), "calls", "True Accepted: Accepted GRPCRoute")
	w.awaitResolved(grpcRoutes.Resource(), "calls", resolvedOK)
	w.await("the routes", "g.example.com/ → NS:v2:80; g.example.com/.+/Ping → NS:v1:80; g.example.com/foo.Bar → NS:v1:80; g.example.com/foo.Bar/Get → NS:v1:80", func() string {
		all := w.routesOf(config, "insecure")
		slices.Sort(all)
		return strings.Join(all, "; ")
	})
	for name, c := range w.config(config).Clusters {
		for _, packed := range c.TypedExtensionProtocolOptions {
			m, err := packed.UnmarshalNew()
			w.must(err)
			if m.(*upstreamv3.HttpProtocolOptions).GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil {
				t.Errorf("%s does not speak HTTP/2: %v", name, m)
			}
		}
	}
	w.CheckHealthy(o)
}

// classConfigDefinition is that of newer releases, as far as it matters here.
const classConfigDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ciliumgatewayclassconfigs.cilium.io}
spec:
  group: cilium.io
  names: {kind: CiliumGatewayClassConfig, listKind: CiliumGatewayClassConfigList, plural: ciliumgatewayclassconfigs, singular: ciliumgatewayclassconfig}
  scope: Namespaced
  versions:
  - name: v2alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// Numbers 36 and 45 of the contract's gateway-api.md, but for one thing: Programmed is what it was, since what is served stays (GW-2);
// GW-30: parameters of a class, the type of the Service, and both their statuses.
func TestClassConfigs(t *testing.T) {
	w := newWorld(t)
	w.crds.Apply([]byte(classConfigDefinition))
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.apply(httpRoutes.Resource(), httpRouteTo("web", "", "v1"))
	w.node("a", "", internal("192.0.2.11"))
	o := w.start()
	operatortest.Eventually(t, "there is a Service", func() bool { return w.loadBalancer(config) != nil })
	class := func() string {
		u, err := w.Dynamic.Resource(classes.Resource()).Get(t.Context(), w.class, metav1.GetOptions{})
		w.must(err)
		var cl gatewayv1.GatewayClass
		w.must(convert(u.Object, &cl))
		return says(cl.Status.Conditions, "Accepted")
	}
	refer := func(parameters string) {
		_, err := w.Dynamic.Resource(classes.Resource()).Patch(t.Context(), w.class, "application/merge-patch+json", []byte(`{"spec":{"parametersRef":`+parameters+`}}`), metav1.PatchOptions{})
		w.must(err)
	}
	refer(fmt.Sprintf(`{"group":"cilium.io","kind":"CiliumGatewayClassConfig","namespace":%q,"name":"nodes"}`, w.Namespace))
	w.await("a class whose parameters do not exist", "False InvalidParameters: Invalid GatewayClass", class)
	w.awaitGateway("edge", "Accepted", "False InvalidParameters: Invalid GatewayClass parameters: CiliumGatewayClassConfig "+w.Namespace+"/nodes does not exist")
	w.apply(classConfigs.Resource(), `{apiVersion: cilium.io/v2alpha1, kind: CiliumGatewayClassConfig, metadata: {name: nodes}, spec: {service: {type: NodePort, externalTrafficPolicy: Local}}}`)
	w.await("a class whose parameters exist", "True Accepted: Valid GatewayClass", class)
	operatortest.Eventually(t, "the Service has its type", func() bool {
		s := w.loadBalancer(config)
		return s.Spec.Type == corev1.ServiceTypeNodePort && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	})
	w.awaitGateway("edge", "Programmed", "True Programmed: Gateway Programmed")
	addresses := func() string { return strings.Join(w.addresses("edge"), ", ") }
	operatortest.Eventually(t, "number 36: the Gateway has the addresses of nodes", func() bool { return strings.Contains(addresses(), "IPAddress 192.0.2.11") })
	o.Stop()
	o = w.start("--cilium-release=1.19")
	w.await("number 36: addresses with agents of 1.19", "", addresses)
	w.awaitGateway("edge", "Programmed", "True Programmed: Gateway Programmed")
	o.Stop()
	o = w.start()
	w.await("the parameters are accepted", "True Accepted: Valid GatewayClassConfig", func() string {
		u, err := w.Dynamic.Resource(classConfigs.Resource()).Namespace(w.Namespace).Get(t.Context(), "nodes", metav1.GetOptions{})
		w.must(err)
		var s classConfigStatus
		w.must(convert(u.Object["status"], &s))
		return says(s.Conditions, "Accepted")
	})
	grpcWeb := func() bool {
		u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(t.Context(), config, metav1.GetOptions{})
		w.must(err)
		text, err := json.Marshal(u.Object)
		w.must(err)
		return strings.Contains(string(text), "envoy.filters.http.grpc_web")
	}
	operatortest.Eventually(t, "GW-56: gRPC-Web is turned into gRPC", grpcWeb)
	for _, enabled := range []bool{false, true} {
		w.patch(classConfigs.Resource(), "nodes", fmt.Sprintf(`{"spec":{"httpOptions":{"grpcWebTranslation":{"enabled":%t}}}}`, enabled))
		operatortest.Eventually(t, "GW-56: gRPC-Web is turned into gRPC where it is on; number 43 of the contract's gateway-api.md", func() bool { return grpcWeb() == enabled })
	}
	refer(`{"group":"example.com","kind":"Other","name":"nodes"}`)
	w.await("a class with parameters of another kind", "False InvalidParameters: Invalid GatewayClass", class)
	w.awaitGateway("edge", "Accepted", "False InvalidParameters: Invalid GatewayClass parameters: spec.parametersRef.kind must be CiliumGatewayClassConfig")
	w.awaitGateway("edge", "Programmed", "True Programmed: Gateway Programmed") // what is served stays
	refer(`{"group":"cilium.io","kind":"CiliumGatewayClassConfig","namespace":null,"name":"nodes"}`)
	w.awaitGateway("edge", "Accepted", "False InvalidParameters: Invalid GatewayClass parametersRef: both name and namespace are required")
	if s := w.loadBalancer(config); s.Spec.Type != corev1.ServiceTypeNodePort {
		t.Errorf("GW-2: the Service has become %s", s.Spec.Type)
	}
	w.CheckHealthy(o)
	o.Stop()
	w.crds.Delete("ciliumgatewayclassconfigs.cilium.io")
}

// Number 44 of the contract's gateway-api.md; GW-2: a class that is gone for a moment costs a Gateway nothing.
func TestClassIsGoneForAMoment(t *testing.T) {
	w := newWorld(t)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.apply(httpRoutes.Resource(), httpRouteTo("web", "", "v1"))
	o := w.start()
	w.awaitRoutes(config, "insecure", "*/ → NS:v1:80")
	w.awaitPlaceholders(config, "EndpointSlice")
	w.setAddresses(config, corev1.LoadBalancerIngress{IP: "203.0.113.9"})
	w.awaitGateway("edge", "Programmed", "True Programmed: Gateway Programmed")
	w.await("listener http", fmt.Sprintf(listenerOK, 1), func() string { return w.listener("edge", "http") })
	w.awaitAccepted(httpRoutes.Resource(), "web", httpOK)
	objects := func() (uids []string) {
		u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(t.Context(), config, metav1.GetOptions{})
		w.must(err)
		return []string{string(u.GetUID()), string(w.loadBalancer(config).UID), string(w.placeholder("EndpointSlice", config).GetUID())}
	}
	before, from := objects(), len(w.writes())
	w.must(w.Dynamic.Resource(classes.Resource()).Delete(t.Context(), w.class, metav1.DeleteOptions{}))
	operatortest.Eventually(t, "the Gateway is without its class", func() bool {
		return slices.ContainsFunc(o.Book.For("Gateway", w.Namespace, "edge").Decisions, func(d explain.Decision) bool { return d.Outcome == noClass })
	})
	if n := w.writesOf(from, "services") + w.writesOf(from, "endpointslices") + w.writesOf(from, "ciliumenvoyconfigs") + w.writesOf(from, "gateways"); n > 0 {
		t.Errorf("without the class it writes %q", w.writes()[from:])
	}
	w.apply(classes.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: CLASS}, spec: {controllerName: io.cilium/gateway-controller}}`)
	w.patch(httpRoutes.Resource(), "web", `{"spec":{"rules":[{"backendRefs":[{"name":"v2","port":80}]}]}}`)
	w.awaitRoutes(config, "insecure", "*/ → NS:v2:80")
	if after := objects(); !slices.Equal(after, before) || !slices.Equal(w.addresses("edge"), []string{"IPAddress 203.0.113.9"}) {
		t.Errorf("the objects were %q and are %q, with the addresses %q", before, after, w.addresses("edge"))
	}
	w.CheckHealthy(o)
}

// Number 37 of the contract's gateway-api.md: the version in which routes are read is the latest that is served. One that is listed alone
// is as if it were not there.
func TestVersionsOfRoutes(t *testing.T) {
	const served, listed = true, false
	for name, test := range map[string]struct {
		kind     string
		versions map[string]bool // whether they are served
		want     string
	}{
		"TLSRoutes, experimental":       {route.KindTLS, map[string]bool{"v1": served, "v1alpha2": served, "v1alpha3": served}, "v1"},
		"TLSRoutes, standard":           {route.KindTLS, map[string]bool{"v1": served, "v1alpha2": listed}, "v1"},
		"TLSRoutes before v1":           {route.KindTLS, map[string]bool{"v1alpha2": served}, "v1alpha2"},
		"TLSRoutes, v1 is not served":   {route.KindTLS, map[string]bool{"v1": listed, "v1alpha2": served}, "v1alpha2"},
		"TLSRoutes, v1alpha2 is listed": {route.KindTLS, map[string]bool{"v1alpha2": listed, "v1alpha3": served}, ""},
		"TCPRoutes":                     {route.KindTCP, map[string]bool{"v1": served, "v1alpha2": served}, "v1"},
		"TCPRoutes before v1":           {route.KindTCP, map[string]bool{"v1alpha2": served}, "v1alpha2"},
		"UDPRoutes, v1alpha2 is listed": {route.KindUDP, map[string]bool{"v1alpha2": listed}, ""},
	} {
		installed, err := stream.NewLocal[definition]()
		if err != nil {
			t.Fatal(err)
		}
		installed.Replace()
		kinds := newOptionalRoutes().kinds
		kind := kinds[slices.IndexFunc(kinds, func(k optionalKind) bool { return k.kind == test.kind })]
		kind.ifAllowed = false // the role allows all
		d := &definition{}
		d.Name = kind.versions[0].resource().GroupResource().String()
		installed.Upsert(d)
		store, err := installed.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var versions []any
		for version, is := range test.versions {
			versions = append(versions, map[string]any{"name": version, "served": is})
		}
		read := readDefinition(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": versions}}})
		has, _ := store.Get(slim.Key{Name: d.Name})
		read.revision = has.ResourceVersion
		c := &controller{installed: store, served: map[string]servedDefinition{d.Name: read}}
		v, err := c.servedVersion(t.Context(), kind)
		got := ""
		if v != nil {
			got = v.resource().Version
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %q, want %q; %v", name, got, test.want, err)
		}
	}
}

// Number 37 of the contract's gateway-api.md; K8S-16: ReferenceGrants are read in whichever version is served.
func TestVersionsOfGrants(t *testing.T) {
	w := newWorld(t)
	other := w.namespace("b")
	w.service(other, "svc")
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("web", "", "svc"), "{name: svc", "{name: svc, namespace: "+other, 1))
	for _, version := range []string{"v1beta1", "v1"} {
		w.crds.Serve("referencegrants.gateway.networking.k8s.io", version)
		of := grants.Resource().GroupResource().WithVersion(version)
		operatortest.Eventually(t, version+" is served", func() bool {
			_, err := w.Dynamic.Resource(of).List(t.Context(), metav1.ListOptions{})
			return err == nil
		})
		o := w.start()
		w.awaitResolved(httpRoutes.Resource(), "web", "False RefNotPermitted: Cross namespace references are not allowed")
		w.apply(of, fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/%s
kind: ReferenceGrant
metadata: {name: g, namespace: %s}
spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: NS}], to: [{group: "", kind: Service}]}`, version, other))
		w.awaitResolved(httpRoutes.Resource(), "web", resolvedOK)
		w.must(w.Dynamic.Resource(of).Namespace(other).Delete(t.Context(), "g", metav1.DeleteOptions{}))
		w.awaitResolved(httpRoutes.Resource(), "web", "False RefNotPermitted: Cross namespace references are not allowed")
		w.CheckHealthy(o)
		o.Stop()
	}
}

// longRoute has as many matches as an HTTPRoute may have, with long paths.
func longRoute(name, parent string) string {
	var rules []string
	for r := range 2 {
		var matches []string
		for m := range 64 {
			matches = append(matches, fmt.Sprintf("{path: {type: Exact, value: /%s-%d-%d-%s}}", name, r, m, strings.Repeat("x", 980)))
		}
		rules = append(rules, fmt.Sprintf("{matches: [%s], backendRefs: [{name: v1, port: 80}]}", strings.Join(matches, ", ")))
	}
	return fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: %s}, spec: {parentRefs: [%s], rules: [%s]}}", name, parent, strings.Join(rules, ", "))
}

// GW-54, ENV-12: a Gateway whose configuration would be too large has routes left out, and others go on.
func TestTooLarge(t *testing.T) {
	w := newWorld(t)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.apply(gateways.Resource(), strings.Replace(fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"), "edge", "other", 1))
	w.apply(httpRoutes.Resource(), httpRouteTo("first", "first.example.com", "v1"))
	o := w.start()
	w.awaitRoutes(config, "insecure", "first.example.com/ → NS:v1:80")
	const many = 12
	for i := range many {
		w.apply(httpRoutes.Resource(), longRoute(fmt.Sprint("large-", i), "{name: edge}"))
	}
	operatortest.Eventually(t, "some of them are left out, and told", func() bool {
		left := 0
		for i := range many {
			if accepted, _ := w.parentOf(httpRoutes.Resource(), fmt.Sprint("large-", i)); strings.HasPrefix(accepted, "False LeftOut: ") {
				left++
			}
		}
		return left > 0 && left < many
	})
	if c := w.config(config); c == nil || !strings.HasPrefix(says(w.gateway("edge").Status.Conditions, "Accepted"), "True") {
		t.Error("the Gateway is not served any more")
	}
	w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("second", "second.example.com", "v2"), "{name: edge}", "{name: other}", 1))
	w.awaitRoutes("cilium-gateway-other", "insecure", "second.example.com/ → NS:v2:80")
	for i := range many {
		w.delete(httpRoutes.Resource(), fmt.Sprint("large-", i))
	}
	w.awaitRoutes(config, "insecure", "first.example.com/ → NS:v1:80")
	operatortest.Eventually(t, "health is well", func() bool { return o.Degraded("gateway") == "" })
}
