// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// node creates a Node of the test, with the label that selects it and addresses.
func (w *world) node(name, label string, addresses ...corev1.NodeAddress) (full string) {
	w.T.Helper()
	nodes, full := w.Core.CoreV1().Nodes(), w.Namespace+"-"+name
	n, err := nodes.Create(w.T.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: full, Labels: map[string]string{"gateway": label}}}, metav1.CreateOptions{})
	w.must(err)
	w.T.Cleanup(func() { _ = nodes.Delete(context.Background(), full, metav1.DeleteOptions{}) })
	n.Status.Addresses = addresses
	_, err = nodes.UpdateStatus(w.T.Context(), n, metav1.UpdateOptions{})
	w.must(err)
	return full
}

func internal(ip string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip}
}

// GW-50; numbers 34 and 35 of the contract's gateway-api.md: Gateways on the network of nodes.
func TestGatewayOnTheNetworkOfNodes(t *testing.T) {
	const service = "cilium-gateway-edge"
	w := newWorld(t)
	w.node("b", "yes", internal("192.0.2.12"))
	w.node("other", "no", internal("192.0.2.9"))
	w.node("none", "yes", corev1.NodeAddress{Type: corev1.NodeHostName, Address: "none"})
	last := w.node("a", "yes", corev1.NodeAddress{Type: corev1.NodeHostName, Address: "a"}, internal("192.0.2.11"))
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	args := []string{"--gateway-api-hostnetwork-enabled", "--gateway-api-hostnetwork-nodelabelselector=gateway=yes"}
	o := w.start(args...)
	addresses := func() string { return strings.Join(w.addresses("edge"), ", ") }
	w.await("addresses", "IPAddress 192.0.2.11, IPAddress 192.0.2.12", addresses)
	w.awaitGateway("edge", "Programmed", "True Programmed: Gateway Programmed")
	before := w.loadBalancer(service)
	if before.Spec.Type != corev1.ServiceTypeNodePort {
		t.Errorf("the Service is %s", before.Spec.Type)
	}
	w.must(w.Core.CoreV1().Nodes().Delete(t.Context(), last, metav1.DeleteOptions{}))
	w.await("addresses", "IPAddress 192.0.2.12", addresses)
	o.Stop()

	from := len(w.writes())
	o = w.start(args...)
	w.apply(httpRoutes.Resource(), httpRouteTo("last", "", "v1"))
	w.await("listener http", fmt.Sprintf(listenerOK, 1), func() string { return w.listener("edge", "http") })
	for _, text := range w.writes()[from:] {
		if strings.Contains(text, " services/") {
			t.Errorf("a restart writes %s", text)
		}
	}
	if after := w.loadBalancer(service); after.Spec.Ports[0].NodePort != before.Spec.Ports[0].NodePort {
		t.Errorf("the port of nodes was %d, and is %d", before.Spec.Ports[0].NodePort, after.Spec.Ports[0].NodePort)
	}
	o.Stop()

	o = w.start(append(args, "--cilium-release=1.19")...)
	w.await("addresses with agents of 1.19", "", addresses)
	w.awaitGateway("edge", "Programmed", "True Programmed: Gateway Programmed")
	operatortest.Eventually(t, "the Service has no ports of nodes", func() bool { return w.loadBalancer(service).Spec.Type == corev1.ServiceTypeClusterIP })
	w.CheckHealthy(o)
}

// Number 34 of the contract's gateway-api.md: the status has 16 addresses.
func TestAddressesOfNodes(t *testing.T) {
	var nodes []*node
	for i := range 17 {
		n := &node{}
		n.Status.Addresses = []slim.NodeAddress{{Address: "n"}, {Address: fmt.Sprintf("192.0.2.%d", i+1)}}
		nodes = append(nodes, n, n)
	}
	var got []string
	for _, a := range addressesOfNodes(slices.Values(nodes), nil) {
		got = append(got, a.Value)
	}
	if len(got) != 16 || !slices.IsSorted(got) || slices.Contains(got, "192.0.2.9") || len(addressesOfNodes(slices.Values(nodes), map[string]string{"gateway": "yes"})) > 0 {
		t.Errorf("the addresses are %q", got)
	}
}

// GW-50, NIPAM-13: the first address at which others reach the Node counts, in its usual form, and what is none is named.
func TestAddressOfANode(t *testing.T) {
	for want, texts := range map[string][]string{
		"192.0.2.1 \"0.0.0.0\"":        {"host", "0.0.0.0", "fe80::1%eth0", "127.0.0.1", "192.0.2.1", "192.0.2.2"},
		"2001:db8::1 \"fe80::1%eth0\"": {"fe80::1%eth0", "2001:db8:0::1"},
		" \"169.254.0.1\"":             {"169.254.0.1"},
		"192.0.2.1 ":                   {"host", "192.0.2.1"},
	} {
		n := &node{}
		for _, text := range texts {
			n.Status.Addresses = append(n.Status.Addresses, slim.NodeAddress{Address: text})
		}
		problem := strings.TrimPrefix(n.problem(), "its status has an address at which no node is reached, and it is left out: ")
		if got := n.address(nil) + " " + problem; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
