// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"testing"

	"github.com/skep-operator/skep/resources/clustertest"
)

// KV-O4.
func TestGuards(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	ctx := withCause(t)

	if ok := must(r.WriteIf(ctx, []Guard{Absent("k")}, Put("k", []byte("1"))))(t); !ok {
		t.Error("an absent key was not created")
	}
	if ok := must(r.WriteIf(ctx, []Guard{Absent("k")}, Put("k", []byte("2"))))(t); ok || !holds(t, etcd, "k", "1") {
		t.Error("a key that exists was created")
	}
	seen := *must(r.Get(ctx, "k"))(t)
	check(t, r.Write(ctx, Put("k", []byte("3"))))
	if ok := must(r.WriteIf(ctx, []Guard{Unchanged(seen)}, Remove("k")))(t); ok || read(t, etcd, "k") == nil {
		t.Error("a key that changed was deleted")
	}
	if ok := must(r.WriteIf(ctx, []Guard{Held("k", seen.CreateRevision), NoneUnder("value/")}, Remove("k")))(t); !ok || read(t, etcd, "k") != nil {
		t.Error("a key that was held was not deleted")
	}
	check(t, r.Write(ctx, Put("value/a/1", nil), Put("other", nil)))
	for _, prefix := range []string{"value/", "value/a", "value/a/1"} {
		if ok := must(r.WriteIf(ctx, []Guard{NoneUnder(prefix)}, Put("no", nil)))(t); ok {
			t.Errorf("%s counts as empty", prefix)
		}
	}
	if ok := must(r.WriteIf(ctx, []Guard{NoneUnder("value/b")}, Put("yes", nil)))(t); !ok {
		t.Error("value/b counts as taken")
	}
	if missing := must(r.Get(ctx, "no"))(t); missing != nil {
		t.Errorf("a key that does not exist is %v", missing)
	}
}
