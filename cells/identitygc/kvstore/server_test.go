// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// IDKV-E1 to IDKV-E4, IDKV-E7 to IDKV-E10 and IDKV-E16 to IDKV-E21, in one etcd: what exists at the start of scans.
func TestLives(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	lease := e.Grant(time.Hour)
	type life struct {
		key, value string
		users      map[string]string // of the label string
		until      int               // the last scan before which it exists, 0: for ever
	}
	user := func(number string) map[string]string { return map[string]string{"/10.0.0.1": number} }
	lives := map[string]life{
		"E1, in use":                           {"1000", "k8s:n=1000;", user("1000"), 0},
		"E2, unused":                           {"1001", "k8s:n=1001;", nil, 2},
		"E3, used between":                     {"1003", "k8s:n=1003;", nil, 4},
		"E4, written again":                    {"1004", "k8s:n=1004;", nil, 4},
		"E5, of another cluster":               {"70000", "k8s:n=70000;", nil, 0},
		"E7, no number":                        {"foo", "k8s:n=foo;", nil, 0},
		"E7, reserved":                         {"255", "k8s:n=255;", nil, 0},
		"E8, a prefix of other labels":         {"300", "k8s:a=b;", nil, 2},
		"E8, those":                            {"301", "k8s:a=b;k8s:c=d;", user("301"), 0},
		"E9, a slash":                          {"309", "k8s:app.kubernetes.io/name=x;", user("309"), 0},
		"E10, its node dies":                   {"1010", "k8s:n=1010;", nil, 4},
		"E16, no labels":                       {"310", "", nil, 2},
		"E16, no labels, and a user":           {"3101", "", nil, 0},
		"E17, broken labels":                   {"311", "k8s", nil, 2},
		"E17, broken labels, number in use":    {"312", "k8s:n", nil, 0},
		"E18, users that cannot be decoded":    {"313", "k8s:n=313;", user("three"), 0},
		"E19, its labels have another number":  {"315", "k8s:n=314;", nil, 2},
		"E19, the other number":                {"314", "k8s:n=314;", user("314"), 0},
		"E20, users in the form of old agents": {"316", "k8s:a//b=c;", nil, 0},
		"E21, a key below an identity":         {"1000/x", "k8s:n=1000;", nil, 0},
		"E21, another spelling":                {"01001", "k8s:n=1001;", nil, 0},
		"E21, too large":                       {"99999999", "k8s:n=99999999;", nil, 0},
	}
	for _, l := range lives {
		e.Put(ids+l.key, l.value, 0)
		for node, number := range l.users {
			e.Put(values+l.value+node, number, 0)
		}
	}
	e.Put(values+"k8s:n=1010;/10.0.0.2", "1010", lease)
	e.Put(values+"somewhere else;/10.0.0.1", "312", 0)
	e.Put(values+"10.0.0.3", "3101", 0)
	e.Put(values+"k8s:a/b=c;/10.0.0.1", "316", 0)
	e.Put("cilium/state/identities/v1/locks/k8s:n=1001;/1", "", 0)
	foreign := []string{"cilium/state/identities/v1/idx/1001", "cilium/state/identities/v1/id", "cilium/state/identities/v1/valueless"}
	for _, key := range foreign {
		e.Put(key, "x", 0)
	}

	existed := map[int][]string{}
	s := &spy{}
	s.before = func(scan int) {
		existed[scan] = names(t, e, ids)
		switch scan {
		case 2:
			e.Put(values+"k8s:n=1003;/10.0.0.1", "1003", 0)
			e.Put(ids+"1004", "k8s:n=1004;", 0)
		case 3:
			e.Delete(values + "k8s:n=1003;/10.0.0.1")
			if _, err := e.Client.Revoke(t.Context(), lease); err != nil {
				t.Error(err)
			}
		}
	}
	revision := e.Revision()
	o, deleted := lead(t, e.Endpoints()[0], s)
	s.ran(t, 7)
	o.Stop()
	var gone []identity.Number
	for name, l := range lives {
		for scan := 1; scan <= 6; scan++ {
			if want := l.until == 0 || scan <= l.until; slices.Contains(existed[scan], l.key) != want {
				t.Errorf("%s: before scan %d it exists: %t", name, scan, !want)
			}
		}
		if n, ok := identity.ParseNumber(l.key); ok && l.until > 0 {
			gone = append(gone, n)
		}
	}
	slices.Sort(gone)
	if got := slices.Sorted(slices.Values(deleted.numbers())); !slices.Equal(got, gone) { // IDKV-12
		t.Errorf("told of %v, deleted were %v", got, gone)
	}
	for _, key := range append(foreign, values+"10.0.0.3", "cilium/state/identities/v1/locks/k8s:n=1001;/1") {
		if e.Get(key) == nil {
			t.Errorf("%s was deleted", key)
		}
	}
	checkWrites(t, o, e.Follow("cilium/state/", revision), len(gone))
	for _, text := range []string{"without a valid number", "label strings that cannot be decoded", "users of identities have no valid number"} {
		if n := o.Log().Count(`"level":"warning"`, "identitygc.kvstore", text); n != 1 {
			t.Errorf("%d warnings of %s", n, text)
		}
	}
}

