// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// GW-23, GW-29; K7 of the contract's tenants.md: a number that the definition allows, and Go does not hold, closes the rule that has it, and keeps
// nothing else from being served: neither the other rules of its route, nor other routes.
func TestNumbersWithoutBounds(t *testing.T) {
	w := newWorld(t)
	w.crds.InstallGatewayAPI("experimental", "httproutes")
	w.agent("n1", "1.20.1")
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	const rule = `{matches: [{path: {value: /%s}}], filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, http: {path: /check}, backendRef: {name: v2, port: 80}, forwardBody: {maxSize: %s}}}], backendRefs: [{name: v1, port: 80}]}`
	w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("auth", "", "v1"), "[{backendRefs", "["+fmt.Sprintf(rule, "large", "70000")+", "+fmt.Sprintf(rule, "less", "-1")+", {backendRefs", 1))
	o := w.start("--cilium-pod-namespace=" + w.Namespace)
	w.awaitRoutes(config, "insecure", "*/large → 500", "*/less → 500", "*/ → NS:v1:80")
	w.awaitAccepted(httpRoutes.Resource(), "auth", httpOK)
	w.apply(httpRoutes.Resource(), httpRouteTo("web", "web.test", "v2"))
	w.awaitRoutes(config, "insecure", "*/large → 500", "*/less → 500", "*/ → NS:v1:80", "web.test/ → NS:v2:80")
	w.awaitAccepted(httpRoutes.Resource(), "web", httpOK)
	w.patch(httpRoutes.Resource(), "auth", `{"spec":{"rules":[{"backendRefs":[{"name":"v2","port":80}]}]}}`)
	w.awaitRoutes(config, "insecure", "*/ → NS:v2:80", "web.test/ → NS:v2:80")
	w.CheckHealthy(o)
}

// GW-58; K3 of the contract's tenants.md: a Service whose routes are so large that their translation ends early says so, and so does an Event.
func TestMeshIsTooLarge(t *testing.T) {
	w := newWorld(t)
	_, err := w.Core.CoreV1().Services(w.Namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, AppProtocol: new("http")}}},
	}, metav1.CreateOptions{})
	w.must(err)
	const many = 26
	for i := range many {
		w.apply(httpRoutes.Resource(), longRoute(fmt.Sprint("large-", i), `{group: "", kind: Service, name: web}`))
	}
	w.start()
	programmed := func(prefix string) bool {
		s, err := w.Core.CoreV1().Services(w.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
		w.must(err)
		return slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == meshProgrammed && strings.HasPrefix(fmt.Sprint(c.Status, " ", c.Reason, ": ", c.Message), prefix)
		})
	}
	operatortest.Eventually(t, "the Service says that it is too large", func() bool {
		return programmed("False NoResources: the configuration for Envoy would have more than ") && w.hasEvent(w.Namespace, "web", "NotWritten", "would have more than")
	})
	for i := 1; i < many; i++ {
		w.delete(httpRoutes.Resource(), fmt.Sprint("large-", i))
	}
	operatortest.Eventually(t, "what fits is written", func() bool { return programmed("True Programmed: ") && w.config("web") != nil })
}
