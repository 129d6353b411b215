// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// SEC-17: a certificate that Envoy does not take, with the key of another, or none.
func TestCheckCertificate(t *testing.T) {
	pair := func() (certificate, key []byte) {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, of, of, private.Public(), private)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
	}
	certificate, key := pair()
	_, other := pair()
	for name, test := range map[string]struct {
		secretType       string
		certificate, key []byte
		fits             bool
	}{
		"a pair":             {"kubernetes.io/tls", certificate, key, true},
		"the key of another": {"kubernetes.io/tls", certificate, other, false},
		"no key":             {"kubernetes.io/tls", certificate, nil, false},
		"no certificate":     {"kubernetes.io/tls", []byte("x"), key, false},
		"another type":       {"Opaque", []byte("x"), nil, true},
	} {
		c := content{secretType: test.secretType, data: map[string]any{
			"tls.crt": base64.StdEncoding.EncodeToString(test.certificate), "tls.key": base64.StdEncoding.EncodeToString(test.key),
		}}
		err := c.checkCertificate()
		if (err == nil) != test.fits {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s has the key: %v", name, err)
		}
	}
}
