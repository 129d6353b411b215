// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"github.com/skep-operator/skep/resources/domain/policy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell offers the options and the streams of this package to all modules.
var Cell = cell.Module("networkpolicy", "Watches the network policies, and knows which rules the agents support",
	cell.Config(Config{EnableL7Proxy: true, EnableICMPRules: true}),
	cell.EnabledBy(k8s.InUse),
	stream.Provide(Policies),
	stream.Provide(ClusterwidePolicies),
)

// Config are options of agents that decide which rules are valid. Their defaults are those of agents.
type Config struct {
	EnableL7Proxy             bool `flag:"enable-l7-proxy" usage:"Agents run the proxy that rules for HTTP, Kafka and DNS need" hidden:"true"`
	EnableICMPRules           bool `flag:"enable-icmp-rules" usage:"Agents support rules for ICMP" hidden:"true"`
	EnableExtendedIPProtocols bool `flag:"enable-extended-ip-protocols" usage:"Agents support rules for IP protocols that have no ports" hidden:"true"`
	EnableNodeSelectorLabels  bool `flag:"enable-node-selector-labels" usage:"Agents support rules that select nodes by their labels" hidden:"true"`
}

// Features are those of the agents.
func (c Config) Features() (f policy.Features) {
	for feature, on := range map[policy.Feature]bool{
		policy.L7Proxy: c.EnableL7Proxy, policy.ICMPRules: c.EnableICMPRules, policy.NodeSelectors: c.EnableNodeSelectorLabels,
		policy.EmptyPorts: c.EnableExtendedIPProtocols,
	} {
		if on {
			f = f.With(feature)
		}
	}
	return f
}
