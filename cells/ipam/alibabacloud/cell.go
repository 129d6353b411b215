// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell allocates addresses of Alibaba Cloud to nodes in the IPAM mode alibabacloud. It belongs to the term of the leader, and
// needs cloudipam.Cell in the process.
var Cell = newCell(newNetwork)

// newCell declares the cell with a constructor of the network that Alibaba Cloud is reached through.
func newCell(network func() network) cell.Cell {
	return cloudipam.Module("ipam.alibabacloud", "Allocates addresses of Alibaba Cloud to nodes", "alibabacloud", "alibabacloud", newProvider,
		cell.Config(Config{}),
		cell.Validate(checkFilter),
		cell.Decorate(func(shared cloudipam.Config, c Config) cloudipam.Config {
			shared.ReleaseExcessIPs = c.AlibabaCloudReleaseExcessIPs
			return shared
		}),
		cell.ProvidePrivate(network, newSession, newUpkeep),
		cell.Job("interfaces", (*upkeep).run),
	)
}
