// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/operatortest"
)

// openGateway is a Gateway that allows ListenerSets of some namespaces.
const openGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: CLASS
  allowedListeners: {namespaces: {from: %s}}
  listeners: [{name: own, port: 80, protocol: HTTP, hostname: own.com}]
`

// listenerSetOf is a ListenerSet of edge.
func listenerSetOf(name, namespace, listeners string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: %s, namespace: %s}
spec: {parentRef: {name: edge, namespace: NS}, listeners: [%s]}`, name, namespace, listeners)
}

func (w *world) listenerSet(namespace, name string) (s gatewayv1.ListenerSet) {
	w.T.Helper()
	u, err := w.Dynamic.Resource(listenerSets.Resource()).Namespace(namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	w.must(err)
	w.must(convert(u.Object, &s))
	return s
}

// awaitSet waits for the conditions of a ListenerSet, and for its listeners with their numbers of routes.
func (w *world) awaitSet(namespace, name, want string) {
	w.T.Helper()
	w.await("ListenerSet "+name, want, func() string {
		s := w.listenerSet(namespace, name)
		var all []string
		for _, kind := range []string{"Accepted", "Programmed"} {
			summary, _, _ := strings.Cut(says(s.Status.Conditions, kind), ":")
			all = append(all, summary)
		}
		for _, l := range s.Status.Listeners {
			summary, _, _ := strings.Cut(says(l.Conditions, "Programmed"), ":")
			all = append(all, fmt.Sprintf("%s %d %s", l.Name, l.AttachedRoutes, summary))
		}
		return strings.Join(all, ", ")
	})
}

func (w *world) awaitAttachedSets(want string) {
	w.T.Helper()
	w.await("attached ListenerSets", want, func() string {
		if n := w.gateway("edge").Status.AttachedListenerSets; n != nil {
			return fmt.Sprint(*n)
		}
		return "none"
	})
}

func (w *world) awaitPorts(want string) {
	w.T.Helper()
	w.await("ports", want, func() string {
		s := w.loadBalancer(config)
		if s == nil {
			return "none"
		}
		var names []string
		for _, p := range s.Spec.Ports {
			names = append(names, p.Name)
		}
		return strings.Join(names, " ")
	})
}

const (
	setOK   = "True Accepted, True Programmed"
	notSet  = "False NotAllowed, False NotAllowed"
	pending = "Unknown Pending, Unknown Pending"
)

// GW-40 to GW-45, GW-20, GW-E25 to GW-E29: ListenerSets of two namespaces, their objects and statuses, a restart that writes nothing, a
// role that does not allow them, and what is left when they or the Gateway go.
func TestListenerSetsServed(t *testing.T) {
	w := newWorld(t)
	b := w.namespace("b")
	w.secret(w.Namespace, "cert", testPEM)
	w.apply(gateways.Resource(), fmt.Sprintf(openGateway, "Same"))
	w.apply(listenerSets.Resource(), listenerSetOf("more", w.Namespace, `
		{name: plain, port: 8080, protocol: HTTP}, {name: tls, port: 443, protocol: HTTPS, hostname: s.com, tls: {certificateRefs: [{name: cert}]}}`))
	w.apply(listenerSets.Resource(), listenerSetOf("far", b, "{name: plain, port: 8081, protocol: HTTP}"))
	elsewhere := w.apply(listenerSets.Resource(), strings.Replace(listenerSetOf("foreign", w.Namespace, "{name: plain, port: 8081, protocol: HTTP}"), "name: edge", "name: elsewhere", 1))
	o := operatortest.Start(t, Cell, w.As("skep", roleOfTheDuty...), w.args()...)
	w.awaitPorts("port-80 port-443 port-8080")
	w.setAddresses(config, corev1.LoadBalancerIngress{IP: "203.0.113.9"})
	w.awaitSet(w.Namespace, "more", setOK+", plain 0 True Programmed, tls 0 True Programmed")
	w.awaitSet(b, "far", notSet)
	w.awaitAttachedSets("1")

	// GW-E27: routes of the ListenerSet and of the Gateway.
	ofSet := func(name, ref, service string) string {
		return strings.Replace(httpRouteTo(name, "", service), "{name: edge}", ref, 1)
	}
	w.apply(httpRoutes.Resource(), ofSet("set", "{kind: ListenerSet, name: more}", "v1"))
	w.apply(httpRoutes.Resource(), httpRouteTo("gateway", "", "v2"))
	w.apply(httpRoutes.Resource(), ofSet("section", "{name: edge, sectionName: plain}", "v2"))
	w.awaitAccepted(httpRoutes.Resource(), "set", httpOK)
	w.awaitAccepted(httpRoutes.Resource(), "gateway", httpOK)
	w.awaitAccepted(httpRoutes.Resource(), "section", "False NoMatchingParent: No matching listener with sectionName plain")
	w.awaitRoutes(config, "insecure", "*:8080/ → NS:v1:80", "own.com/ → NS:v2:80")
	w.awaitRoutes(config, "secure", "s.com/ → NS:v1:80")
	w.awaitSet(w.Namespace, "more", setOK+", plain 1 True Programmed, tls 1 True Programmed")

	// GW-E25: another namespace.
	w.patch(gateways.Resource(), "edge", `{"spec":{"allowedListeners":{"namespaces":{"from":"All"}}}}`)
	w.awaitSet(b, "far", setOK+", plain 0 True Programmed")
	w.awaitAttachedSets("2")
	w.awaitPorts("port-80 port-443 port-8080 port-8081")

	// GW-E28: the certificate goes, and comes again.
	w.must(w.Core.CoreV1().Secrets(w.Namespace).Delete(t.Context(), "cert", metav1.DeleteOptions{}))
	w.awaitSet(w.Namespace, "more", "True ListenersNotValid, True Programmed, plain 1 True Programmed, tls 1 False Invalid")
	w.awaitRoutes(config, "secure")
	w.secret(w.Namespace, "cert", testPEM)
	w.awaitSet(w.Namespace, "more", setOK+", plain 1 True Programmed, tls 1 True Programmed")
	operatortest.Eventually(t, "explain has the ListenerSet", func() bool {
		x := o.Book.For("ListenerSet", w.Namespace, "more")
		return len(x.Writes) > 0 && len(x.Decisions) > 0
	})
	w.CheckHealthy(o)
	o.Stop()

	before := len(w.writes())
	o = operatortest.Start(t, Cell, w.As("skep-2", roleOfTheDuty...), w.args()...)
	w.apply(httpRoutes.Resource(), ofSet("last", "{kind: ListenerSet, name: more, sectionName: plain}", "v2"))
	w.awaitSet(w.Namespace, "more", setOK+", plain 2 True Programmed, tls 1 True Programmed")
	w.awaitAccepted(httpRoutes.Resource(), "last", httpOK)
	for _, text := range w.writes()[before:] {
		if text != "update ciliumenvoyconfigs/ "+config && text != "update listenersets/status more" && text != "update httproutes/status last" {
			t.Errorf("GW-20: a restart writes %s", text)
		}
	}

	// GW-E29: a ListenerSet goes, then the Gateway.
	w.delete(listenerSets.Resource(), "more")
	w.awaitPorts("port-80 port-8081")
	w.awaitRoutes(config, "insecure", "own.com/ → NS:v2:80")
	w.awaitAccepted(httpRoutes.Resource(), "set", `False InvalidHTTPRoute: ListenerSet "more" does not exist`)
	w.awaitAttachedSets("1")
	w.CheckHealthy(o)
	o.Stop()

	// GW-45: a role without ListenerSets.
	role := slices.DeleteFunc(slices.Clone(roleOfTheDuty), func(r rbacv1.PolicyRule) bool { return strings.HasPrefix(r.Resources[0], "listenersets") })
	o = operatortest.Start(t, Cell, w.As("skep-3", role...), w.args()...)
	w.awaitPorts("port-80")
	w.awaitFeature(false)
	w.CheckHealthy(o)
	o.Stop()

	o = w.start()
	w.awaitPorts("port-80 port-8081")
	w.awaitFeature(true)
	w.delete(gateways.Resource(), "edge")
	w.awaitSet(b, "far", pending)
	after, err := w.Dynamic.Resource(listenerSets.Resource()).Namespace(w.Namespace).Get(t.Context(), "foreign", metav1.GetOptions{})
	w.must(err)
	if after.GetResourceVersion() != elsewhere.GetResourceVersion() {
		t.Error("GW-42: a ListenerSet without a parent was written")
	}
	w.CheckHealthy(o)
}

// awaitFeature waits until the class says whether ListenerSets are served.
func (w *world) awaitFeature(want bool) {
	w.T.Helper()
	operatortest.Eventually(w.T, fmt.Sprintf("ListenerSet is a supported feature: %t", want), func() bool {
		u, err := w.Dynamic.Resource(classes.Resource()).Get(w.T.Context(), w.class, metav1.GetOptions{})
		w.must(err)
		var cl gatewayv1.GatewayClass
		w.must(convert(u.Object, &cl))
		return want == slices.ContainsFunc(cl.Status.SupportedFeatures, func(f gatewayv1.SupportedFeature) bool { return f.Name == featureListenerSet })
	})
}

// laxDefinition accepts ListenerSets with any fields.
const laxDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: listenersets.gateway.networking.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}}
spec:
  group: gateway.networking.k8s.io
  scope: Namespaced
  names: {plural: listenersets, singular: listenerset, kind: ListenerSet, listKind: ListenerSetList}
  versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// GW-45, GW-E31: the definition comes later, and goes; and a ListenerSet that cannot be decoded.
