// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// SPIRE-11; SPIRE-E5.
func TestParseService(t *testing.T) {
	for address, want := range map[string]string{
		"spire-server.spire.svc:8081":                  "spire/spire-server:8081",
		"spire-server.cilium-spire.svc:8081":           "cilium-spire/spire-server:8081",
		"spire-server.spire.svc.cluster.local:8081":    "spire/spire-server:8081",
		"spire-server.spire.svc.cluster.example.:8081": "spire/spire-server:8081",
		"spire.example.com:8081":                       "",
		"spire-server.spire:8081":                      "",
		"10.96.0.7:8081":                               "",
		"[fd00::7]:8081":                               "",
		"localhost:8081":                               "",
	} {
		namespace, name, port, ok := parseService(address)
		if got := fmt.Sprintf("%s/%s:%s", namespace, name, port); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s, %t", address, got, ok)
		}
	}
}

// SPIRE-5 to SPIRE-7.
func TestCompare(t *testing.T) {
	states := map[int]State{300: Wanted, 301: Wanted, 302: Unwanted, 303: Unwanted, 304: Unknown, 305: Unknown}
	at := entries[int]{301: {"a"}, 303: {"b", "c"}, 305: {"d"}}
	state := func(n int) State { return states[n] }
	got := compare(slices.Values([]int{305, 303, 301, 300, 302, 304, 300}), state, at)
	want := changes[int]{create: []int{300}, remove: []removal[int]{{303, "b"}, {303, "c"}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(changes[int]{}, removal[int]{})); diff != "" {
		t.Error(diff)
	}
	if !compare(maps.Keys(map[int]bool{301: true, 302: true}), state, at).none() {
		t.Error("there is something to do")
	}
}

// SPIRE-20. What a call has left unanswered comes last, in calls of its own with fewer entries.
func TestBatch(t *testing.T) {
	most := map[int]int{301: 1, 303: 2, 304: 2, 305: 2, 311: 1}
	mostOf := func(n int) int { return most[n] }
	all := changes[int]{create: []int{300, 301, 302, 303, 304, 305}, remove: []removal[int]{{310, "a"}, {311, "b"}, {312, "c"}}}
	w := newTurns[int](nil).arrange(all, func(int) uint64 { return 0 }, func(n int) bool { return most[n] > 0 })
	var got []string
	for !w.none() {
		next := w.next(10, mostOf)
		got = append(got, fmt.Sprint(len(next.create), len(next.remove), next.keys()))
	}
	if want := []string{"2 0 [300 302]", "0 2 [310 312]", "1 0 [301]", "0 1 [311]", "2 0 [303 304]", "1 0 [305]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	first, rest := changes[int]{create: []int{300, 302, 304}}.batch(2, func(int) int { return 0 }, true)
	if len(first.create) != 2 || len(rest.create) != 1 {
		t.Errorf("%v and %v", first, rest)
	}
}

// SPIRE-9.
func TestRefusal(t *testing.T) {
	now := time.Unix(0, 0)
	var r refusal
	var pauses []time.Duration
	for range 12 {
		r = r.again(errors.New("no"), now)
		pauses = append(pauses, r.until.Sub(now))
	}
	if pauses[0] != time.Second || pauses[3] != 8*time.Second || pauses[11] != 5*time.Minute {
		t.Errorf("the pauses are %v", pauses)
	}
}
