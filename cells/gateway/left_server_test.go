// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/secretsync"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// keysOf are the names of the secrets in the CiliumEnvoyConfig of a Gateway, without namespaces of tests; "none" if there is no configuration.
func (w *world) keysOf(gateway string) string {
	w.T.Helper()
	u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(w.T.Context(), "cilium-gateway-"+gateway, metav1.GetOptions{})
	if err != nil {
		return "none"
	}
	text, err := json.Marshal(u.Object["spec"])
	w.must(err)
	var spec envoyres.Spec
	w.must(json.Unmarshal(text, &spec))
	var all []string
	for name := range spec.Secrets.All() {
		parts := strings.Split(name, "-")
		all = append(all, strings.Join(parts[max(0, len(parts)-2):], "-"))
	}
	return strings.Join(all, " ")
}

// GW-63; K2 of the contract's tenants.md: a Gateway that is left as it is, since its class is gone or it is being deleted, is not served with the key of another
// namespace after the grant has gone, though that has the key in use itself. Its other hosts stay, and so do keys that a ListenerSet of it may read. The same
// comes of a grant that goes while no operator runs.
func TestKeysOfGatewaysThatAreLeft(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	a, c, copies := w.namespace("aa"), w.namespace("cc"), w.namespace("copies")
	w.secret(a, "key", testPEM)
	w.secret(w.Namespace, "own", testPEM)
	for _, from := range []string{"Gateway " + w.Namespace, "ListenerSet " + c} {
		kind, namespace, _ := strings.Cut(from, " ")
		w.apply(grants.Resource(), fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: ReferenceGrant, metadata: {name: %s, namespace: %s}, spec: {
			from: [{group: gateway.networking.k8s.io, kind: %s, namespace: %s}], to: [{group: "", kind: Secret, name: key}]}}`, strings.ToLower(kind), a, kind, namespace))
	}
	goes := w.class + "-goes"
	w.apply(classes.Resource(), fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %s}, spec: {controllerName: io.cilium/gateway-controller}}`, goes))
	listener := func(host, namespace, secret string) string {
		return fmt.Sprintf(`{name: %s, port: 443, protocol: HTTPS, hostname: %[1]s.test, tls: {certificateRefs: [{name: %s, namespace: %s}]}}`, host, secret, namespace)
	}
	gateway := func(namespace, name, class string, listeners ...string) {
		w.apply(gateways.Resource(), fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: %s, namespace: %s}, spec: {
			gatewayClassName: %s, allowedListeners: {namespaces: {from: All}}, listeners: [%s]}}`, name, namespace, class, strings.Join(listeners, ", ")))
	}
	gateway(a, "owner", "CLASS", listener("owner", a, "key"))
	gateway(w.Namespace, "several", goes, listener("several", a, "key"), listener("stays", w.Namespace, "own"))
	gateway(w.Namespace, "one", goes, listener("one", a, "key"))
	gateway(w.Namespace, "edge", goes, listener("stays", w.Namespace, "own"))
	w.apply(listenerSets.Resource(), listenerSetOf("set", c, listener("set", a, "key")))
	gateway(w.Namespace, "deleted", "CLASS", listener("deleted", a, "key"), listener("stays", w.Namespace, "own"))
	start := func() *operatortest.Operator {
		return operatortest.Start(t, cell.Set(Cell, secretsync.Cell), w.Kubeconfig(), w.args("--gateway-api-secrets-namespace="+copies)...)
	}
	is := func(what string, want map[string]string) {
		t.Helper()
		for gateway, keys := range want {
			w.await(what+": "+gateway, keys, func() string { return w.keysOf(gateway) })
		}
	}
	own := w.Namespace[strings.LastIndex(w.Namespace, "-")+1:] + "-own"
	served := map[string]string{"several": "aa-key " + own, "one": "aa-key", "edge": "aa-key " + own, "deleted": "aa-key " + own}

	o := start()
	is("they are served", served)
	w.must(w.Dynamic.Resource(classes.Resource()).Delete(ctx, goes, metav1.DeleteOptions{}))
	w.patch(gateways.Resource(), "deleted", `{"metadata":{"finalizers":["example.com/waits"]}}`)
	w.delete(gateways.Resource(), "deleted")
	defer w.patch(gateways.Resource(), "deleted", `{"metadata":{"finalizers":null}}`)
	for _, name := range []string{"several", "one", "edge"} {
		w.awaitExplained(o, "Gateway", w.Namespace, name, noClass)
	}
	w.awaitExplained(o, "Gateway", w.Namespace, "deleted", isGone)
	is("they are left as they are", served)

	w.must(w.Dynamic.Resource(grants.Resource()).Namespace(a).Delete(ctx, "gateway", metav1.DeleteOptions{}))
	left := map[string]string{"several": own, "one": "none", "edge": "aa-key " + own, "deleted": own}
	is("without the grant", left)
	w.CheckHealthy(o)
	o.Stop()

	w.must(w.Dynamic.Resource(grants.Resource()).Namespace(a).Delete(ctx, "listenerset", metav1.DeleteOptions{}))
	o = start()
	left["edge"] = own
	is("without the other one", left)
	if _, err := w.Core.CoreV1().Secrets(copies).Get(ctx, a+"-key", metav1.GetOptions{}); err != nil {
		t.Errorf("the owner of the key has no copy: %v", err)
	}
	w.CheckHealthy(o)
	o.Stop()

	w.apply(classes.Resource(), fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %s}, spec: {controllerName: io.cilium/gateway-controller}}`, goes))
	w.apply(grants.Resource(), fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: ReferenceGrant, metadata: {name: gateway, namespace: %s}, spec: {
		from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: NS}], to: [{group: "", kind: Secret, name: key}]}}`, a))
	start()
	is("with the class and the grant again", map[string]string{"several": served["several"], "one": "aa-key"})
}
