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

	"github.com/skep-operator/skep/runtime/cell"
)

// Config is where SPIRE is, the trust domain, and what is registered.
type Config struct {
	MeshAuthEnabled                      bool          `flag:"mesh-auth-enabled" usage:"Agents authenticate peers where policies ask for it"`
	MeshAuthMutualEnabled                bool          `flag:"mesh-auth-mutual-enabled" usage:"Register identities with SPIRE for mutual authentication"`
	MeshAuthSPIREAgentSocket             string        `flag:"mesh-auth-spire-agent-socket" usage:"Path of the socket of the SPIRE agent"`
	MeshAuthSPIREServerAddress           string        `flag:"mesh-auth-spire-server-address" usage:"Address of the SPIRE server: host:port"`
	MeshAuthSPIREServerConnectionTimeout time.Duration `flag:"mesh-auth-spire-server-connection-timeout" usage:"How long an attempt to connect to SPIRE may last"`
	MeshAuthSPIFFETrustDomain            string        `flag:"mesh-auth-spiffe-trust-domain" usage:"Trust domain of the SPIFFE IDs that are registered"`

	MeshAuthSPIREPrune bool `flag:"mesh-auth-spire-prune" usage:"Delete entries at the SPIRE server that belong to nothing in this cluster; off where clusters that share a trust domain have no cluster-id of their own"`

	EnableZTunnel bool   `flag:"enable-ztunnel" usage:"Traffic of enrolled namespaces is encrypted by ztunnel"`
	ZTunnelCAType string `flag:"ztunnel-ca-type" usage:"Who issues the certificates of ztunnel: internal (the agents) or spire, for which service accounts of enrolled namespaces are registered"`
}

// DefaultConfig are the defaults.
var DefaultConfig = Config{
	MeshAuthEnabled: true, MeshAuthSPIREAgentSocket: "/run/spire/sockets/agent/agent.sock", MeshAuthSPIREServerAddress: "spire-server.spire.svc:8081",
	MeshAuthSPIREServerConnectionTimeout: 10 * time.Second, MeshAuthSPIFFETrustDomain: "spiffe.cilium", MeshAuthSPIREPrune: true, ZTunnelCAType: internalCA,
}

const caTypeFlag = "ztunnel-ca-type"

// The values of ztunnel-ca-type.
const (
	internalCA = "internal"
	spireCA    = "spire"
)

func (c Config) registersIdentities() bool { return c.MeshAuthEnabled && c.MeshAuthMutualEnabled }

func (c Config) registersServiceAccounts() bool { return c.EnableZTunnel && c.ZTunnelCAType == spireCA }

func (c Config) inUse() bool { return c.registersIdentities() || c.registersServiceAccounts() }

// Validate implements the check of config structs. Options that no duty uses may have any value.
func (c Config) Validate() error {
	var errs []error
	if c.EnableZTunnel && c.ZTunnelCAType != internalCA && c.ZTunnelCAType != spireCA {
		errs = append(errs, cell.Questionable(caTypeFlag, "must be %s or %s; it counts as %s, and no service account is registered", internalCA, spireCA, internalCA))
	}
	if !c.inUse() {
		return errors.Join(errs...)
	}
	if _, err := c.trustDomain(); err != nil {
		errs = append(errs, cell.Invalid("mesh-auth-spiffe-trust-domain", "must be a trust domain, such as spiffe.cilium: %v", err))
	}
	if !filepath.IsAbs(c.MeshAuthSPIREAgentSocket) {
		errs = append(errs, cell.Invalid("mesh-auth-spire-agent-socket", "must be an absolute path, such as %s", DefaultConfig.MeshAuthSPIREAgentSocket))
	}
	if why := badAddress(c.MeshAuthSPIREServerAddress); why != "" {
		errs = append(errs, cell.Invalid("mesh-auth-spire-server-address", "must be host:port, such as %s: %s", DefaultConfig.MeshAuthSPIREServerAddress, why))
	}
	if c.MeshAuthSPIREServerConnectionTimeout < time.Millisecond {
		errs = append(errs, cell.Invalid("mesh-auth-spire-server-connection-timeout", "must be at least 1ms"))
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
