// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells/ipam/azure/armtest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// K6 of the contract's tenants.md, for Azure: neither codes nor messages of its errors control what they are shown with, whether a node is read or
// changed.
func TestTextsOfAzure(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	c.Fault = func(operation string) (f armtest.Fault) {
		if operation == armtest.OpUpdateMachine {
			f.Status, f.Code = http.StatusBadRequest, printabletest.Hostile
		}
		return f
	}
	s := newServer(t, c)
	s.nodes.Register("a", c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3"}), nil)
	o := s.launch(operatortest.TextLog)
	shown := ""
	operatortest.Eventually(t, "it is reported", func() bool {
		shown = s.nodes.Read("a").Status.IPAM.OperatorStatus.Error
		return strings.Contains(o.Degraded("ipam.azure"), printabletest.Forged) && strings.Contains(shown, printabletest.Forged)
	})
	o.CheckPrintable()
	printabletest.CheckLine(t, "the error in the status", shown)
}
