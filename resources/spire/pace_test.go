// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skep-operator/skep/resources/spire/spiretest"
)

// SPIRE-20: S3 of the contract's mutual-auth.md. What an answer makes of the pace.
func TestPace(t *testing.T) {
	const quick, fair, slow, late = time.Second / 2, 3 * time.Second, 5 * time.Second, 30 * time.Second
	for _, c := range []struct {
		from   pace
		lasted time.Duration
		full   bool
		want   pace
	}{
		{slowStart, quick, true, pace{calls: 2, entries: 50, before: quick}},
		{slowStart, quick, false, slowStart},
		{slowStart, fair, true, slowStart},
		{pace{calls: 1, entries: 50, rest: 2}, quick, true, pace{calls: 1, entries: 50, rest: 1}},
		{pace{calls: 1, entries: 50, rest: 1}, quick, true, pace{calls: 2, entries: 50, before: quick}},
		{pace{calls: 2, entries: 50, before: quick}, quick, true, pace{calls: 2, entries: 50, before: quick, answers: 1, lasted: quick}},
		{pace{calls: 2, entries: 50, before: quick, answers: 1, lasted: quick}, quick, true, pace{calls: 3, entries: 50, before: quick}},
		{pace{calls: 2, entries: 50, before: quick, answers: 1, lasted: 2 * quick}, 2 * quick, true, pace{calls: 1, entries: 50, rest: trialAfter}},
		{pace{calls: 2, entries: 50, before: quick, answers: 1, lasted: 3 * quick}, 3 * quick, true, pace{calls: 1, entries: 50, rest: trialAfter}},
		{pace{calls: 4, entries: 50, before: quick, answers: 3, lasted: 3 * quick}, quick, true, pace{calls: 4, entries: 50, rest: trialAfter}},
		{pace{calls: 4, entries: 50, rest: 2, answers: 3, lasted: 3 * quick}, quick, true, pace{calls: 4, entries: 50, rest: 1}},
		{pace{calls: 4, entries: 50, rest: 1, answers: 3, lasted: 3 * quick}, quick, true, slowStart},
		{pace{calls: 2, entries: 50, before: fair, answers: 1, lasted: fair}, fair, true, pace{calls: 2, entries: 50, rest: trialAfter}},
		{pace{calls: 4, entries: 50}, slow, false, pace{calls: 2, entries: 50, rest: trialAfter}},
		{slowStart, slow, false, pace{calls: 1, entries: 25}},
		{pace{calls: 1, entries: 25}, fair, true, pace{calls: 1, entries: 25}},
		{pace{calls: 1, entries: 25}, quick, true, pace{calls: 1, entries: 30}},
		{pace{calls: 1, entries: 48}, quick, true, pace{calls: 1, entries: 50}},
		{pace{calls: 4, entries: 50}, late, true, pace{calls: 1, entries: 25}},
		{pace{calls: 1, entries: 1}, late, true, pace{calls: 1, entries: 1}},
	} {
		if got := c.from.after(c.lasted, c.full, usualPatience); got != c.want {
			t.Errorf("%+v after %s (full: %t): %+v, want %+v", c.from, c.lasted, c.full, got, c.want)
		}
	}
}

// SPIRE-20: S3 of the contract's mutual-auth.md. Calls that were made at once show one thing, and not one thing each; calls that fail show nothing.
func TestPacer(t *testing.T) {
	p := newPacer(usualPatience)
	p.pace = pace{calls: 4, entries: 50}
	begin := func() (turns []turn) {
		for range p.pace.calls {
			next, err := p.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			turns = append(turns, next)
		}
		return turns
	}
	turns := begin()
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	if _, err := p.begin(canceled); err == nil || err.Error() != "over" {
		t.Errorf("a fifth call: %v", err)
	}
	for _, next := range turns {
		p.end(next, 50, status.Error(codes.DeadlineExceeded, "late"))
	}
	if want := (pace{calls: 1, entries: 25}); p.pace != want {
		t.Errorf("after four that were late: %+v, want %+v", p.pace, want)
	}
	for _, next := range begin() {
		p.end(next, 25, status.Error(codes.Unavailable, "away"))
	}
	if want := (pace{calls: 1, entries: 25}); p.pace != want {
		t.Errorf("after a failure: %+v, want %+v", p.pace, want)
	}
	for _, next := range begin() {
		p.end(next, 25, nil)
	}
	if want := (pace{calls: 1, entries: 30}); p.pace != want {
		t.Errorf("after an answer: %+v, want %+v", p.pace, want)
	}
}

