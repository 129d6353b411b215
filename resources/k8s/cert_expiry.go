// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

// expired returns an error that says what to do once the client certificate has
// expired, or is not valid yet.
func (d *dialer) expired(now time.Time) error {
	if d.tls == nil || d.tls.GetClientCertificate == nil || d.plugin != nil { // a plugin may hang, and renews it
		return nil
	}
	cert, err := d.tls.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil || len(cert.Certificate) == 0 {
		return err
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return fmt.Errorf("the client certificate in %s: %w", d.certificateFile(), err)
	}
	switch {
	case now.After(leaf.NotAfter) && d.credentials.TLS.ReloadTLSFiles:
		return fmt.Errorf("the client certificate in %s expired on %s: replace the file, it is read again", d.certificateFile(), date(leaf.NotAfter))
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the client certificate in %s expired on %s: renew it there and restart", d.certificateFile(), date(leaf.NotAfter))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the client certificate in %s is valid from %s on only: set this machine's clock", d.certificateFile(), date(leaf.NotBefore))
	}
	return nil
}

func (d *dialer) certificateFile() string {
	if d.credentials.TLS.ReloadTLSFiles {
		return d.credentials.TLS.CertFile
	}
	return d.config.K8sKubeconfigPath
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }
