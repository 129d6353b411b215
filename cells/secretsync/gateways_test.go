// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// define defines a kind of the Gateway API, with any fields.
func (w *world) define(resource schema.GroupVersionResource, kind string, scope apiextensionsv1.ResourceScope) {
	w.T.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: resource.GroupResource().String(), Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: resource.Group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: resource.Resource, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: resource.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	w.must(err)
	delete(content, "status")
	_, err = w.Dynamic.Resource(definitions).Create(w.T.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		w.must(err)
	}
	operatortest.Eventually(w.T, kind+" is served", func() bool {
		_, err := w.Dynamic.Resource(resource).List(w.T.Context(), metav1.ListOptions{})
		return err == nil
	})
}

func (w *world) defineGateways() {
	w.T.Helper()
	w.define(gatewayKind.Resource(), "Gateway", apiextensionsv1.NamespaceScoped)
	w.define(classKind.Resource(), "GatewayClass", apiextensionsv1.ClusterScoped)
	w.define(grantKind.Resource(), "ReferenceGrant", apiextensionsv1.NamespaceScoped)
	w.define(setKind.Resource(), "ListenerSet", apiextensionsv1.NamespaceScoped)
}

func (w *world) gatewayClass(name, controller string) {
	w.T.Helper()
	w.apply(classKind.Resource(), "", fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %s}, spec: {controllerName: %s}}", name, controller))
}

// gateway creates a Gateway in the namespace of Ingresses, with a certificate of the other one.
func (w *world) gateway(name, class, namespace, secret string) {
	w.T.Helper()
	w.apply(gatewayKind.Resource(), w.Namespace, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: %s}, spec: {
		gatewayClassName: %s, listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: %s, namespace: %s}]}}, {name: http, port: 80, protocol: HTTP}]}}`,
		name, class, secret, namespace))
}

// openGateway creates a Gateway that allows some ListenerSets.
func (w *world) openGateway(name, class, from string) {
	w.T.Helper()
	w.apply(gatewayKind.Resource(), w.Namespace, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: %s}, spec: {
		gatewayClassName: %s, allowedListeners: {namespaces: {from: %s}}, listeners: [{name: http, port: 80, protocol: HTTP}]}}`, name, class, from))
}

// listenerSet creates a ListenerSet of a Gateway of the same name, with a certificate.
func (w *world) listenerSet(in, name, namespace, secret string) {
	w.T.Helper()
	w.apply(setKind.Resource(), in, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {name: %s}, spec: {
		parentRef: {name: %[1]s, namespace: %s}, listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: %s, namespace: %s}]}}]}}`,
		name, w.Namespace, secret, namespace))
}

func (w *world) grant(namespace, name, secret string) {
	w.T.Helper()
	w.grantTo("Gateway", w.Namespace, namespace, name, secret)
}

// grantTo permits objects of a kind and a namespace to refer to a Secret.
func (w *world) grantTo(kind, from, namespace, name, secret string) {
	w.T.Helper()
	w.apply(grantKind.Resource(), namespace, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: ReferenceGrant, metadata: {name: %s}, spec: {
		from: [{group: gateway.networking.k8s.io, kind: %s, namespace: %s}], to: [{group: "", kind: Secret, name: %s}]}}`, name, kind, from, secret))
}

// orders are all orders of the numbers below n.
func orders(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, rest := range orders(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(rest), at, n-1))
		}
	}
	return all
}

