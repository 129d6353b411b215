// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicel7

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	"github.com/skep-operator/skep/resources/agents/agenttest"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/operatortest"
)

type world struct{ *operatortest.Env }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{operatortest.NewEnv(t, clustertest.Shared(t), "CiliumEnvoyConfig")}
	w.CreateNamespace()
	t.Cleanup(func() { // operators of other tests count Services of all namespaces
		ctx, services := context.WithoutCancel(t.Context()), w.Core.CoreV1().Services(w.Namespace)
		list, err := services.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Items {
			if err := services.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

func (w *world) start(args ...string) *operatortest.Operator {
	return operatortest.Start(w.T, Cell, w.Kubeconfig(), append([]string{"--loadbalancer-l7=envoy"}, args...)...)
}

func (w *world) service(name string, annotations map[string]string, ports ...int32) *corev1.Service {
	w.T.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: p, Name: "p" + string(rune('a'+len(s.Spec.Ports)))})
	}
	s, err := w.Core.CoreV1().Services(w.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return s
}

// agent creates the pod of an agent.
func (w *world) agent(node, version string) {
	w.T.Helper()
	if _, err := w.Core.CoreV1().Pods(w.Namespace).Create(w.T.Context(), agenttest.Pod(node, version), metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) annotate(name, patch string) {
	w.T.Helper()
	if _, err := w.Core.CoreV1().Services(w.Namespace).Patch(w.T.Context(), name, "application/merge-patch+json", []byte(`{"metadata":{"annotations":`+patch+`}}`), metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// config is the CiliumEnvoyConfig of a Service, nil if there is none.
func (w *world) config(service string) *unstructured.Unstructured {
	w.T.Helper()
	u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(w.T.Context(), prefix+service, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return u
}

func (w *world) awaitConfig(service string) *unstructured.Unstructured {
	w.T.Helper()
	var u *unstructured.Unstructured
	operatortest.Eventually(w.T, service+" has a CiliumEnvoyConfig", func() bool { u = w.config(service); return u != nil })
	return u
}

func (w *world) awaitNone(service string) {
	w.T.Helper()
	operatortest.Eventually(w.T, service+" has no CiliumEnvoyConfig", func() bool { return w.config(service) == nil })
}

// awaitCounted waits until the metric counts the Services with the annotation, those that other tests left among them.
func (w *world) awaitCounted(o *operatortest.Operator) {
	w.T.Helper()
	operatortest.Eventually(w.T, "Services are counted", func() bool {
		list, err := w.Core.CoreV1().Services("").List(w.T.Context(), metav1.ListOptions{})
		if err != nil {
			w.T.Fatal(err)
		}
		n := 0
		for _, s := range list.Items {
			if s.Annotations[enabledAnnotation] == "enabled" {
				n++
			}
		}
		counted := 0.0
		for _, state := range []string{stateServed, stateSkipped, stateConflict} {
			counted += o.Metric("servicel7_services", state)
		}
		return counted == float64(n)
	})
}

// awaitPolicy waits for the policy of the cluster of a Service, "" for none.
func (w *world) awaitPolicy(service, want string) {
	w.T.Helper()
	operatortest.Eventually(w.T, service+" is balanced by "+want, func() bool {
		u := w.config(service)
		if u == nil {
			return false
		}
		resources, _, _ := unstructured.NestedSlice(u.Object, "spec", "resources")
		got, _ := resources[2].(map[string]any)["lbPolicy"].(string)
		return got == want
	})
}

func (w *world) edit(service, patch string) {
	w.T.Helper()
	if _, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Patch(w.T.Context(), prefix+service, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) event(reason, about string) bool {
	events, err := w.Core.CoreV1().Events(w.Namespace).List(w.T.Context(), metav1.ListOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Reason == reason && e.InvolvedObject.Name == about {
			return true
		}
	}
	return false
}

// writes are the requests that change CiliumEnvoyConfigs of the namespace.
func (w *world) writes() (n int) {
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if r.Resource == "ciliumenvoyconfigs" && r.Namespace == w.Namespace && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			n++
		}
	}
	return n
}

const example = `
services:
- {name: cart, namespace: NS, listener: ""}
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: NS/cart
  filterChains:
  - filterChainMatch: {transportProtocol: raw_buffer}
    filters:
    - name: envoy.filters.network.http_connection_manager
      typedConfig:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        statPrefix: NS/cart
        rds: {routeConfigName: NS/cart}
        useRemoteAddress: true
        upgradeConfigs: [{upgradeType: websocket}]
        httpFilters:
        - {name: envoy.filters.http.router, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  listenerFilters:
  - {name: envoy.filters.listener.tls_inspector, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: NS/cart
  virtualHosts:
  - name: NS/cart
    domains: ["*"]
    routes:
    - {match: {prefix: /}, route: {cluster: NS/cart, maxStreamDuration: {maxStreamDuration: 0s}}}
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: NS/cart
  type: EDS
  connectTimeout: 5s
  lbPolicy: LEAST_REQUEST
  outlierDetection: {splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailure: 2}
  typedExtensionProtocolOptions:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      commonHttpProtocolOptions: {idleTimeout: 60s}
      useDownstreamProtocolConfig: {http2ProtocolOptions: {}}
`

// plain is a value as it is in JSON.
func plain(t *testing.T, v any) (decoded any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

var enabled = map[string]string{enabledAnnotation: "enabled"}

// Numbers 14 and 16 of the contract's l7-service-lb.md, but for one thing: with agents of 1.20, too, several ports have one listener, and are told
// apart by the port in Host (L7S-3). L7S-E1, L7S-E2, L7S-E3, L7S-E5, L7S-E6 and L7S-E11, under the role that the duty asks for and under that
// of the original's chart; L7S-8: a restart writes nothing.
func TestServices(t *testing.T) {
	for name, rules := range map[string]func(testing.TB) []rbacv1.PolicyRule{
		"own role": func(testing.TB) []rbacv1.PolicyRule {
			return []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
				{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumenvoyconfigs"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
				{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
			}
		},
		"role of the chart": stockchart.Role,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cart := w.service("cart", map[string]string{enabledAnnotation: "enabled", algorithmAnnotation: "least_request"}, 80)
			w.service("other", map[string]string{enabledAnnotation: "true"}, 80)
			w.service("port", nil, 8080)
			w.service("bogus", map[string]string{enabledAnnotation: "enabled", algorithmAnnotation: "bogus"}, 80)
			w.service("several", enabled, 80, 443)
			args := []string{"--loadbalancer-l7=envoy", "--cilium-release=1.17", "--loadbalancer-l7-ports=808,8080", "--loadbalancer-l7-algorithm=random"}
			o := operatortest.Start(t, Cell, w.As("skep", rules(t)...), args...)
			got := w.awaitConfig("cart")
			if diff := cmp.Diff(map[string]any{
				"apiVersion": "v1", "kind": "Service", "name": "cart", "uid": string(cart.UID), "controller": true, "blockOwnerDeletion": true,
			}, got.Object["metadata"].(map[string]any)["ownerReferences"].([]any)[0]); diff != "" {
				t.Errorf("L7S-E1: %s", diff)
			}
			if labels, annotations := got.GetLabels(), got.GetAnnotations(); len(labels)+len(annotations) > 0 {
				t.Errorf("number 16: it has the labels %v and the annotations %v", labels, annotations)
			}
			var want any
			if err := yaml.Unmarshal([]byte(strings.ReplaceAll(example, "NS", w.Namespace)), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, plain(t, got.Object["spec"])); diff != "" {
				t.Errorf("L7S-E1: %s", diff)
			}
			w.awaitPolicy("port", "RANDOM")
			w.awaitPolicy("bogus", "")
			w.awaitConfig("several")
			if w.config("other") != nil {
				t.Error("L7S-E2: a Service is served whose annotation has another value")
			}
			for _, name := range []string{"cart", "port", "bogus", "several"} {
				text, err := json.Marshal(w.config(name).Object["spec"])
				if err != nil {
					t.Fatal(err)
				}
				c, err := envoytest.VerifyJSON(text)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				if got := domains(c); name == "several" && (len(c.Clusters) != 2 || got != "[*] [*:443]") {
					t.Errorf("L7S-E11: %d clusters, domains %s", len(c.Clusters), got)
				}
			}
			w.CheckHealthy(o)
			o.Stop()
			before := w.writes()
			operatortest.Start(t, Cell, w.As("skep-2", rules(t)...), args...)
			w.service("last", enabled, 80)
			w.awaitConfig("last")
			if after := w.writes(); after != before+1 {
				t.Errorf("L7S-8: %d writes after a restart, want 1", after-before)
			}
		})
	}
}

// Number 17 of the contract's l7-service-lb.md; L7S-E4, L7S-E7 and L7S-E10: what is changed by hand is restored, and what is not asked for is deleted.
func TestRepair(t *testing.T) {
	w := newWorld(t)
	w.service("cart", enabled, 80)
	o := w.start()
	first := w.awaitConfig("cart")
	w.edit("cart", `{"metadata":{"labels":{"team":"a"},"annotations":{"note":"b","cec.cilium.io/is-l7lb":"true"}},"spec":{"services":[{"name":"other","listener":"x"}],"resources":[]}}`)
	operatortest.Eventually(t, "L7S-E7: the spec is restored", func() bool { return cmp.Equal(first.Object["spec"], w.config("cart").Object["spec"]) })
	if u := w.config("cart"); u.GetLabels()["team"] != "a" || u.GetAnnotations()["note"] != "b" || u.GetAnnotations()["cec.cilium.io/is-l7lb"] != "true" {
		t.Error("L7S-5: metadata of others is gone")
	}
	if err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Delete(t.Context(), prefix+"cart", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "L7S-E7: it is recreated", func() bool { u := w.config("cart"); return u != nil && u.GetUID() != first.GetUID() })
	w.annotate("cart", `{"service.cilium.io/lb-l7":null}`)
	w.awaitNone("cart")
	w.annotate("cart", `{"service.cilium.io/lb-l7":"enabled"}`)
	w.awaitConfig("cart")
	w.awaitCounted(o)
	if err := w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), "cart", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitNone("cart") // L7S-E10: by garbage collection
	w.awaitCounted(o)
	w.CheckHealthy(o)
}

// Number 15 of the contract's l7-service-lb.md; L7S-3: what the original has left of a Service with two ports is ours by its owner, and is changed
// at once to what tells them apart.
func TestOfTheOriginal(t *testing.T) {
	for _, test := range []struct {
		release, domains string
		entries          int
	}{{"1.19", "[*] [*:8080]", 1}, {"1.20", "[*] [*]", 2}} {
		t.Run(test.release, func(t *testing.T) {
			w := newWorld(t)
			left := w.leave("cart", w.service("cart", enabled, 80, 8080).UID)
			o := w.start("--cilium-release=" + test.release)
			operatortest.Eventually(t, "the ports are told apart", func() bool {
				u := w.config("cart")
				if u == nil || u.GetUID() != left {
					t.Fatal("the CiliumEnvoyConfig of the original is gone")
				}
				text, err := json.Marshal(u.Object["spec"])
				if err != nil {
					t.Fatal(err)
				}
				c, err := envoytest.VerifyJSON(text)
				return err == nil && len(c.Clusters) == 2 && domains(c) == test.domains && len(c.Spec.Services) == test.entries
			})
			if n := w.writes(); n != 1 {
				t.Errorf("%d writes", n)
			}
			w.CheckHealthy(o)
		})
	}
}

// leave creates what the original leaves of a Service, and returns its UID.
func (w *world) leave(service string, of types.UID) types.UID {
	w.T.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumEnvoyConfig", "metadata": map[string]any{"name": prefix + service},
		"spec": map[string]any{"services": []any{map[string]any{"name": service, "namespace": w.Namespace, "listener": ""}}, "resources": []any{}},
	}}
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service, UID: of, Controller: new(true), BlockOwnerDeletion: new(true)}})
	u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Create(w.T.Context(), u, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return u.GetUID()
}

