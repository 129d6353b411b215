// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

const unreachable = "--k8s-api-server=http://127.0.0.1:1"

var on = []string{"--enable-ztunnel", "--ztunnel-ca-type=spire"}

// withSPIRE is the duty with what it shares with others.
var withSPIRE = cell.Set(spire.Cell, Cell)

// ZT-1: off by default, and with the configuration of a release that has no --ztunnel-ca-type.
func TestCell(t *testing.T) {
	for _, off := range [][]string{{}, {"--enable-ztunnel"}, {"--ztunnel-ca-type=spire"}, {"--enable-ztunnel", "--ztunnel-ca-type=SPIRE"}} {
		celltest.Check(t, Cell, celltest.With(append(operatortest.Resources, spire.Cell)...), celltest.InTerm("leader"),
			celltest.Args(append(on, unreachable)...), celltest.OffArgs(append(off, unreachable)...))
	}
}
