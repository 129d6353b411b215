// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
)

// wantRequest compares the first request of a method with JSON.
func (d *duty) wantRequest(method, want string) {
	d.t.Helper()
	requests := d.spire.Requests(method)
	if len(requests) == 0 {
		d.t.Fatalf("%s has no request", method)
	}
	var got, wanted any
	if err := json.Unmarshal([]byte(requests[0]), &got); err != nil {
		d.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		d.t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		d.t.Error(method, diff)
	}
}

// ZT-3, ZT-4, ZT-6 and ZT-7; ZT-E1 to ZT-E4: requests of one namespace, from its enrolment to its end.
func TestOneNamespace(t *testing.T) {
	d := newDuty(t, spiretest.Start(t, domain))
	d.create("shop/cart", "other/cart")
	d.lead()
	d.eventually("the list", func() bool { return d.spire.Calls()["ListEntries"] == 1 })
	d.enrol("shop")
	d.wantEntries("shop/cart")
	d.wantRequest("ListEntries", `{"filter": {"by_parent_id": {"trust_domain": "spiffe.cilium", "path": "/ztunnel"}},
		"output_mask": {"spiffe_id": true, "parent_id": true, "selectors": true}, "page_size": 1000}`)
	d.wantRequest("BatchCreateEntry", `{"entries": [{
		"spiffe_id": {"trust_domain": "spiffe.cilium", "path": "/ns/shop/sa/cart"},
		"parent_id": {"trust_domain": "spiffe.cilium", "path": "/ztunnel"},
		"selectors": [{"type": "k8s", "value": "ns:shop"}, {"type": "k8s", "value": "sa:cart"}]
	}], "output_mask": {"spiffe_id": true}}`)
	d.create("shop/cart", "other/cart") // updates
	d.enrol("shop")
	d.create("shop/pay")
	d.wantEntries("shop/cart", "shop/pay")
	d.delete("shop/cart")
	d.wantEntries("shop/pay")
	d.wantRequest("BatchDeleteEntry", `{"ids": ["entry-00000001"]}`)
	d.restart()
	d.compared()
	if calls := d.spire.Calls(); calls["ListEntries"] != 2 || calls["BatchCreateEntry"] != 2 || calls["BatchDeleteEntry"] != 1 {
		t.Errorf("the calls are %v", calls)
	}
	d.create("shop/web")
	d.wantEntries("shop/pay", "shop/web")
	d.disenrol("shop")
	d.wantEntries()
	if n := d.spire.Calls()["BatchDeleteEntry"]; n != 2 {
		t.Errorf("E4: %d calls delete the entries of a namespace", n-1)
	}
	for _, w := range d.book.Writes(0) {
		if w.Cause == nil || w.Cause.Rule != "auth.ztunnel register" || len(w.Cause.Triggers) == 0 || w.Cause.Triggers[0].Kind != "ServiceAccount" || w.Cause.Triggers[0].Namespace != "shop" {
			t.Errorf("%s has no cause", w)
		}
	}
	d.eventually("metrics", func() bool {
		return d.metric(spire.StateDesired) == 0 && d.metric(spire.StatePresent) == 0 && testutil.ToFloat64(d.controller.Metrics.Namespaces) == 0
	})
	ops := d.controller.Metrics.Enrollment // since the restart: web came, pay and web went
	if n := testutil.CollectAndCount(ops); n != 2 || testutil.ToFloat64(ops.WithLabelValues("upsert", "success")) != 1 || testutil.ToFloat64(ops.WithLabelValues("delete", "success")) != 2 {
		t.Errorf("A18: the operations are not one upsert and two deletes, in %d series", n)
	}
}

// Number A14 of the contract's mutual-auth.md; ZT-6 and ZT-7: the entries of a namespace are one call.
func TestAccountsOfANamespace(t *testing.T) {
	d := newDuty(t, spiretest.Start(t, domain))
	d.create("shop/cart", "shop/pay", "other/cart")
	d.lead()
	d.eventually("the list", func() bool { return d.spire.Calls()["ListEntries"] == 1 })
	d.enrol("shop")
	d.wantEntries("shop/cart", "shop/pay")
	if n := d.spire.Calls()["BatchCreateEntry"]; n != 1 {
		t.Errorf("%d calls create the entries of a namespace", n)
	}
	d.delete("shop/pay")
	d.wantEntries("shop/cart")
	d.disenrol("shop")
	d.wantEntries()
}

