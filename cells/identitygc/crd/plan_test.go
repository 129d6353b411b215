// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"slices"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func object(name, mark string) *ciliumio.Identity {
	i := &ciliumio.Identity{}
	i.Name, i.UID = name, slim.ParseUID(name)
	if mark != "" {
		i.Annotations.Labels = slim.MakeLabels(map[string]string{annotation: mark})
	}
	return i
}

var usual = gcPolicy{own: identity.RangeOf(0, 255), interval: 15 * time.Minute, timeout: 30 * time.Minute, scarceFrom: scarceFrom}

// IDGC-6 to IDGC-9.
func TestJudge(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) string { return now.Add(-d).Format(time.RFC3339Nano) }
	for name, c := range map[string]struct {
		used   bool
		unused time.Duration // as this process has seen it, -1 if it has not
		mark   string
		want   decision
	}{
		"in use":                          {used: true, unused: -1, want: keep},
		"in use, and marked":              {used: true, unused: time.Hour, mark: ago(time.Hour), want: unmark},
		"in use, and marked with nothing": {used: true, unused: -1, mark: "?", want: unmark},
		"first sight":                     {unused: -1, want: wait},
		"not for an interval":             {unused: 15*time.Minute - 1, want: wait},
		"for an interval":                 {unused: 15 * time.Minute, want: mark},
		"marked, first sight":             {unused: -1, mark: ago(48 * time.Hour), want: wait},
		"marked, not for an interval":     {unused: 14 * time.Minute, mark: ago(48 * time.Hour), want: wait},
		"marked, not for the timeout":     {unused: 29 * time.Minute, mark: ago(30*time.Minute - time.Second), want: wait},
		"marked for the timeout":          {unused: 15 * time.Minute, mark: ago(30 * time.Minute), want: garbage},
		"marked by a clock that is ahead": {unused: time.Hour, mark: ago(-10 * time.Minute), want: wait},
		"far ahead":                       {unused: time.Hour, mark: ago(-16 * time.Minute), want: mark},
		"marked with no time":             {unused: time.Hour, mark: "soon", want: mark},
		"of the original, in its zone":    {unused: time.Hour, mark: now.Add(-time.Hour).In(time.FixedZone("", 7200)).Format(time.RFC3339Nano), want: garbage},
	} {
		since := time.Time{}
		if c.unused >= 0 {
			since = now.Add(-c.unused)
		}
		if got := usual.decide(object("1001", c.mark), c.used, since, now); got != c.want {
			t.Errorf("%s: decision %d, want %d", name, got, c.want)
		}
	}
}

// IDGC-8: the wall clock jumps an hour ahead, two minutes after the mark; the
// monotonic clock does not.
func TestClockJumps(t *testing.T) {
	marked := time.Now()
	i := object("1001", marked.Add(-time.Hour).Format(time.RFC3339Nano)) // as it looks after the jump
	seen := marked.Add(time.Minute)
	for passed, want := range map[time.Duration]decision{2 * time.Minute: wait, 15 * time.Minute: wait, 16 * time.Minute: garbage} {
		if got := usual.decide(i, false, seen, marked.Add(passed)); got != want {
			t.Errorf("after %s: decision %d, want %d", passed, got, want)
		}
	}
}

// IDGC-21: from 80 % on numbers are scarce, and each time is a minute at most.
func TestScarcePolicy(t *testing.T) {
	for identities, want := range map[int]bool{0: false, 52_223: false, 52_224: true, 65_280: true} {
		if got := usual.isScarce(identities); got != want {
			t.Errorf("%d identities of %d numbers are scarce: %t", identities, usual.own.Size(), got)
		}
	}
	for given, want := range map[gcPolicy]gcPolicy{
		usual: {usual.own, time.Minute, time.Minute, scarceFrom},
		{interval: time.Second, timeout: time.Hour}:      {interval: time.Second, timeout: time.Minute},
		{interval: time.Hour, timeout: time.Millisecond}: {interval: time.Minute, timeout: time.Millisecond},
	} {
		if got := given.whileScarce(); got != want {
			t.Errorf("of %v it makes %v, want %v", given, got, want)
		}
	}
}

// IDGC-3 and IDGC-5.
func TestSurvey(t *testing.T) {
	now := time.Now()
	old := now.Add(-time.Hour)
	mark := old.Format(time.RFC3339Nano)
	all := []*ciliumio.Identity{
		object("300", ""), object("301", mark), object("302", ""), object("303", mark), object("304", mark), object("foo", mark), object("65536", mark), object("255", ""),
	}
	used := func(n identity.Number) bool { return n <= 301 }
	since := func(key id) time.Time {
		if key.name == "304" {
			return time.Time{}
		}
		return old
	}
	s, next := usual.scan(slices.Values(all), used, since, history{slim.ParseUID("302"): {marked: true, unmarks: 2}}, now)
	var candidates, writes []string
	for _, c := range s.Candidates {
		if c.Wait {
			c.Key.name += " waits"
		}
		candidates = append(candidates, c.Key.name)
	}
	for _, i := range s.writes {
		writes = append(writes, i.Name)
	}
	for what, c := range map[string][2][]string{
		"candidates": {candidates, {"302 waits", "303", "304 waits"}},
		"writes":     {writes, {"301", "302"}},
		"odd":        {s.misnamed, {"foo"}},
		"contested":  {s.contested, {"302"}},
	} {
		if !slices.Equal(c[0], c[1]) {
			t.Errorf("%s are %q, want %q", what, c[0], c[1])
		}
	}
	if s.count != 8 || s.Total != 5 || s.foreign != 2 || s.marked != 3 {
		t.Errorf("counts are %d, %d, %d, %d", s.count, s.Total, s.foreign, s.marked)
	}
	if len(next) != 3 || next[slim.ParseUID("302")] != (flaps{unmarks: 3}) || next[slim.ParseUID("303")] != (flaps{marked: true}) {
		t.Errorf("remembered is %v", next)
	}
}

func TestHistory(t *testing.T) {
	a, b := slim.ParseUID("a"), slim.ParseUID("b")
	h := history{a: {unmarks: 1}, b: {marked: true, unmarks: 2}}
	h.update([]slim.UID{a}, []slim.UID{b})
	if len(h) != 1 || h[a] != (flaps{marked: true, unmarks: 1}) {
		t.Errorf("remembered is %v", h)
	}
}

// IDGC-4: whether an identity is marked has to be known; its labels do not matter.
func TestJudgeWhatCannotBeDecoded(t *testing.T) {
	codec, err := slim.JSON[ciliumio.Identity]()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for text, want := range map[string]decision{
		`{"metadata":{"name":"1001","annotations":"none"}}`:                    keep,
		`{"metadata":{"name":"1001","annotations":{"io.cilium.heartbeat":7}}}`: keep,
		`{"metadata":{"name":"1001"},"security-labels":{"k8s:app":7}}`:         mark,
	} {
		i := &ciliumio.Identity{}
		if err := codec.DecodeJSON([]byte(text), i); err != nil {
			t.Fatal(err)
		}
		if got := usual.decide(i, false, now.Add(-time.Hour), now); got != want {
			t.Errorf("%s: decision %d, want %d", text, got, want)
		}
	}
}
