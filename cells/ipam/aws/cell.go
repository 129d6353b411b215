// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"time"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell allocates addresses of EC2 to nodes in the IPAM mode eni. It needs cloudipam.Cell in the process.
var Cell = cloudipam.Module("ipam.aws", "Allocates addresses of EC2 to nodes", "eni", "ec2", newProvider,
	cell.Config(Config{UpdateEC2AdapterLimitViaAPI: true, ENIGCInterval: 5 * time.Minute}),
	cell.Validate(checkFilter),
	cell.Decorate(func(shared cloudipam.Config, c Config) cloudipam.Config {
		shared.ReleaseExcessIPs = c.AWSReleaseExcessIPs
		return shared
	}),
	cell.ProvidePrivate(newSession, newUpkeep),
	cell.Provide(provideGroups),
	cell.Hook("connections", (*session).connections),
	cell.Job("interfaces", (*upkeep).run),
)
