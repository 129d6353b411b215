// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// ING-25 and GW-55; number 1.8 of the contract's tenants.md: an Ingress and a Gateway of two namespaces do not share a port of the nodes.
// Whichever has it keeps it, also when the operator starts anew; when it goes, the other one has it.
func TestPortsOfNodesHaveOneOwner(t *testing.T) {
	p := newHostPorts(t)
	o := p.start()
	p.makeGateway("aa")
	o.until("the Gateway is served", func() bool { return p.listensAt("aa", "cilium-gateway-edge") })
	p.makeIngress("bb")
	o.until("the Ingress is told why it is not", func() bool { return p.isTold("bb", "the Gateway aa/edge, which has it already") })
	o.stop()

	o = p.start()
	o.says("the Gateway aa/edge, which has it already", 1)
	p.keeps("bb", "cilium-ingress-bb-web", "aa", "cilium-gateway-edge")

	p.must(p.in(gatewayAPIResource("gateways"), "aa").Delete(t.Context(), "edge", metav1.DeleteOptions{}))
	p.collect("aa", "cilium-gateway-edge") // as Kubernetes does it
	o.until("the Ingress has the port of the Gateway that is gone", func() bool { return p.listensAt("bb", "cilium-ingress-bb-web") })
	p.makeGateway("cc")
	o.until("a Gateway is told why it has no listener", func() bool {
		g, err := p.in(gatewayAPIResource("gateways"), "cc").Get(t.Context(), "edge", metav1.GetOptions{})
		return err == nil && strings.Contains(jsonOf(t, g), "belongs to the Ingress bb/web, which has it already")
	})
	p.keeps("cc", "cilium-gateway-edge", "bb", "cilium-ingress-bb-web")
	o.stop()
}

// GW-55, ING-25: an older Gateway, and an older Ingress, get a port once the younger one has given it up.
func TestPortsOfNodesAreGivenUp(t *testing.T) {
	p := newHostPorts(t)
	o := p.start()
	p.makeGatewayAt("aa", 9080)
	p.makeGateway("bb")
	o.until("the younger Gateway is served", func() bool { return p.listensAt("bb", "cilium-gateway-edge") })
	port := []byte(`[{"op": "replace", "path": "/spec/listeners/0/port", "value": 8080}]`)
	_, err := p.in(gatewayAPIResource("gateways"), "aa").Patch(t.Context(), "edge", types.JSONPatchType, port, metav1.PatchOptions{})
	p.must(err)
	o.until("the older one has the port", func() bool {
		return p.listensAt("aa", "cilium-gateway-edge") && !p.listensAt("bb", "cilium-gateway-edge")
	})
	for _, namespace := range []string{"aa", "bb"} {
		p.must(p.in(gatewayAPIResource("gateways"), namespace).Delete(t.Context(), "edge", metav1.DeleteOptions{}))
	}
	p.collect("aa", "cilium-gateway-edge")

	p.makeIngressAt("aa", 9080)
	p.makeIngress("bb")
	o.until("the younger Ingress is served", func() bool { return p.listensAt("bb", "cilium-ingress-bb-web") })
	annotation := []byte(`{"metadata": {"annotations": {"ingress.cilium.io/host-listener-port": "8080"}}}`)
	_, err = p.core.NetworkingV1().Ingresses("aa").Patch(t.Context(), "web", types.MergePatchType, annotation, metav1.PatchOptions{})
	p.must(err)
	o.until("the older one has the port", func() bool {
		return p.listensAt("aa", "cilium-ingress-aa-web") && !p.listensAt("bb", "cilium-ingress-bb-web")
	})
	o.stop()
}

// hostPorts is a cluster whose Ingresses and Gateways listen on the network of the nodes.
type hostPorts struct{ *world }

