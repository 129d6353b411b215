// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/operatortest"
)

// K8S-25; K9 of the contract's tenants.md: the labels of a Gateway that flip have its Service written less and less often, which health names. A route of
// another namespace, and a port, do not wait for that.
func TestAGatewayThatFlips(t *testing.T) {
	w := newWorld(t)
	other := w.namespace("bb")
	w.service(other, "v1")
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"))
	o := w.start()
	w.awaitGateway("edge", "Accepted", "True Accepted: Gateway successfully scheduled")
	isBraked := func() bool { return strings.Contains(o.HealthText(), "changes again and again") }
	for i := 0; !isBraked(); i++ {
		if i == 100 {
			t.Fatal("the Service is not braked")
		}
		w.patch(gateways.Resource(), "edge", fmt.Sprintf(`{"spec": {"infrastructure": {"labels": {"flips": "%d"}}}}`, i))
		operatortest.Eventually(t, "it is written, or braked", func() bool {
			return w.loadBalancer("cilium-gateway-edge").Labels["flips"] == fmt.Sprint(i) || isBraked()
		})
	}
	for i := range 3 { // the pauses grow
		w.patch(gateways.Resource(), "edge", fmt.Sprintf(`{"spec": {"infrastructure": {"labels": {"flips": "x%d"}}}}`, i))
	}
	w.apply(httpRoutes.Resource(), fmt.Sprintf(strings.Replace(routeInOther, "api.test", "bb.test", 1), route.KindHTTP, "bb", other))
	operatortest.Eventually(t, "a route of another namespace is served", func() bool {
		return strings.Contains(strings.Join(w.routesOf("cilium-gateway-edge", "insecure"), " "), "bb.test/")
	})
	w.patch(gateways.Resource(), "edge", `{"spec": {"listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}, {"name": "more", "port": 81, "protocol": "HTTP"}]}}`)
	operatortest.Eventually(t, "a port is written", func() bool { return len(w.loadBalancer("cilium-gateway-edge").Spec.Ports) == 2 })
}
