// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
)

// GW-61: a Gateway is served, and told, whose clients are to be verified, at all ports or at one, or whose backends are to get a certificate.
func TestClientCertificates(t *testing.T) {
	w := newWorld(t)
	w.secret(w.Namespace, "cert", testPEM)
	of := fmt.Sprintf(plainGateway, "{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}")
	const validation = "{caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}"
	w.apply(gateways.Resource(), of+"  tls: {frontend: {default: {validation: "+validation+"}}}")
	w.apply(gateways.Resource(), strings.Replace(of, "{name: edge}", "{name: port}", 1)+"  tls: {frontend: {default: {}, perPort: [{port: 443, tls: {validation: "+validation+"}}]}}")
	w.apply(gateways.Resource(), strings.Replace(of, "{name: edge}", "{name: backend}", 1)+"  tls: {backend: {clientCertificateRef: {name: cert}}}")
	w.apply(gateways.Resource(), strings.Replace(of, "{name: edge}", "{name: none}", 1)+"  tls: {frontend: {default: {}}}")
	o := w.start()
	operatortest.Eventually(t, "three have an Event", func() bool {
		return w.hasEvent(w.Namespace, "edge", "ClientCertificatesIgnored", "spec.tls.frontend") && w.hasEvent(w.Namespace, "port", "ClientCertificatesIgnored", "spec.tls.frontend") &&
			w.hasEvent(w.Namespace, "backend", "ClientCertificatesIgnored", "spec.tls.backend")
	})
	w.await("a listener", fmt.Sprintf(listenerOK, 0), func() string { return w.listener("edge", "https") })
	w.await("the one without a validation", fmt.Sprintf(listenerOK, 0), func() string { return w.listener("none", "https") })
	if w.hasEvent(w.Namespace, "none", "ClientCertificatesIgnored", "") {
		t.Error("a Gateway that asks for nothing has an Event")
	}
	for _, name := range []string{"edge", "port", "backend"} {
		w.patch(gateways.Resource(), name, `{"spec": {"tls": null}}`)
	}
	operatortest.Eventually(t, "health is what it was", func() bool { return o.Degraded("gateway") == "" })
	w.CheckHealthy(o)
}
