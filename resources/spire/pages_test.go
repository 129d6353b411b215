// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/spire/spiretest"
)

// large is more than one entry of a page can have on average.
var large = strings.Repeat("x", 10_000)

// SPIRE-22: S8 of the contract's mutual-auth.md. What entries have beside what is compared is not asked for, however large it is.
func TestFieldsThatAreNotUsed(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	all := numbered(500)
	for _, path := range all {
		e := entryOf(path)
		e.Hint = large
		s.Put(e)
	}
	r := newRig(t, s, all...)
	r.start()
	r.eventually("all are known", func() bool { return r.metric(StatePresent) == float64(len(all)) })
	if calls := s.Calls(); calls["ListEntries"] != 1 || s.Changes() > 0 || r.degraded() != "" {
		t.Errorf("the calls are %v; %s", calls, r.degraded())
	}
}

// SPIRE-22: S8 of the contract's mutual-auth.md. A page that is too large for a message is asked for with half as many entries, and is no limit of the rate.
func TestPageThatIsTooLarge(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	for i := range 700 { // of another kind with this parent
		e := entryOf(fmt.Sprint("/b/", i))
		e.Selectors = append(e.Selectors, spiretest.Selector{Type: "k8s", Value: large})
		s.Put(e)
	}
	r := newRig(t, s, "/a/1")
	r.start()
	r.want("/a/1")
	if calls := s.Calls(); calls["ListEntries"] != 2+3 || r.degraded() != "" || r.log.Count("level=WARN") > 0 {
		t.Errorf("the calls are %v; %s", calls, r.degraded()) // 1000 and 500 in vain, 250, 250, 200
	}
	r.eventually("there is one entry", func() bool { return r.metric(StatePresent) == 1 })
}

// SPIRE-22: a list that does not end, as a server has it that answers each page with the token of another one, is given up, and health says so.
func TestListWithoutEnd(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	s.ListWithoutEnd()
	r := newRig(t, s, "/a/1")
	r.start()
	r.eventually("the list is given up", func() bool { return strings.Contains(r.degraded(), "ListEntries has not ended after") })
	if s.Changes() > 0 {
		t.Error("entries are changed")
	}
}
