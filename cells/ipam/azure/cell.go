// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell allocates addresses of Azure to nodes in the IPAM mode azure. It belongs to the term of the leader, and needs
// cloudipam.Cell in the process.
var Cell = newCell(newNetwork)

// newCell declares the cell with a constructor of the network that Azure is reached through.
func newCell(network func() network) cell.Cell {
	return cloudipam.Module("ipam.azure", "Allocates addresses of Azure to nodes", "azure", "azure", newProvider,
		cell.Config(Config{}),
		cell.Validate(checkFilter),
		cell.ProvidePrivate(network),
	)
}
