// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"testing"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/operatortest"
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

// ID-44: the option reaches the brake.
func TestServerBrakeOption(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{nil, {"--identity-brake=false"}} {
		o := w.start(args...)
		if w.controller.table.unbraked != (args != nil) {
			t.Errorf("%v: namespaces are braked: %t", args, args != nil)
		}
		o.Stop()
	}
}

// Number 30 of the contract's endpoint-slices.md; ID-46: where agents make identities, slices of pods name these.
func TestServerIdentitiesOfAgents(t *testing.T) {
	w := newWorld(t)
	web := w.with(pairs{"app": "web"})
	w.identity("300", web)
	o := w.start("--identity-management-mode=agent", "--enable-cilium-endpoint-slice", "--ces-controller-mode=slim")
	w.pod("web-1", pairs{"app": "web"})
	w.pod("new-1", pairs{"app": "new"})
	w.bears("web-1", "300")
	w.identity("400", web)
	w.identity("500", w.with(pairs{"app": "new"}))
	w.bears("new-1", "500")
	w.bears("web-1", "300") // what is chosen is kept
	w.deleteIdentity("300")
	w.bears("web-1", "400")
	w.deleteIdentity("400")
	operatortest.Eventually(t, "no identity is left", func() bool { _, exists := w.of("web-1"); return !exists })
	w.identity("600", web)
	w.bears("web-1", "600")
	operatortest.Eventually(t, "the table is quiet", func() bool { return o.Metric("identity_used") == 2 })
	w.requested()
	if d := o.Degraded("identity"); d != "" {
		t.Errorf("it is degraded:\n%s", d)
	}
}