// L7S-E8 and L7S-6: a CiliumEnvoyConfig of another writer is left alone, and reported.
func TestForeignConfig(t *testing.T) {
	w := newWorld(t)
	foreign := func(name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cilium.io/v2", "kind": "CiliumEnvoyConfig", "metadata": map[string]any{"name": prefix + name}, "spec": map[string]any{"resources": []any{}},
		}}
		u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Create(t.Context(), u, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	unselected, conflict := foreign("x"), foreign("y")
	w.service("x", nil, 80)
	w.service("y", enabled, 80)
	o := w.start()
	operatortest.Eventually(t, "an Event reports the conflict", func() bool { return w.event("NotWritten", "y") })
	operatortest.Eventually(t, "health shows the conflict", func() bool { return strings.Contains(o.Degraded("servicel7"), "is not controlled by Service y") })
	w.annotate("x", `{"service.cilium.io/lb-l7":"enabled"}`)
	operatortest.Eventually(t, "another conflict", func() bool { return w.event("NotWritten", "x") })
	w.annotate("x", `{"service.cilium.io/lb-l7":null}`)
	operatortest.Eventually(t, "one conflict is over", func() bool { return o.Metric("servicel7_services", stateConflict) == 1 })
	if w.config("x").GetResourceVersion() != unselected.GetResourceVersion() || w.config("y").GetResourceVersion() != conflict.GetResourceVersion() {
		t.Error("an object of another writer was changed")
	}
	if n := w.writes(); n != 0 {
		t.Errorf("%d writes", n)
	}
	if err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Delete(t.Context(), prefix+"y", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "its place is taken", func() bool { u := w.config("y"); return u != nil && len(u.GetOwnerReferences()) == 1 })
	operatortest.Eventually(t, "health is good again", func() bool { return o.Degraded("servicel7") == "" })
}