// ZT-6 and ZT-8; ZT-E5: what is ours and stale is deleted, and nothing else.
func TestStaleEntries(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.SetPageSize(2)
	reversed := s.OfServiceAccount("shop", "pay")
	reversed.Selectors[0], reversed.Selectors[1] = reversed.Selectors[1], reversed.Selectors[0]
	s.Put(reversed)
	for _, stale := range []string{"gone", "web"} {
		s.Put(s.OfServiceAccount("shop", stale))
	}
	s.Put(s.OfServiceAccount("other", "cart")) // exists, and is not enrolled
	before := s.Entries()
	for _, gone := range []string{"/ns/shop/sa/gone", "/ns/other/sa/cart"} {
		delete(before, gone)
	}
	put := func(e spiretest.Entry) {
		s.Put(e)
		before[e.SPIFFEID.Path] = e
	}
	identity := s.Own(300)
	put(identity)
	identity.ParentID.Path = "/ztunnel"
	identity.SPIFFEID.Path = "/identity/301"
	put(identity)
	parent := s.OfServiceAccount("shop", "agent")
	parent.ParentID.Path = "/spire/server"
	put(parent)
	more := s.OfServiceAccount("shop", "selectors")
	more.Selectors = append(more.Selectors, spiretest.Selector{Type: "k8s", Value: "pod-label:app:web"})
	put(more)
	crossed := s.OfServiceAccount("shop", "crossed")
	crossed.Selectors[1].Value = "sa:cart"
	put(crossed)
	for _, path := range []string{"/ns/shop/sa", "/ns/shop/sa/a/b", "/ns/shop/job/a", "/ztunnel/agent"} {
		e := s.OfServiceAccount("shop", "a")
		e.SPIFFEID.Path = path
		put(e)
	}
	d := newDuty(t, s)
	d.enrol("shop", "empty")
	d.create("shop/cart", "shop/pay", "shop/web", "other/cart")
	d.lead()
	d.eventually("one is created and two are deleted", func() bool { return s.Len() == len(before)+1 })
	after := s.Entries()
	if got, want := after["/ns/shop/sa/cart"].Selectors, s.OfServiceAccount("shop", "cart").Selectors; cmp.Diff(want, got) != "" {
		t.Errorf("the entry of shop/cart has the selectors %v", got)
	}
	delete(after, "/ns/shop/sa/cart")
	ids := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".ID" }, cmp.Ignore())
	if diff := cmp.Diff(before, after, ids); diff != "" {
		t.Error(diff)
	}
	if s.Changes() != 2 {
		t.Errorf("the calls are %v", s.Calls())
	}
}

// ZT-8 and ZT-10: a share of stale entries that is not plausible is kept, until an administrator allows it.
func TestImplausibleShare(t *testing.T) {
	s := spiretest.Start(t, domain)
	for n := range 20 {
		s.Put(s.OfServiceAccount("shop", fmt.Sprint("a", n)))
	}
	d := newDuty(t, s)
	d.maxShare = 0.5
	d.enrol("shop")
	d.create("shop/a0", "shop/cart")
	d.lead()
	d.eventually("health reports it", func() bool {
		return strings.Contains(d.degraded(), "19 of 21 registration entries should not exist, none is deleted: set --sweep-max-share=1")
	})
	if s.Len() != 21 || d.log.Count("so many registration entries should not exist that none is deleted") != 1 {
		t.Errorf("%d entries; %s", s.Len(), d.log)
	}
	d.maxShare = 1
	d.restart()
	d.wantEntries("shop/a0", "shop/cart")
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
}

// ZT-10: what is seen to leave while all entries are compared is not limited either.
func TestLargeNamespaceLeavesDuringComparisons(t *testing.T) {
	d := newDuty(t, spiretest.Start(t, domain))
	d.maxShare, d.interval = 0.1, time.Nanosecond // each attempt is a comparison
	d.enrol("shop", "other")
	d.create("other/cart")
	for n := range 120 {
		d.create(fmt.Sprint("shop/a", n))
	}
	d.lead()
	d.eventually("all have entries", func() bool { return d.spire.Len() == 121 })
	d.disenrol("shop")
	d.wantEntries("other/cart")
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
}

// ZT-7 and ZT-10: a namespace that is seen to leave is no comparison, however many entries it has.
func TestLargeNamespaceLeaves(t *testing.T) {
	d := newDuty(t, spiretest.Start(t, domain))
	d.maxShare = 0.1
	d.enrol("shop")
	for n := range 120 {
		d.create(fmt.Sprint("shop/a", n))
	}
	d.lead()
	d.eventually("all have entries", func() bool { return d.spire.Len() == 120 })
	d.disenrol("shop")
	d.wantEntries()
	if calls := d.spire.Calls(); calls["BatchCreateEntry"] != 3 || calls["BatchDeleteEntry"] != 3 || calls["ListEntries"] != 1 {
		t.Errorf("the calls are %v", calls)
	}
}

