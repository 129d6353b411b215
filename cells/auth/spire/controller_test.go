// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// wantRequest compares a request of a method with JSON.
func (d *duty) wantRequest(method string, at int, want string) {
	d.t.Helper()
	requests := d.spire.Requests(method)
	if len(requests) <= at {
		d.t.Fatalf("%s has %d requests", method, len(requests))
	}
	var got, wanted any
	if err := json.Unmarshal([]byte(requests[at]), &got); err != nil {
		d.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		d.t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		d.t.Error(method, diff)
	}
}

// Number A11 of the contract's mutual-auth.md; SPIRE-4 to SPIRE-6; SPIRE-E1, SPIRE-E2 and SPIRE-E4: requests of one identity, from its creation to its deletion.
func TestOneIdentity(t *testing.T) {
	d := newDuty(t, spiretest.Start(t, domain))
	d.lead()
	d.eventually("the list", func() bool { return d.spire.Calls()["ListEntries"] == 1 })
	d.create("17947")
	d.wantEntries("17947")
	d.wantRequest("ListEntries", 0, `{"filter": {
		"by_parent_id": {"trust_domain": "spiffe.cilium", "path": "/cilium-operator"},
		"by_selectors": {"selectors": [{"type": "cilium", "value": "mutual-auth"}]}
	}, "output_mask": {"spiffe_id": true, "parent_id": true, "selectors": true}, "page_size": 1000}`)
	d.wantRequest("BatchCreateEntry", 0, `{"entries": [{
		"spiffe_id": {"trust_domain": "spiffe.cilium", "path": "/identity/17947"},
		"parent_id": {"trust_domain": "spiffe.cilium", "path": "/cilium-operator"},
		"selectors": [{"type": "cilium", "value": "mutual-auth"}]
	}], "output_mask": {"spiffe_id": true}}`)
	d.create("17947") // an update
	d.create("300")
	d.wantEntries("17947", "300")
	d.delete("17947")
	d.wantEntries("300")
	d.wantRequest("BatchDeleteEntry", 0, `{"ids": ["entry-00000001"]}`)
	d.controller.Deleted(17947) // again
	d.create("301")
	d.wantEntries("300", "301")
	if calls := d.spire.Calls(); calls["ListEntries"] != 1 || calls["BatchCreateEntry"] != 3 || calls["BatchDeleteEntry"] != 1 {
		t.Errorf("the calls are %v", calls)
	}
	for _, w := range d.book.Writes(0) {
		if w.Cause == nil || w.Cause.Rule != "auth.spire register" || len(w.Cause.Triggers) != 1 || w.Cause.Triggers[0].Kind != "CiliumIdentity" {
			t.Errorf("%s has no cause", w)
		}
	}
	d.restart()
	d.compared()
	if n := d.spire.Changes(); n != 4 {
		t.Errorf("E2: %d changes after a restart", n)
	}
}

// SPIRE-7 and SPIRE-12; SPIRE-E3 and SPIRE-E8: what is ours and stale is deleted, and nothing else.
func TestStaleEntries(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.SetPageSize(2)
	for _, n := range []int{1000, 1001, 70000, 5} { // the third is of another cluster, the last is reserved
		s.Put(s.Own(n))
	}
	others := s.Own(1002)
	others.Selectors = []spiretest.Selector{{Type: "cilium", Value: "mutual-auth"}, {Type: "k8s", Value: "ns:default"}}
	s.Put(others)
	parent := s.Own(1003)
	parent.ParentID.Path = "/spire/server"
	s.Put(parent)
	for _, path := range []string{"/identity/01004", "/identity/web", "/ns/default/sa/web"} {
		e := s.Own(0)
		e.SPIFFEID.Path = path
		s.Put(e)
	}
	before := s.Entries()
	d := newDuty(t, s)
	d.create("1000", "1002")
	d.lead()
	d.compared()
	d.eventually("E3: a second entry of 1002", func() bool { return s.Len() == len(before) }) // one more and one fewer
	after := s.Entries()
	if after["/identity/1002"].ParentID != s.Own(0).ParentID {
		t.Error("E3: no entry of 1002 is ours")
	}
	delete(before, "/identity/1001")
	delete(before, "/identity/1002")
	delete(after, "/identity/1002")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	if calls := s.Calls(); calls["ListEntries"] != 4 || s.Changes() != 2 {
		t.Errorf("the calls are %v", calls)
	}
	d.eventually("what belongs to nothing here is no difference of what should be there and what is (S9 of the contract's mutual-auth.md)", func() bool {
		return d.metric(spire.StatePresent) == 2 && d.metric(spire.StateDesired) == 2 && d.metric(spire.StateForeign) == 2
	})
	d.create("70000") // which the cluster may have
	d.eventually("it is no other's any more", func() bool { return d.metric(spire.StatePresent) == 3 && d.metric(spire.StateForeign) == 1 })
}

