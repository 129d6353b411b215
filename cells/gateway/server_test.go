// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// world is all of the Gateway API in the cluster, with a class of the test's own.
type world struct {
	*operatortest.Env
	crds  *operatortest.Definitions
	class string
}

var (
	required = []string{"gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants"}
	optional = []string{"tlsroutes", "listenersets", "backendtlspolicies"}
)

func newWorld(t *testing.T) *world {
	t.Helper()
	shared := clustertest.Shared(t)
	w := &world{Env: operatortest.NewEnv(t, shared, "CiliumEnvoyConfig"), crds: operatortest.NewDefinitions(t, shared)}
	w.crds.InstallGatewayAPI("standard", append(optional, required...)...)
	w.Clear(tlsPolicyKind.Resource(), listenerSets.Resource(), httpRoutes.Resource(), grpcRoutes.Resource(), tlsRoutes.Resource(), gateways.Resource(), classes.Resource(), grants.Resource())
	w.CreateNamespace()
	w.class = w.Namespace
	w.apply(classes.Resource(), fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %s}, spec: {controllerName: io.cilium/gateway-controller}}`, w.class))
	for _, name := range []string{"v1", "v2"} {
		w.service(w.Namespace, name)
	}
	return w
}

func (w *world) args(more ...string) []string {
	return append([]string{"--enable-gateway-api", "--kube-proxy-replacement=true"}, more...)
}

func (w *world) start(more ...string) *operatortest.Operator {
	return operatortest.Start(w.T, Cell, w.Kubeconfig(), w.args(more...)...)
}

func (w *world) must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// apply creates an object. Without a namespace it is in that of the test.
func (w *world) apply(resource schema.GroupVersionResource, text string) *unstructured.Unstructured {
	w.T.Helper()
	u := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(strings.NewReplacer("CLASS", w.class, "NS", w.Namespace).Replace(text)), &u.Object))
	api := w.Dynamic.Resource(resource)
	if resource == classes.Resource() {
		u, err := api.Create(w.T.Context(), u, metav1.CreateOptions{})
		w.must(err)
		return u
	}
	namespace := u.GetNamespace()
	if namespace == "" {
		namespace = w.Namespace
	}
	var created *unstructured.Unstructured
	var err error
	defer func() {
		if err != nil {
			w.T.Logf("%s: %v", u.GetName(), err)
		}
	}()
	operatortest.Eventually(w.T, u.GetName()+" is created", func() bool {
		created, err = api.Namespace(namespace).Create(w.T.Context(), u, metav1.CreateOptions{})
		if apierrors.IsInvalid(err) { // the API server may not know yet that the definition is another one
			return false
		}
		w.must(err)
		return true
	})
	return created
}

func (w *world) patch(resource schema.GroupVersionResource, name, patch string) {
	w.T.Helper()
	_, err := w.Dynamic.Resource(resource).Namespace(w.Namespace).Patch(w.T.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	w.must(err)
}

func (w *world) delete(resource schema.GroupVersionResource, name string) {
	w.T.Helper()
	w.must(w.Dynamic.Resource(resource).Namespace(w.Namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}))
}

func (w *world) service(namespace, name string) {
	w.T.Helper()
	_, err := w.Core.CoreV1().Services(namespace).Create(w.T.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	w.must(err)
}

// namespace creates one more namespace.
func (w *world) namespace(suffix string) string {
	w.T.Helper()
	name := w.Namespace[max(0, len(w.Namespace)-40):] + "-" + suffix
	name = strings.TrimLeft(name, "-")
	_, err := w.Core.CoreV1().Namespaces().Create(w.T.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.must(err)
	return name
}

func (w *world) gateway(name string) (g gatewayv1.Gateway) {
	w.T.Helper()
	u, err := w.Dynamic.Resource(gateways.Resource()).Namespace(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	w.must(err)
	w.must(convert(u.Object, &g))
	return g
}

// says is a condition in a few words.
func says(all []metav1.Condition, kind string) string {
	for _, c := range all {
		if c.Type == kind {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "none"
}

// awaitGateway waits for a condition of a Gateway.
func (w *world) awaitGateway(name, kind, want string) {
	w.T.Helper()
	w.await(fmt.Sprintf("Gateway %s is %s", name, kind), want, func() string { return says(w.gateway(name).Status.Conditions, kind) })
}

// await waits for a text.
func (w *world) await(what, want string, of func() string) {
	w.T.Helper()
	got := ""
	defer func() {
		if w.T.Failed() {
			w.T.Logf("%s: it is %q", what, got)
		}
	}()
	operatortest.Eventually(w.T, what+": "+want, func() bool { got = of(); return got == want })
}

func (w *world) listener(gateway, name string) string {
	w.T.Helper()
	for _, l := range w.gateway(gateway).Status.Listeners {
		if string(l.Name) == name {
			return fmt.Sprintf("%d routes, Accepted %s; Programmed %s; ResolvedRefs %s", l.AttachedRoutes, says(l.Conditions, "Accepted"), says(l.Conditions, "Programmed"), says(l.Conditions, "ResolvedRefs"))
		}
	}
	return "none"
}

const listenerOK = "%d routes, Accepted True Accepted: Listener Accepted; Programmed True Programmed: Listener Programmed; ResolvedRefs True ResolvedRefs: Resolved Refs"

// parentOf is what the status of a route says of its first parent.
func (w *world) parentOf(resource schema.GroupVersionResource, name string) (accepted, resolved string) {
	w.T.Helper()
	u, err := w.Dynamic.Resource(resource).Namespace(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	w.must(err)
	var r gatewayv1.HTTPRoute
	w.must(convert(u.Object["status"], &r.Status))
	for _, p := range r.Status.Parents {
		if p.ControllerName == controllerName {
			return says(p.Conditions, "Accepted"), says(p.Conditions, "ResolvedRefs")
		}
	}
	return "none", "none"
}

func (w *world) awaitAccepted(resource schema.GroupVersionResource, name, want string) {
	w.T.Helper()
	w.await("route "+name+" is accepted", want, func() string { a, _ := w.parentOf(resource, name); return a })
}

func (w *world) awaitResolved(resource schema.GroupVersionResource, name, want string) {
	w.T.Helper()
	w.await("references of "+name, want, func() string { _, r := w.parentOf(resource, name); return r })
}

const (
	httpOK     = "True Accepted: Accepted HTTPRoute"
	resolvedOK = "True ResolvedRefs: Service reference is valid"
)

// config is a CiliumEnvoyConfig, nil if there is none. It is valid.
func (w *world) config(name string) *envoytest.Config {
	w.T.Helper()
	u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	text, err := json.Marshal(u.Object["spec"])
	w.must(err)
	c, err := envoytest.VerifyJSON(text)
	w.must(err)
	return c
}

// routesOf are the routes of a table of a CiliumEnvoyConfig: host, path, action.
func (w *world) routesOf(name, table string) (all []string) {
	w.T.Helper()
	c := w.config(name)
	if c == nil {
		return nil
	}
	for _, v := range c.Tables["listener-"+table].GetVirtualHosts() {
		for _, r := range v.Routes {
			path := r.Match.GetPath() + r.Match.GetPrefix() + r.Match.GetPathSeparatedPrefix() + r.Match.GetSafeRegex().GetRegex()
			action := r.GetRoute().GetCluster()
			for _, cl := range r.GetRoute().GetWeightedClusters().GetClusters() {
				action += fmt.Sprintf("%s=%d ", cl.Name, cl.Weight.GetValue())
			}
			if r.GetDirectResponse() != nil {
				action = fmt.Sprint(r.GetDirectResponse().Status)
			}
			if r.GetRedirect() != nil {
				action = "redirect"
			}
			all = append(all, strings.TrimSpace(strings.ReplaceAll(v.Name+path+" → "+action, w.Namespace, "NS")))
		}
	}
	return all
}

func (w *world) awaitRoutes(name, table string, want ...string) {
	w.T.Helper()
	w.await(name+" has the routes", strings.Join(want, "; "), func() string { return strings.Join(w.routesOf(name, table), "; ") })
}

func (w *world) loadBalancer(name string) *corev1.Service {
	w.T.Helper()
	s, err := w.Core.CoreV1().Services(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return s
}

func (w *world) setAddresses(service string, all ...corev1.LoadBalancerIngress) {
	w.T.Helper()
	s := w.loadBalancer(service)
	s.Status.LoadBalancer.Ingress = all
	_, err := w.Core.CoreV1().Services(w.Namespace).UpdateStatus(w.T.Context(), s, metav1.UpdateOptions{})
	w.must(err)
}

func (w *world) addresses(gateway string) (all []string) {
	w.T.Helper()
	for _, a := range w.gateway(gateway).Status.Addresses {
		all = append(all, string(*a.Type)+" "+a.Value)
	}
	return all
}

// writes are the requests of the operator that change objects, Events aside.
func (w *world) writes() (all []string) {
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if r.Resource != "events" && !strings.HasPrefix(r.Resource, "selfsubject") && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			all = append(all, r.Verb+" "+r.Resource+"/"+r.Subresource+" "+r.Name)
		}
	}
	return all
}

const testPEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

func (w *world) secret(namespace, name, cert string) {
	w.T.Helper()
	_, err := w.Core.CoreV1().Secrets(namespace).Create(w.T.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"tls.crt": []byte(cert), "tls.key": []byte(testPEM)},
	}, metav1.CreateOptions{})
	w.must(err)
}

const edge = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: CLASS
  infrastructure: {labels: {team: net}, annotations: {lb/size: s}}
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
`