// L7S-E9: without the option nothing is watched.
func TestDisabled(t *testing.T) {
	w := newWorld(t)
	w.service("cart", enabled, 80)
	o := operatortest.Start(t, Cell, w.Kubeconfig(), "--loadbalancer-l7=disabled")
	w.CheckHealthy(o)
	for _, r := range w.Proxy.Requests(t, 0) {
		if r.Resource == "services" || r.Resource == "ciliumenvoyconfigs" {
			t.Errorf("%s %s", r.Verb, r.Path)
		}
	}
}

// L7S-4: Services that agents cannot redirect.
func TestSkipped(t *testing.T) {
	w := newWorld(t)
	headless := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "headless", Annotations: enabled}, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	if _, err := w.Core.CoreV1().Services(w.Namespace).Create(t.Context(), headless, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o := w.start()
	operatortest.Eventually(t, "an Event says so", func() bool { return w.event("NoClusterIP", "headless") })
	operatortest.Eventually(t, "it is counted", func() bool { return o.Metric("servicel7_services", stateSkipped) == 1 })
	if n := w.writes(); n != 0 {
		t.Errorf("%d writes", n)
	}
}

// L7S-10 and L7S-E13: the Services of an Ingress and of a Gateway keep the rules of these.
func TestServicesOfEntries(t *testing.T) {
	w := newWorld(t)
	for name, meta := range map[string]metav1.ObjectMeta{
		"cilium-ingress":     {Labels: map[string]string{ingressLabel: "true"}},
		"cilium-gateway-web": {Labels: map[string]string{gatewayLabel: "web"}},
		"asked":              {Labels: map[string]string{gatewayLabel: "web"}, Annotations: enabled},
		"plain":              {},
	} {
		meta.Name = name
		s := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := w.Core.CoreV1().Services(w.Namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	o := w.start("--loadbalancer-l7-ports=80")
	w.awaitConfig("plain")
	operatortest.Eventually(t, "an Event says so", func() bool { return w.event("ServedAlready", "asked") })
	operatortest.Eventually(t, "one is served, one skipped", func() bool {
		return o.Metric("servicel7_services", stateServed) == 1 && o.Metric("servicel7_services", stateSkipped) == 1
	})
	if n := w.writes(); n != 1 {
		t.Errorf("%d writes", n)
	}
}

// L7S-1: a value of the annotation that nothing knows has an Event, and no effect.
func TestUnknownMode(t *testing.T) {
	w := newWorld(t)
	for name, value := range map[string]string{"typo": "envoy", "off": "disabled"} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{enabledAnnotation: value}}, Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: 80}},
		}}
		if _, err := w.Core.CoreV1().Services(w.Namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	o := w.start()
	operatortest.Eventually(t, "an Event says so", func() bool { return w.event("UnknownMode", "typo") })
	operatortest.Eventually(t, "it is counted", func() bool { return o.Metric("servicel7_services", stateSkipped) == 1 })
	if n := w.writes(); n != 0 || w.event("UnknownMode", "off") {
		t.Errorf("%d writes", n)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, enabledAnnotation)
	if _, err := w.Core.CoreV1().Services(w.Namespace).Patch(t.Context(), "typo", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "it is not counted any more", func() bool { return o.Metric("servicel7_services", stateSkipped) == 0 })
}

