// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spiretest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// authority is the certificate authority of a trust domain.
type authority struct {
	t      testing.TB
	domain spiffeid.TrustDomain

	mu     sync.Mutex
	serial int64
	root   *x509.Certificate
	key    *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, domain string) *authority {
	a := &authority{t: t, domain: spiffeid.RequireTrustDomainFromString(domain)}
	a.replace()
	return a
}

// replace has the authority begin again with another key: what it issued before is not accepted any more.
func (a *authority) replace() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.key = a.newKey()
	template := a.template(a.domain.ID(), lifetime)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.root = a.sign(template, template, &a.key.PublicKey, a.key)
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Error(err)
	}
	return key
}

// lifetime is how long certificates last.
const lifetime = time.Hour

func (a *authority) template(id spiffeid.ID, lasts time.Duration) *x509.Certificate {
	a.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{Organization: []string{"SPIRE"}}, URIs: []*url.URL{id.URL()},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(lasts),
	}
}

func (a *authority) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		a.t.Error(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Error(err)
	}
	return cert
}

// issue issues a certificate.
func (a *authority) issue(id spiffeid.ID, lasts time.Duration) *x509svid.SVID {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := a.newKey()
	template := a.template(id, lasts)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	return &x509svid.SVID{ID: id, Certificates: []*x509.Certificate{a.sign(template, a.root, &key.PublicKey, a.key)}, PrivateKey: key}
}

func (a *authority) roots() []*x509.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	return []*x509.Certificate{a.root}
}

// serverSource has the server's certificate of the moment.
type serverSource struct {
	*authority
	id spiffeid.ID
}

// GetX509SVID implements x509svid.Source.
func (s serverSource) GetX509SVID() (*x509svid.SVID, error) { return s.issue(s.id, lifetime), nil }

// GetX509BundleForTrustDomain implements x509bundle.Source.
func (s serverSource) GetX509BundleForTrustDomain(domain spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	return x509bundle.FromX509Authorities(domain, s.roots()), nil
}
