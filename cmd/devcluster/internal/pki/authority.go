// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

const (
	algorithm = kubeadm.EncryptionAlgorithmECDSAP256
	validity  = 10 * 365 * 24 * time.Hour
)

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

// Write writes the pair into dir as name.crt and name.key, with mode 0600.
func (p Pair) Write(dir, name string) (certFile, keyFile string, err error) {
	certFile, keyFile = pkiutil.PathsForCertAndKey(dir, name)
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
	key  crypto.Signer
}

// NewAuthority creates a self-signed CA.
func NewAuthority(name string) (*Authority, error) {
	cert, key, err := pkiutil.NewCertificateAuthority(newConfig(name))
	if err != nil {
		return nil, fmt.Errorf("create CA %s: %w", name, err)
	}
	pair, err := encode(cert, key)
	return &Authority{pair, cert, key}, err
}

// LoadAuthority reads the files of Pair.Write.
func LoadAuthority(dir, name string) (*Authority, error) {
	loaded, err := tls.LoadX509KeyPair(pkiutil.PathsForCertAndKey(dir, name))
	if err != nil {
		return nil, fmt.Errorf("load CA %s: %w", name, err)
	}
	key, ok := loaded.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("load CA %s: a %T cannot sign", name, loaded.PrivateKey)
	}
	pair, err := encode(loaded.Leaf, key)
	return &Authority{pair, loaded.Leaf, key}, err
}

// Pair returns the certificate and key of the CA.
func (a *Authority) Pair() Pair { return a.pair }

// Pool returns a pool that trusts the CA.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Server issues a certificate for 127.0.0.1, localhost and further host names. It is
// also a client certificate, as etcd's peers need.
func (a *Authority) Server(name string, hosts ...string) (Pair, error) {
	config := newConfig(name)
	config.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	config.AltNames = certutil.AltNames{
		IPs:      []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		DNSNames: append([]string{"localhost"}, hosts...),
	}
	return a.issue(config)
}

// Client issues a certificate of a user and its groups.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	config := newConfig(user)
	config.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	config.Organization = groups
	return a.issue(config)
}

func (a *Authority) issue(config *pkiutil.CertConfig) (Pair, error) {
	cert, key, err := pkiutil.NewCertAndKey(a.cert, a.key, config)
	if err != nil {
		return Pair{}, fmt.Errorf("issue the certificate of %s: %w", config.CommonName, err)
	}
	return encode(cert, key)
}

// newConfig starts the validity an hour ago: tests change the clock.
func newConfig(name string) *pkiutil.CertConfig {
	now := time.Now()
	return &pkiutil.CertConfig{
		Config:              certutil.Config{CommonName: name, NotBefore: now.Add(-time.Hour)},
		NotAfter:            now.Add(validity),
		EncryptionAlgorithm: algorithm,
	}
}

func encode(cert *x509.Certificate, key crypto.Signer) (Pair, error) {
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode the key of %s: %w", cert.Subject.CommonName, err)
	}
	return Pair{pkiutil.EncodeCertPEM(cert), text}, nil
}

// WriteKeyPair creates a private key and writes it and its public key into dir as
// name.key and name.pub, with mode 0600.
func WriteKeyPair(dir, name string) error {
	key, err := pkiutil.NewPrivateKey(algorithm)
	if err != nil {
		return fmt.Errorf("create key %s: %w", name, err)
	}
	if err := pkiutil.WritePublicKey(dir, name, key.Public()); err != nil {
		return fmt.Errorf("write key %s: %w", name, err)
	}
	if err := pkiutil.WriteKey(dir, name, key); err != nil {
		return fmt.Errorf("write key %s: %w", name, err)
	}
	return nil
}
