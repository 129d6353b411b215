// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"log/slog"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
)

// Cell owns the options shared by duties. defaults are those of the binary;
// most take DefaultConfig.
func Cell(defaults Config) cell.Cell {
	return cell.Module("cluster", "Owns the options that many duties share",
		cell.Config(defaults),
		cell.Invoke(checkIPAM, tellOverrides),
	)
}

// tellOverrides says where a value that was given cannot hold.
func tellOverrides(c Config, v *config.Values, log *slog.Logger) {
	if c.IdentityMode() != c.IdentityAllocationMode && v.Given("identity-allocation-mode") {
		log.Warn("identities are kept as objects: there is no kvstore", "identity-allocation-mode", c.IdentityAllocationMode)
	}
	if c.DisableEndpointCRD && c.EndpointCRD() {
		log.Warn("disable-endpoint-crd is ignored: there is no kvstore that agents could tell about endpoints")
	}
}