// checkWrites holds that nothing but identities is written, and why.
func checkWrites(t *testing.T, o *operatortest.Operator, r *kvstoretest.Record, want int) {
	t.Helper()
	written := 0
	for _, w := range o.Book.Writes(0) {
		if w.Module != "identitygc.kvstore" || w.Result != "ok" {
			continue
		}
		written++
		if w.Verb != "txn" || !strings.HasPrefix(w.Name, "id/") || w.Cause.Rule != "identitygc.kvstore collect" || len(w.Cause.Triggers) != 1 || !strings.HasSuffix(w.Cause.Triggers[0].Name, "/"+w.Name) {
			t.Errorf("the history has %s, %s", w, w.Cause)
		}
	}
	if written != want {
		t.Errorf("%d deletes are in the history, want %d", written, want)
	}
}

// IDKV-E5, IDKV-E6 and IDKV-E22: two clusters in one etcd leave each other's identities alone, and the metrics count all.
func TestClusters(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	one, ten := 1<<16+1, 10<<16+1
	fill(t, e, one, 8)
	fill(t, e, ten, 8)
	var before [3][]string
	s := &spy{}
	s.before = func(scan int) {
		if scan <= 4 && scan%2 == 0 {
			before[scan/2] = names(t, e, ids)
		}
	}
	o, deleted := lead(t, e.Endpoints()[0], s, "--cluster-id=1", "--cluster-name=cluster1")
	s.ran(t, 4)
	o.Stop()
	if len(before[1]) != 16 || len(before[2]) != 12 || len(deleted.numbers()) != 4 {
		t.Errorf("identities before scans: %v; deleted %v", before, deleted.numbers())
	}
	for i := range 8 {
		if (e.Get(fmt.Sprint(ids, one+i)) == nil) != (i%2 == 1) || e.Get(fmt.Sprint(ids, ten+i)) == nil {
			t.Errorf("wrong keys are left at %d", i)
		}
	}
	s = &spy{}
	o, deleted = lead(t, e.Endpoints()[0], s, "--cluster-id=10", "--cluster-name=cluster10")
	s.ran(t, 4)
	o.Stop()
	if len(names(t, e, ids)) != 8 || len(deleted.numbers()) != 4 || deleted.numbers()[0] != identity.Number(ten+1) {
		t.Errorf("%v are left, deleted %v", names(t, e, ids), deleted.numbers())
	}
}

// IDKV-E12: users that appear after the listing keep an identity, in both forms of the key and for identities whose
// labels have another number; so does a write of the identity.
func TestRaces(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	e.Put(ids+"1001", "k8s:n=1001;", 0)
	e.Put(ids+"1002", "k8s:a//b=2;", 0)
	e.Put(ids+"1003", "k8s:n=3;", 0)
	e.Put(ids+"1004", "k8s:n=3;", 0)
	e.Put(values+"k8s:n=3;/10.0.0.1", "1003", 0)
	e.Put(ids+"1005", "k8s:n=1005;", 0)
	e.Put(ids+"1006", "k8s:n=1006;", 0)
	s := &spy{}
	raced := false
	s.onRemove = func(all []kvstore.Removal) error {
		if raced || len(all) != 5 {
			t.Errorf("%d removals", len(all))
		}
		raced = true
		e.Put(values+"k8s:n=1001;/10.0.0.1", "1001", 0)
		e.Put(values+"k8s:a/b=2;/10.0.0.1", "1002", 0)
		e.Put(values+"k8s:n=3;/10.0.0.2", "1004", 0)
		e.Put(ids+"1005", "k8s:n=1005;", 0)
		e.Put(values+"k8s:n=1005;/10.0.0.1", "1005", 0)
		return nil
	}
	o, deleted := lead(t, e.Endpoints()[0], s)
	s.ran(t, 5)
	o.Stop()
	if got := names(t, e, ids); !slices.Equal(got, []string{"1001", "1002", "1003", "1004", "1005"}) || !slices.Equal(deleted.numbers(), []identity.Number{1006}) {
		t.Errorf("%v are left, deleted %v", got, deleted.numbers())
	}
	if changed := o.Metric("sweep_objects_total", "identitygc.kvstore", "changed"); changed != 4 {
		t.Errorf("%v removals were refused", changed)
	}
}

