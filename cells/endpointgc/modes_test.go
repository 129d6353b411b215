// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// Numbers 20, 21 and 22 of the contract's endpoint-gc.md: in which release disable-endpoint-crd holds without a kvstore, so that endpoints
// go once, and are not collected.
func TestModes(t *testing.T) {
	off := func(c *cluster.Config) {
		c.EnablePolicy, c.IdentityAllocationMode = "never", "crd"
		c.EnableK8sNetworkPolicy, c.EnableCiliumNetworkPolicy, c.EnableCiliumClusterwideNetworkPolicy = false, false, false
	}
	for name, test := range map[string]struct {
		change func(*cluster.Config)
		once   [4]bool // in each release
	}{
		"20, policies":             {func(*cluster.Config) {}, [4]bool{}},
		"21, no policies":          {off, [4]bool{false, true, true, true}},
		"21, of Kubernetes alone":  {func(c *cluster.Config) { off(c); c.EnableK8sNetworkPolicy = true }, [4]bool{}},
		"22, policies, and slices": {func(c *cluster.Config) { c.EnableCiliumEndpointSlice = true }, [4]bool{false, false, false, true}},
	} {
		for i, r := range release.All() {
			shared := cluster.DefaultConfig
			shared.Release, shared.DisableEndpointCRD = r, true
			test.change(&shared)
			c := Config{CiliumEndpointGCInterval: 5 * time.Minute}
			if isOnce, isPeriodic := once(c, shared), periodic(c, shared); isOnce != test.once[i] || isPeriodic == isOnce {
				t.Errorf("%s, %s: once %t, periodic %t", name, r, isOnce, isPeriodic)
			}
		}
	}
}

// Number 22 of the contract's endpoint-gc.md: slices without endpoints are refused up to 1.19, and not any more.
func TestSlicesWithoutEndpoints(t *testing.T) {
	for name, refused := range map[string]bool{"1.19": true, "1.20": false} {
		_, err := operatortest.New(t, Cell, "", "--k8s-api-server=http://127.0.0.1:1", "--cilium-release="+name, "--disable-endpoint-crd", "--enable-cilium-endpoint-slice")
		if (err != nil) != refused || err != nil && !strings.Contains(err.Error(), "disable-endpoint-crd") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Number 20 of the contract's identity-gc.md; EPGC-E17: without a collection of endpoints those that are left over would keep identities for
// ever, so that it is refused at the start of any process.
func TestNoIntervalWithCollectedIdentities(t *testing.T) {
	for interval, want := range map[string]string{"15m": "must not be 0 where identities are kept as objects", "0": ""} {
		_, err := operatortest.New(t, cell.Set(identitygc.Cell, Cell), "", "--k8s-api-server=http://127.0.0.1:1",
			"--identity-allocation-mode=crd", "--cilium-endpoint-gc-interval=0", "--identity-gc-interval="+interval)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("identities are collected each %s: %v", interval, err)
		}
	}
}
