// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pki

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"slices"
	"testing"
)

func TestAuthorityIssuesAndIsReadBack(t *testing.T) {
	dir := t.TempDir()
	made, err := NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := made.Pair().Write(dir, "ca"); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := loaded.Client("alice", "dev", "ops")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	for _, authority := range []*Authority{made, loaded} {
		_, err = cert.Leaf.Verify(x509.VerifyOptions{Roots: authority.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err != nil {
			t.Errorf("the certificate does not verify: %v", err)
		}
	}
	if cert.Leaf.Subject.CommonName != "alice" || !slices.Equal(cert.Leaf.Subject.Organization, []string{"dev", "ops"}) {
		t.Errorf("the certificate names %v", cert.Leaf.Subject)
	}
}

func TestServerCertificateIsForLoopback(t *testing.T) {
	authority, err := NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Server("server", "kubernetes.default.svc")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "::1", "localhost", "kubernetes.default.svc"} {
		if err := cert.Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

func TestMissingAuthority(t *testing.T) {
	if _, err := LoadAuthority(t.TempDir(), "ca"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("loading what is not there: %v", err)
	}
}
