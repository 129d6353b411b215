// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/operatortest"
)

// awaitWaiting waits until a Secret was looked at while references to it might be missing.
func (w *world) awaitWaiting(o *operatortest.Operator, namespace, name string) {
	w.T.Helper()
	operatortest.Eventually(w.T, "references to "+name+" may be missing", func() bool {
		return slices.ContainsFunc(o.Book.For("Secret", namespace, name).Decisions, func(d explain.Decision) bool { return d.Outcome == isIncomplete })
	})
}

// Number 19 of the contract's secret-sync.md; SEC-10: a Secret of another namespace is not copied without a grant. A copy that the original has made of
// it goes once it is certain that there is none.
func TestCopyWithoutGrant(t *testing.T) {
	w := newWorld(t)
	w.defineGateways()
	w.Clear(gatewayKind.Resource(), classKind.Resource(), grantKind.Resource())
	other := w.Namespace + "-infra"
	_, err := w.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{})
	w.must(err)
	for _, name := range []string{"left", "granted", "never"} {
		_, err := w.Core.CoreV1().Secrets(other).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"tls.crt": []byte(name)}}, metav1.CreateOptions{})
		w.must(err)
	}
	exists := func(name string) bool { return w.copy("infra-"+name) != nil }
	for _, name := range []string{"left", "granted"} {
		_, err := w.Core.CoreV1().Secrets(w.copies).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: other + "-" + name, Labels: map[string]string{
				"secretsync.cilium.io/owning-secret-namespace": other, "secretsync.cilium.io/owning-secret-name": name,
			}},
			Data: map[string][]byte{"tls.crt": []byte(name)},
		}, metav1.CreateOptions{})
		w.must(err)
	}
	w.gatewayClass("ours", controllerName)
	for _, name := range []string{"left", "granted", "never"} {
		w.gateway(name, "ours", other, name)
	}
	w.grant(other, "granted", "granted")
	before := w.copy("infra-granted")
	fails := w.Proxy.Answer(t, 500, clustertest.Match{Resources: []string{"referencegrants"}})
	o := w.start("--enable-gateway-api")
	operatortest.Eventually(t, "the operator has tried to list ReferenceGrants", func() bool { return fails.Hits(t) > 2 })
	w.secret("own", "own")
	w.gateway("own", "ours", w.Namespace, "own")
	w.awaitCopy("what needs no grant is copied", "own", "own")
	w.must(w.Dynamic.Resource(gatewayKind.Resource()).Namespace(w.Namespace).Delete(t.Context(), "own", metav1.DeleteOptions{}))
	w.awaitWaiting(o, w.Namespace, "own")
	if !exists("left") || !exists("granted") {
		t.Error("a copy was deleted while grants are not known")
	}
	fails.Remove(t)
	operatortest.Eventually(t, "it is certain that there is no grant", func() bool { return !exists("left") })
	w.awaitNone("nothing refers to it", "own")
	if s := w.copy("infra-granted"); s == nil || s.UID != before.UID || exists("never") {
		t.Error("what is granted was deleted, or what is not was copied")
	}
	operatortest.Eventually(t, "health is well", func() bool { return o.Degraded("secretsync") == "" })
}

