// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const validity = 10 * 365 * 24 * time.Hour

// Pair is a certificate and its key, both PEM.
type Pair struct {
	Cert, Key []byte
}

// TLS parses the pair.
func (p Pair) TLS() (tls.Certificate, error) {
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return cert, fmt.Errorf("parse a certificate: %w", err)
	}
	return cert, nil
}

// Write puts the pair into dir as name.crt and name.key, readable by its owner
// only.
func (p Pair) Write(dir, name string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.WriteFile(certFile, p.Cert, 0o600); err != nil {
		return "", "", fmt.Errorf("write certificate %s: %w", name, err)
	}
	if err := os.WriteFile(keyFile, p.Key, 0o600); err != nil {
		return "", "", fmt.Errorf("write the key of %s: %w", name, err)
	}
	return certFile, keyFile, nil
}

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	pair Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes a self-signed authority.
func NewAuthority(name string) (*Authority, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	cert, pair, err := sign(template, key, template, key)
	if err != nil {
		return nil, err
	}
	return &Authority{pair, cert, key}, nil
}

// LoadAuthority reads what Pair.Write wrote.
func LoadAuthority(dir, name string) (*Authority, error) {
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	loaded, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load authority %s: %w", name, err)
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("load authority %s: the key is a %T, not an ECDSA key", name, loaded.PrivateKey)
	}
	pair, err := encode(loaded.Certificate[0], key)
	if err != nil {
		return nil, err
	}
	return &Authority{pair, loaded.Leaf, key}, nil
}

// Pair is the authority's own certificate and key.
func (a *Authority) Pair() Pair { return a.pair }

// Pool trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Server issues a certificate for 127.0.0.1, localhost and more host names. It
// also serves as a client certificate, as peers of an etcd need.
func (a *Authority) Server(name string, hosts ...string) (Pair, error) {
	return a.issue(name, func(t *x509.Certificate) {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
		t.DNSNames = append([]string{"localhost"}, hosts...)
	})
}

// Client issues a certificate that names a user and its groups.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	return a.issue(user, func(t *x509.Certificate) {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		t.Subject.Organization = groups
	})
}

func (a *Authority) issue(name string, fill func(*x509.Certificate)) (Pair, error) {
	key, err := NewKey()
	if err != nil {
		return Pair{}, err
	}
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	fill(template)
	_, pair, err := sign(template, key, a.cert, a.key)
	return pair, err
}

// NewKey makes a private key.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		Subject: subject, SerialNumber: serial,
		// An hour back: a test may turn the clock.
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
	}, nil
}

func sign(template *x509.Certificate, key *ecdsa.PrivateKey, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("parse the certificate of %s: %w", template.Subject.CommonName, err)
	}
	pair, err := encode(der, key)
	return cert, pair, err
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	keyPEM, err := EncodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM}, nil
}

// EncodeKey encodes a private key as PEM.
func EncodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
