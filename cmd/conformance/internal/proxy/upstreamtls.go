// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// upstreamTLS is how the endpoints of a cluster are spoken to.
type upstreamTLS struct {
	serverName string
	authority  string // the name of the secret
	names      []*tlsv3.SubjectAltNameMatcher
	newest     uint16 // version of TLS
}

func newUpstreamTLS(s *corev3.TransportSocket) (*upstreamTLS, error) {
	if s == nil {
		return nil, nil
	}
	socket, ok := unpack(s.GetTypedConfig()).(*tlsv3.UpstreamTlsContext)
	if !ok {
		return nil, fmt.Errorf("the transport socket %s of a cluster is not served here", s.Name)
	}
	combined := socket.GetCommonTlsContext().GetCombinedValidationContext()
	t := &upstreamTLS{socket.Sni, combined.GetValidationContextSdsSecretConfig().GetName(), combined.GetDefaultValidationContext().GetMatchTypedSubjectAltNames(), tls.VersionTLS12}
	if socket.GetCommonTlsContext().GetTlsParams().GetTlsMaximumProtocolVersion() == tlsv3.TlsParameters_TLSv1_3 {
		t.newest = tls.VersionTLS13 // which Envoy does not speak as a client by itself
	}
	if t.authority == "" || len(t.names) == 0 || len(socket.GetCommonTlsContext().GetAlpnProtocols()) > 0 {
		return nil, errors.New("TLS of a cluster that does not verify certificates, or has protocols of its own, is not served here")
	}
	for _, n := range t.names {
		if m := n.GetMatcher(); m.GetExact() == "" && m.GetSuffix() == "" || m.IgnoreCase != (m.GetSuffix() != "") {
			return nil, fmt.Errorf("the match of a name of a certificate %v is not served here", m)
		}
	}
	return t, nil
}

// verify checks the certificates of a backend: one of the authority has signed them, and one of the names is that of the first.
func (t *upstreamTLS) verify(authority *x509.CertPool, certificates []*x509.Certificate) error {
	between := x509.NewCertPool()
	for _, c := range certificates[1:] {
		between.AddCert(c)
	}
	if _, err := certificates[0].Verify(x509.VerifyOptions{Roots: authority, Intermediates: between}); err != nil {
		return err
	}
	if !slices.ContainsFunc(t.names, func(n *tlsv3.SubjectAltNameMatcher) bool { return isNamed(certificates[0], n) }) {
		return errors.New("the certificate has none of the names")
	}
	return nil
}

// isNamed reports whether a certificate has a name: one with a wildcard stands for a label.
func isNamed(c *x509.Certificate, n *tlsv3.SubjectAltNameMatcher) bool {
	exact, suffix := n.GetMatcher().GetExact(), n.GetMatcher().GetSuffix()
	if n.SanType == tlsv3.SubjectAltNameMatcher_URI {
		for _, u := range c.URIs {
			if exact != "" && u.String() == exact {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(c.DNSNames, func(name string) bool {
		if suffix != "" {
			return strings.HasSuffix(strings.ToLower(name), strings.ToLower(suffix))
		}
		_, below, _ := strings.Cut(exact, ".")
		return strings.EqualFold(name, exact) || strings.EqualFold(name, "*."+below)
	})
}

// dialTLS connects to an endpoint with TLS, and offers protocols.
func (c *Config) dialTLS(ctx context.Context, t *upstreamTLS, address string, protocols ...string) (*tls.Conn, error) {
	authority, err := c.world.Authority(t.authority)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	plain, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(plain, &tls.Config{
		ServerName: t.serverName, NextProtos: protocols, MaxVersion: t.newest, InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it as Envoy would
		VerifyConnection: func(s tls.ConnectionState) error { return t.verify(authority, s.PeerCertificates) },
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, err
	}
	return conn, nil
}

// sendTLS sends a request on a connection of its own. The version of HTTP is offered by ALPN, as Envoy does by itself.
func (c *Config) sendTLS(r *http.Request, t *upstreamTLS, isHTTP2 bool) (*http.Response, error) {
	protocols, offered := new(http.Protocols), "http/1.1"
	if protocols.SetHTTP1(!isHTTP2); isHTTP2 {
		protocols.SetHTTP2(true)
		offered = "h2"
	}
	r.URL.Scheme = "https"
	once := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, Protocols: protocols,
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, err := c.dialTLS(ctx, t, address, offered)
			if err != nil {
				return nil, &dialError{err}
			}
			return conn, nil
		},
	}
	return once.RoundTrip(r)
}
