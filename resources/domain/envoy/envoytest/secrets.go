// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoytest

import (
	"errors"
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

// checkSocket checks what a transport socket refers to, which agents serve: a socket of a cluster verifies certificates by an
// authority and a name, one of a listener has certificates.
func checkSocket(s *corev3.TransportSocket, ofCluster bool) error {
	if s == nil {
		return nil
	}
	m, err := s.GetTypedConfig().UnmarshalNew()
	if err != nil {
		return err
	}
	if err := m.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
		return err
	}
	up, isUpstream := m.(*tlsv3.UpstreamTlsContext)
	if isUpstream != ofCluster {
		return fmt.Errorf("a transport socket %T is in the wrong place", m)
	}
	common := m.(interface {
		GetCommonTlsContext() *tlsv3.CommonTlsContext
	}).GetCommonTlsContext()
	if isUpstream {
		return checkUpstream(up, common)
	}
	if len(common.GetTlsCertificateSdsSecretConfigs()) == 0 {
		return errors.New("a listener has TLS without certificates")
	}
	var errs []error
	for _, c := range common.GetTlsCertificateSdsSecretConfigs() {
		errs = append(errs, checkSecret(c))
	}
	return errors.Join(errs...)
}

func checkUpstream(up *tlsv3.UpstreamTlsContext, common *tlsv3.CommonTlsContext) error {
	combined := common.GetCombinedValidationContext()
	names := combined.GetDefaultValidationContext().GetMatchTypedSubjectAltNames()
	if up.GetSni() == "" || len(names) == 0 {
		return errors.New("a cluster with TLS asks for no server name, or takes certificates of any")
	}
	return checkSecret(combined.GetValidationContextSdsSecretConfig())
}

// checkSecret checks a reference to a secret: agents leave a name with a slash as it is, and fill in where to ask for it.
func checkSecret(c *tlsv3.SdsSecretConfig) error {
	namespace, name, ok := strings.Cut(c.GetName(), "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("a secret is named %q, which is not NAMESPACE/NAME", c.GetName())
	}
	if !proto.Equal(c, &tlsv3.SdsSecretConfig{Name: c.GetName()}) {
		return fmt.Errorf("the reference to the secret %s has more than its name", c.GetName())
	}
	return nil
}
