// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/operatortest"
)

// GW-15, K8S-28: K9 of the contract's tenants.md. An EndpointSlice that has the name of one of a Gateway is left as it is, and asked for less and less often; the
// Gateway says so, and others are written.
func TestNamesOfPortsThatOthersHave(t *testing.T) {
	w := newWorld(t)
	w.crds.InstallGatewayAPI("standard", "tcproutes", "udproutes")
	defer w.crds.Delete("tcproutes.gateway.networking.k8s.io", "udproutes.gateway.networking.k8s.io") // other tests are without
	w.Clear(tcpRoutes.Resource(), udpRoutes.Resource())
	w.backendService("web", corev1.ProtocolTCP, 9000, "10.0.1.7")
	w.backendService("names", corev1.ProtocolUDP, 53, "10.0.2.1")
	name := "cilium-gateway-edge-" + sumOf(w.Namespace+"/web|9000|TCP") + "-ipv4"
	slices := w.Core.DiscoveryV1().EndpointSlices(w.Namespace)
	_, err := slices.Create(t.Context(), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{}}, metav1.CreateOptions{})
	w.must(err)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: tcp, port: 9000, protocol: TCP}, {name: dns, port: 53, protocol: UDP}"))
	w.apply(tcpRoutes.Resource(), portRoute(route.KindTCP, "tcp", "tcp", "{name: web, port: 9000}"))
	w.apply(udpRoutes.Resource(), portRoute(route.KindUDP, "dns", "dns", "{name: names, port: 53}"))
	o := w.start()
	names := "cilium-gateway-edge-" + sumOf(w.Namespace+"/names|53|UDP") + "-ipv4 port-53-udp=54/UDP 10.0.2.1 names:53 weight 1"
	w.await("the other one", names, func() string { return w.slicesOf("edge") })
	w.awaitGateway("edge", "Programmed", "False NoResources: endpointslices.discovery.k8s.io "+w.Namespace+"/"+name+" exists, and was not made by the operator: delete it")
	operatortest.Eventually(t, "an Event", func() bool { return w.hasEvent(w.Namespace, "edge", "NotWritten", "was not made by the operator") })
	time.Sleep(3 * time.Second) // what is tested is how many requests there are in a time
	refused := 0
	for _, r := range w.Proxy.Requests(t, 0) {
		if r.Namespace == w.Namespace && r.Resource == "endpointslices" && r.Verb == "create" && r.Status == http.StatusConflict {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d requests are refused", refused)
	}
	w.must(slices.Delete(t.Context(), name, metav1.DeleteOptions{}))
	web := name + " port-9000=9001/TCP 10.0.1.7 web:9000 weight 1"
	want := web + "; " + names
	if names < web {
		want = names + "; " + web
	}
	w.await("both", want, func() string { return w.slicesOf("edge") })
	w.CheckHealthy(o)
}
