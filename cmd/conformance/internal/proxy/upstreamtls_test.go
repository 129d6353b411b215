// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/domain/envoy"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// sign makes a key with a certificate. Without an authority it is one.
func (a *authority) sign(t *testing.T, names []string, uri string) (tls.Certificate, *authority) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: names, BasicConstraintsValid: true, IsCA: a == nil}
	if u, err := url.Parse(uri); err == nil && uri != "" {
		c.URIs = []*url.URL{u}
	}
	if a == nil {
		a = &authority{c, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, &authority{parsed, key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Backends are spoken to with TLS if one of the authority has signed a certificate with a name that is asked for.
func TestUpstreamTLS(t *testing.T) {
	_, good := (*authority)(nil).sign(t, nil, "")
	_, bad := (*authority)(nil).sign(t, nil, "")
	of, _ := good.sign(t, []string{"a.example.com", "*.wild.example.com"}, "spiffe://a/b")
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%d %s %s", r.ProtoMajor, r.Host, r.TLS.ServerName)
	}))
	backend.TLS, backend.EnableHTTP2 = &tls.Config{Certificates: []tls.Certificate{of}}, true
	backend.StartTLS()
	t.Cleanup(backend.Close)
	w := World{
		Endpoints:   func(string) []string { return []string{strings.TrimPrefix(backend.URL, "https://")} },
		Certificate: func(string) (*tls.Certificate, error) { return &of, nil },
		Authority: func(name string) (*x509.CertPool, error) {
			switch name {
			case "copies/ns-cfgmap-good":
				return good.pool(), nil
			case "copies/ns-cfgmap-bad":
				return bad.pool(), nil
			}
			return nil, errors.New("there is no such secret")
		},
	}
	dns, uri := envoy.SubjectAltName{Value: "a.example.com"}, envoy.SubjectAltName{IsURI: true, Value: "spiffe://a/b"}
	routes, want := []*envoy.Route{}, map[string]string{}
	for i, one := range []struct {
		name, authority string
		names           []envoy.SubjectAltName
		grpc            bool
		want            string
	}{
		{"a.example.com", "good", nil, false, "200 1 h a.example.com"},
		{"a.example.com", "good", nil, true, "200 2 h a.example.com"},
		{"x.wild.example.com", "good", nil, false, "200 1 h x.wild.example.com"},
		{"b.example.com", "good", nil, false, "503"},
		{"a.example.com", "bad", nil, false, "503"},
		{"a.example.com", "none", nil, false, "503"},
		{"b.example.com", "good", []envoy.SubjectAltName{dns}, false, "200 1 h b.example.com"},
		{"b.example.com", "good", []envoy.SubjectAltName{{Value: "other.org"}, uri}, false, "200 1 h b.example.com"},
		{"a.example.com", "good", []envoy.SubjectAltName{{IsURI: true, Value: "spiffe://other"}}, false, "503"},
		{"a.example.com", "good", []envoy.SubjectAltName{{Value: "*.Example.com"}}, false, "200 1 h a.example.com"},
		{"a.example.com", "good", []envoy.SubjectAltName{{Value: "*.example.org"}}, false, "503"},
	} {
		path := fmt.Sprint("/", i)
		to := to(fmt.Sprint("b", i))
		to[0].TLS = &envoy.UpstreamTLS{ServerName: one.name, Authority: envoy.Name{Namespace: "ns", Name: one.authority}, Names: one.names}
		routes = append(routes, &envoy.Route{Path: envoy.Match{Kind: envoy.Exact, Value: path}, Backends: to, GRPC: one.grpc})
		want[path] = one.want
	}
	address := serveIn(t, plainly(routes...), w)
	for path, want := range want {
		code, body, _ := get(t, address, "h", path)
		if got := fmt.Sprint(code, " ", body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}

	// What a TLS connection has is sent on with TLS, too.
	backends := to("b")
	backends[0].TLS = &envoy.UpstreamTLS{ServerName: "a.example.com", Authority: envoy.Name{Namespace: "ns", Name: "good"}}
	address = serveIn(t, envoy.Model{Passthrough: []envoy.Passthrough{{Hostnames: []string{"t"}, Port: 443, Backends: backends, Secrets: []envoy.Name{{Namespace: "ns", Name: "c"}}}}}, w)
	c, err := tls.Dial("tcp", address, &tls.Config{ServerName: "t", InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.0\r\nHost: h\r\n\r\n")
	text, err2 := io.ReadAll(c)
	if err != nil || err2 != nil || !strings.HasSuffix(string(text), "1 h a.example.com") {
		t.Errorf("%q %v %v", text, err, err2)
	}
}
