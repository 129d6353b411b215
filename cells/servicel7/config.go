// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicel7

import (
	"strings"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config says which Services Envoy balances, and how.
type Config struct {
	LoadbalancerL7          string   `flag:"loadbalancer-l7" usage:"Proxy that balances the requests of annotated Services: envoy, or none for any other value"`
	LoadbalancerL7Algorithm string   `flag:"loadbalancer-l7-algorithm" usage:"How requests are balanced for Services without an annotation: round_robin, least_request, random, ring_hash or maglev"`
	LoadbalancerL7Ports     []string `flag:"loadbalancer-l7-ports" usage:"Ports whose Services are balanced without an annotation"`
}

func (c Config) enabled() bool { return c.LoadbalancerL7 == "envoy" }

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if !envoy.Algorithm(strings.ToLower(c.LoadbalancerL7Algorithm)).Known() {
		return cell.Questionable("loadbalancer-l7-algorithm", "should be round_robin, least_request, random, ring_hash or maglev; round_robin is used")
	}
	return nil
}