// IDKV-8 and IDKV-9, IDKV-E23: a scan that fails, a lost lease and a delete that fails have all identities start anew.
func TestStartsAnew(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]func(s *spy, scan int, prefix string) error{
		"the identities are not listed": func(_ *spy, scan int, prefix string) error {
			if scan == 2 && prefix == ids {
				return errors.New("no answer")
			}
			return nil
		},
		"the users are not listed": func(_ *spy, scan int, prefix string) error {
			if scan == 2 && prefix == values {
				return errors.New("no answer")
			}
			return nil
		},
		"a lease is lost": func(s *spy, scan int, _ string) error {
			if scan == 1 {
				s.lost++
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := kvstoretest.Start(t, 1)
			e.Put(ids+"1001", "k8s:n=1001;", 0)
			s := &spy{}
			var deletedBy []int
			s.onList = func(scan int, prefix string) error {
				if scan > 1 || prefix == values {
					return hurt(s, scan, prefix)
				}
				return nil
			}
			s.onRemove = func([]kvstore.Removal) error {
				deletedBy = append(deletedBy, s.begun())
				if len(deletedBy) == 1 {
					return errors.New("the delete failed")
				}
				return nil
			}
			o, _ := lead(t, e.Endpoints()[0], s)
			operatortest.Eventually(t, "it is deleted", func() bool { return e.Get(ids+"1001") == nil })
			o.Stop()
			first := 4
			if name == "a lease is lost" {
				first = 3
			}
			if !slices.Equal(deletedBy, []int{first, first + 2}) {
				t.Errorf("scans that deleted: %v, want %d and two later", deletedBy, first)
			}
		})
	}
}

// IDKV-E15 and IDKV-E24: a new leader's first scan deletes nothing, and on a store without garbage nothing is written.
func TestLeaderChange(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	fill(t, e, 1000, 8)
	s := &spy{}
	leaders, first := 1, map[int]int{1: 1}
	s.onRemove = func([]kvstore.Removal) error {
		if s.begun() <= first[leaders] {
			t.Errorf("the first scan of leader %d deletes", leaders)
		}
		return nil
	}
	o, deleted := lead(t, e.Endpoints()[0], s)
	s.ran(t, 1)
	o.LeaveTerm()
	if n := len(deleted.numbers()); n > 0 && s.begun() < 2 {
		t.Fatalf("%d were deleted at once", n)
	}
	leaders, first[2] = 2, s.begun()+1
	o.EnterTerm()
	operatortest.Eventually(t, "the unused are gone", func() bool { return len(names(t, e, ids)) == 4 })
	o.LeaveTerm()
	revision := e.Revision()
	changes := e.Follow("cilium/state/", revision+1)
	began := s.begun()
	o.EnterTerm()
	s.ran(t, began+5)
	o.Stop()
	e.Put("cilium/state/end", "", 0)
	operatortest.Eventually(t, "the end is seen", func() bool { return len(changes.Events()) > 0 })
	if all := changes.Events(); string(all[0].Kv.Key) != "cilium/state/end" {
		t.Errorf("%s was written", all[0].Kv.Key)
	}
}

// IDKV-10, IDKV-E25: where nearly all look unused, as after a restore without leased keys, nothing is deleted.
func TestImplausible(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	fill(t, e, 1000, 30)
	for i := range 3 {
		e.Delete(fmt.Sprintf("%sk8s:app=web-%d;k8s:io.kubernetes.pod.namespace=shop;/10.0.0.1", values, 1000+2*i))
	}
	s := &spy{onRemove: func(all []kvstore.Removal) error { t.Errorf("%d are deleted", len(all)); return nil }}
	o, _ := lead(t, e.Endpoints()[0], s)
	s.ran(t, 4)
	if len(names(t, e, ids)) != 30 || o.Metric("sweep_braked", "identitygc.kvstore") != 1 || !strings.Contains(o.Degraded("identitygc.kvstore"), "18 of 30") {
		t.Errorf("%d are left; %s", len(names(t, e, ids)), o.Degraded("identitygc.kvstore"))
	}
}

