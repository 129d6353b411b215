// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func candidates(keys ...string) []Candidate[string, int] {
	var all []Candidate[string, int]
	for _, k := range keys {
		all = append(all, Candidate[string, int]{Key: k})
	}
	return all
}

func keys(all []Candidate[string, int]) []string {
	var keys []string
	for _, c := range all {
		keys = append(keys, c.Key)
	}
	return keys
}

// Any history of scans, against what is promised of each candidate: it is due
// when the last so many scans in a row found it, the first of the row a grace ago.
func TestLook(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := thresholds{sightings: 1 + r.IntN(3), grace: time.Duration(r.IntN(4)) * time.Minute}
		var seen sightings[string]
		now := epoch
		row := map[string][]time.Time{} // scans in a row that found a key
		for step := range 20 {
			now = now.Add(time.Duration(r.IntN(120)) * time.Second)
			var found []string
			for _, k := range []string{"a", "b", "c", "d"} {
				if r.IntN(3) > 0 {
					found = append(found, k)
					row[k] = append(row[k], now)
				} else {
					delete(row, k)
				}
			}
			r.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
			if len(found) > 0 && r.IntN(4) == 0 {
				found = append(found, found[0]) // twice in one scan is one sighting
			}
			next, due, ripens := updateSightings(seen, candidates(found...), now, p)
			seen = next
			var want []string
			var wantRipens time.Time
			for k, times := range row {
				ripe := times[0].Add(p.grace)
				switch {
				case len(times) >= p.sightings && !now.Before(ripe):
					want = append(want, k)
				case now.Before(ripe) && (wantRipens.IsZero() || ripe.Before(wantRipens)):
					wantRipens = ripe
				}
			}
			got := slices.Sorted(slices.Values(keys(due)))
			slices.Sort(want)
			if !slices.Equal(got, want) || !ripens.Equal(wantRipens) || len(seen) != len(row) {
				t.Fatalf("seed %d, step %d: due %v, want %v; ripens %s, want %s; %d remembered, want %d",
					seed, step, got, want, ripens, wantRipens, len(seen), len(row))
			}
		}
	}
}

func TestStill(t *testing.T) {
	again := candidates("c", "b", "x", "b")
	again[1].Object = 7
	both := intersect(candidates("a", "b", "c"), again)
	if got := fmt.Sprint(keys(both)); got != "[c b]" || both[1].Object != 7 {
		t.Errorf("still there are %v: %v", got, both)
	}
}

