// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/agents/agenttest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/operatortest"
)

// acceptedIn is the reason of the condition Accepted of a route of a namespace, with its message.
func (w *world) acceptedIn(namespace string, resource schema.GroupVersionResource, name string) string {
	w.T.Helper()
	own := w.Namespace
	defer func() { w.Namespace = own }()
	w.Namespace = namespace
	accepted, _ := w.parentOf(resource, name)
	return accepted
}

// hasEvent reports whether an object has an Event of a reason that names another one.
func (w *world) hasEvent(namespace, name, reason, names string) bool {
	w.T.Helper()
	events, err := w.Core.CoreV1().Events(namespace).List(w.T.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.name=" + name})
	w.must(err)
	for _, e := range events.Items {
		if strings.Contains(e.Message, names) {
			return true
		}
	}
	return false
}

// writesOf are the writes of a kind since a number of them.
func (w *world) writesOf(from int, resource string) (n int) {
	for _, text := range w.writes()[from:] {
		if strings.Contains(text, " "+resource+"/") {
			n++
		}
	}
	return n
}

const routeInOther = `
apiVersion: gateway.networking.k8s.io/v1
kind: %s
metadata: {name: %s, namespace: %s}
spec: {parentRefs: [{name: edge, namespace: NS}], hostnames: [api.test], rules: [{backendRefs: [{name: v1, port: 80}]}]}`

// GW-51: numbers 1.6 and 1.7 of the contract's tenants.md.
func TestHostOfAnotherNamespace(t *testing.T) {
	w := newWorld(t)
	other := w.namespace("bb")
	w.service(other, "v1")
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"))
	w.apply(httpRoutes.Resource(), httpRouteTo("aa", "api.test", "v1"))
	o := w.start()
	w.awaitAccepted(httpRoutes.Resource(), "aa", httpOK)
	time.Sleep(1100 * time.Millisecond) // times of creation are whole seconds
	w.apply(grpcRoutes.Resource(), fmt.Sprintf(routeInOther, "GRPCRoute", "bb", other))
	w.apply(httpRoutes.Resource(), fmt.Sprintf(routeInOther, "HTTPRoute", "too", other))
	const refused = "False HostnameConflict: Host api.test of listener http belongs to HTTPRoute NS/aa, which is older: a host is that of one kind of routes"
	w.await("1.6: the younger route", refused, func() string {
		return strings.ReplaceAll(w.acceptedIn(other, grpcRoutes.Resource(), "bb"), w.Namespace+"/", "NS/")
	})
	w.awaitRoutes("cilium-gateway-edge", "insecure", "api.test/ → NS:v1:80")
	operatortest.Eventually(t, "both are told, and the owner of what shares its host", func() bool {
		return w.hasEvent(other, "bb", "HostOfAnother", w.Namespace+"/aa") && w.hasEvent(w.Namespace, "aa", "HostOfThis", other+"/bb") &&
			w.hasEvent(w.Namespace, "aa", "HostShared", other+"/too") && w.hasEvent(other, "too", "HostShared", w.Namespace+"/aa")
	})
	w.apply(httpRoutes.Resource(), fmt.Sprintf(strings.Replace(routeInOther, "api.test", "later.test", 1), "HTTPRoute", "edited", other))
	w.await("a host that nothing else has", "True Accepted: Accepted HTTPRoute", func() string { return w.acceptedIn(other, httpRoutes.Resource(), "edited") })
	_, err := w.Dynamic.Resource(httpRoutes.Resource()).Namespace(other).Patch(t.Context(), "edited", types.MergePatchType, []byte(`{"spec": {"hostnames": ["api.test"]}}`), metav1.PatchOptions{})
	w.must(err)
	operatortest.Eventually(t, "both are told of a host that comes later", func() bool {
		return w.hasEvent(w.Namespace, "aa", "HostShared", other+"/edited") && w.hasEvent(other, "edited", "HostShared", w.Namespace+"/aa")
	})
	w.await("attached routes", fmt.Sprintf(listenerOK, 3), func() string { return w.listener("edge", "http") })
	w.CheckHealthy(o)
	o.Stop()

	from := len(w.writes())
	o = w.start()
	w.apply(httpRoutes.Resource(), httpRouteTo("last", "other.test", "v1"))
	w.awaitAccepted(httpRoutes.Resource(), "last", httpOK)
	w.awaitExplained(o, "GRPCRoute", other, "bb", w.Namespace+"/aa")
	if n := w.writesOf(from, "grpcroutes"); n > 0 {
		t.Errorf("a restart writes the status of the route that is refused %d times", n)
	}
	w.delete(httpRoutes.Resource(), "aa")
	for _, name := range []string{"too", "edited"} {
		w.must(w.Dynamic.Resource(httpRoutes.Resource()).Namespace(other).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	w.await("without the older route", "True Accepted: Accepted GRPCRoute", func() string { return w.acceptedIn(other, grpcRoutes.Resource(), "bb") })
	w.CheckHealthy(o)
	o.Stop()

	w.apply(httpRoutes.Resource(), httpRouteTo("later", "api.test", "v1"))
	o = w.start("--gateway-api-join-namespaces")
	w.awaitAccepted(httpRoutes.Resource(), "later", httpOK)
	w.await("with the option both kinds are attached", fmt.Sprintf(listenerOK, 3), func() string { return w.listener("edge", "http") })
	w.await("the older one stays", "True Accepted: Accepted GRPCRoute", func() string { return w.acceptedIn(other, grpcRoutes.Resource(), "bb") })
	if n := o.Metric("gateway_conflicts"); n != 0 || strings.Contains(o.HealthText(), "conflicts") {
		t.Errorf("%v conflicts, health:\n%s", n, o.HealthText())
	}
	w.CheckHealthy(o)
}

// awaitExplained waits until explain names the owner of what an object asks for and does not get.
func (w *world) awaitExplained(o *operatortest.Operator, kind, namespace, name, owner string) {
	w.T.Helper()
	w.T.Cleanup(func() {
		if w.T.Failed() {
			w.T.Logf("explain %s/%s/%s: %+v", kind, namespace, name, o.Book.For(kind, namespace, name))
		}
	})
	operatortest.Eventually(w.T, "explain has why "+kind+" "+name+" is refused", func() bool {
		return slices.ContainsFunc(o.Book.For(kind, namespace, name).Decisions, func(d explain.Decision) bool { return strings.Contains(d.Outcome, owner) })
	})
}

// agent creates the pod of an agent of a release on a node.
func (w *world) agent(node, version string) {
	w.T.Helper()
	_, err := w.Core.CoreV1().Pods(w.Namespace).Create(w.T.Context(), agenttest.Pod(node, version), metav1.CreateOptions{})
	w.must(err)
}

// GW-52: numbers 36 and 37 of the contract's envoy-config.md, and number 30 of its gateway-api.md.
func TestPortsOfTLSByAgents(t *testing.T) {
	w := newWorld(t)
	w.secret(w.Namespace, "cert", testPEM)
	w.agent("n1", "1.20.1")
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: https, port: 443, protocol: HTTPS, hostname: a.test, tls: {certificateRefs: [{name: cert}]}}, "+
		"{name: passed, port: 8443, protocol: TLS, hostname: a.test, tls: {mode: Passthrough}}"))
	w.apply(httpRoutes.Resource(), httpRouteTo("web", "a.test", "v1"))
	w.apply(tlsRoutes.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: TLSRoute, metadata: {name: db}, spec: {parentRefs: [{name: edge}], hostnames: [a.test], rules: [{backendRefs: [{name: v2, port: 80}]}]}}`)
	entries := func() string {
		c := w.config("cilium-gateway-edge")
		if c == nil {
			return ""
		}
		var all []string
		for _, s := range c.Spec.Services {
			all = append(all, fmt.Sprint(s.Listener, s.Ports))
		}
		return strings.Join(all, " ")
	}
	args := []string{"--cilium-pod-namespace=" + w.Namespace}
	o := w.start(args...)
	const apart, together = "listener-443[443] listener[8443]", "[443]"
	const accepted, refused = "True Accepted: Accepted TLSRoute", "False UnsupportedValue: Listener https has the hostname at port 443, and TLS of both cannot be told apart: an agent of a release before 1.20 runs, which has one listener for all ports"
	w.await("ports are apart", apart, entries)
	w.awaitAccepted(tlsRoutes.Resource(), "db", accepted)
	from := len(w.writes())
	w.agent("n2", "1.19.4")
	w.await("with an older agent they are not", together, entries)
	w.awaitAccepted(tlsRoutes.Resource(), "db", refused)
	w.must(w.Core.CoreV1().Pods(w.Namespace).Delete(t.Context(), "cilium-n2", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	w.await("without it they are", apart, entries)
	w.awaitAccepted(tlsRoutes.Resource(), "db", accepted)
	if n := w.writesOf(from, "ciliumenvoyconfigs"); n != 2 {
		t.Errorf("an older agent that comes and goes costs %d writes of the configuration", n)
	}
	w.CheckHealthy(o)
	o.Stop()

	from = len(w.writes())
	o = w.start(args...)
	w.apply(httpRoutes.Resource(), httpRouteTo("last", "a.test", "v1"))
	w.awaitAccepted(httpRoutes.Resource(), "last", httpOK)
	if n := w.writesOf(from, "tlsroutes"); n > 0 {
		t.Errorf("a restart writes the status of the TLSRoute %d times", n)
	}
	o.Stop()
	w.start("--cilium-release=1.19")
	w.await("with the release of the option", together, entries)
}

// GW-60: a ListenerSet whose listener does not have the host of an older route, and the route, have an Event each, once.
func TestHostOfAnOlderRoute(t *testing.T) {
	w := newWorld(t)
	other := w.namespace("bb")
	open := strings.Replace(plainGateway, "  listeners:", "  allowedListeners: {namespaces: {from: All}}\n  listeners:", 1)
	w.apply(gateways.Resource(), fmt.Sprintf(open, "{name: http, port: 80, protocol: HTTP}"))
	w.apply(httpRoutes.Resource(), httpRouteTo("aa", "api.test", "v1"))
	o := w.start()
	w.awaitAccepted(httpRoutes.Resource(), "aa", httpOK)
	time.Sleep(1100 * time.Millisecond) // times of creation are whole seconds
	w.apply(listenerSets.Resource(), listenerSetOf("set", other, "{name: mine, port: 80, protocol: HTTP, hostname: api.test}, {name: free, port: 80, protocol: HTTP, hostname: free.test}"))
	told := func() (n int) {
		for _, of := range [][]string{{other, "set", "HostOfAnother", w.Namespace + "/aa"}, {w.Namespace, "aa", "HostOfThis", other + "/set"}} {
			if w.hasEvent(of[0], of[1], of[2], of[3]) {
				n++
			}
		}
		return n
	}
	listeners := func() string {
		var all []string
		for _, l := range w.listenerSet(other, "set").Status.Listeners {
			summary, _, _ := strings.Cut(says(l.Conditions, "Accepted"), ":")
			all = append(all, string(l.Name)+" "+summary)
		}
		return strings.Join(all, ", ")
	}
	operatortest.Eventually(t, "both are told", func() bool { return told() == 2 && o.Metric("gateway_conflicts") == 1 })
	if text := o.HealthText(); !strings.Contains(text, "OK       conflicts: 1 routes, listeners of ListenerSets and ports") || !strings.Contains(text, "at first of Gateway "+w.Namespace+"/edge;") {
		t.Errorf("health does not have them:\n%s", text)
	}
	w.await("the listeners", "mine False HostnameConflict, free True Accepted", listeners)
	w.CheckHealthy(o)
	o.Stop()
	o = w.start()
	const line = "hosts or ports of a Gateway belong to older objects of other namespaces"
	operatortest.Eventually(t, "the first start of a leader has a line", func() bool { return o.Log().Count(`"level":"warning"`, line, `"listeners":1`, `"routes":0`) == 1 })
	w.awaitExplained(o, "ListenerSet", other, "set", w.Namespace+"/aa")
	w.delete(httpRoutes.Resource(), "aa")
	w.await("without the route", "mine True Accepted, free True Accepted", listeners)
	w.CheckHealthy(o)
}
