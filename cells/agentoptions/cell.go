// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agentoptions

import (
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/cell"
)

// Cell accepts options of agents, and checks their values.
var Cell = cell.Module("agentoptions", "Accepts options of agents that the original has as well, and checks their values",
	cell.Config(Config{EnablePolicy: "default"}),
)

// Config are options of agents.
type Config struct {
	EnableIPsec               bool   `flag:"enable-ipsec" usage:"Agents encrypt with IPsec" hidden:"true"`
	EnablePolicy              string `flag:"enable-policy" usage:"When agents enforce policies: default, always or never" hidden:"true"`
	EnableSRv6                bool   `flag:"enable-srv6" usage:"Agents route with SRv6" hidden:"true"`
	EnableWireguard           bool   `flag:"enable-wireguard" usage:"Agents encrypt with WireGuard" hidden:"true"`
	PolicyDefaultLocalCluster bool   `flag:"policy-default-local-cluster" usage:"Rules that name no cluster select the agents' own for them" hidden:"true"`
}

// enforcement are the values of enable-policy.
var enforcement = []string{"default", "always", "never"}

// Validate implements the check of config structs. The original runs with any value of enable-policy.
func (c Config) Validate() error {
	if !slices.Contains(enforcement, strings.ToLower(c.EnablePolicy)) {
		return cell.Questionable("enable-policy", "should be %s: agents do not start with it", strings.Join(enforcement, ", "))
	}
	return nil
}
