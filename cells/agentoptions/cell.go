// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agentoptions

import "github.com/skep-operator/skep/runtime/cell"

// Cell accepts options of agents.
var Cell = cell.Module("agentoptions", "Accepts options of agents that the original has as well",
	cell.Config(Config{}),
)

// Config are options of agents.
type Config struct {
	EnableSRv6                bool `flag:"enable-srv6" usage:"Agents route with SRv6" hidden:"true"`
	PolicyDefaultLocalCluster bool `flag:"policy-default-local-cluster" usage:"Rules that name no cluster select the agents' own for them" hidden:"true"`
}
