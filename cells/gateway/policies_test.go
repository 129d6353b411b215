// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// policy creates a BackendTLSPolicy of a Service.
func (w *world) policy(name, target, hostname string) {
	w.T.Helper()
	w.apply(tlsPolicyKind.Resource(), fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: %s}
spec: {targetRefs: [%s], validation: {hostname: %s, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}`, name, target, hostname))
}

// awaitPolicy waits for what the status of a BackendTLSPolicy says of each ancestor.
func (w *world) awaitPolicy(name, want string) {
	w.T.Helper()
	w.await("BackendTLSPolicy "+name, want, func() string {
		u, err := w.Dynamic.Resource(tlsPolicyKind.Resource()).Namespace(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
		w.must(err)
		var p gatewayv1.BackendTLSPolicy
		w.must(convert(u.Object, &p))
		var all []string
		for _, s := range p.Status.Ancestors {
			text := fmt.Sprintf("%s %s", s.ControllerName, s.AncestorRef.Name)
			for _, c := range s.Conditions {
				text += fmt.Sprintf(" %s=%s", c.Type, c.Reason)
				if c.ObservedGeneration != p.Generation {
					text += " of an older generation"
				}
			}
			all = append(all, text)
		}
		return strings.Join(all, "; ")
	})
}

// tlsOf is how the clusters of the Gateway are spoken to with TLS.
func (w *world) tlsOf(name string) (all []string) {
	w.T.Helper()
	c := w.config(name)
	if c == nil {
		return nil
	}
	for name, cl := range c.Clusters {
		if cl.TransportSocket == nil {
			continue
		}
		var tls tlsv3.UpstreamTlsContext
		w.must(cl.TransportSocket.GetTypedConfig().UnmarshalTo(&tls))
		secret := tls.CommonTlsContext.GetCombinedValidationContext().ValidationContextSdsSecretConfig.Name
		all = append(all, strings.ReplaceAll(name+" "+tls.Sni+" "+secret, w.Namespace, "NS"))
	}
	slices.Sort(all)
	return all
}

func (w *world) awaitTLS(want string) {
	w.T.Helper()
	w.await("TLS of backends", want, func() string { return strings.Join(w.tlsOf(config), "; ") })
}

func (w *world) features() (names []string) {
	w.T.Helper()
	u, err := w.Dynamic.Resource(classes.Resource()).Get(w.T.Context(), w.class, metav1.GetOptions{})
	w.must(err)
	var cl gatewayv1.GatewayClass
	w.must(convert(u.Object, &cl))
	for _, f := range cl.Status.SupportedFeatures {
		names = append(names, string(f.Name))
	}
	return names
}

const (
	ours       = "io.cilium/gateway-controller edge "
	policyOK   = ours + "Accepted=Accepted ResolvedRefs=ResolvedRefs"
	policyNoCA = ours + "Accepted=NoValidCACertificate ResolvedRefs=InvalidCACertificateRef"
)

// Number 41 of the contract's gateway-api.md, but for one thing: a policy whose Service does not exist has no ancestor, and so nothing is said
// of it (GW-38). Number 14 of its secret-sync.md: a ConfigMap that goes and comes. GW-34 to GW-39, GW-E18 to GW-E21: policies and their
// ConfigMaps that come, change and go, a restart that writes nothing, and a definition that comes later.
func TestBackendTLS(t *testing.T) {
	w := newWorld(t)
	_, err := w.Core.CoreV1().Services(w.Namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "secure"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}, {Name: "other", Port: 80}}},
	}, metav1.CreateOptions{})
	w.must(err)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("web", "", "secure"), "port: 80", "port: 443", 1))
	o := operatortest.Start(t, Cell, w.As("skep", roleOfTheDuty...), w.args()...)
	w.awaitRoutes(config, "insecure", "*/ → NS:secure:443")

	w.policy("lost", targetRef("absent", ""), "a.example.com")
	w.policy("first", targetRef("secure", ""), "a.example.com")
	w.awaitPolicy("first", policyNoCA)
	w.awaitRoutes(config, "insecure", "*/ → 500")
	maps := w.Core.CoreV1().ConfigMaps(w.Namespace)
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Data: map[string]string{"ca.crt": testCA}}, metav1.CreateOptions{})
	w.must(err)
	w.awaitPolicy("first", policyOK)
	w.awaitRoutes(config, "insecure", "*/ → NS:secure:443:tls")
	w.awaitTLS("NS:secure:443:tls a.example.com cilium-secrets/NS-cfgmap-ca")
	set := func(text string) {
		t.Helper()
		_, err := maps.Patch(t.Context(), "ca", "application/merge-patch+json", fmt.Appendf(nil, `{"data":{"ca.crt":%q}}`, text), metav1.PatchOptions{})
		w.must(err)
	}
	w.must(maps.Delete(t.Context(), "ca", metav1.DeleteOptions{}))
	w.awaitPolicy("first", policyNoCA)
	w.awaitRoutes(config, "insecure", "*/ → 500")
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Data: map[string]string{"ca.crt": testCA}}, metav1.CreateOptions{})
	w.must(err)
	w.awaitPolicy("first", policyOK)
	w.awaitPolicy("lost", "")
	set("garbage")
	w.awaitPolicy("first", policyNoCA)
	w.awaitRoutes(config, "insecure", "*/ → 500")
	set(testCA)
	w.awaitPolicy("first", policyOK)
	w.awaitTLS("NS:secure:443:tls a.example.com cilium-secrets/NS-cfgmap-ca")
	w.patch(tlsPolicyKind.Resource(), "first", `{"spec":{"validation":{"hostname":"b.example.com"}}}`)
	w.awaitTLS("NS:secure:443:tls b.example.com cilium-secrets/NS-cfgmap-ca")
	w.awaitPolicy("first", policyOK)

	// GW-E20: one for the port goes before one for all ports; of two for the same the older one does.
	w.policy("port", targetRef("secure", "https"), "c.example.com")
	w.awaitTLS("NS:secure:443:tls c.example.com cilium-secrets/NS-cfgmap-ca")
	w.awaitPolicy("port", policyOK)
	w.policy("port-2", targetRef("secure", "https"), "d.example.com") // of the same second: by name
	w.awaitPolicy("port-2", ours+"Accepted=Conflicted ResolvedRefs=ResolvedRefs")
	w.policy("typo", targetRef("secure", "htps"), "d.example.com")
	w.awaitPolicy("typo", ours+"Accepted=TargetNotFound ResolvedRefs=ResolvedRefs")
	w.awaitPolicy("first", policyOK)
	w.delete(tlsPolicyKind.Resource(), "port")
	w.awaitTLS("NS:secure:443:tls d.example.com cilium-secrets/NS-cfgmap-ca")
	w.awaitPolicy("port-2", policyOK)
	w.delete(tlsPolicyKind.Resource(), "port-2")
	w.delete(tlsPolicyKind.Resource(), "typo")
	w.awaitTLS("NS:secure:443:tls b.example.com cilium-secrets/NS-cfgmap-ca")

	operatortest.Eventually(t, "GW-39: the class has the features", func() bool { return slices.Equal(w.features(), supportedFeatures(portFeatures(true))) })
	w.CheckHealthy(o)
	o.Stop()
	before := len(w.writes())
	o = operatortest.Start(t, Cell, w.As("skep-2", roleOfTheDuty...), w.args()...)
	w.apply(httpRoutes.Resource(), httpRouteTo("last", "last.example.com", "v2"))
	w.awaitRoutes(config, "insecure", "*/ → NS:secure:443:tls", "last.example.com/ → NS:v2:80")
	w.await("listener http", fmt.Sprintf(listenerOK, 2), func() string { return w.listener("edge", "http") })
	for _, text := range w.writes()[before:] {
		if text != "update ciliumenvoyconfigs/ "+config && text != "update gateways/status edge" && text != "update httproutes/status last" {
			t.Errorf("GW-38: a restart writes %s", text)
		}
	}

	// GW-38: entries of others stay, ours goes with the last route.
	w.delete(httpRoutes.Resource(), "last")
	_, err = w.Dynamic.Resource(tlsPolicyKind.Resource()).Namespace(w.Namespace).Patch(t.Context(), "first", "application/json-patch+json", []byte(`[
		{"op": "add", "path": "/status/ancestors/0", "value": {"ancestorRef": {"name": "edge"}, "controllerName": "example.com/other", "conditions": [
			{"type": "Accepted", "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z", "observedGeneration": 2}]}}]`), metav1.PatchOptions{}, "status")
	w.must(err)
	const others = "example.com/other edge Accepted=Fine"
	w.patch(httpRoutes.Resource(), "web", `{"spec":{"parentRefs":[{"name":"edge","sectionName":"nope"}]}}`)
	w.awaitPolicy("first", others)
	w.patch(httpRoutes.Resource(), "web", `{"spec":{"parentRefs":[{"name":"edge"}]}}`)
	w.awaitPolicy("first", others+"; "+policyOK)
	w.delete(gateways.Resource(), "edge")
	w.awaitPolicy("first", others)

	// GW-E21: a definition that goes and comes.
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.awaitRoutes(config, "insecure", "*/ → NS:secure:443:tls")
	w.crds.Delete("backendtlspolicies.gateway.networking.k8s.io")
	w.awaitRoutes(config, "insecure", "*/ → NS:secure:443")
	operatortest.Eventually(t, "GW-39: the class has not the features", func() bool { return slices.Equal(w.features(), supportedFeatures(portFeatures(false))) })
	w.crds.InstallGatewayAPI("standard", "backendtlspolicies")
	w.policy("again", targetRef("secure", ""), "e.example.com")
	w.awaitTLS("NS:secure:443:tls e.example.com cilium-secrets/NS-cfgmap-ca")
	w.CheckHealthy(o)
}

// GW-39: a role without the permissions, as that of older releases, costs the policies alone.
func TestPoliciesDenied(t *testing.T) {
	w := newWorld(t)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.apply(httpRoutes.Resource(), httpRouteTo("web", "", "v1"))
	w.policy("p", targetRef("v1", ""), "a.example.com")
	role := slices.DeleteFunc(slices.Clone(roleOfTheDuty), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "configmaps") })
	o := operatortest.Start(t, Cell, w.As("skep", role...), w.args()...)
	w.awaitRoutes(config, "insecure", "*/ → NS:v1:80")
	w.awaitAccepted(httpRoutes.Resource(), "web", httpOK)
	operatortest.Eventually(t, "GW-39: the class has not the features", func() bool { return slices.Equal(w.features(), supportedFeatures(portFeatures(false))) })
	w.awaitPolicy("p", "")
	w.CheckHealthy(o)
}
