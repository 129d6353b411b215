// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// ENV-34; K5 of the contract's tenants.md: an object that changes again and again has twenty lines, then one a minute, which has how many there were. What
// stays as it is has no second one, and other objects have theirs. Health has what is so now.
func TestReportsOfAnObjectThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Buffer
		tree := health.NewTree()
		r := NewReports("Ingress", nil, slog.New(slog.NewTextHandler(&log, nil)), tree.Reporter("duty"))
		about := func(name string) corev1.ObjectReference {
			return corev1.ObjectReference{Kind: "Ingress", Namespace: "bb", Name: name}
		}
		finding := func(n int) Notice {
			return Notice{Reason: "NotTranslated", Message: fmt.Sprint("finding ", n), Degrades: true}
		}
		lines := func(words ...string) int { return log.Count(append(words, "level=WARN", "reason=NotTranslated")...) }
		for n := range 100 {
			for range 2 {
				r.Set("part", about("web"), finding(n))
			}
		}
		if n := lines("object=bb/web"); n != 20 {
			t.Errorf("100 changes have %d lines", n)
		}
		r.Set("part", about("other"), finding(0))
		if n := lines("object=bb/other"); n != 1 {
			t.Errorf("another object has %d lines", n)
		}
		time.Sleep(time.Minute) // of the test's clock
		for n := range 10 {
			r.Set("part", about("web"), finding(100+n))
		}
		if n := lines("object=bb/web"); n != 21 || lines("finding 100", "skippedBefore=80") != 1 {
			t.Errorf("ten more, a minute later, have %d lines:\n%s", n-20, &log)
		}
		if all := tree.Degraded(); len(all) != 1 || all[0].Message != "Ingress bb/other: finding 0; and 1 more" {
			t.Errorf("health: %+v", all)
		}
		r.Forget(slim.Key{Namespace: "bb", Name: "other"})
		if all := tree.Degraded(); len(all) != 1 || all[0].Message != "Ingress bb/web: finding 109" {
			t.Errorf("health without the other one: %+v", all)
		}
	})
}

// ENV-34; K5 of the contract's tenants.md: what objects of others cause leaves an object the lines of its own findings, and none of these changes its text by it.
func TestReportsThatOthersCause(t *testing.T) {
	var log logtest.Buffer
	r := NewReports("Ingress", nil, slog.New(slog.NewTextHandler(&log, nil)), health.NewTree().Reporter("duty"))
	about := corev1.ObjectReference{Kind: "Ingress", Namespace: "aa", Name: "web"}
	var own []Notice
	for n := range maxNotices {
		own = append(own, Notice{Reason: "BackendNotFound", Message: fmt.Sprint("finding ", n)})
	}
	for n := range 30 {
		r.Set("part", about, append(slices.Clone(own[:4]), Notice{Reason: "HostOfThis", Message: fmt.Sprint("Ingress bb/", n, " asks"), ByOthers: true})...)
		r.Set("part", about, own[:4]...)
	}
	if all, of := log.Count("reason=HostOfThis"), log.Count("reason=BackendNotFound"); all != 20 || of != 4 {
		t.Errorf("there are %d lines that others cause, and %d of its own", all, of)
	}
	for n := range 30 {
		r.Set("part", about, append(slices.Clone(own), Notice{Reason: "HostOfThis", Message: fmt.Sprint("Ingress bb/", n, " asks"), ByOthers: true})...)
		r.Set("part", about, own...)
	}
	if of := log.Count("reason=BackendNotFound"); of != maxNotices {
		t.Errorf("a new finding of its own has %d lines", of-4)
	}
}

// K3, K5 of the contract's tenants.md: what is kept of a finding is bounded, whatever it quotes.
func TestFindingsHaveAnEnd(t *testing.T) {
	long := Notice{Reason: "NotTranslated", Message: strings.Repeat("x", 1<<20)}
	for n, want := range map[int]string{1: "x…", 9: "x…; and 4 more such findings"} {
		kept := bounded(slices.Repeat([]Notice{long}, n))
		last := kept[len(kept)-1].Message
		if len(kept) != min(n, maxNotices) || len(last) > maxDetail+100 || !strings.HasSuffix(last, want) {
			t.Errorf("of %d there are %d, the last one of %d bytes", n, len(kept), len(last))
		}
	}
}
