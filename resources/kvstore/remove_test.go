// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
)

// KV-O8: each removal has its own guards, and many are one request.
func TestRemoveEach(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, book := directClient(t, e), explain.NewHistory()
	r := newHarness(t, to(e.Endpoints()[0]), func(p *connParams) { p.Book = book }).ready(t)
	const n = 1000
	all, cause := make([]Removal, n), &k8s.Cause{Rule: "test"}
	for i := range all {
		key, user := Key(IdentitiesPrefix, fmt.Sprint(1000+i)), Folder(IdentityValuesPrefix, fmt.Sprintf("k8s:n=%d;", i))
		revision := must(etcd.Put(t.Context(), key, "v"))(t).Header.Revision
		all[i] = Removal{key, []Guard{Unchanged(Entry{Key: key, ModRevision: revision}), NoneUnder(user), NoneSince(user, revision)}}
		cause.Triggers = append(cause.Triggers, k8s.Trigger{Kind: "key", Name: key})
		switch i % 4 {
		case 1:
			must(etcd.Put(t.Context(), user+"10.0.0.1", "1"))(t)
		case 2:
			must(etcd.Put(t.Context(), key, "another"))(t)
		}
	}
	removed := must(r.RemoveEach(k8s.WithCause(t.Context(), cause), all))(t)
	if len(removed) != n {
		t.Fatalf("%d answers", len(removed))
	}
	for i, done := range removed {
		if want := i%4 == 0 || i%4 == 3; done != want || (read(t, etcd, all[i].Key) == nil) != want {
			t.Fatalf("%s was removed: %t, as told: %t", all[i].Key, read(t, etcd, all[i].Key) == nil, done)
		}
	}
	if requests := sampleCount(t, r.metrics.Operations, "identities/v1", "delete", "txn", "success"); requests != 2 {
		t.Errorf("%d requests", requests)
	}
	results := map[string]int{}
	for _, w := range book.Writes(0) {
		if w.Module != "test" {
			continue
		}
		results[w.Result]++
		if (w.Result == "ok") != (w.Revision != "") || len(w.Cause.Triggers) != 1 || !strings.HasSuffix(w.Cause.Triggers[0].Name, w.Name) {
			t.Fatalf("the history has %s at %q", w, w.Revision)
		}
	}
	if results["ok"] != n/2 || results["not done: a guard failed"] != n/2 {
		t.Errorf("the history has %v", results)
	}
}

// KV-O8; numbers 7.1 of the contract's tenants.md: what etcd takes in no request stops no other removal, and is named.
func TestRemoveEachWithOneTooLarge(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd := directClient(t, e)
	r := newHarness(t, to(e.Endpoints()[0])).ready(t)
	var all []Removal
	for i := range 20 {
		key := Key(IdentitiesPrefix, fmt.Sprint(1000+i))
		revision := must(etcd.Put(t.Context(), key, "v"))(t).Header.Revision
		labels := fmt.Sprintf("k8s:n=%d;", i)
		if i == 3 || i == 11 {
			labels = strings.Repeat(labels, 200_000)
		}
		all = append(all, Removal{key, []Guard{Unchanged(Entry{Key: key, ModRevision: revision}), NoneUnder(Folder(IdentityValuesPrefix, labels))}})
	}
	removed, err := r.RemoveEach(withCause(t), all)
	if err == nil || !strings.Contains(err.Error(), "2 keys cannot be removed") || !strings.Contains(err.Error(), all[3].Key) || len(err.Error()) > 1000 {
		t.Errorf("the error is %.1000v", err)
	}
	if len(removed) != len(all) {
		t.Fatalf("%d answers", len(removed))
	}
	for i, done := range removed {
		if want := i != 3 && i != 11; done != want || (read(t, etcd, all[i].Key) == nil) != want {
			t.Errorf("%s was removed: %t, as told: %t", all[i].Key, read(t, etcd, all[i].Key) == nil, done)
		}
	}
}

// KV-O8: guards of ranges.
func TestNoneSince(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd := directClient(t, e)
	r := newHarness(t, to(e.Endpoints()[0])).ready(t)
	revision := must(etcd.Put(t.Context(), "cilium/a/1", "v"))(t).Header.Revision
	holds := func() bool {
		must(etcd.Put(t.Context(), "cilium/k", "v"))(t)
		return must(r.RemoveEach(withCause(t), []Removal{{"cilium/k", []Guard{NoneSince("cilium/a/", revision)}}}))(t)[0]
	}
	if !holds() {
		t.Error("a key of that revision is none since")
	}
	must(etcd.Put(t.Context(), "cilium/a/2", "v"))(t)
	if holds() {
		t.Error("a later key is not seen")
	}
}

// KV-O8: what exceeds the limits of etcd is more requests.
func TestRemovalsOfLongKeys(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd := directClient(t, e)
	r := newHarness(t, to(e.Endpoints()[0])).ready(t)
	all := make([]Removal, 512)
	for i := range all {
		key := fmt.Sprintf("cilium/k/%d", i)
		must(etcd.Put(t.Context(), key, "v"))(t)
		all[i] = Removal{key, []Guard{NoneUnder(strings.Repeat("x", 4096) + key)}}
	}
	for i, done := range must(r.RemoveEach(withCause(t), all))(t) {
		if !done {
			t.Fatalf("%s was not removed", all[i].Key)
		}
	}
	if left := must(etcd.Get(t.Context(), "cilium/k/", clientv3.WithPrefix(), clientv3.WithCountOnly()))(t).Count; left != 0 {
		t.Errorf("%d keys are left", left)
	}
}