func newHostPorts(t *testing.T) *hostPorts {
	t.Helper()
	p := &hostPorts{newWorldIn(t, clustertest.Start(t))}
	for _, name := range []string{"aa", "bb", "cc", "cilium-secrets"} {
		_, err := p.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		p.must(err)
		_, err = p.core.CoreV1().Services(name).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "back"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		p.must(err)
	}
	operatortest.NewDefinitions(t, p.Cluster).InstallGatewayAPI("standard", "gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants", "tlsroutes")
	p.define("CiliumEnvoyConfig", "CiliumGatewayClassConfig")
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": map[string]any{"name": "cilium"},
		"spec": map[string]any{"controllerName": "io.cilium/gateway-controller"},
	}}
	_, err := p.dynamic.Resource(gatewayAPIResource("gatewayclasses")).Create(t.Context(), class, metav1.CreateOptions{})
	p.must(err)
	return p
}

func (p *hostPorts) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *hostPorts) start() *operator {
	p.t.Helper()
	o, _ := p.run("hostports", nil, "--k8s-namespace="+p.namespace, "--kube-proxy-replacement=true", "--enable-envoy-config",
		"--enable-ingress-controller", "--ingress-default-lb-mode=dedicated", "--ingress-hostnetwork-enabled",
		"--enable-gateway-api", "--gateway-api-hostnetwork-enabled")
	o.leads()
	return o
}

// makeGateway makes one that listens at port 8080.
func (p *hostPorts) makeGateway(namespace string) { p.makeGatewayAt(namespace, 8080) }

func (p *hostPorts) makeGatewayAt(namespace string, port int64) {
	p.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": map[string]any{"name": "edge"},
		"spec": map[string]any{"gatewayClassName": "cilium", "listeners": []any{map[string]any{"name": "http", "port": port, "protocol": "HTTP"}}},
	}}
	_, err := p.in(gatewayAPIResource("gateways"), namespace).Create(p.t.Context(), object, metav1.CreateOptions{})
	p.must(err)
}

// makeIngress makes one that listens at port 8080.
func (p *hostPorts) makeIngress(namespace string) { p.makeIngressAt(namespace, 8080) }

func (p *hostPorts) makeIngressAt(namespace string, port int) {
	p.t.Helper()
	class := "cilium"
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "back", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	_, err := p.core.NetworkingV1().Ingresses(namespace).Create(p.t.Context(), &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"ingress.cilium.io/host-listener-port": strconv.Itoa(port)}},
		Spec:       networkingv1.IngressSpec{IngressClassName: &class, DefaultBackend: &backend},
	}, metav1.CreateOptions{})
	p.must(err)
}

// listensAt reports whether there is a CiliumEnvoyConfig that listens at port 8080.
func (p *hostPorts) listensAt(namespace, name string) bool {
	p.t.Helper()
	c, err := p.in(v2.CiliumEnvoyConfigResource, namespace).Get(p.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	p.must(err)
	return strings.Contains(jsonOf(p.t, c), `"portValue":8080`)
}

// isTold reports whether the Ingress has an Event with a text.
func (p *hostPorts) isTold(namespace, text string) bool {
	p.t.Helper()
	events, err := p.core.CoreV1().Events(namespace).List(p.t.Context(), metav1.ListOptions{FieldSelector: "reason=HostPortOfAnother"})
	p.must(err)
	for _, e := range events.Items {
		if strings.Contains(e.Message, text) {
			return true
		}
	}
	return false
}

// keeps checks for a while that one object does not listen at the port, and that another one goes on.
func (p *hostPorts) keeps(absent, absentName, has, hasName string) {
	p.t.Helper()
	for range 10 {
		time.Sleep(200 * time.Millisecond) // in which it might be written
		if p.listensAt(absent, absentName) {
			p.t.Fatalf("%s/%s listens at the port of another", absent, absentName)
		}
		if !p.listensAt(has, hasName) {
			p.t.Fatalf("%s/%s does not listen at its port", has, hasName)
		}
	}
}

// collect deletes a CiliumEnvoyConfig whose owner is gone, as the garbage collection of Kubernetes does.
func (p *hostPorts) collect(namespace, name string) {
	p.t.Helper()
	err := p.in(v2.CiliumEnvoyConfigResource, namespace).Delete(p.t.Context(), name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) { // the garbage collector of the test cluster was faster
		p.must(err)
	}
}

func (p *hostPorts) in(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	return p.dynamic.Resource(resource).Namespace(namespace)
}

// jsonOf is an object as text.
func jsonOf(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	text, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