// domains are those of the virtual hosts, in their order.
func domains(c *envoytest.Config) string {
	var all []string
	for _, table := range c.Tables {
		for _, v := range table.VirtualHosts {
			all = append(all, fmt.Sprint(v.Domains))
		}
	}
	return strings.Join(all, " ")
}

// L7S-3; number 14 of the contract's l7-service-lb.md: a listener for each port where all agents are of 1.20, one with an older agent, and a write each way.
func TestListenersByAgents(t *testing.T) {
	w := newWorld(t)
	w.agent("n1", "1.20.1")
	w.service("cart", map[string]string{enabledAnnotation: "enabled"}, 80, 8080)
	w.service("many", map[string]string{enabledAnnotation: "enabled"}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
	entries := func(service string) func() string {
		return func() string {
			u := w.config(service)
			if u == nil {
				return ""
			}
			text, err := json.Marshal(u.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			c, err := envoytest.VerifyJSON(text)
			if err != nil {
				t.Fatal(err)
			}
			all := fmt.Sprint(len(c.Listeners), " ", len(c.Clusters))
			for _, s := range c.Spec.Services {
				all += fmt.Sprint(" ", strings.TrimPrefix(s.Listener, w.Namespace+"/"), s.Ports)
			}
			return all
		}
	}
	await := func(what, service, want string) {
		t.Helper()
		got := ""
		operatortest.Eventually(t, what+": "+want, func() bool { got = entries(service)(); return got == want })
	}
	o := w.start("--cilium-pod-namespace=" + w.Namespace)
	const apart, together = "2 2 cart:80[80] cart:8080[8080]", "1 2 [80 8080]"
	await("ports are apart", "cart", apart)
	await("17 are not", "many", "1 17 [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17]")
	from := w.config("cart").GetGeneration()
	w.agent("n2", "1.19.4")
	await("with an older agent they are not", "cart", together)
	if err := w.Core.CoreV1().Pods(w.Namespace).Delete(t.Context(), "cilium-n2", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	await("without it they are", "cart", apart)
	if n := w.config("cart").GetGeneration() - from; n != 2 {
		t.Errorf("an older agent that comes and goes costs %d writes", n)
	}
	w.CheckHealthy(o)
	o.Stop()
	w.start("--cilium-release=1.19")
	await("with the release of the option", "cart", together)
}