// Number 20 of the contract's secret-sync.md, but for one thing: a kind that the API server has not served for a minute has no objects (SEC-6). Copies
// for Gateways stay while a kind is missing, and where the Gateway API is off.
func TestCopiesWithoutGatewayAPI(t *testing.T) {
	w := newWorld(t)
	w.defineGateways()
	w.Clear(gatewayKind.Resource(), classKind.Resource(), grantKind.Resource())
	w.secret("own", "own")
	w.gatewayClass("ours", controllerName)
	w.gateway("own", "ours", w.Namespace, "own")
	o := w.start("--enable-gateway-api")
	w.awaitCopy("it is copied", "own", "own")
	o.Stop()
	before := w.copy("own")

	definitions := operatortest.NewDefinitions(t, clustertest.Shared(t))
	definitions.Delete(classKind.Resource().GroupResource().String())
	o = w.start("--enable-gateway-api")
	operatortest.Eventually(t, "the Secret was looked at", func() bool { return len(o.Book.For("Secret", w.Namespace, "own").Decisions) > 0 })
	o.Stop()

	w.secret("of-policy", "p")
	space := w.Namespace + "-policies"
	_, err := w.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{})
	w.must(err)
	w.apply(v2.CiliumNetworkPolicyResource, w.Namespace, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {
		endpointSelector: {}, egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: %s, name: of-policy}}}]}]}}`, w.Namespace))
	o = operatortest.Start(t, Cell, w.Kubeconfig(), "--enable-policy-secrets-sync", "--policy-secrets-namespace="+space, "--gateway-api-secrets-namespace="+w.copies)
	copied := func() bool {
		_, err := w.Core.CoreV1().Secrets(space).Get(t.Context(), w.Namespace+"-of-policy", metav1.GetOptions{})
		return err == nil
	}
	operatortest.Eventually(t, "what a policy refers to is copied", copied)
	if s := w.copy("own"); s == nil || s.UID != before.UID || s.ResourceVersion != before.ResourceVersion {
		t.Error("the copy for the Gateway was written or deleted")
	}
	w.CheckHealthy(o)
	o.Stop()
	w.define(classKind.Resource(), "GatewayClass", apiextensionsv1.ClusterScoped) // other tests have it
}

// SEC-18; number 20 of the contract's secret-sync.md: with the Gateway API off, and Ingresses served from the same namespace of copies, a copy stays, and follows
// its Secret, while the configuration of a Gateway names it; the copy beside it goes.
func TestCopiesOfGatewaysAmongOthers(t *testing.T) {
	w := newWorld(t)
	w.defineGateways()
	w.Clear(gatewayKind.Resource(), classKind.Resource(), grantKind.Resource(), v2.CiliumEnvoyConfigResource)
	w.gatewayClass("ours", controllerName)
	for _, name := range []string{"served", "gone"} {
		w.secret(name, name)
		w.gateway(name, "ours", w.Namespace, name)
	}
	o := w.start("--enable-gateway-api")
	w.awaitCopy("it is copied", "served", "served")
	w.awaitCopy("it is copied", "gone", "gone")
	o.Stop()
	config := func(name, owner, secret string) {
		w.apply(v2.CiliumEnvoyConfigResource, w.Namespace, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumEnvoyConfig, metadata: {name: %s, ownerReferences: [
			{apiVersion: x/v1, kind: %s, name: g, uid: u, controller: true}]}, spec: {resources: [{"@type": type.googleapis.com/envoy.config.listener.v3.Listener,
			name: listener, filterChains: [{transportSocket: {name: envoy.transport_sockets.tls, typedConfig: {commonTlsContext: {
			tlsCertificateSdsSecretConfigs: [{name: %s/%s-%s, sdsConfig: {resourceApiVersion: V3}}]}}}}]}]}}`, name, owner, w.copies, w.Namespace, secret))
	}
	config("of-a-gateway", "Gateway", "served")
	config("of-another", "Deployment", "gone")

	w.start()
	w.awaitNone("SEC-18: no configuration of a Gateway names it", "gone")
	w.patchSecret(w.Namespace, "served", `{"stringData":{"tls.crt":"new"}}`)
	operatortest.Eventually(t, "SEC-18: the copy follows its Secret", func() bool {
		s := w.copy("served")
		return s != nil && string(s.Data["tls.crt"]) == "new"
	})
	w.must(w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Delete(t.Context(), "of-a-gateway", metav1.DeleteOptions{}))
	w.awaitNone("SEC-18: the configuration is gone", "served")
}

