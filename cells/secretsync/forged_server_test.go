// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// SEC-22: a tenant writes a configuration that is a Gateway's or an Ingress's by its owner, and that has names of copies of another namespace. That namespace gets its copies
// all the same, under the names that agents compute, and loses them when nothing of its own refers to them. What a ReferenceGrant lets it have stays.
func TestForgedConfigurations(t *testing.T) {
	for name, test := range map[string]struct {
		kind   string
		served bool
		flags  []string
	}{
		"Gateways are not served":                    {"Gateway", false, nil},
		"Gateways are served":                        {"Gateway", true, []string{"--enable-gateway-api"}},
		"Ingresses are not served":                   {"Ingress", false, []string{"--enable-ingress-controller=false"}},
		"Ingresses are not served, and Gateways are": {"Ingress", false, []string{"--enable-ingress-controller=false", "--enable-gateway-api"}},
		"nothing is served":                          {"Gateway", false, []string{"--enable-ingress-controller=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.defineGateways()
			w.Clear(gatewayKind.Resource(), classKind.Resource(), grantKind.Resource(), setKind.Resource(), v2.CiliumEnvoyConfigResource)
			other := w.Namespace + "-bb"
			_, err := w.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{})
			w.must(err)
			names := ""
			for _, secret := range []string{"later", "kept", "granted"} {
				names += fmt.Sprintf("{name: %s/%s-%s}, ", w.copies, w.Namespace, secret)
			}
			w.apply(v2.CiliumEnvoyConfigResource, other, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumEnvoyConfig, metadata: {name: forged, ownerReferences: [
				{apiVersion: x/v1, kind: %s, name: g, uid: u, controller: true}]}, spec: {resources: [{"@type": type.googleapis.com/envoy.config.listener.v3.Listener,
				name: listener, filterChains: [{transportSocket: {name: envoy.transport_sockets.tls, typedConfig: {commonTlsContext: {
				tlsCertificateSdsSecretConfigs: [%s]}}}}]}]}}`, test.kind, names))
			policy := func(secret string) {
				w.apply(v2.CiliumNetworkPolicyResource, w.Namespace, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: %s}, spec: {
					endpointSelector: {}, egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: %s, name: %[1]s}}}]}]}}`, secret, w.Namespace))
			}
			drop := func(policy string) {
				w.must(w.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(w.Namespace).Delete(t.Context(), policy, metav1.DeleteOptions{}))
			}
			w.grantTo("Gateway", other, w.Namespace, "grant", "granted")
			for _, secret := range []string{"kept", "granted"} {
				w.secret(secret, secret)
				policy(secret)
				_, err = w.Core.CoreV1().Secrets(w.copies).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-" + secret, Labels: map[string]string{
					"secretsync.cilium.io/owning-secret-namespace": w.Namespace, "secretsync.cilium.io/owning-secret-name": secret,
				}}}, metav1.CreateOptions{})
				w.must(err)
			}
			o := w.start(append(test.flags, "--enable-policy-secrets-sync")...)
			for _, secret := range []string{"kept", "granted"} {
				w.awaitCopy("a policy refers to it", secret, secret)
			}
			w.secret("later", "later")
			policy("later")
			w.awaitCopy("a later policy gets its copy", "later", "later")
			drop("later")
			w.awaitNone("nothing of its namespace refers to it any more", "later")
			drop("kept")
			w.awaitNone("nothing of its namespace refers to it any more", "kept")
			switch {
			case test.kind == "Ingress": // what Gateways may refer to is nothing to it
				drop("granted")
				w.awaitNone("nothing of its namespace refers to it any more", "granted")
			case !test.served: // otherwise the Gateway refers to it
				drop("granted")
				w.patchSecret(w.Namespace, "granted", `{"stringData":{"tls.crt":"new"}}`)
				w.awaitCopy("it stays, and follows its Secret", "granted", "new")
				w.must(w.Dynamic.Resource(grantKind.Resource()).Namespace(w.Namespace).Delete(t.Context(), "grant", metav1.DeleteOptions{}))
				w.awaitNone("it is not granted any more", "granted")
			}
			w.CheckHealthy(o)
		})
	}
}
