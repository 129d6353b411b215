// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"log/slog"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
)

// Cell provides the options shared by duties. defaults are those of the binary, usually
// DefaultConfig.
func Cell(defaults Config) cell.Cell {
	return cell.Module("cluster", "Provides the options shared by many duties",
		cell.Config(defaults),
		cell.Validate(checkIPAM),
		cell.Invoke(logOverrides),
	)
}

// logOverrides logs given options that have no effect.
func logOverrides(c Config, v *config.Values, log *slog.Logger) {
	if c.IdentityMode() != c.IdentityAllocationMode && v.Given("identity-allocation-mode") {
		log.Warn("identities are allocated as CRDs: no kvstore is configured", "identityAllocationMode", c.IdentityAllocationMode)
	}
	if c.DisableEndpointCRD && c.EndpointCRD() {
		log.Warn("ignoring disable-endpoint-crd: no kvstore is configured, and agents enforce policies")
	}
	if !c.EnableCiliumNodeCRD && c.NodeCRD() {
		log.Warn("ignoring enable-ciliumnode-crd: agents do without CiliumNodes with the IPAM mode delegated-plugin and identities as CRDs alone", "ipam", c.IPAM)
	}
}
