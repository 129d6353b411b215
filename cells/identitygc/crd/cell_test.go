// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"testing"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

const nowhere = "--k8s-api-server=http://127.0.0.1:1"

// IDGC-E11: off, it costs nothing.
func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(append(operatortest.Resources, identitygc.Cell)...), celltest.InTerm("leader"), celltest.Args(nowhere), celltest.OffArgs(nowhere, "--identity-gc-interval=0"))
}

// Number 18 of the contract's identity-gc.md; IDGC-E12, and IDGC-4: with identities, or endpoints, in the kvstore alone, or where agents enforce
// no policies and make no endpoints, it costs nothing, either.
func TestCellOfKVStore(t *testing.T) {
	for _, args := range [][]string{
		{"--kvstore=etcd", "--identity-allocation-mode=kvstore"},
		{"--kvstore=etcd", "--identity-allocation-mode=crd", "--disable-endpoint-crd"},
		{
			"--identity-allocation-mode=crd", "--disable-endpoint-crd", "--enable-policy=never", "--enable-k8s-networkpolicy=false",
			"--enable-cilium-network-policy=false", "--enable-cilium-clusterwide-network-policy=false",
		},
	} {
		celltest.Check(t, Cell, celltest.With(append(operatortest.Resources, identitygc.Cell)...), celltest.InTerm("leader"), celltest.Args(nowhere), celltest.OffArgs(append(args, nowhere)...))
	}
}

func TestOn(t *testing.T) {
	etcd := func(mode string, change ...func(*cluster.Config)) cluster.Config {
		c := cluster.DefaultConfig
		c.KVStore, c.IdentityAllocationMode = "etcd", mode
		for _, f := range change {
			f(&c)
		}
		return c
	}
	noEndpoints := func(c *cluster.Config) { c.DisableEndpointCRD = true }
	slim := func(c *cluster.Config) {
		c.EnableCiliumEndpointSlice, c.CESControllerMode, c.OperatorManagesIdentities = true, "slim", true
	}
	for name, c := range map[string]struct {
		shared cluster.Config
		on     bool
	}{
		"no kvstore, whatever the mode": {cluster.DefaultConfig, true},
		"kvstore":                       {etcd("kvstore"), false},
		"both, kvstore read":            {etcd("doublewrite-readkvstore"), true},
		"both, objects read":            {etcd("doublewrite-readcrd"), true},
		"objects, endpoints in kvstore": {etcd("crd", noEndpoints), false},
		"objects, slim slices":          {etcd("crd", noEndpoints, slim), true},
	} {
		if on := c.shared.IdentitiesInCRD() && hasReferences(c.shared); on != c.on {
			t.Errorf("%s: on is %t", name, on)
		}
	}
}
