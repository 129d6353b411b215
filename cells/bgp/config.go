// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/runtime/cell"
)

// Config is options of agents that this duty reads, too.
type Config struct {
	StatusReport     bool   `flag:"enable-bgp-control-plane-status-report" usage:"Report problems of BGP objects as conditions" hidden:"true"`
	SecretsNamespace string `flag:"bgp-secrets-namespace" usage:"Namespace of the Secrets with passwords of BGP peers" hidden:"true"`
	RouterIDMode     string `flag:"bgp-router-id-allocation-mode" usage:"Source of router IDs that no override sets: default (agents) or ip-pool" oneof:"default,ip-pool" hidden:"true"`
	RouterIDPool     string `flag:"bgp-router-id-allocation-ip-pool" usage:"IPv4 CIDR that router IDs are allocated from" hidden:"true"`
}

const (
	routerIDByAgent  = "default"
	routerIDFromPool = "ip-pool"
)

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.SecretsNamespace != "" && len(validation.IsDNS1123Label(c.SecretsNamespace)) > 0 {
		return cell.Invalid("bgp-secrets-namespace", "must be the name of a namespace: lower-case letters, digits and dashes, at most 63")
	}
	if c.RouterIDMode != routerIDFromPool {
		return nil
	}
	pool, err := netip.ParsePrefix(c.RouterIDPool)
	if err != nil || !pool.Addr().Is4() {
		return cell.Invalid("bgp-router-id-allocation-ip-pool", "must be an IPv4 CIDR, such as 10.255.0.0/16, where --bgp-router-id-allocation-mode is ip-pool")
	}
	if pool.Contains(netip.IPv4Unspecified()) {
		return cell.Invalid("bgp-router-id-allocation-ip-pool", "must not contain 0.0.0.0, which is no router ID")
	}
	return nil
}

// pool is the CIDR of router IDs, the zero one if agents choose them.
func (c Config) pool() netip.Prefix {
	if c.RouterIDMode != routerIDFromPool {
		return netip.Prefix{}
	}
	return netip.MustParsePrefix(c.RouterIDPool).Masked() // Validate has parsed it
}
