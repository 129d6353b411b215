// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package contest

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Result is all rounds of a contest.
type Result struct {
	Contest
	Runs map[string][]Figures // by contestant, in the order of the rounds
}

// Runner runs contests.
type Runner struct {
	Rounds   int
	Args     []string     // of the child processes, for them to call Child with the same contests
	Progress func(string) // called before each step
}

// Run does the rounds of all contests. In each round every contestant has its
// turn once; the next round goes the other way round, so that none always
// follows the same one. On an error the results so far come with it.
func (r Runner) Run(ctx context.Context, contests []Contest) ([]Result, error) {
	results := make([]Result, len(contests))
	for i, c := range contests {
		results[i] = Result{Contest: c, Runs: map[string][]Figures{}}
	}
	for round := range r.Rounds {
		for i, c := range contests {
			order := slices.Clone(c.Contestants)
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, who := range order {
				r.Progress(fmt.Sprintf("round %d of %d, %s: %s", round+1, r.Rounds, c.Name, who.Name))
				figures, err := r.runOne(ctx, c, who)
				if err != nil {
					return results, fmt.Errorf("%s: %s: %w", c.Name, who.Name, err)
				}
				results[i].Runs[who.Name] = append(results[i].Runs[who.Name], figures)
			}
		}
	}
	return results, nil
}

// A run that hangs is ended, first by itself, since it can say why.
const (
	runLimit  = 5 * time.Minute
	killLimit = runLimit + 10*time.Second
)

func (r Runner) runOne(ctx context.Context, c Contest, who Contestant) (Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	url := ""
	if c.Pods > 0 {
		server, err := r.startServer(ctx, c.Pods)
		if err != nil {
			return nil, err
		}
		defer server.stop()
		url = server.url
	}
	figures, err := r.measure(ctx, c.Name, who.Name, url)
	if err == nil && who.Judged {
		err = figures.complete(c.Measures)
	}
	return figures, err
}

// complete makes sure that nothing goes unjudged.
func (f Figures) complete(measures []Measure) error {
	for _, m := range measures {
		if _, ok := f[m.Name]; !ok {
			return fmt.Errorf("it has not measured %q", m.Name)
		}
	}
	return nil
}

// All returns the figures of a contestant in all rounds that have them.
func (r Result) All(contestant, measure string) (all []float64) {
	for _, figures := range r.Runs[contestant] {
		if f, ok := figures[measure]; ok {
			all = append(all, f)
		}
	}
	return all
}

// Median returns the median of a contestant's rounds, and whether there is one.
func (r Result) Median(contestant, measure string) (float64, bool) {
	all := r.All(contestant, measure)
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	middle := len(all) / 2
	if len(all)%2 == 0 {
		return (all[middle-1] + all[middle]) / 2, true
	}
	return all[middle], true
}

// Figure returns what stands for a contestant's rounds, and whether there is
// something: the median, but for what must not happen at all, the most.
func (r Result) Figure(contestant string, m Measure) (float64, bool) {
	if all := r.All(contestant, m.Name); m.Budget.Nothing && len(all) > 0 {
		return slices.Max(all), true
	}
	return r.Median(contestant, m.Name)
}

// Verdict judges the figure of the contestant that is judged.
func (r Result) Verdict(m Measure) Verdict {
	for _, who := range r.Contestants {
		if who.Judged {
			if figure, ok := r.Figure(who.Name, m); ok {
				return m.Budget.Judge(figure)
			}
		}
	}
	return NoBudget
}

// Worst returns the worst verdict of all results.
func Worst(results []Result) Verdict {
	order := []Verdict{NoBudget, Met, Over, Red}
	worst := 0
	for _, r := range results {
		for _, m := range r.Measures {
			worst = max(worst, slices.Index(order, r.Verdict(m)))
		}
	}
	return order[worst]
}
