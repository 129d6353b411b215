// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"slices"
	"testing"

	"github.com/skep-operator/skep/runtime/seedtest"
)

// K8S-23, for the modes that TestLargestObjects does not run: addresses of nodes are of the pool of the cluster, and identities are keys of etcd. The kinds are those
// of which other duties, or other ways of them, read the objects then.
func TestLargestObjectsOfOtherModes(t *testing.T) {
	switch {
	case seedtest.RaceEnabled:
		t.Skip("the race detector needs several times the memory")
	case !seedtest.Soak():
		t.Skip("the long form of TestLargestObjects")
	}
	kinds := []string{"CiliumNode", "CiliumEndpoint", "CiliumEndpointSlice", "CiliumIdentity", "Pod", "Namespace", "Node", "Service", "EndpointSlice", "CiliumNetworkPolicy"}
	for name, mode := range map[string][]string{
		"cluster-pool, identities in etcd":      {"--ipam=cluster-pool", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--identity-allocation-mode=kvstore", "--identity-management-mode=agent"},
		"addresses of Kubernetes, both of them": {"--ipam=kubernetes", "--identity-allocation-mode=doublewrite-readkvstore", "--identity-management-mode=agent"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLargest(t)
			l.args = append(l.args, mode...)
			l.without = "Pod" // whose identities agents make
			l.start()
			for _, g := range giants {
				if slices.Contains(kinds, g.kind) {
					l.try(g)
				}
			}
		})
	}
}
