// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// UpstreamTLS is how a backend is spoken to with TLS, and which certificate it is to have (ENV-22).
type UpstreamTLS struct {
	ServerName string // that is asked for
	Authority  Name   // the ConfigMap with the authority that has signed the certificate
	// Names are those of which the certificate is to have one; without any it is to be for ServerName.
	Names []SubjectAltName
}

// SubjectAltName is a name of a certificate: a name of DNS, where *.example.com stands for all names below, or a URI.
type SubjectAltName struct {
	IsURI bool
	Value string
}

// Equal reports whether both are the same, or both nil.
func (t *UpstreamTLS) Equal(other *UpstreamTLS) bool {
	if t == nil || other == nil {
		return t == other
	}
	return t.ServerName == other.ServerName && t.Authority == other.Authority && slices.Equal(t.Names, other.Names)
}

// Check returns why Envoy would refuse it.
func (t *UpstreamTLS) Check() error {
	if t.ServerName == "" || slices.ContainsFunc(t.Names, func(n SubjectAltName) bool { return n.Value == "" }) {
		return errors.New("a name is empty")
	}
	for _, m := range t.matchers() {
		if err := m.ValidateAll(); err != nil {
			return err
		}
	}
	return (&tlsv3.UpstreamTlsContext{Sni: t.ServerName}).ValidateAll()
}

// text is equal for those that are Equal.
func (t *UpstreamTLS) text() string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%#v", *t)
}

// matchers are the names of which a certificate is to have one.
func (t *UpstreamTLS) matchers() (all []*tlsv3.SubjectAltNameMatcher) {
	names := t.Names
	if len(names) == 0 {
		names = []SubjectAltName{{Value: t.ServerName}}
	}
	for _, n := range names {
		kind, m := tlsv3.SubjectAltNameMatcher_DNS, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: n.Value}}
		suffix, isWildcard := strings.CutPrefix(n.Value, "*")
		switch {
		case n.IsURI:
			kind = tlsv3.SubjectAltNameMatcher_URI
		case isWildcard: // an exact one would be compared with wildcards of certificates alone
			m.MatchPattern, m.IgnoreCase = &matcherv3.StringMatcher_Suffix{Suffix: suffix}, true
		}
		all = append(all, &tlsv3.SubjectAltNameMatcher{SanType: kind, Matcher: m})
	}
	return all
}

// upstreamSocket speaks TLS to a backend, nil for none. Without protocols in it, Envoy offers the version of HTTP that a connection
// is for, and none for TCP.
func (o Options) upstreamSocket(t *UpstreamTLS) *corev3.TransportSocket {
	if t == nil {
		return nil
	}
	authority := &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
		DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: t.matchers()},
		ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: o.authorityName(t.Authority)},
	}
	return &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(&tlsv3.UpstreamTlsContext{
			Sni: t.ServerName,
			CommonTlsContext: &tlsv3.CommonTlsContext{
				// Envoy as a client speaks 1.2 at most by itself.
				TlsParams:             &tlsv3.TlsParameters{TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3},
				ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: authority},
			},
		})},
	}
}
