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
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/operatortest"
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

// GW-54, ENV-12: a Gateway whose configuration would be too large has routes left out, and others go on.
func TestTooLarge(t *testing.T) {
	w := newWorld(t)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.apply(gateways.Resource(), strings.Replace(fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"), "edge", "other", 1))
	// 128 matches are what an HTTPRoute may have.
	large := func(name string) string {
		var rules []string
		for r := range 2 {
			var matches []string
			for m := range 64 {
				matches = append(matches, fmt.Sprintf("{path: {type: Exact, value: /%s-%d-%d-%s}}", name, r, m, strings.Repeat("x", 980)))
			}
			rules = append(rules, fmt.Sprintf("{matches: [%s], backendRefs: [{name: v1, port: 80}]}", strings.Join(matches, ", ")))
		}
		return fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: %s}, spec: {parentRefs: [{name: edge}], rules: [%s]}}", name, strings.Join(rules, ", "))
	}
	w.apply(httpRoutes.Resource(), httpRouteTo("first", "first.example.com", "v1"))
	o := w.start()
	w.awaitRoutes(config, "insecure", "first.example.com/ → NS:v1:80")
	const many = 12
	for i := range many {
		w.apply(httpRoutes.Resource(), large(fmt.Sprint("large-", i)))
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
