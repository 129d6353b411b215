// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// K6 of the contract's tenants.md, for SPIRE: neither messages of its errors, of a call or of an entry, nor ids of entries control what they are
// shown with. The duty makes no Events; what it shows goes through the log and the report of health, and its writes through explain.
func TestTextsOfTheServer(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.Say(printabletest.Hostile)
	s.Fail("ListEntries", codes.Internal)
	w := newWorld(t, s)
	w.create("1000", "1001")
	o := operatortest.Start(t, withSPIRE, w.As("spire", least...), s.Args("--mesh-auth-mutual-enabled", operatortest.TextLog)...)
	operatortest.Eventually(t, "the error of a call is reported, and then logged", func() bool {
		return strings.Contains(o.Degraded("auth.spire"), printabletest.Forged) && strings.Contains(o.Log().String(), printabletest.Forged)
	})
	o.CheckPrintable()
	s.Refuse("/identity/1000", codes.Internal)
	stale := s.Own(1002)
	s.PutAs(printabletest.Hostile, stale)
	s.Refuse(stale.SPIFFEID.Path, codes.Internal)
	s.Fail("ListEntries", codes.OK)
	operatortest.Eventually(t, "the error of an entry is reported", func() bool { return strings.Contains(o.Degraded("auth.spire"), "refuses") })
	o.CheckPrintable()
	s.PutAs(strings.Repeat(printabletest.Hostile, 100), s.Own(1003))
	o.ReenterTerm()
	operatortest.Eventually(t, "the id is reported", func() bool { return strings.Contains(o.Degraded("auth.spire"), "an entry whose id") })
	o.CheckPrintable()
}
