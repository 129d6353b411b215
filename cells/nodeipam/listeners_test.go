// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustertest"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
)

// newListener is the CiliumEnvoyConfig of an Ingress, or of none.
func newListener(namespace, name string, created int64, ofIngress bool, ports ...uint32) *envoyres.Object {
	o := &envoyres.Object{}
	o.Namespace, o.Name, o.CreationTimestamp, o.Spec.HostPorts = slim.MakeString(namespace), name, slim.Time(created), ports
	if ofIngress {
		o.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Ingress"), Name: name, Controller: true})
	}
	return o
}

// listening is a controller with Services and listeners.
func listening(t *testing.T, services []*service, configs ...*envoyres.Object) (c *controller, all *stream.Local[envoyres.Object]) {
	t.Helper()
	local, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	local.Replace(services...)
	if all, err = stream.NewLocal[envoyres.Object](); err != nil {
		t.Fatal(err)
	}
	all.Replace(configs...)
	c = &controller{last: map[slim.Key]*service{}}
	c.Listeners = newListeners(all, cluster.Config{}, slog.New(slog.DiscardHandler))
	if c.services, err = local.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Listeners.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, all
}

// NIPAM-15; K1 of the contract's tenants.md: agents do not send to a Service what is meant for a listener of Envoy on the network of the nodes.
func TestPortsOfListeners(t *testing.T) {
	const both = "10.0.0.1 10.0.0.2"
	of := func(what string) string {
		return fmt.Sprintf("[] true port 8080 of the nodes is that of the %s: the Service gets no addresses of nodes", what)
	}
	for name, test := range map[string]struct {
		service   *service
		listeners []*envoyres.Object
		want      string
	}{
		"nothing listens":      {newService("bb", "x", 20, "", port(8080, "TCP")), nil, "[10.0.0.1 10.0.0.2] false "},
		"an older Ingress":     {newService("bb", "x", 20, "", port(8080, "TCP")), []*envoyres.Object{newListener("aa", "web", 10, true, 80, 8080)}, of("Ingress aa/web")},
		"and it has addresses": {newService("bb", "x", 20, both, port(8080, "TCP")), []*envoyres.Object{newListener("aa", "web", 10, true, 8080)}, of("Ingress aa/web")},
		"at another port":      {newService("bb", "x", 20, "", port(8081, "TCP")), []*envoyres.Object{newListener("aa", "web", 10, true, 8080)}, "[10.0.0.1 10.0.0.2] false "},
		"of datagrams":         {newService("bb", "x", 20, "", port(8080, "UDP")), []*envoyres.Object{newListener("aa", "web", 10, true, 8080)}, "[10.0.0.1 10.0.0.2] false "},
		"of its own namespace": {newService("aa", "x", 20, "", port(8080, "TCP")), []*envoyres.Object{newListener("aa", "web", 10, true, 8080)}, "[10.0.0.1 10.0.0.2] false "},
		"a younger one":        {newService("bb", "x", 20, both, port(8080, "TCP")), []*envoyres.Object{newListener("aa", "web", 30, true, 8080)}, "[10.0.0.1 10.0.0.2] false "},
		"younger, at one":      {newService("bb", "x", 20, "10.0.0.2 10.0.0.9", port(8080, "TCP")), []*envoyres.Object{newListener("aa", "web", 30, true, 8080)}, "[10.0.0.1 10.0.0.2] false "},
		"one of two is older":  {newService("bb", "x", 20, both, port(8080, "TCP")), []*envoyres.Object{newListener("aa", "web", 30, true, 8080), newListener("cc", "web", 10, true, 8080)}, of("Ingress cc/web")},
		"the shared one":       {newService("bb", "x", 20, both, port(80, "TCP"), port(8080, "TCP")), []*envoyres.Object{newListener("kube-system", "cilium-ingress", 90, false, 8080)}, of("CiliumEnvoyConfig kube-system/cilium-ingress")},
	} {
		c, _ := listening(t, []*service{test.service}, test.listeners...)
		left, why := c.allowed(test.service, strings.Fields(both))
		if got := fmt.Sprintf("%v %t %s", left, why.ofAll, why.message); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if why.message != "" && stateOf(left, why).eventReason() != "PortOfAnother" {
			t.Errorf("%s: the reason is %s", name, stateOf(left, why).eventReason())
		}
		c.Config.NodeIPAMJoinNamespaces = true
		if left, why := c.allowed(test.service, strings.Fields(both)); len(left) != 2 || why != (denial{}) {
			t.Errorf("%s, with node-ipam-join-namespaces: %q %v", name, left, why)
		}
	}
}