// SPIRE-13: a share of stale entries that is not plausible is kept, until an administrator allows it.
func TestImplausibleShare(t *testing.T) {
	s := spiretest.Start(t, domain)
	for n := range 20 {
		s.Put(s.Own(1000 + n))
	}
	d := newDuty(t, s)
	d.maxShare = 0.5
	d.create("1000", "2000")
	d.lead()
	d.eventually("health reports it", func() bool {
		return strings.Contains(d.degraded(), "19 of 21 registration entries should not exist, none is deleted")
	})
	if s.Len() != 21 || d.log.Count("so many registration entries should not exist that none is deleted") != 1 {
		t.Errorf("%d entries; %s", s.Len(), d.log)
	}
	d.maxShare = 1
	d.restart()
	d.wantEntries("1000", "2000")
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
}

// Number A13 of the contract's mutual-auth.md; SPIRE-9; SPIRE-E7: an entry that is refused is retried, and keeps no others.
func TestRefusedEntries(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.Refuse("/identity/301", codes.Internal)
	d := newDuty(t, s)
	d.create("300", "301", "302")
	d.lead()
	d.wantEntries("300", "302")
	d.eventually("health and metrics show it", func() bool {
		return d.metric(spire.StateRefused) == 1 && strings.Contains(d.degraded(), "refuses 1 entries, that of /identity/301 among them: creating the entry of /identity/301: Internal: simulated")
	})
	s.Refuse("/identity/301", codes.OK)
	d.wantEntries("300", "301", "302")
	d.eventually("it is healthy", func() bool { return d.metric(spire.StateRefused) == 0 && d.degraded() == "" })
	s.Refuse("/identity/302", codes.Internal)
	d.delete("302")
	d.delete("300")
	d.eventually("300 has no entry", func() bool { return s.Len() == 2 && d.metric(spire.StateRefused) == 1 })
	s.Refuse("/identity/302", codes.OK)
	d.wantEntries("301")
	if n := d.log.Count("refuses an entry"); n != 2 {
		t.Errorf("%d lines for two refusals", n)
	}
	s.Refuse("/identity/400", codes.InvalidArgument) // an identity that does not stay
	d.create("400")
	d.eventually("it is refused", func() bool { return d.metric(spire.StateRefused) == 1 })
	d.delete("400")
	d.eventually("it is forgotten", func() bool { return d.metric(spire.StateRefused) == 0 && d.degraded() == "" })
	if s.Calls()["ListEntries"] != 1 {
		t.Error("a refusal of an entry has all compared")
	}
}

// Number A12 of the contract's mutual-auth.md, whatever else the entry has (resources/spire, TestFieldsThatAreNotUsed); SPIRE-9: an entry that exists, or that does not, is as it should be.
func TestChangesOfOthers(t *testing.T) {
	s := spiretest.Start(t, domain)
	d := newDuty(t, s)
	d.create("300")
	d.lead()
	d.wantEntries("300")
	s.Put(s.Own(301))
	d.create("301")
	d.eventually("both are present", func() bool { return d.metric(spire.StatePresent) == 2 })
	s.Wipe()
	d.delete("300")
	d.delete("301")
	d.eventually("none is present", func() bool { return d.metric(spire.StatePresent) == 0 })
	if d.degraded() != "" || d.metric(spire.StateRefused) != 0 {
		t.Errorf("degraded: %s", d.degraded())
	}
}

// SPIRE-8: K7 of the contract's tenants.md. The turn of an identity is that of its namespace, also of one that is gone, until its entry is.
func TestNamespaces(t *testing.T) {
	s := spiretest.Start(t, domain)
	d := newDuty(t, s)
	object := &ciliumio.Identity{SecurityLabels: slim.MakeLabels(map[string]string{identity.NamespaceLabel: "shop"})}
	object.Name = "300"
	d.identities.Upsert(object)
	d.create("301")
	d.lead()
	d.wantEntries("300", "301")
	if shop, none := d.controller.namespaceOf(300), d.controller.namespaceOf(301); shop != "shop" || none != "" {
		t.Errorf("the namespaces are %q and %q", shop, none)
	}
	s.Refuse("/identity/300", codes.Internal)
	d.delete("300")
	d.eventually("its deletion is refused", func() bool { return d.metric(spire.StateRefused) == 1 })
	if shop := d.controller.namespaceOf(300); shop != "shop" {
		t.Errorf("when it is gone its namespace is %q", shop)
	}
	s.Refuse("/identity/300", codes.OK)
	d.wantEntries("301")
	d.eventually("it is forgotten", func() bool { return d.controller.namespaceOf(300) == "" })
}

