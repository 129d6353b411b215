// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
)

// KV-F5: the write history has every write with its module, key, revision and cause,
// including those that changed nothing and those of the connection itself.
func TestAudit(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, book := directClient(t, e), explain.NewHistory()
	r := newHarness(t, to(e.Endpoints()[0]), func(p *connParams) { p.Book = book }).ready(t)
	ctx := withCause(t)
	key := Key(ServicesPrefix, "c1", "ns", "a")
	check(t, r.Write(ctx, PutLeased(key, []byte("v"))))
	entry := read(t, etcd, key)
	absent := must(r.WriteIf(ctx, []Guard{Absent(key)}, Put(key, nil)))(t)
	removed := must(r.WriteIf(ctx, []Guard{Unchanged(*entry)}, Remove(key), Put(HeartbeatKey, nil)))(t)
	check(t, r.Write(ctx, Remove(HeartbeatKey)))
	last := must(etcd.Get(t.Context(), key))(t).Header.Revision
	r.fence.Close()
	if err := r.Write(ctx, Put(key, nil)); !errors.Is(err, leading.ErrFenced) {
		t.Errorf("a write after the term: %v", err)
	}
	if absent || !removed {
		t.Errorf("guards held: %t, %t", absent, removed)
	}

	var got []string
	grants, probes := 0, 0
	for _, w := range book.Writes(0) {
		switch {
		case w.Module == "kvstore" && w.Resource == "cilium/.initlock" && w.Cause.Rule == "kvstore check the quorum" || w.Cause.Rule == "kvstore connect":
			probes++
		case w.Verb == "grant" && w.Resource == "leases" && w.Name != "":
			grants++
		default:
			got = append(got, fmt.Sprintf("%s %s %s %s at %s: %s, %s", w.Module, w.Verb, w.Resource, w.Name, w.Revision, w.Result, w.Cause.Rule))
		}
	}
	want := []string{
		fmt.Sprintf("test put cilium/state/services/v1 c1/ns/a at %d: ok, test", entry.ModRevision),
		"test txn cilium/state/services/v1 c1/ns/a at : not done: a guard failed, test",
	}
	if !slices.Equal(got[:min(2, len(got))], want) || len(got) != 5 {
		t.Fatalf("the history has\n%q, want first\n%q", got, want)
	}
	for i, what := range []string{"txn cilium/state/services/v1 c1/ns/a", "txn cilium .heartbeat", "delete cilium .heartbeat"} {
		for rev := entry.ModRevision + 1; rev <= last; rev++ { // probes have revisions, too
			if got[i+2] == fmt.Sprintf("test %s at %d: ok, test", what, rev) {
				got[i+2] = ""
			}
		}
		if got[i+2] != "" {
			t.Errorf("want %s, got %s", what, got[i+2])
		}
	}
	if grants == 0 || probes < 2 {
		t.Errorf("%d grants and %d probes are in the history", grants, probes)
	}
}

// Recording a write hardly allocates.
func TestAuditIsCheap(t *testing.T) {
	book := explain.NewHistory()
	for range 5000 { // it has its size
		book.RecordWrite(explain.Write{})
	}
	g := &interceptor{history: book}
	ctx := withClient(withCause(t), &client{module: "test"})
	req := &pb.PutRequest{Key: []byte(Key(ServicesPrefix, "c1", "ns", "a"))}
	reply := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 123456}}
	if n := testing.AllocsPerRun(100, func() { g.audit(ctx, "/etcdserverpb.KV/Put", req, reply, nil, time.Second) }); n > 4 {
		t.Errorf("%v allocations for a write", n)
	}
	if n := testing.AllocsPerRun(100, func() { _ = withClient(context.Background(), nil) }); n > 1 {
		t.Errorf("%v allocations for naming the module", n)
	}
}

func TestSplitKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string][2]string{
		"cilium/.heartbeat":                     {"cilium", ".heartbeat"},
		"cilium/cluster-config/c1":              {"cilium/cluster-config", "c1"},
		"cilium/state/services/v1/c1/ns/a":      {"cilium/state/services/v1", "c1/ns/a"},
		"cilium/state/identities/v1/locks/a=b;": {"cilium/state/identities/v1", "locks/a=b;"},
		"cilium/state/odd":                      {"cilium/state", "odd"},
		"k":                                     {"", "k"},
		"/k":                                    {"", "k"},
		"":                                      {"", ""},
	} {
		prefix, name := splitKey(key)
		if prefix != want[0] || name != want[1] {
			t.Errorf("%q is split into %q and %q", key, prefix, name)
		}
	}
}
