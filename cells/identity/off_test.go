// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"testing"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
)

// Number 30 of the contract's identities.md; ID-45: no identities are made where all policies, and CiliumEndpoints, are switched off from 1.18 on.
func TestOffWithoutPolicies(t *testing.T) {
	off := cluster.DefaultConfig
	off.EnablePolicy, off.IdentityAllocationMode, off.DisableEndpointCRD = "Never", "crd", true
	off.EnableK8sNetworkPolicy, off.EnableCiliumNetworkPolicy, off.EnableCiliumClusterwideNetworkPolicy = false, false, false
	for i, r := range release.All() {
		off.Release = r
		if got := distinguishesEndpoints(off); got != (i == 0) {
			t.Errorf("in %s identities are made: %v", r, got)
		}
		for name, on := range map[string]func(*cluster.Config){
			"policies in some form":  func(c *cluster.Config) { c.EnablePolicy = "default" },
			"policies of Kubernetes": func(c *cluster.Config) { c.EnableK8sNetworkPolicy = true },
			"those of the cluster":   func(c *cluster.Config) { c.EnableK8sClusterNetworkPolicy = true },
			"policies":               func(c *cluster.Config) { c.EnableCiliumNetworkPolicy = true },
			"clusterwide ones":       func(c *cluster.Config) { c.EnableCiliumClusterwideNetworkPolicy = true },
			"endpoints":              func(c *cluster.Config) { c.DisableEndpointCRD = false },
			"slices":                 func(c *cluster.Config) { c.EnableCiliumEndpointSlice = true },
			"identities in etcd":     func(c *cluster.Config) { c.IdentityAllocationMode = "doublewrite-readcrd" },
		} {
			c := off
			if on(&c); !distinguishesEndpoints(c) {
				t.Errorf("in %s no identities are made with %s", r, name)
			}
		}
	}
}
