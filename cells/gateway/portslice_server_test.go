// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/operatortest"
)

// backendService creates a Service with a port, and an EndpointSlice that leads to another number.
func (w *world) backendService(name string, protocol corev1.Protocol, port int32, addresses ...string) {
	w.T.Helper()
	_, err := w.Core.CoreV1().Services(w.Namespace).Create(w.T.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "in", Port: port, Protocol: protocol, TargetPort: intstr.FromInt32(port + 1)}}},
	}, metav1.CreateOptions{})
	w.must(err)
	number := port + 1
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("in"), Port: &number, Protocol: &protocol}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	_, err = w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{})
	w.must(err)
}

// slicesOf are the EndpointSlices of the Service of a Gateway, a line each.
func (w *world) slicesOf(gateway string) string {
	w.T.Helper()
	list, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).List(w.T.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=cilium-gateway-" + gateway})
	w.must(err)
	var all []string
	for _, s := range list.Items {
		line := s.Name
		for _, p := range s.Ports {
			line += fmt.Sprintf(" %s=%d/%s", *p.Name, *p.Port, *p.Protocol)
		}
		for _, e := range s.Endpoints {
			line += " " + e.Addresses[0]
		}
		if s.Labels[discoveryv1.LabelManagedBy] == portSliceManager {
			line += " " + strings.TrimPrefix(s.Annotations[backendAnnotation], w.Namespace+"/") + ":" + s.Annotations[portAnnotation] + " weight " + s.Annotations[weightAnnotation]
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func portRoute(kind, name, section, backends string) string {
	return fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: %s, metadata: {name: %s}, spec: {parentRefs: [{name: edge, sectionName: %s}], rules: [{backendRefs: [%s]}]}}`, kind, name, section, backends)
}

// GW-53: numbers 25 to 29 of the contract's gateway-api.md.
func TestPortRoutes(t *testing.T) {
	w := newWorld(t)
	w.crds.InstallGatewayAPI("standard", "tcproutes", "udproutes")
	w.Clear(tcpRoutes.Resource(), udpRoutes.Resource())
	w.backendService("web", corev1.ProtocolTCP, 9000, "10.0.1.8", "10.0.1.7")
	w.backendService("names", corev1.ProtocolUDP, 53, "10.0.2.1")
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: tcp, port: 9000, protocol: TCP}, {name: dns, port: 53, protocol: UDP}, {name: dnst, port: 53, protocol: TCP}"))
	w.apply(tcpRoutes.Resource(), portRoute(route.KindTCP, "older", "tcp", "{name: web, port: 9000}"))
	o := w.start()
	webSlice := "cilium-gateway-edge-" + sumOf(w.Namespace+"/web|9000|TCP") + "-ipv4"
	namesSlice := "cilium-gateway-edge-" + sumOf(w.Namespace+"/names|53|UDP") + "-ipv4"
	web := webSlice + " port-9000=9001/TCP 10.0.1.7 10.0.1.8 web:9000 weight 1"
	w.await("25: the slice", web, func() string { return w.slicesOf("edge") })
	w.awaitAccepted(tcpRoutes.Resource(), "older", "True Accepted: Accepted TCPRoute")
	w.await("25: the listener", fmt.Sprintf(listenerOK, 1), func() string { return w.listener("edge", "tcp") })
	s := w.loadBalancer("cilium-gateway-edge")
	var ports []string
	for _, p := range s.Spec.Ports {
		ports = append(ports, fmt.Sprintf("%s=%d/%s", p.Name, p.Port, p.Protocol))
	}
	slices.Sort(ports)
	if got := strings.Join(ports, " "); got != "port-53-udp=53/UDP port-53=53/TCP port-9000=9000/TCP" || s.Annotations[balancerAnnotation] != "maglev" {
		t.Errorf("the Service has %s and %v", got, s.Annotations)
	}
	if w.config("cilium-gateway-edge") != nil {
		t.Error("there is a CiliumEnvoyConfig")
	}
	w.apply(udpRoutes.Resource(), portRoute(route.KindUDP, "dns", "dns", "{name: names, port: 53, weight: 0}"))
	names := namesSlice + " port-53-udp=54/UDP 10.0.2.1 names:53 weight 0"
	both := func(all ...string) string { slices.Sort(all); return strings.Join(all, "; ") }
	w.await("26: both", both(web, names), func() string { return w.slicesOf("edge") })

	backends := w.Core.DiscoveryV1().EndpointSlices(w.Namespace)
	source, err := backends.Get(t.Context(), "web-1", metav1.GetOptions{})
	w.must(err)
	source.Endpoints = source.Endpoints[:1]
	_, err = backends.Update(t.Context(), source, metav1.UpdateOptions{})
	w.must(err)
	web = webSlice + " port-9000=9001/TCP 10.0.1.8 web:9000 weight 1"
	w.await("27: the endpoints change", both(web, names), func() string { return w.slicesOf("edge") })
	w.apply(tcpRoutes.Resource(), portRoute(route.KindTCP, "younger", "tcp", "{name: v1, port: 80}"))
	w.awaitAccepted(tcpRoutes.Resource(), "younger", "True Accepted: Accepted TCPRoute")
	w.await("27: the older route has the port", both(web, names), func() string { return w.slicesOf("edge") })

	w.apply(httpRoutes.Resource(), httpRouteTo("site", "", "v1"))
	w.patch(gateways.Resource(), "edge", `{"spec": {"listeners": [{"name": "tcp", "port": 9000, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "http", "port": 80, "protocol": "HTTP"}]}}`)
	w.awaitRoutes("cilium-gateway-edge", "insecure", "*/ → NS:v1:80")
	if got := w.config("cilium-gateway-edge").Spec.Services[0].Ports; !slices.Equal(got, []int{80}) {
		t.Errorf("28: Envoy has the ports %v", got)
	}
	w.await("28: no placeholder", both(web, names), func() string { return w.slicesOf("edge") })
	w.CheckHealthy(o)
	o.Stop()

	// 29: agents of 1.18 and 1.19 are served all the same.
	for _, release := range []string{"1.18", "1.19", "1.20"} {
		from := len(w.writes())
		o = w.start("--cilium-release=" + release)
		name := "last-" + release[2:]
		w.apply(httpRoutes.Resource(), httpRouteTo(name, name+".test", "v1"))
		w.awaitAccepted(httpRoutes.Resource(), name, httpOK)
		if n := w.writesOf(from, "endpointslices") + w.writesOf(from, "services") + w.writesOf(from, "tcproutes"); n > 0 {
			t.Errorf("29: with agents of %s a restart writes %d times: %s", release, n, strings.Join(w.writes()[from:], "; "))
		}
		w.await("29: the listener", fmt.Sprintf(listenerOK, 2), func() string { return w.listener("edge", "tcp") })
		w.await("29: the slices", both(web, names), func() string { return w.slicesOf("edge") })
		if release != "1.20" {
			w.CheckHealthy(o)
			o.Stop()
		}
	}
	w.must(w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.await("27: the Service of the backend is gone", both(strings.Replace(web, "9001/TCP 10.0.1.8", "9000/TCP", 1), names), func() string { return w.slicesOf("edge") })
	w.delete(tcpRoutes.Resource(), "older")
	w.delete(tcpRoutes.Resource(), "younger")
	w.await("27: without a route the slice goes", names, func() string { return w.slicesOf("edge") })
	w.delete(udpRoutes.Resource(), "dns")
	w.await("without any, the placeholder comes", "cilium-gateway-edge =9999/TCP 192.192.192.192", func() string { return w.slicesOf("edge") })
	operatortest.Eventually(t, "the ports stay", func() bool { return len(w.loadBalancer("cilium-gateway-edge").Spec.Ports) == 3 })
	w.CheckHealthy(o)
	o.Stop()
	w.crds.Delete("tcproutes.gateway.networking.k8s.io", "udproutes.gateway.networking.k8s.io") // other tests are without
}

// Number 29 of the contract's gateway-api.md; GW-53, GW-49: what leads to ports whose routes have no definition stays.
func TestPortRoutesWithoutDefinitions(t *testing.T) {
	w := newWorld(t)
	g := w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}, {name: tcp, port: 9000, protocol: TCP}"))
	owners := []metav1.OwnerReference{{APIVersion: "gateway.networking.k8s.io/v1", Kind: route.KindGateway, Name: "edge", UID: g.GetUID(), Controller: new(true)}}
	_, err := w.Core.CoreV1().Services(w.Namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "cilium-gateway-edge", Labels: map[string]string{owningLabel: "edge", gatewayLabel: "edge"}, OwnerReferences: owners},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
			{Name: "port-80", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "port-9000", Port: 9000, Protocol: corev1.ProtocolTCP},
		}},
	}, metav1.CreateOptions{})
	w.must(err)
	slice, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "cilium-gateway-edge-12345678-ipv4", OwnerReferences: owners,
			Labels: map[string]string{discoveryv1.LabelServiceName: "cilium-gateway-edge", discoveryv1.LabelManagedBy: portSliceManager, gatewayLabel: "edge"},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("port-9000"), Port: new(int32(9001)), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.1.7"}}},
	}, metav1.CreateOptions{})
	w.must(err)
	o := w.start()
	w.await("the listener", "0 routes, Accepted False UnsupportedProtocol: Unsupported Listener Protocol.; Programmed False Invalid: Listener not valid. Unsupported Listener Protocol.; ResolvedRefs True ResolvedRefs: Resolved Refs", func() string { return w.listener("edge", "tcp") })
	w.apply(httpRoutes.Resource(), httpRouteTo("last", "", "v1"))
	w.awaitAccepted(httpRoutes.Resource(), "last", httpOK)
	if is, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Get(t.Context(), slice.Name, metav1.GetOptions{}); err != nil || is.ResourceVersion != slice.ResourceVersion {
		t.Errorf("the EndpointSlice of the original: %v, %v", is, err)
	}
	if ports := w.loadBalancer("cilium-gateway-edge").Spec.Ports; len(ports) != 2 || ports[1].Name != "port-9000" {
		t.Errorf("29: the Service has the ports %v", ports)
	}
	w.CheckHealthy(o)
}
