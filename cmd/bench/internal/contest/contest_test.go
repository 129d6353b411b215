// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package contest

import "testing"

func TestJudge(t *testing.T) {
	atMost, atLeast, nothing := Budget{AtMost: 10}, Budget{AtLeast: 100}, Budget{Nothing: true}
	for _, c := range []struct {
		budget Budget
		figure float64
		want   Verdict
	}{
		{Budget{}, 1e9, NoBudget},
		{atMost, 0, Met}, {atMost, 10, Met}, {atMost, 10.1, Over}, {atMost, 20, Over}, {atMost, 20.1, Red},
		{atLeast, 1e6, Met}, {atLeast, 100, Met}, {atLeast, 99, Over}, {atLeast, 50, Over}, {atLeast, 49, Red}, {atLeast, 0, Red},
		{nothing, 0, Met}, {nothing, 1, Red}, {nothing, -1, Red},
	} {
		if got := c.budget.Judge(c.figure); got != c.want {
			t.Errorf("%+v says %q of %v, want %q", c.budget, got, c.figure, c.want)
		}
	}
}

func result(budget Budget, ours ...float64) Result {
	r := Result{
		Contest: Contest{
			Measures:    []Measure{{Name: "work", Budget: budget}},
			Contestants: []Contestant{{Name: "peer"}, {Name: "ours", Judged: true}},
		},
		Runs: map[string][]Figures{"peer": {{"work": 1e9}}},
	}
	for _, f := range ours {
		r.Runs["ours"] = append(r.Runs["ours"], Figures{"work": f})
	}
	return r
}

func TestMedian(t *testing.T) {
	for want, rounds := range map[float64][]float64{3: {9, 1, 3}, 4: {1, 5, 3, 9}, 7: {7}} {
		if got, ok := result(Budget{}, rounds...).Median("ours", "work"); !ok || got != want {
			t.Errorf("the median of %v is %v, want %v", rounds, got, want)
		}
	}
	if got, ok := result(Budget{}, 1).Median("ours", "play"); ok {
		t.Errorf("a measure that was left out has the median %v", got)
	}
}

// One round that is off does not make a run red, and a peer never does.
func TestWorst(t *testing.T) {
	met := result(Budget{AtMost: 10}, 5, 6, 500)
	red := result(Budget{AtMost: 10}, 5, 60, 500)
	for want, results := range map[Verdict][]Result{
		NoBudget: {result(Budget{}, 1)},
		Met:      {result(Budget{}, 1), met},
		Over:     {met, result(Budget{AtMost: 10}, 15)},
		Red:      {red, met},
	} {
		if got := Worst(results); got != want {
			t.Errorf("the worst verdict is %q, want %q", got, want)
		}
	}
}

// What must not happen at all must not happen in any round.
func TestNothingAtAll(t *testing.T) {
	once := result(Budget{Nothing: true}, 0, 3, 0)
	if figure, ok := once.Figure("ours", once.Measures[0]); figure != 3 || !ok {
		t.Errorf("the figure is %v, want that of the round in which it happened", figure)
	}
	if got := Worst([]Result{once}); got != Red {
		t.Errorf("it happened once, and the verdict is %q", got)
	}
	if got := Worst([]Result{result(Budget{Nothing: true}, 0, 0)}); got != Met {
		t.Errorf("it did not happen, and the verdict is %q", got)
	}
}

func TestNothingGoesUnjudged(t *testing.T) {
	measures := []Measure{{Name: "time"}, {Name: "bytes"}}
	if err := (Figures{"time": 1, "bytes": 0}).complete(measures); err != nil {
		t.Error(err)
	}
	if err := (Figures{"time": 1}).complete(measures); err == nil {
		t.Error("bytes were not measured, and nobody says so")
	}
}
