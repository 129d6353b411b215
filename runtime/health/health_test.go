// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func ids(statuses []health.Status) []string {
	var list []string
	for _, s := range statuses {
		list = append(list, s.ID)
	}
	return list
}

func TestEachReportReplacesTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := health.NewTree()
		r := tree.Reporter("kvstore")
		r.OK("connected")
		began := time.Now()
		time.Sleep(time.Minute)
		r.OK("writing")
		want := health.Status{ID: "kvstore", Level: health.OK, Message: "writing", Since: began, Reports: 2}
		if diff := cmp.Diff([]health.Status{want}, tree.Snapshot()); diff != "" {
			t.Error("Since is that of the level, not of the message:", diff)
		}
		r.Degraded("no writes", errors.New("no leader"))
		want = health.Status{ID: "kvstore", Level: health.Degraded, Message: "no writes", Error: "no leader", Since: time.Now(), Reports: 3}
		if diff := cmp.Diff([]health.Status{want}, tree.Snapshot()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]health.Status{want}, tree.Degraded()); diff != "" {
			t.Error(diff)
		}
		r.OK("")
		if s := tree.Snapshot()[0]; s.Error != "" || s.Message != "" {
			t.Errorf("the report before shows through: %+v", s)
		}
		if len(tree.Degraded()) > 0 {
			t.Error("still degraded")
		}
	})
}

func TestNothingIsInTheTreeBeforeTheFirstReport(t *testing.T) {
	tree := health.NewTree()
	tree.Reporter("a").Child("b")
	_, closed := tree.Open("c")
	closed()
	if got := tree.Snapshot(); len(got) > 0 {
		t.Error(got)
	}
}

func TestSnapshotIsInTreeOrder(t *testing.T) {
	tree := health.NewTree()
	for _, id := range []string{"ipam-x", "ipam.job-b", "ipam", "ipam.clusterpool.job-a", "ipam.clusterpool"} {
		tree.Reporter(id).OK("")
	}
	want := []string{"ipam", "ipam.clusterpool", "ipam.clusterpool.job-a", "ipam.job-b", "ipam-x"}
	if diff := cmp.Diff(want, ids(tree.Snapshot())); diff != "" {
		t.Error(diff)
	}
}

func TestGoneTakesThePartsAlong(t *testing.T) {
	tree := health.NewTree()
	r := tree.Reporter("ipam")
	r.OK("")
	r.Child("job-sync").OK("")
	r.Child("job-sync").Child("node-1").Degraded("full", nil)
	tree.Reporter("ipam-other").OK("")
	r.Child("job-sync").Remove()
	if diff := cmp.Diff([]string{"ipam", "ipam-other"}, ids(tree.Snapshot())); diff != "" {
		t.Error(diff)
	}
	r.OK("again")
	if s := tree.Snapshot()[0]; s.Message != "again" || s.Reports != 2 {
		t.Errorf("%+v", s)
	}
}

func TestGoneLeavesModulesInsideTheModule(t *testing.T) {
	tree := health.NewTree()
	outer, closeOuter := tree.Open("ipam")
	inner, closeInner := tree.Open("ipam.clusterpool")
	outer.OK("")
	outer.Child("job-x").OK("")
	inner.OK("")
	outer.Remove()
	if diff := cmp.Diff([]string{"ipam.clusterpool"}, ids(tree.Snapshot())); diff != "" {
		t.Error(diff)
	}
	closeOuter()
	if len(tree.Snapshot()) != 1 {
		t.Error("closing the outer module closed the inner one")
	}
	closeInner()
	if got := tree.Snapshot(); len(got) > 0 {
		t.Error(got)
	}
}

func TestNothingIsReportedThroughWhatIsClosed(t *testing.T) {
	tree := health.NewTree()
	old, closeOld := tree.Open("m")
	part := old.Child("job-x")
	part.OK("")
	closeOld()
	next, closeNext := tree.Open("m")
	defer closeNext()
	next.Child("job-x").OK("fresh")
	part.Degraded("late", nil)
	old.Stopped("late")
	old.Child("job-x").Remove()
	closeOld()
	if got := tree.Snapshot(); len(got) != 1 || got[0].Message != "fresh" {
		t.Errorf("a report that came late shows: %+v", got)
	}
}

func TestWorst(t *testing.T) {
	worst := health.Aggregate([]health.Status{
		{ID: "a", Level: health.OK},
		{ID: "a.b.c", Level: health.Stopped},
		{ID: "a.b.d", Level: health.Degraded},
		{ID: "a.b.e", Level: health.OK},
		{ID: "f.g", Level: health.Stopped},
		{ID: "h", Level: health.Stopped},
		{ID: "h.i", Level: health.OK},
	})
	want := map[string]health.Level{
		"a": health.Degraded, "a.b": health.Degraded, "a.b.c": health.Stopped, "a.b.d": health.Degraded, "a.b.e": health.OK,
		"f": health.Stopped, "f.g": health.Stopped, "h": health.OK, "h.i": health.OK,
	}
	if diff := cmp.Diff(want, worst); diff != "" {
		t.Error(diff)
	}
}

func TestText(t *testing.T) {
	now := time.Unix(1000, 0)
	statuses := []health.Status{
		{ID: "ipam", Level: health.OK, Since: now.Add(-time.Hour)},
		{ID: "ipam.clusterpool.job-resync", Level: health.Degraded, Message: "pool is full", Error: "no CIDR left\nof 12", Since: now.Add(-90 * time.Second)},
		{ID: "ipam.clusterpool.job-watch", Level: health.OK, Message: "synced", Since: now},
		{ID: "ipam-x", Level: health.Stopped, Message: "done", Since: now.Add(-time.Second)},
		{ID: "leader.hook-elect", Level: health.OK, Since: now},
	}
	var b strings.Builder
	if err := health.WriteText(&b, statuses, now); err != nil {
		t.Fatal(err)
	}
	want := `OK       ipam (1h0m0s)
  Degraded clusterpool
    Degraded job-resync: pool is full: no CIDR left … (1m30s)
    OK       job-watch: synced (0s)
Stopped  ipam-x: done (1s)
OK       leader
  OK       hook-elect (0s)
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestJSON(t *testing.T) {
	tree := health.NewTree()
	tree.Reporter("a").Degraded("does not write", errors.New("why"))
	tree.Reporter("a.b").OK("")
	var b strings.Builder
	if err := health.WriteJSON(&b, tree.Snapshot()); err != nil {
		t.Fatal(err)
	}
	var back []health.Status
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree.Snapshot(), back); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	if err := health.WriteJSON(&b, health.NewTree().Snapshot()); err != nil || b.String() != "[]\n" {
		t.Errorf("an empty tree is %q, %v", b.String(), err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestWritersReportErrors(t *testing.T) {
	statuses := []health.Status{{ID: "a", Level: health.OK}}
	if err := health.WriteText(failingWriter{}, statuses, time.Now()); err == nil {
		t.Error("text: no error")
	}
	if err := health.WriteJSON(failingWriter{}, statuses); err == nil {
		t.Error("JSON: no error")
	}
}

func TestConcurrentUse(t *testing.T) {
	tree := health.NewTree()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				r, done := tree.Open(fmt.Sprintf("m%d", i))
				r.OK("")
				r.Child("x").Degraded("", nil)
				tree.Snapshot()
				r.Remove()
				r.OK("")
				done()
			}
		})
	}
	wg.Wait()
	if got := tree.Snapshot(); len(got) > 0 {
		t.Error(got)
	}
}