// SEC-18; numbers 2.1 and 2.2 of the contract's tenants.md: with Ingresses not served, or their secrets not copied, and others copied to the same namespace, a
// copy stays, and follows its Secret, while a configuration of theirs names it. What has the name of a copy that does not exist keeps that from others.
func TestCopiesOfIngressesAmongOthers(t *testing.T) {
	w := newWorld(t)
	w.defineGateways() // what configurations may mean is known
	w.Clear(gatewayKind.Resource(), classKind.Resource(), grantKind.Resource(), setKind.Resource(), v2.CiliumEnvoyConfigResource)
	near := &world{Env: &operatortest.Env{T: w.T, Core: w.Core, Dynamic: w.Dynamic, Proxy: w.Proxy, Namespace: w.Namespace + "-b"}, copies: w.copies}
	near.CreateNamespace()
	for _, name := range []string{"served", "shared", "gone", "free"} {
		w.secret(name, name)
		w.ingress(name, name)
	}
	w.ingress("login", "b-c") // does not exist
	w.secret("default", "default")
	near.ingress("bare", `""`) // the other namespace is that of the operator
	o := w.start("--enable-policy-secrets-sync", "--ingress-default-secret-namespace="+w.Namespace, "--ingress-default-secret-name=default")
	operatortest.Eventually(t, "it is served with the default Secret", func() bool { return slices.Equal(near.served("bare"), []string{w.Namespace + "-default"}) })
	w.awaitCopy("the default Secret is copied", "default", "default")
	for _, name := range []string{"served", "shared", "gone", "free"} {
		w.awaitServed("it is served", name, name)
	}
	operatortest.Eventually(t, "it is served without a certificate", func() bool { return slices.Equal(w.served("login"), []string{w.Namespace + "-b-c"}) })
	o.Stop()
	dropConfig := func(ingress string) {
		err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Delete(t.Context(), "cilium-ingress-"+w.Namespace+"-"+ingress, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			w.must(err)
		}
	}
	drop := func(what, ingress string) {
		t.Helper()
		w.removeIngress(ingress)
		operatortest.Eventually(t, what, func() bool {
			dropConfig(ingress) // it is written again if it goes before the Ingress
			return w.copy(ingress) == nil
		})
	}
	for _, name := range []string{"gone", "shared"} {
		w.removeIngress(name)
		dropConfig(name)
	}
	w.apply(v2.CiliumEnvoyConfigResource, w.Namespace, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumEnvoyConfig, metadata: {name: cilium-ingress}, spec: {
		resources: [{"@type": type.googleapis.com/envoy.config.listener.v3.Listener, name: listener, filterChains: [{transportSocket: {name: envoy.transport_sockets.tls,
		typedConfig: {commonTlsContext: {tlsCertificateSdsSecretConfigs: [{name: %s/%s-shared, sdsConfig: {resourceApiVersion: V3}}]}}}}]}]}}`, w.copies, w.Namespace))
	w.secret("forged", "forged")
	_, err := w.Core.CoreV1().Secrets(w.copies).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-forged", Labels: map[string]string{
		"secretsync.cilium.io/owning-secret-namespace": w.Namespace, "secretsync.cilium.io/owning-secret-name": "forged",
	}}}, metav1.CreateOptions{})
	w.must(err)
	w.apply(v2.CiliumEnvoyConfigResource, near.Namespace, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumEnvoyConfig, metadata: {name: forged, ownerReferences: [
		{apiVersion: x/v1, kind: Ingress, name: i, uid: u, controller: true}]}, spec: {resources: [{"@type": type.googleapis.com/envoy.config.listener.v3.Listener,
		name: listener, filterChains: [{transportSocket: {name: envoy.transport_sockets.tls, typedConfig: {commonTlsContext: {
		tlsCertificateSdsSecretConfigs: [{name: %s/%s-forged, sdsConfig: {resourceApiVersion: V3}}]}}}}]}]}}`, w.copies, w.Namespace))
	near.secret("c", "near")
	near.apply(v2.CiliumNetworkPolicyResource, near.Namespace, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {
		endpointSelector: {}, egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: %s, name: c}}}]}]}}`, near.Namespace))
	follows := func(what, name, value string) {
		t.Helper()
		w.patchSecret(w.Namespace, name, fmt.Sprintf(`{"stringData":{"tls.crt":%q}}`, value))
		w.awaitCopy(what, name, value)
	}

	o = w.start("--enable-policy-secrets-sync", "--enable-ingress-controller=false")
	w.awaitNone("SEC-18: no configuration names it", "gone")
	near.awaitEvent("a name that a configuration of another namespace has is not given", "SecretNotCopied", "p")
	follows("SEC-18: Ingresses are not served", "served", "two")
	follows("SEC-18: the configuration is what Ingresses share", "shared", "two")
	w.awaitNone("SEC-22: what is of another namespace stays for no configuration", "forged")
	follows("SEC-23: an Ingress of another namespace has the default Secret, which no option has any more", "default", "two")
	if w.copy("b-c") != nil {
		t.Error("2.1: login would be served with the key of another")
	}
	o.Stop()

	o = w.start("--enable-policy-secrets-sync", "--enable-ingress-secrets-sync=false")
	drop("SEC-18: its configuration is gone", "free")
	follows("SEC-18: the secrets of Ingresses are not copied", "served", "three")
	if name := w.awaitServed("it is served with the copy that it had", "served", "three"); name != w.Namespace+"-served" {
		t.Errorf("it is served with %s", name)
	}
	drop("SEC-18: the configuration is gone", "served")
	o.Stop()
}

// Number 21 of the contract's secret-sync.md: where the secrets of Gateways are not copied, their ConfigMaps are not either, and those of Ingresses are.
func TestGatewaysAreNotSynchronized(t *testing.T) {
	w := newWorld(t)
	w.defineGateways()
	w.define(tlsPolicyKind.Resource(), "BackendTLSPolicy", apiextensionsv1.NamespaceScoped)
	w.Clear(gatewayKind.Resource(), classKind.Resource(), tlsPolicyKind.Resource())
	for _, name := range []string{"own", "web"} {
		w.secret(name, name)
	}
	_, err := w.Core.CoreV1().ConfigMaps(w.Namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Data: map[string]string{"ca.crt": "one"}}, metav1.CreateOptions{})
	w.must(err)
	w.gatewayClass("ours", controllerName)
	w.gateway("own", "ours", w.Namespace, "own")
	w.apply(tlsPolicyKind.Resource(), w.Namespace, `{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: {name: p}, spec: {
		validation: {hostname: a.b, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}}`)
	w.ingress("web", "web")
	o := w.start("--enable-gateway-api", "--enable-gateway-api-secrets-sync=false")
	w.awaitCopy("the Secret of the Ingress is copied", "web", "web")
	all, err := w.Core.CoreV1().Secrets(w.copies).List(t.Context(), metav1.ListOptions{})
	w.must(err)
	if len(all.Items) != 1 {
		t.Errorf("there are %d copies", len(all.Items))
	}
	for _, r := range w.Proxy.Requests(t, 0) {
		if slices.Contains([]string{"gateways", "backendtlspolicies", "configmaps"}, r.Resource) {
			t.Errorf("asked for is %s %s", r.Verb, r.Path)
		}
	}
	w.CheckHealthy(o)
}