func TestImplausible(t *testing.T) {
	for _, test := range []struct {
		due, total int
		share      float64
		want       bool
	}{
		{10, 10, 0.5, false}, // few
		{11, 11, 0.5, true},
		{11, 22, 0.5, false},
		{12, 23, 0.5, true},
		{5000, 5000, 1, false},
		{11, 1000000, 0, true},
		{11, 0, 0.5, true}, // a total that is wrong is no excuse
	} {
		if got := Implausible(test.due, test.total, test.share); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}

// K7 of the contract's tenants.md: what one namespace deletes at once does not stop the collection for others. Where too much of others looks like garbage,
// too, as in a view that is not complete, nothing is deleted.
func TestApart(t *testing.T) {
	of := func(counts map[string]int) (due []Candidate[string, string]) {
		for namespace, n := range counts {
			for i := range n {
				due = append(due, Candidate[string, string]{Key: fmt.Sprint(namespace, i), Object: namespace})
			}
		}
		return due
	}
	for name, test := range map[string]struct {
		due        map[string]int
		total      int
		rest       int
		namespaces string
		believed   bool
	}{
		"one namespace":         {map[string]int{"bb": 3000, "aa": 20, "": 5}, 4500, 25, "bb", true},
		"that alone":            {map[string]int{"bb": 3000}, 4500, 0, "bb", true},
		"nothing is seen":       {map[string]int{"bb": 3000, "aa": 1000, "": 500}, 4500, 0, "", false},
		"few, and all of those": {map[string]int{"bb": 4490, "aa": 10}, 4500, 0, "", false},
		"of no namespace":       {map[string]int{"": 3000}, 4500, 0, "", false},
		"of equal size":         {map[string]int{"bb": 1000, "aa": 1000}, 3000, 1000, "aa", true},
		"a tenant has two":      {map[string]int{"bb1": 400, "bb2": 300, "aa": 30}, 1000, 30, "bb1 bb2", true},
		"five":                  {map[string]int{"b1": 100, "b2": 100, "b3": 100, "b4": 100, "b5": 100, "aa": 20}, 580, 20, "b1 b2 b3 b4 b5", true},
		"more":                  {map[string]int{"b1": 100, "b2": 100, "b3": 100, "b4": 100, "b5": 100, "b6": 100, "aa": 20}, 680, 0, "", false},
		"nearly all":            {map[string]int{"b1": 500, "b2": 400, "aa": 1}, 920, 0, "", false},
	} {
		rest, namespaces, believed := apart(of(test.due), test.total, 0.5, func(namespace string) string { return namespace })
		if believed != test.believed || strings.Join(namespaces, " ") != test.namespaces || len(rest) != test.rest {
			t.Errorf("%s: %d of others, without %q, believed: %t", name, len(rest), namespaces, believed)
		}
	}
	for text, namespaces := range map[string][]string{
		"nothing is deleted; if": nil,
		"nothing is deleted in the namespace bb, which has them all; if":             {"bb"},
		"nothing is deleted in the namespace bb and 2 more, which have them all; if": {"bb", "b2", "b3"},
	} {
		if err := (&limitError{700, 1000, namespaces, 0}).Error(); !strings.Contains(err, text) {
			t.Error(err)
		}
	}
	if err := (&limitError{700, 1000, []string{"bb"}, 9}).Error(); !strings.Contains(err, "hard to believe: 9 at a time are deleted in the namespace bb, which has them all; if") {
		t.Error(err)
	}
	if _, _, believed := apart(of(map[string]int{"bb": 11}), 12, 0.5, nil); believed {
		t.Error("without namespaces all are one")
	}
}

func TestPauses(t *testing.T) {
	const interval = 5 * time.Minute
	for _, test := range []struct {
		what      string
		got, want time.Duration
	}{
		{"nothing waits", nextPause(interval, epoch, time.Time{}), interval},
		{"something ripens", nextPause(interval, epoch, epoch.Add(time.Minute)), time.Minute},
		{"it ripens later", nextPause(interval, epoch, epoch.Add(time.Hour)), interval},
		{"it has ripened meanwhile", nextPause(interval, epoch.Add(time.Hour), epoch), 0},
		{"first failure", failurePause(1, interval), time.Second},
		{"third failure", failurePause(3, interval), 3 * time.Second},
		{"many failures", failurePause(1000, interval), interval},
		{"many failures of a single sweep", failurePause(1000, 0), time.Minute},
	} {
		if test.got != test.want {
			t.Errorf("%s: %s, want %s", test.what, test.got, test.want)
		}
	}
}

// What a delete did is read from the API server's word about that object alone.
func TestOutcomes(t *testing.T) {
	other := schema.GroupResource{Group: "example.com", Resource: "things"}
	for name, test := range map[string]struct {
		err  error
		want Outcome
	}{
		"success":         {nil, Deleted},
		"gone":            {fmt.Errorf("deleting: %w", apierrors.NewNotFound(things, "x")), Gone},
		"changed":         {apierrors.NewConflict(things, "x", errors.New("it")), Changed},
		"not served":      {apierrors.NewGenericServerResponse(404, "delete", things, "x", "404 page not found", 0, true), Failed},
		"a proxy's 409":   {apierrors.NewGenericServerResponse(409, "delete", things, "x", "conflict", 0, true), Failed},
		"another is gone": {apierrors.NewNotFound(things, "y"), Failed},
		"of another kind": {apierrors.NewNotFound(other, "x"), Failed},
		"no details":      {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404}}, Failed},
	} {
		got, err := OutcomeOf(test.err, aThing("x"))
		if got != test.want || (err != nil) != (test.want == Failed) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
