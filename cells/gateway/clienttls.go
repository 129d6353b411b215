// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	envoyres "github.com/skep-operator/skep/resources/envoy"
)

// clientTLS is the part of the reports of a Gateway that is about client certificates.
const clientTLS = "client certificates"

// reportClientTLS reports on a Gateway what it asks for of client certificates: none is verified, and none is sent (GW-61).
func (c *controller) reportClientTLS(g *gateway) {
	var notices []envoyres.Notice
	if of := g.Spec.TLS; of != nil {
		if of.Frontend != nil && verifiesClients(of.Frontend) {
			notices = append(notices, envoyres.Notice{Reason: "ClientCertificatesIgnored", Message: "spec.tls.frontend has no effect: any client is served, whatever certificate it has. Have the backend verify clients, and TLS passed through to it by a listener with the mode Passthrough", Degrades: true})
		}
		if of.Backend != nil && of.Backend.ClientCertificateRef != nil {
			notices = append(notices, envoyres.Notice{Reason: "ClientCertificatesIgnored", Message: "spec.tls.backend has no effect: backends get no client certificate. Have them accept clients without one", Degrades: true})
		}
	}
	c.reports.Set(clientTLS, aboutGateway(g), notices...)
}

// verifiesClients reports whether the clients of any port are to be verified.
func verifiesClients(f *gatewayv1.FrontendTLSConfig) bool {
	if f.Default.Validation != nil {
		return true
	}
	for _, of := range f.PerPort {
		if of.TLS.Validation != nil {
			return true
		}
	}
	return false
}