// IDKV-11, IDKV-E26: the requests of a sweep are the pages of two listings, and one per 512 deletes. The metrics are those
// of the original.
func TestRequests(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	const n, batch = 3000, 512
	fill(t, e, 1000, n)
	s := &spy{}
	var o *operatortest.Operator
	requests := map[int]int{} // before a scan
	started := make(chan struct{})
	s.before = func(scan int) {
		<-started
		for _, m := range o.Samples("kvstore_operations_duration_seconds") {
			if m.Label("scope") == "identities/v1" {
				requests[scan] += int(m.Value)
			}
		}
	}
	o, _ = lead(t, e.Endpoints()[0], s)
	close(started)
	s.ran(t, 4)
	o.Stop()
	const listing = 2 + 2 // a page of 256, and one with the rest
	const sweep = listing + (n/2+batch-1)/batch
	if requests[2]-requests[1] != listing || requests[3]-requests[2] != sweep {
		t.Errorf("%d and %d requests, want %d and %d", requests[2]-requests[1], requests[3]-requests[2], listing, sweep)
	}
	if left := len(names(t, e, ids)); left != n/2 {
		t.Errorf("%d are left", left)
	}
}

// IDKV-5; number 7.1 of the contract's tenants.md: one unused identity with a value of a megabyte does not keep five others from being collected, and health names it until
// it is gone.
func TestOneIdentityWithAMegabyte(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	for n := range 6 {
		labels := fmt.Sprintf("k8s:n=%d;", n)
		if n == 2 {
			labels = strings.Repeat(labels, 1<<20/len(labels))
		}
		e.Put(fmt.Sprint(ids, 1000+n), labels, 0)
	}
	s := &spy{}
	o, deleted := lead(t, e.Endpoints()[0], s)
	operatortest.Eventually(t, "five are collected", func() bool { return slices.Equal(names(t, e, ids), []string{"1002"}) })
	if got := slices.Sorted(slices.Values(deleted.numbers())); len(got) != 5 {
		t.Errorf("deleted are %v", got)
	}
	if d := o.Degraded("identitygc.kvstore"); !strings.Contains(d, "1 identities are not collected") || !strings.Contains(d, ids+"1002") || len(d) > 1000 {
		t.Errorf("health has %.1000q", d)
	}
	e.Delete(ids + "1002")
	operatortest.Eventually(t, "health recovers", func() bool { return o.Degraded("identitygc.kvstore") == "" })
}

// IDKV-13: the metrics of the original; IDKV-E1 and IDKV-E2.
func TestMetrics(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	fill(t, e, 1000, 4)
	e.Put(ids+"70000", "k8s:n=70000;", 0)
	s, scans := &spy{}, map[int]string{}
	var o *operatortest.Operator
	started := make(chan struct{})
	s.before = func(scan int) {
		<-started
		entries := func(status string) float64 { return o.Metric("identity_gc_entries", "kvstore", status) }
		scans[scan] = fmt.Sprintf("%v alive, %v deleted, %v runs, %v foreign", entries("alive"), entries("deleted"),
			o.Metric("identity_gc_runs", "kvstore", "success"), o.Metric("identity_gc_kvstore_skipped_keys", "foreign-number"))
	}
	o, _ = lead(t, e.Endpoints()[0], s)
	close(started)
	s.ran(t, 5)
	o.Stop()
	for scan, want := range map[int]string{
		2: "5 alive, 0 deleted, 1 runs, 1 foreign", 3: "3 alive, 2 deleted, 2 runs, 1 foreign", 4: "3 alive, 0 deleted, 3 runs, 1 foreign",
	} {
		if scans[scan] != want {
			t.Errorf("before scan %d: %s, want %s", scan, scans[scan], want)
		}
	}
}

// IDKV-E27: a cluster id that does not fit what is there is reported.
func TestWrongClusterID(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	fill(t, e, 1000, 20)
	s := &spy{}
	o, _ := lead(t, e.Endpoints()[0], s, "--cluster-id=3", "--cluster-name=cluster3")
	s.ran(t, 4)
	o.Stop()
	if n := o.Log().Count(`"level":"warning"`, "the cluster id may be wrong"); n != 1 || len(names(t, e, ids)) != 20 {
		t.Errorf("%d warnings, %d are left", n, len(names(t, e, ids)))
	}
}
