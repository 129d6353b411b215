// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc

import (
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/cells/internal/termtest"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

// around are the cells that this one asks things of.
var around = []cell.Cell{
	cluster.Cell(cluster.DefaultConfig), explain.Cell, k8s.Cell, reconcile.Cell, stream.Cell, ciliumio.Cell, sweep.Cell,
}

const nowhere = "--k8s-api-server=http://127.0.0.1:1"

// Example E11: off, it costs nothing.
func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(around...), celltest.InTerm("leader"), celltest.Args(nowhere), celltest.OffArgs(nowhere, "--identity-gc-interval=0"))
}

// Example E12, and rule 4: with identities, or endpoints, in the kvstore alone there
// is nothing to do, and no mistake.
func TestCellOfKVStore(t *testing.T) {
	for _, args := range [][]string{
		{"--kvstore=etcd", "--identity-allocation-mode=kvstore"},
		{"--kvstore=etcd", "--identity-allocation-mode=crd", "--disable-endpoint-crd"},
	} {
		celltest.Check(t, Cell, celltest.With(around...), celltest.InTerm("leader"), celltest.Args(append(args, nowhere)...), celltest.OffArgs(nowhere, "--identity-gc-interval=0"))
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
		if on := inObjects(c.shared) && isTold(c.shared); on != c.on {
			t.Errorf("%s: on is %t", name, on)
		}
	}
}

func TestOptions(t *testing.T) {
	for arg, flag := range map[string]string{
		"--identity-gc-interval=-1s":      intervalFlag,
		"--identity-heartbeat-timeout=-1": timeoutFlag,
		"--identity-gc-rate-limit=0":      rateLimitFlag,
		"--identity-gc-rate-interval=0":   rateIntervalFlag,
	} {
		_, err := termtest.New(t, around, Cell, "/nonexistent", arg)
		if err == nil || !strings.Contains(err.Error(), "--"+flag) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// Rule 11.
func TestBudget(t *testing.T) {
	b := newBudget(Config{IdentityGCRateLimit: 30, IdentityGCRateInterval: time.Minute})
	now := time.Now()
	n := 0
	for at := time.Duration(0); at < time.Minute; at += 100 * time.Millisecond {
		if b.AllowN(now.Add(at), 1) {
			n++
		}
	}
	if n != 30 {
		t.Errorf("%d deletes in a minute", n)
	}
}
