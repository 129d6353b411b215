// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
)

// authorityFile is the file with the certificate authority of the API server, "" if none is read.
func authorityFile(base *rest.Config) string {
	if base.Insecure || len(base.CAData) > 0 {
		return ""
	}
	return base.CAFile
}

// trustFile verifies each new connection with the current content of the file, as client-go's own transports do: the
// authority of a cluster may be exchanged while the process runs.
func trustFile(config *tls.Config, path string) {
	config.InsecureSkipVerify = true // this takes its place:
	config.VerifyConnection = func(state tls.ConnectionState) error {
		pem, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading the authority of the API server: %w", err)
		}
		trust := x509.VerifyOptions{DNSName: state.ServerName, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
		if !trust.Roots.AppendCertsFromPEM(pem) {
			return fmt.Errorf("the authority of the API server, %s, holds no certificate", path)
		}
		for _, cert := range state.PeerCertificates[1:] {
			trust.Intermediates.AddCert(cert)
		}
		if _, err := state.PeerCertificates[0].Verify(trust); err != nil {
			return fmt.Errorf("verifying the API server with %s, which is read for each connection: %w", path, err)
		}
		return nil
	}
}