// scaled is the usual patience with a server whose costs are divided by scale.
func scaled(scale time.Duration) patience {
	p := usualPatience
	return patience{call: p.call / scale, slow: p.slow / scale, quick: p.quick / scale, attempt: p.attempt / scale}
}

// numbered are paths of a registrar.
func numbered(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("/a/%06d", i)
	}
	return all
}

// SPIRE-20: S3 of the contract's mutual-auth.md. A server that makes changes at once gets as many calls as there may be.
func TestServersThatAreQuick(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	s.CostEach(100 * time.Millisecond) // so long that all of them meet, on a busy machine as well
	all := numbered(1500)
	r := newRig(t, s, all...)
	r.start()
	r.eventually("all have entries", func() bool { return s.Len() == len(all) })
	if n := s.MostCreating(); n != parallel {
		t.Errorf("%d calls at once", n)
	}
}

// SPIRE-20: S3 of the contract's mutual-auth.md. A server that gets as many calls as it answers in time creates all entries, however many it has: where four calls
// at once would all time out, there is one at a time, which has fewer entries.
func TestServersOfAnySpeed(t *testing.T) {
	const scale = 10
	for others, atOnce := range map[int]bool{2_000: true, 50_000: false, 100_000: false} {
		t.Run(fmt.Sprint(others, " entries"), func(t *testing.T) {
			s := spiretest.Start(t, "spiffe.cilium")
			s.CostAsSQLite(scale, others)
			all := numbered(200)
			r := newRig(t, s, all...)
			r.connection.pacer.patience = scaled(scale)
			r.start()
			r.eventually("all have entries", func() bool { return s.Len() == len(all) })
			if calls := s.Calls(); calls["ListEntries"] != 1 {
				t.Errorf("a call has timed out: %v", calls)
			}
			if n := s.MostCreating(); n > 1 != atOnce {
				t.Errorf("%d calls at once", n)
			}
			if n := s.Calls()["BatchCreateEntry"]; others == 100_000 && n <= len(all)/batchSize {
				t.Errorf("%d calls, none of which has fewer entries", n)
			}
		})
	}
}

// requestsWith is how many calls create the entry of a path.
func requestsWith(s *spiretest.Server, path string) (n int) {
	for _, request := range s.Requests("BatchCreateEntry") {
		n += strings.Count(request, `"`+path+`"`)
	}
	return n
}

// SPIRE-20: S3 of the contract's mutual-auth.md. A call that does not end costs no other its answer, and one entry that is to blame keeps no other from being created. What the call
// has left in doubt is compared once the rest is done.
func TestACallThatHangs(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	all := numbered(100)
	hanging := all[25]
	s.Hang(hanging, true)
	r := newRig(t, s, all...)
	r.connection.pacer.patience.call = 200 * time.Millisecond
	r.connection.pacer.pace = pace{calls: 4, entries: 10}
	r.start()
	r.eventually("all others have entries", func() bool { return s.Len() == len(all)-1 })
	for _, answered := range []string{all[0], all[10], all[99]} {
		if n := requestsWith(s, answered); n != 1 {
			t.Errorf("%s is created %d times", answered, n)
		}
	}
	r.eventually("health names it", func() bool { return strings.Contains(r.degraded(), "refuses 1 entries, that of "+hanging) })
	if n := s.Calls()["ListEntries"]; n > 2 {
		t.Errorf("all are listed %d times", n)
	}
	s.Hang(hanging, false)
	r.eventually("it has an entry", func() bool { return s.Len() == len(all) })
	r.eventually("it is healthy", func() bool { return r.degraded() == "" })
	if n := s.Calls()["BatchDeleteEntry"]; n > 0 {
		t.Errorf("%d calls delete something", n)
	}
}

// SPIRE-22: S3 of the contract's mutual-auth.md. A count that does not come in time fails nothing, and a page that does not is asked for again, smaller; the pages before it count.
func TestReadsThatHang(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	all := numbered(900)
	for _, path := range all {
		s.Put(entryOf(path))
	}
	s.HangCall("ListEntries", 2)
	s.HangCall("CountEntries", 1)
	r := newRig(t, s, all...)
	r.server.pageSize, r.CountInterval = 400, 20*time.Millisecond
	r.connection.pacer.patience.call = time.Second
	r.start()
	r.eventually("all are known", func() bool { return r.metric(StatePresent) == float64(len(all)) })
	if calls := s.Calls(); calls["ListEntries"] != 1+1+3 || s.Changes() > 0 {
		t.Errorf("the calls are %v", calls) // 400, 400 in vain, 200, 200, 100
	}
	r.eventually("it is healthy", func() bool { return r.degraded() == "" })
}