func TestLateListenerSets(t *testing.T) {
	const name = "listenersets.gateway.networking.k8s.io"
	w := newWorld(t)
	w.crds.Delete(name)
	w.apply(gateways.Resource(), fmt.Sprintf(openGateway, "All"))
	o := w.start()
	w.awaitPorts("port-80")
	w.awaitFeature(false)
	w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("set", "", "v1"), "{name: edge}", "{kind: ListenerSet, name: more}", 1))
	w.crds.InstallGatewayAPI("standard", "listenersets")
	w.apply(listenerSets.Resource(), listenerSetOf("more", w.Namespace, "{name: plain, port: 8080, protocol: HTTP}"))
	w.awaitPorts("port-80 port-8080")
	w.awaitAccepted(httpRoutes.Resource(), "set", httpOK)
	w.awaitRoutes(config, "insecure", "*:8080/ → NS:v1:80")
	w.awaitFeature(true)

	w.crds.Delete(name)
	w.awaitPorts("port-80")
	w.awaitFeature(false)
	w.awaitAccepted(httpRoutes.Resource(), "set", `False InvalidHTTPRoute: ListenerSet "more" does not exist`)

	w.crds.Apply([]byte(laxDefinition))
	w.apply(listenerSets.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {name: broken}, spec: {parentRef: {name: edge}, listeners: 5}}`)
	waits := func() bool { // what it is now has been seen
		now := w.gateway("edge").ResourceVersion
		return slices.ContainsFunc(o.Book.For("Gateway", w.Namespace, "edge").Decisions, func(d explain.Decision) bool {
			return d.Outcome == unreadableSet && slices.ContainsFunc(d.Triggers, func(by explain.Trigger) bool { return by.Kind == "Gateway" && by.ResourceVersion == now })
		})
	}
	n := 0
	operatortest.Eventually(t, "GW-45: the Gateway waits", func() bool {
		n++
		w.patch(gateways.Resource(), "edge", fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, n))
		return waits()
	})
	w.patch(gateways.Resource(), "edge", `{"spec":{"listeners":[{"name":"own","port":81,"protocol":"HTTP"}]}}`)
	operatortest.Eventually(t, "GW-45: it waits with other listeners", waits)
	w.awaitAccepted(httpRoutes.Resource(), "set", `False InvalidHTTPRoute: ListenerSet "more" does not exist`)
	if got := w.loadBalancer(config).Spec.Ports[0].Port; got != 80 {
		t.Errorf("GW-45: the Service has port %d", got)
	}
	w.patch(listenerSets.Resource(), "broken", `{"spec":{"listeners":[{"name":"plain","port":8082,"protocol":"HTTP"}]}}`)
	w.awaitPorts("port-81 port-8082")
	w.crds.Delete(name)
	w.awaitPorts("port-81")
}