// NIPAM-15: as a listener comes, changes or goes, the Services of other namespaces at its ports are reconciled.
func TestListenersChange(t *testing.T) {
	classless := newService("bb", "not-served", 20, "", port(8080, "TCP"))
	classless.Spec.LoadBalancerClass = slim.String{}
	c, _ := listening(t, []*service{newService("bb", "x", 20, "", port(8080, "TCP")), newService("bb", "y", 20, "", port(80, "TCP")), newService("aa", "own", 20, "", port(8080, "TCP")), classless})
	for i, test := range []struct {
		kind  stream.ChangeKind
		ports []uint32
		want  string
	}{
		{stream.Upsert, nil, "[]"}, {stream.Upsert, []uint32{8080}, "[bb/x]"}, {stream.Upsert, []uint32{8080}, "[]"},
		{stream.Upsert, []uint32{80}, "[bb/x bb/y]"}, {stream.Delete, []uint32{80}, "[bb/y]"},
	} {
		o := newListener("aa", "web", 10, true, test.ports...)
		var keys []string
		for _, port := range c.Listeners.changed(stream.Change[envoyres.Object]{Kind: test.kind, Key: o.Key(), Object: o}) {
			for _, key := range c.withPort(port, "aa") {
				keys = append(keys, key.String())
			}
		}
		if slices.Sort(keys); fmt.Sprint(keys) != test.want {
			t.Errorf("%d: %s, want %s", i, keys, test.want)
		}
	}
}

// NIPAM-15: without the definition of CiliumEnvoyConfigs the duty goes on after ten seconds, and not before.
func TestListenersWithoutDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, gvr := streamtest.NewServer(), streamtest.Widgets
		configs, err := stream.New(stream.NewSource(server.Connect()), stream.Custom[envoyres.Object](gvr))
		if err != nil {
			t.Fatal(err)
		}
		defer configs.Close()
		l := newListeners(configs, cluster.Config{}, slog.New(slog.DiscardHandler))
		began := time.Now()
		if err := l.open(t.Context()); err != nil || time.Since(began) < absentAfter || time.Since(began) > 3*absentAfter {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		s := newService("bb", "x", 20, "", port(8080, "TCP"))
		if left, why := l.besides(s, []string{"10.0.0.1"}); len(left) != 1 || why.message != "" {
			t.Errorf("it gets %q: %v", left, why)
		}
	})
}

// NIPAM-15, on a server: a Service gets addresses of nodes when no listener has its port any more, and not before, which has an Event. Where nothing
// listens there, CiliumEnvoyConfigs are not read.
func TestServerPortsOfListeners(t *testing.T) {
	w := newWorld(t)
	operatortest.Define(t, clustertest.Shared(t).AdminConfig(t), "CiliumEnvoyConfig")
	w.node("n", nil, "10.0.0.1")
	other := w.Namespace + "-2"
	if _, err := w.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	configs := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(other)
	listener := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumEnvoyConfig", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"resources": []any{map[string]any{
			"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l",
			"address": map[string]any{"socketAddress": map[string]any{"address": "0.0.0.0", "portValue": int64(8080)}},
		}}},
	}}
	if _, err := configs.Create(t.Context(), listener, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // times of creation are seconds
	w.service("x", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(80)}}
	})
	w.service("y", nil)
	reads := func() (n int) {
		for _, r := range w.Proxy.Requests(t, 0) {
			if r.Resource == "ciliumenvoyconfigs" && (r.Verb == "list" || r.Verb == "watch") {
				n++
			}
		}
		return n
	}
	atNodes := []string{"--enable-ingress-controller", "--kube-proxy-replacement=true", "--ingress-hostnetwork-enabled"}
	o := w.start(atNodes...)
	w.awaitAddresses("y", "10.0.0.1")
	operatortest.Eventually(t, "there is an Event", func() bool {
		list, err := w.Core.CoreV1().Events(w.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=x,reason=PortOfAnother"})
		return err == nil && len(list.Items) == 1 && strings.Contains(list.Items[0].Message, "port 8080 of the nodes is that of the CiliumEnvoyConfig "+other+"/web")
	})
	if got := w.addresses("x"); len(got) > 0 {
		t.Errorf("it has %q", got)
	}
	if err := configs.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitAddresses("x", "10.0.0.1")
	w.CheckHealthy(o)
	o.Stop()
	seen := reads()
	w.service("z", nil)
	w.start(atNodes[:2]...)
	w.awaitAddresses("z", "10.0.0.1")
	if n := reads(); seen == 0 || n != seen {
		t.Errorf("%d requests about CiliumEnvoyConfigs where nothing listens on ports of the nodes, and %d where something may", n-seen, seen)
	}
}
