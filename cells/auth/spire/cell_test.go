// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// withSPIRE is the duty with what it shares with others.
var withSPIRE = cell.Set(spire.Cell, Cell)

const unreachable = "--k8s-api-server=http://127.0.0.1:1"

// Number A16 of the contract's mutual-auth.md: where agents do not authenticate, whatever else is on, nothing is registered (SPIRE-2), and the
// entries that there are stay.
func TestCell(t *testing.T) {
	for _, off := range [][]string{{}, {"--mesh-auth-mutual-enabled", "--mesh-auth-enabled=false"}} {
		celltest.Check(t, Cell, celltest.With(append(operatortest.Resources, spire.Cell)...), celltest.InTerm("leader"),
			celltest.Args(unreachable, "--mesh-auth-mutual-enabled"), celltest.OffArgs(append(off, unreachable)...))
	}
}

// SPIRE-3: in etcd alone there are no identities to register, which is no reason to refuse the start.
func TestIdentitiesInEtcd(t *testing.T) {
	args := []string{unreachable, "--mesh-auth-mutual-enabled", "--kvstore=etcd", "--identity-allocation-mode=kvstore"}
	if _, err := operatortest.New(t, withSPIRE, "", args...); err != nil {
		t.Error(err)
	}
	_, err := operatortest.New(t, withSPIRE, "", append(args, "--strict-config")...)
	if err == nil || !strings.Contains(err.Error(), "only CiliumIdentities are registered") {
		t.Errorf("a strict configuration: %v", err)
	}
}