// late is a stream whose WaitForFresh shows something first.
type late[T any] struct {
	stream.Resource[T]
	shows func()
}

func (l late[T]) WaitForFresh(ctx context.Context) error {
	l.shows()
	return l.Resource.WaitForFresh(ctx)
}

// ZT-8 and ZT-9; ZT-E6: what a cache does not show yet keeps its entry.
func TestLateCaches(t *testing.T) {
	for name, missing := range map[string]func(*duty) func(){
		"the namespace": func(d *duty) func() {
			d.create("shop/cart")
			return func() { d.enrol("shop") }
		},
		"the service account": func(d *duty) func() {
			d.enrol("shop")
			return func() { d.create("shop/cart") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := spiretest.Start(t, domain)
			s.Put(s.OfServiceAccount("shop", "cart"))
			d := newDuty(t, s)
			show := missing(d)
			d.accountStream = late[serviceAccount]{d.accounts, show}
			d.lead()
			d.compared()
			d.create("shop/cart") // an update
			d.enrol("marker")
			d.create("marker/a")
			d.wantEntries("shop/cart", "marker/a")
			if n := s.Calls()["BatchDeleteEntry"]; n != 0 {
				t.Errorf("%d calls delete something", n)
			}
		})
	}
}

// ZT-9: before both caches are synced nothing is called, and nothing is deleted.
func TestIncompleteCaches(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.Put(s.OfServiceAccount("shop", "cart"))
	for name, without := range map[string]func(*duty) func(){
		"namespaces": func(d *duty) func() {
			unsynced, err := stream.NewLocal[namespace]()
			if err != nil {
				t.Fatal(err)
			}
			d.namespaces, d.namespaceStream = unsynced, unsynced
			d.create("shop/cart")
			return func() { d.enrol("shop"); unsynced.Synced() }
		},
		"service accounts": func(d *duty) func() {
			unsynced, err := stream.NewLocal[serviceAccount]()
			if err != nil {
				t.Fatal(err)
			}
			d.accounts, d.accountStream = unsynced, unsynced
			d.enrol("shop")
			return func() { d.create("shop/cart"); unsynced.Synced() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls := s.Calls()["ListEntries"]
			d := newDuty(t, s)
			complete := without(d)
			d.lead()
			d.delete("shop/pay")
			d.create("shop/web")
			d.delete("shop/web")
			if n := s.Calls()["ListEntries"]; n != calls {
				t.Errorf("%d calls", n-calls)
			}
			complete()
			d.compared()
			d.wantEntries("shop/cart")
			if s.Changes() != 0 {
				t.Errorf("the calls are %v", s.Calls())
			}
			d.end()
		})
	}
}