// SEC-3, SEC-10; number 44 of the contract's gateway-api.md: a Secret, a Gateway of another namespace, its class and the grant, in all orders, end in the
// same copies. Without the Secret, the Gateway or the grant there is none; without the class a copy stays.
func TestOrdersOfArrival(t *testing.T) {
	w := newWorld(t)
	w.defineGateways()
	w.Clear(gatewayKind.Resource(), classKind.Resource(), grantKind.Resource())
	other := strings.TrimLeft(w.Namespace[max(0, len(w.Namespace)-50):], "-") + "-secrets"
	_, err := w.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{})
	w.must(err)
	o := w.start("--enable-gateway-api")
	all := orders(4)
	steps := func(i int) []func() {
		name := fmt.Sprint("of-", i)
		return []func(){
			func() {
				_, err := w.Core.CoreV1().Secrets(other).Create(t.Context(), &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k")},
				}, metav1.CreateOptions{})
				w.must(err)
			},
			func() { w.gateway(name, name, other, name) },
			func() { w.gatewayClass(name, controllerName) },
			func() { w.grant(other, name, name) },
		}
	}
	for i, order := range all {
		for _, step := range order {
			steps(i)[step]()
		}
	}
	copied := func() (names []string) {
		list, err := w.Core.CoreV1().Secrets(w.copies).List(t.Context(), metav1.ListOptions{})
		w.must(err)
		for _, s := range list.Items {
			if strings.Contains(s.Name, "-secrets-of-") && (string(s.Data["tls.crt"]) != "c" || string(s.Data["tls.key"]) != "k" || s.Type != corev1.SecretTypeTLS || len(s.Labels) != 2) {
				t.Errorf("the copy %s has %v, %s and %d values", s.Name, s.Labels, s.Type, len(s.Data))
			}
			names = append(names, s.Name)
		}
		return names
	}
	operatortest.Eventually(t, "SEC-3: all are copied", func() bool { return len(copied()) == len(all) })

	remove := func(resource schema.GroupVersionResource, namespace, name string) {
		w.must(w.Dynamic.Resource(resource).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	remove(corev1.SchemeGroupVersion.WithResource("secrets"), other, "of-0")
	remove(gatewayKind.Resource(), w.Namespace, "of-1")
	remove(classKind.Resource(), "", "of-2")
	remove(grantKind.Resource(), other, "of-3")
	operatortest.Eventually(t, "SEC-10: those that lack something are gone", func() bool {
		names := copied()
		return len(names) == len(all)-3 && !slices.ContainsFunc(names, func(name string) bool {
			return slices.Contains([]string{other + "-of-0", other + "-of-1", other + "-of-3"}, name)
		})
	})
	w.gatewayClass("foreign", "example.com/controller")
	w.secret("own", "own")
	w.secret("foreign", "foreign")
	w.gateway("foreign", "foreign", w.Namespace, "foreign")
	w.gateway("own", "of-4", w.Namespace, "own")
	w.awaitCopy("SEC-10: a Secret of the own namespace needs no grant", "own", "own")
	w.gateway("lost", "lost", w.Namespace, "foreign")
	if w.copy("foreign") != nil {
		t.Error("a Secret was copied for a Gateway of another controller, or of none")
	}
	operatortest.Eventually(t, "the operator is healthy", func() bool { return o.Degraded("secretsync") == "" })

	// SEC-10; number 44 of the contract's gateway-api.md: while the class of-2 does not exist, its copy stays, also over a restart.
	o.Stop()
	o = w.start("--enable-gateway-api")
	w.secret("last", "last")
	w.gateway("last", "of-4", w.Namespace, "last")
	w.awaitCopy("all is known", "last", "last")
	w.must(w.Dynamic.Resource(gatewayKind.Resource()).Namespace(w.Namespace).Delete(t.Context(), "last", metav1.DeleteOptions{}))
	w.awaitNone("what nothing refers to is deleted", "last")
	if names := copied(); !slices.Contains(names, other+"-of-2") || w.copy("foreign") != nil {
		t.Errorf("without the class there are %q", names)
	}
	w.gatewayClass("of-2", "example.com/controller")
	operatortest.Eventually(t, "SEC-10: it is another controller's", func() bool { return !slices.Contains(copied(), other+"-of-2") })
	operatortest.Eventually(t, "the operator is healthy", func() bool { return o.Degraded("secretsync") == "" })
}

// SEC-3, SEC-13, SEC-E13: a Secret, a Gateway, a ListenerSet of another namespace and a grant, in all orders, end in the same copies; and
// without either there is none. A grant for Gateways is none, and so is a Gateway that does not allow ListenerSets.
func TestOrdersOfListenerSets(t *testing.T) {
	w := newWorld(t)
	w.defineGateways()
	w.Clear(gatewayKind.Resource(), classKind.Resource(), grantKind.Resource(), setKind.Resource())
	var spaces []string
	for _, suffix := range []string{"-sets", "-certs"} {
		name := strings.TrimLeft(w.Namespace[max(0, len(w.Namespace)-50):], "-") + suffix
		_, err := w.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		w.must(err)
		spaces = append(spaces, name)
	}
	sets, certs := spaces[0], spaces[1]
	secret := func(namespace, name string) {
		_, err := w.Core.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k")},
		}, metav1.CreateOptions{})
		w.must(err)
	}
	o := w.start("--enable-gateway-api")
	w.gatewayClass("ours", controllerName)
	all := orders(4)
	for i, order := range all {
		name := fmt.Sprint("of-", i)
		steps := []func(){
			func() { secret(certs, name) },
			func() { w.openGateway(name, "ours", "Selector") },
			func() { w.listenerSet(sets, name, certs, name) },
			func() { w.grantTo("ListenerSet", sets, certs, name, name) },
		}
		for _, step := range order {
			steps[step]()
		}
	}
	copied := func() (names []string) {
		list, err := w.Core.CoreV1().Secrets(w.copies).List(t.Context(), metav1.ListOptions{})
		w.must(err)
		for _, s := range list.Items {
			names = append(names, s.Name)
		}
		return names
	}
	operatortest.Eventually(t, "SEC-E13: all are copied", func() bool { return len(copied()) == len(all) })

	remove := func(resource schema.GroupVersionResource, namespace, name string) {
		w.must(w.Dynamic.Resource(resource).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	remove(corev1.SchemeGroupVersion.WithResource("secrets"), certs, "of-0")
	remove(gatewayKind.Resource(), w.Namespace, "of-1")
	remove(setKind.Resource(), sets, "of-2")
	remove(grantKind.Resource(), certs, "of-3")
	w.grant(certs, "of-3", "of-3")
	operatortest.Eventually(t, "SEC-E13: those that lack something are gone", func() bool {
		names := copied()
		return len(names) == len(all)-4 && !slices.ContainsFunc(names, func(name string) bool {
			return slices.Contains([]string{certs + "-of-0", certs + "-of-1", certs + "-of-2", certs + "-of-3"}, name)
		})
	})
	for _, from := range []string{"None", "Same", "All"} {
		name := strings.ToLower(from)
		secret(sets, name)
		w.openGateway(name, "ours", from)
		w.listenerSet(sets, name, sets, name)
	}
	operatortest.Eventually(t, "SEC-13: one that is allowed", func() bool { return slices.Contains(copied(), sets+"-all") })
	if names := copied(); slices.Contains(names, sets+"-none") || slices.Contains(names, sets+"-same") {
		t.Errorf("SEC-13: copied for a ListenerSet that its Gateway does not allow: %v", names)
	}
	operatortest.Eventually(t, "the operator is healthy", func() bool { return o.Degraded("secretsync") == "" })
}

// Numbers 11 to 15 of the contract's secret-sync.md, but for one thing: a copy does not go with the last route, but with the last policy.
// SEC-11: the ConfigMaps of BackendTLSPolicies, whose CRD comes later.
func TestAuthorities(t *testing.T) {
	w := newWorld(t)
	w.defineGateways()
	o := w.start("--enable-gateway-api")
	w.define(tlsPolicyKind.Resource(), "BackendTLSPolicy", apiextensionsv1.NamespaceScoped)
	w.Clear(tlsPolicyKind.Resource())
	maps := w.Core.CoreV1().ConfigMaps(w.Namespace)
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "ca", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}}, Data: map[string]string{"ca.crt": "one", "more": "x"},
	}, metav1.CreateOptions{})
	w.must(err)
	policy := func(name string) {
		w.apply(tlsPolicyKind.Resource(), w.Namespace, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: {name: %s}, spec: {
			validation: {hostname: a.b, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}}`, name))
	}
	policy("p")
	await := func(what, value string) {
		t.Helper()
		operatortest.Eventually(t, what, func() bool {
			s := w.copy("cfgmap-ca")
			return (s != nil) == (value != "") && (s == nil || string(s.Data["ca.crt"]) == value && len(s.Data) == 1 && s.Labels["secretsync.cilium.io/owning-configmap-name"] == "ca")
		})
	}
	await("SEC-11: the ConfigMap is copied", "one")
	labels := map[string]string{"secretsync.cilium.io/owning-configmap-namespace": w.Namespace, "secretsync.cilium.io/owning-configmap-name": "ca"}
	first := w.copy("cfgmap-ca")
	if first.Type != corev1.SecretTypeOpaque || fmt.Sprint(first.Labels) != fmt.Sprint(labels) || len(first.Annotations) > 0 {
		t.Errorf("11: it has the type %s, the labels %v and the annotations %v", first.Type, first.Labels, first.Annotations)
	}
	policy("q")
	w.must(w.Dynamic.Resource(tlsPolicyKind.Resource()).Namespace(w.Namespace).Delete(t.Context(), "p", metav1.DeleteOptions{}))
	_, err = maps.Patch(t.Context(), "ca", "application/merge-patch+json", []byte(`{"data":{"ca.crt":"two"}}`), metav1.PatchOptions{})
	w.must(err)
	await("SEC-11: the copy follows", "two")
	if s := w.copy("cfgmap-ca"); s.UID != first.UID {
		t.Error("13: the copy went with one of two policies")
	}
	again := func(value string) {
		t.Helper()
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Immutable: new(true), Data: map[string]string{"ca.crt": value}}, metav1.CreateOptions{})
		w.must(err)
	}
	w.must(maps.Delete(t.Context(), "ca", metav1.DeleteOptions{}))
	await("14: the ConfigMap is gone", "")
	again("three")
	await("14: it is there again", "three")
	w.patchSecret(w.copies, w.Namespace+"-cfgmap-ca", `{"immutable":true}`) // as the original has it
	w.must(maps.Delete(t.Context(), "ca", metav1.DeleteOptions{}))
	again("two")
	await("15: the copy is made again", "two")
	w.remove(w.copies, w.Namespace+"-cfgmap-ca")
	await("SEC-11: the copy is restored", "two")
	w.must(w.Dynamic.Resource(tlsPolicyKind.Resource()).Namespace(w.Namespace).Delete(t.Context(), "q", metav1.DeleteOptions{}))
	await("SEC-11: the policy is gone", "")
	operatortest.Eventually(t, "the operator is healthy", func() bool { return o.Degraded("secretsync") == "" })
}

// SEC-6 and SEC-E10: nothing is deleted while references are unknown.
func TestReferencesAreUnknown(t *testing.T) {
	w := newWorld(t)
	w.secret("a", "a")
	w.secret("b", "b")
	w.ingress("web", "a")
	w.apply(v2.CiliumNetworkPolicyResource, w.Namespace, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {
		endpointSelector: {}, egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: %s, name: b}}}]}]}}`, w.Namespace))
	o := w.start("--enable-policy-secrets-sync")
	w.awaitCopy("it is copied", "a", "a")
	w.awaitCopy("it is copied", "b", "b")
	o.Stop()
	fails := w.Proxy.Answer(t, 500, clustertest.Match{Resources: []string{"ingresses"}})
	w.removeIngress("web")
	w.must(w.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(w.Namespace).Delete(t.Context(), "p", metav1.DeleteOptions{}))
	w.ingress("web-2", "a")
	w.secret("c", "c")
	w.apply(v2.CiliumNetworkPolicyResource, w.Namespace, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: q}, spec: {
		endpointSelector: {}, egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: %s, name: c}}}]}]}}`, w.Namespace))
	before := len(w.writes())
	w.start("--enable-policy-secrets-sync")
	w.awaitCopy("SEC-6: what is known to be needed is copied", "c", "c")
	operatortest.Eventually(t, "the operator has tried to list Ingresses", func() bool { return fails.Hits(t) > 2 })
	if writes := w.writes()[before:]; len(writes) != 1 {
		t.Errorf("SEC-E10: %q", writes)
	}
	fails.Remove(t)
	w.awaitNone("SEC-6: all references are known", "b")
	if w.copy("a") == nil {
		t.Error("SEC-E10: a copy was deleted that is needed")
	}
}