// httpRouteTo is an HTTPRoute of all listeners of edge.
func httpRouteTo(name, hostname, service string) string {
	hosts := ""
	if hostname != "" {
		hosts = fmt.Sprintf("hostnames: [%q], ", hostname)
	}
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s}
spec: {parentRefs: [{name: edge}], %srules: [{backendRefs: [{name: %s, port: 80}]}]}`, name, hosts, service)
}

// portFeatures are what classes of the test lack: routes of TCP and UDP have no definition there.
func portFeatures(withPolicies bool) map[string]bool {
	absent := map[string]bool{route.KindTCP: true, route.KindUDP: true}
	for _, name := range policyFeatures {
		absent[name] = !withPolicies
	}
	return absent
}

// roleOfTheDuty are the permissions that docs/wire/gateway.md has.
var roleOfTheDuty = []rbacv1.PolicyRule{
	{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"gatewayclasses", "gateways", "httproutes", "grpcroutes", "tlsroutes", "backendtlspolicies", "referencegrants"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"gatewayclasses/status", "gateways/status", "httproutes/status", "grpcroutes/status", "tlsroutes/status", "backendtlspolicies/status"}, Verbs: []string{"update"}},
	{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces", "secrets"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumenvoyconfigs"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"listenersets"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"listenersets/status"}, Verbs: []string{"update"}},
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumgatewayclassconfigs"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumgatewayclassconfigs/status"}, Verbs: []string{"update"}},
	{APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"serviceimports"}, Verbs: []string{"list", "watch"}},
}

// GW-E1 to GW-E3, GW-E12: a class, a Gateway with its objects, its addresses and its certificate, and a restart that writes
// nothing.
func TestGateway(t *testing.T) {
	w := newWorld(t)
	other := w.apply(classes.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: NS-other}, spec: {controllerName: example.com/other}}`)
	w.secret(w.Namespace, "cert", testPEM)
	w.apply(gateways.Resource(), edge)
	o := operatortest.Start(t, Cell, w.As("skep", roleOfTheDuty...), w.args()...)

	var cl gatewayv1.GatewayClass
	w.await("GW-E1: the class is accepted", "True Accepted: Valid GatewayClass", func() string {
		u, err := w.Dynamic.Resource(classes.Resource()).Get(t.Context(), w.class, metav1.GetOptions{})
		w.must(err)
		w.must(convert(u.Object, &cl))
		return says(cl.Status.Conditions, "Accepted")
	})
	if len(cl.Status.SupportedFeatures) != len(supportedFeatures(portFeatures(true))) || !strings.HasPrefix(says(cl.Status.Conditions, "SupportedVersion"), "True SupportedVersion") {
		t.Errorf("GW-E1: %v", cl.Status)
	}
	w.awaitGateway("edge", "Programmed", "False AddressNotAssigned: Gateway waiting for address")
	w.awaitGateway("edge", "Accepted", "True Accepted: Gateway successfully scheduled")
	for _, name := range []string{"http", "https"} {
		w.await("GW-E2: listener "+name, fmt.Sprintf(listenerOK, 0), func() string { return w.listener("edge", name) })
	}
	s := w.loadBalancer("cilium-gateway-edge")
	got := fmt.Sprint(s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Labels, s.Annotations, s.Spec.Ports[0].Name, s.Spec.Ports[1].Name, len(s.Spec.Selector))
	if want := fmt.Sprint("LoadBalancer", "Cluster", map[string]string{owningLabel: "edge", gatewayLabel: "edge", "team": "net"}, map[string]string{"lb/size": "s", "skep.dev/copied": "team;lb/size"}, "port-80", "port-443", 0); got != want {
		t.Errorf("GW-E2: %s, want %s", got, want)
	}
	c := w.config("cilium-gateway-edge")
	if ports := c.Spec.Services[0].Ports; len(ports) != 2 || c.Spec.Services[0].Name != "cilium-gateway-edge" {
		t.Errorf("GW-E2: %v", c.Spec.Services)
	}
	u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(t.Context(), "cilium-gateway-edge", metav1.GetOptions{})
	w.must(err)
	if u.GetLabels()["team"] != "net" || u.GetLabels()[gatewayLabel] != "edge" || u.GetLabels()["cilium.io/use-original-source-address"] != "false" || u.GetAnnotations()["lb/size"] != "s" {
		t.Errorf("GW-E2: %v %v", u.GetLabels(), u.GetAnnotations())
	}

	w.setAddresses("cilium-gateway-edge", corev1.LoadBalancerIngress{IP: "203.0.113.9", Hostname: "lb.example.com"})
	w.awaitGateway("edge", "Programmed", "True Programmed: Gateway Programmed")
	if diff := cmp.Diff([]string{"IPAddress 203.0.113.9", "Hostname lb.example.com"}, w.addresses("edge")); diff != "" {
		t.Errorf("GW-E3: %s", diff)
	}
	w.setAddresses("cilium-gateway-edge")
	operatortest.Eventually(t, "GW-E3: the address is cleared", func() bool { return len(w.addresses("edge")) == 0 })
	w.setAddresses("cilium-gateway-edge", corev1.LoadBalancerIngress{IP: "203.0.113.9"})
	w.awaitGateway("edge", "Programmed", "True Programmed: Gateway Programmed")

	w.apply(httpRoutes.Resource(), httpRouteTo("web", "", "v1"))
	w.awaitAccepted(httpRoutes.Resource(), "web", httpOK)
	w.awaitRoutes("cilium-gateway-edge", "insecure", "*/ → NS:v1:80")
	w.awaitRoutes("cilium-gateway-edge", "secure", "*/ → NS:v1:80")
	for _, name := range []string{"http", "https"} {
		w.await("listener "+name, fmt.Sprintf(listenerOK, 1), func() string { return w.listener("edge", name) })
	}
	if got := w.remoteAddresses("cilium-gateway-edge"); !slices.Equal(got, []bool{true, true}) {
		t.Errorf("ENV-36: connection managers have useRemoteAddress %v", got)
	}

	// GW-E12: a certificate that is none.
	w.must(w.Core.CoreV1().Secrets(w.Namespace).Delete(t.Context(), "cert", metav1.DeleteOptions{}))
	invalid := "1 routes, Accepted True Accepted: Listener Accepted; Programmed False Invalid: Listener not valid. Invalid CertificateRef; ResolvedRefs False InvalidCertificateRef: Invalid CertificateRef"
	w.await("GW-F9: the certificate is gone", invalid, func() string { return w.listener("edge", "https") })
	w.awaitRoutes("cilium-gateway-edge", "secure")
	w.secret(w.Namespace, "cert", "garbage")
	w.awaitRoutes("cilium-gateway-edge", "insecure", "*/ → NS:v1:80")
	w.must(w.Core.CoreV1().Secrets(w.Namespace).Delete(t.Context(), "cert", metav1.DeleteOptions{}))
	w.secret(w.Namespace, "cert", testPEM)
	w.awaitRoutes("cilium-gateway-edge", "secure", "*/ → NS:v1:80")
	w.await("listener https", fmt.Sprintf(listenerOK, 1), func() string { return w.listener("edge", "https") })

	w.CheckHealthy(o)
	o.Stop()
	after, err := w.Dynamic.Resource(classes.Resource()).Get(t.Context(), other.GetName(), metav1.GetOptions{})
	w.must(err)
	if after.GetResourceVersion() != other.GetResourceVersion() {
		t.Error("GW-E1: a class of another controller was written")
	}

	before := len(w.writes())
	o = operatortest.Start(t, Cell, w.As("skep-2", roleOfTheDuty...), w.args()...)
	w.apply(httpRoutes.Resource(), httpRouteTo("last", "last.example.com", "v2"))
	w.awaitRoutes("cilium-gateway-edge", "insecure", "*/ → NS:v1:80", "last.example.com/ → NS:v2:80")
	w.await("listener http", fmt.Sprintf(listenerOK, 2), func() string { return w.listener("edge", "http") })
	for _, text := range w.writes()[before:] {
		if text != "update ciliumenvoyconfigs/ cilium-gateway-edge" && text != "update gateways/status edge" && text != "update httproutes/status last" {
			t.Errorf("GW-20: a restart writes %s", text)
		}
	}
	w.CheckHealthy(o)
}
