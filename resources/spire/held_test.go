// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/spire/spiretest"
)

// SPIRE-13: S9 of the contract's mutual-auth.md. That stale entries are kept, since they are too many, is in the log once, however often all are compared.
func TestHeldPrune(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	stale := func() {
		for i := range 20 {
			s.Put(entryOf(fmt.Sprint("/a/stale", i)))
		}
	}
	stale()
	r := newRig(t, s, "/a/1")
	r.Interval, r.deps.MaxShare = 20*time.Millisecond, 0.5
	r.start()
	const words = "so many registration entries should not exist"
	r.eventually("it is in the log and in health", func() bool {
		return r.log.Count(words) == 1 && strings.Contains(r.degraded(), "20 of 21 registration entries should not exist, none is deleted")
	})
	lists := s.Calls()["ListEntries"]
	r.eventually("all are compared three times more", func() bool { return s.Calls()["ListEntries"] > lists+3 })
	if n := r.log.Count(words); n != 1 {
		t.Errorf("%d warnings", n)
	}
	if r.metric(StateForeign) != 0 || r.metric(StatePresent) != 21 {
		t.Errorf("%v of 21 are foreign", r.metric(StateForeign))
	}
	s.Wipe()
	r.eventually("it is healthy", func() bool { return s.Len() == 1 && r.degraded() == "" })
	stale()
	r.eventually("it is in the log again", func() bool { return r.log.Count(words) == 2 })
}

// SPIRE-9: S9 of the contract's mutual-auth.md. An entry that the server refuses has its pause, however often all are compared, and whatever happens to what it is for; one that is not
// wanted any more is not refused.
func TestPauseOfARefusedEntry(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	s.Refuse("/a/2", codes.InvalidArgument)
	r := newRig(t, s, "/a/1", "/a/2")
	r.Interval = 10 * time.Millisecond
	began := time.Now()
	r.start()
	r.eventually("it is refused", func() bool { return r.metric(StateRefused) == 1 && r.has("/a/1") })
	for lists := s.Calls()["ListEntries"]; s.Calls()["ListEntries"] < lists+20; {
		r.Enqueue(k8s.Trigger{}, "/a/2")
		time.Sleep(5 * time.Millisecond) // a pace, not a wait
	}
	if n, most := requestsWith(s, "/a/2"), 1+int(time.Since(began)/firstRetry); n > most {
		t.Errorf("it is created %d times, at most %d by its pauses", n, most)
	}
	r.paths.set("/a/2", false)
	r.Enqueue(k8s.Trigger{}, "/a/2")
	r.eventually("it is not refused any more", func() bool { return r.metric(StateRefused) == 0 && r.degraded() == "" })
}
