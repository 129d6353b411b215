// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config is where SPIRE is, and the trust domain.
type Config struct {
	MeshAuthEnabled                      bool          `flag:"mesh-auth-enabled" usage:"Agents authenticate peers where policies ask for it"`
	MeshAuthMutualEnabled                bool          `flag:"mesh-auth-mutual-enabled" usage:"Register identities with SPIRE for mutual authentication"`
	MeshAuthSPIREAgentSocket             string        `flag:"mesh-auth-spire-agent-socket" usage:"Path of the socket of the SPIRE agent"`
	MeshAuthSPIREServerAddress           string        `flag:"mesh-auth-spire-server-address" usage:"Address of the SPIRE server: host:port"`
	MeshAuthSPIREServerConnectionTimeout time.Duration `flag:"mesh-auth-spire-server-connection-timeout" usage:"How long an attempt to connect to SPIRE may last" min:"1ms"`
	MeshAuthSPIFFETrustDomain            string        `flag:"mesh-auth-spiffe-trust-domain" usage:"Trust domain of the SPIFFE IDs of identities"`
}

var defaults = Config{
	MeshAuthEnabled: true, MeshAuthSPIREAgentSocket: "/run/spire/sockets/agent/agent.sock", MeshAuthSPIREServerAddress: "spire-server.spire.svc:8081",
	MeshAuthSPIREServerConnectionTimeout: 10 * time.Second, MeshAuthSPIFFETrustDomain: "spiffe.cilium",
}

func (c Config) enabled() bool { return c.MeshAuthEnabled && c.MeshAuthMutualEnabled }

// Validate implements the check of config structs.
func (c Config) Validate() error {
	var errs []error
	if _, err := c.trustDomain(); err != nil {
		errs = append(errs, cell.Invalid("mesh-auth-spiffe-trust-domain", "must be a trust domain, such as spiffe.cilium: %v", err))
	}
	if !filepath.IsAbs(c.MeshAuthSPIREAgentSocket) {
		errs = append(errs, cell.Invalid("mesh-auth-spire-agent-socket", "must be an absolute path, such as %s", defaults.MeshAuthSPIREAgentSocket))
	}
	if why := badAddress(c.MeshAuthSPIREServerAddress); why != "" {
		errs = append(errs, cell.Invalid("mesh-auth-spire-server-address", "must be host:port, such as %s: %s", defaults.MeshAuthSPIREServerAddress, why))
	}
	return errors.Join(errs...)
}

// maxTrustDomain is the longest name of a trust domain by SPIFFE's specification.
const maxTrustDomain = 255

func (c Config) trustDomain() (spiffeid.TrustDomain, error) {
	name := c.MeshAuthSPIFFETrustDomain
	switch {
	case strings.ContainsAny(name, ":/"):
		return spiffeid.TrustDomain{}, errors.New("it is the name alone, without spiffe:// and without a path")
	case len(name) > maxTrustDomain:
		return spiffeid.TrustDomain{}, errors.New("it is longer than 255 characters")
	}
	return spiffeid.TrustDomainFromString(name)
}

// badAddress is why an address is not host:port, "" if it is.
func badAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err.Error()
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "the port is no number from 1 to 65535"
	}
	if net.ParseIP(host) != nil {
		return ""
	}
	if reasons := validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSuffix(host, "."))); len(reasons) > 0 {
		return "the host is no name or address"
	}
	return ""
}

// validateMode warns of a mode in which no entries are created.
func validateMode(_ Config, shared cluster.Config) error {
	if shared.IdentitiesInCRD() {
		return nil
	}
	return cell.Questionable("mesh-auth-mutual-enabled", "has no effect where identities are kept in etcd alone: only CiliumIdentities are registered with SPIRE")
}