// ZT-9: a ServiceAccount that cannot be decoded, and those of such a namespace, keep their entries and get none.
func TestUndecodable(t *testing.T) {
	s := spiretest.Start(t, domain)
	for _, a := range []string{"broken", "gone"} {
		s.Put(s.OfServiceAccount("shop", a))
		s.Put(s.OfServiceAccount("bad", a))
	}
	api := streamtest.NewServer()
	api.Serve(namespaces.Resource(), "Namespace", false)
	api.Serve(serviceAccounts.Resource(), "ServiceAccount", false)
	enrolledLabel := map[string]string{"io.cilium/mtls-enabled": "true"}
	api.Put(namespaces.Resource(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: enrolledLabel}})
	type message interface {
		metav1.Object
		Marshal() ([]byte, error)
	}
	cut := func(kind schema.GroupVersionResource, object message) {
		object.SetResourceVersion((api.Revision() + 1).String())
		raw, err := object.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		api.PutRaw(kind, slim.Key{Namespace: object.GetNamespace(), Name: object.GetName()}, raw[:len(raw)-1])
	}
	account := func(namespace, name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	for _, a := range []*corev1.ServiceAccount{account("shop", "cart"), account("bad", "broken"), account("bad", "cart")} {
		api.Put(serviceAccounts.Resource(), a)
	}
	broken := account("shop", "broken")
	broken.Secrets = []corev1.ObjectReference{{Name: "a"}}
	cut(serviceAccounts.Resource(), broken)
	cut(namespaces.Resource(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bad", Labels: enrolledLabel}})

	d := newDuty(t, s) // with whole objects, of which the server of the test can send what is broken
	source := stream.NewSource(api.Connect())
	spaces, err := stream.New(source, stream.Core[namespace, corev1.Namespace](namespaces.Resource()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(spaces.Close)
	accounts, err := stream.New(source, stream.Core[serviceAccount, corev1.ServiceAccount](serviceAccounts.Resource()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(accounts.Close)
	d.namespaceStream, d.accountStream = spaces, accounts
	d.lead()
	d.wantEntries("shop/broken", "shop/cart", "bad/broken")
}

// ZT-5: names that cannot be part of a path are ignored, with one line.
func TestNames(t *testing.T) {
	d := newDuty(t, spiretest.Start(t, domain))
	d.enrol("shop", "..")
	d.create("shop/cart", "shop/..", "shop/a b", "../cart")
	d.lead()
	d.wantEntries("shop/cart")
	ignored := func(n float64) func() bool {
		return func() bool { return testutil.ToFloat64(d.controller.Metrics.Ignored) == n }
	}
	d.eventually("three are ignored", ignored(3))
	d.delete("shop/a b")
	d.eventually("two are ignored", ignored(2))
	if n := d.log.Count("names cannot be a part"); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// ZT-10: an entry that is refused is retried, and keeps no others.
func TestRefusedEntries(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.Refuse("/ns/shop/sa/pay", codes.Internal)
	d := newDuty(t, s)
	d.enrol("shop")
	d.create("shop/cart", "shop/pay", "shop/web")
	d.lead()
	d.wantEntries("shop/cart", "shop/web")
	d.eventually("health and metrics show it", func() bool {
		return d.metric(spire.StateRefused) == 1 &&
			strings.Contains(d.degraded(), "refuses 1 entries, that of /ns/shop/sa/pay among them: creating the entry of /ns/shop/sa/pay: Internal: simulated")
	})
	s.Refuse("/ns/shop/sa/pay", codes.OK)
	d.wantEntries("shop/cart", "shop/pay", "shop/web")
	s.Refuse("/ns/shop/sa/web", codes.Internal)
	d.disenrol("shop")
	d.wantEntries("shop/web")
	s.Refuse("/ns/shop/sa/web", codes.OK)
	d.wantEntries()
	d.eventually("it is healthy", func() bool { return d.degraded() == "" && d.metric(spire.StateRefused) == 0 })
	for _, method := range []string{"upsert", "delete"} {
		of := func(outcome string) float64 {
			return testutil.ToFloat64(d.controller.Metrics.Enrollment.WithLabelValues(method, outcome))
		}
		if of("success") == 0 || of("fail") == 0 {
			t.Errorf("%s: %v changes are made, and %v refused", method, of("success"), of("fail"))
		}
	}
}

// ZT-10: entries that the server has lost are created again at the interval, and after an outage.
func TestWipe(t *testing.T) {
	s := spiretest.Start(t, domain)
	d := newDuty(t, s)
	d.interval = 300 * time.Millisecond
	d.enrol("shop")
	d.create("shop/cart", "shop/pay")
	d.lead()
	d.wantEntries("shop/cart", "shop/pay")
	s.Wipe()
	d.wantEntries("shop/cart", "shop/pay")
	address := s.Address()
	s.Stop()
	d.delete("shop/pay")
	d.create("shop/web")
	s.Wipe()
	s.Listen(address)
	d.wantEntries("shop/cart", "shop/web")
}

// ZT-10: an operator that is no administrator of the server is reported once.
func TestPermissionDenied(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.SetAdmin(false)
	d := newDuty(t, s)
	d.enrol("shop")
	d.create("shop/cart", "shop/pay")
	d.lead()
	d.eventually("health reports it", func() bool {
		return strings.Contains(d.degraded(), "PermissionDenied") && strings.Contains(d.degraded(), "add spiffe://spiffe.cilium/cilium-operator to its admin_ids")
	})
	d.create("shop/web")
	d.eventually("it is tried again", func() bool { return s.Calls()["ListEntries"] > 3 })
	s.SetAdmin(true)
	d.wantEntries("shop/cart", "shop/pay", "shop/web")
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
	if n := d.log.Count("level=WARN"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// ZT-10: in a plan nothing is sent, and a term that is over changes nothing.
func TestPlanAndFence(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.Put(s.OfServiceAccount("shop", "gone"))
	d := newDuty(t, s)
	d.enrol("shop")
	d.create("shop/cart", "shop/pay")
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
		"auth.ztunnel register:", "create spire entries/ns/shop/sa/cart and 1 more", "delete spire entries/ns/shop/sa/gone", "Plan: 2 writes",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if n := s.Changes(); n != 0 {
		t.Errorf("%d changes are sent", n)
	}
	d.plan = nil
	d.lead()
	d.wantEntries("shop/cart", "shop/pay")
	d.fence.Close()
	d.disenrol("shop")
	d.eventually("it has been tried", func() bool { return strings.Contains(d.degraded(), "fence") })
	if s.Len() != 2 {
		t.Error("an entry is deleted behind the fence")
	}
}