// SPIRE-14: names that are no numbers of identities are ignored, with one line.
func TestNames(t *testing.T) {
	d := newDuty(t, spiretest.Start(t, domain))
	d.create("300", "web", "0301", "255", "1")
	d.lead()
	d.compared()
	d.wantEntries("300")
	d.create("redis")
	d.delete("web")
	d.create("70000") // of another cluster, and in this one
	d.wantEntries("300", "70000")
	if n := d.log.Count("names are no numbers"); n != 1 {
		t.Errorf("%d lines", n)
	}
	d.eventually("metrics", func() bool { return d.metric(spire.StateDesired) == 2 })
}

// SPIRE-15: where identities are kept in etcd alone, the entries of those that were deleted are deleted, and no others.
func TestDeletedInEtcd(t *testing.T) {
	s := spiretest.Start(t, domain)
	for _, n := range []int{300, 301, 302} {
		s.Put(s.Own(n))
	}
	d := newDuty(t, s)
	d.create("400") // of a former mode
	d.withoutObjects = true
	d.lead()
	d.controller.Deleted(301, 999)
	d.wantEntries("300", "302")
	d.controller.Deleted(300)
	d.wantEntries("302")
	d.eventually("nothing is remembered", func() bool {
		d.controller.mu.Lock()
		defer d.controller.mu.Unlock()
		return len(d.controller.reported) == 0
	})
	if s.Calls()["BatchCreateEntry"] > 0 {
		t.Error("entries are created")
	}
}

// SPIRE-16: outside the fence nothing is changed, and in a plan nothing is sent.
func TestPlan(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.Put(s.Own(1000))
	d := newDuty(t, s)
	d.create("2000")
	d.createRange(3000, 3060)
	d.plan = dryrun.New(time.Minute)
	report, err := d.plan.Make(t.Context(), d.enter)
	if err != nil {
		t.Fatal(err)
	}
	d.end()
	var b strings.Builder
	if err := report.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"auth.spire register:", "create spire entries/identity/2000 and 49 more", "create spire entries/identity/3049 and 10 more",
		"delete spire entries/identity/1000", "Plan: 3 writes",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if n := s.Changes(); n != 0 {
		t.Errorf("%d changes are sent", n)
	}
}

// SPIRE-16: a term that is over changes nothing.
func TestFence(t *testing.T) {
	s := spiretest.Start(t, domain)
	d := newDuty(t, s)
	d.create("300")
	d.lead()
	d.wantEntries("300")
	d.fence.Close()
	d.create("301")
	d.eventually("it has been tried", func() bool { return strings.Contains(d.degraded(), "fence") })
	if s.Len() != 1 {
		t.Error("an entry is created behind the fence")
	}
}

// SPIRE-8; SPIRE-E10: calls of many identities, and of one more.
func TestCalls(t *testing.T) {
	const (
		count     = 2500 // more than one attempt makes
		batchSize = 50
	)
	s := spiretest.Start(t, domain)
	s.SetPageSize(500)
	d := newDuty(t, s)
	d.createRange(1000, 1000+count)
	d.lead()
	d.eventually("all have entries", func() bool { return d.metric(spire.StatePresent) == count })
	if calls := s.Calls(); calls["ListEntries"] != 1 || calls["BatchCreateEntry"] != count/batchSize {
		t.Errorf("%d identities: %v", count, calls)
	}
	d.create("500")
	d.eventually("one more", func() bool { return s.Len() == count+1 })
	if calls := s.Calls(); calls["ListEntries"] != 1 || calls["BatchCreateEntry"] != count/batchSize+1 {
		t.Errorf("one identity more: %v", calls)
	}
	d.restart()
	d.eventually("all are known", func() bool { return d.metric(spire.StatePresent) == count+1 })
	if calls := s.Calls(); calls["ListEntries"] != 1+6 || s.Changes() != count/batchSize+1 {
		t.Errorf("a restart: %v", calls)
	}
}

var _ identity.Deletions = (*controller)(nil)
