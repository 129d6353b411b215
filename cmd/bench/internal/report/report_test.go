// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package report

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

func TestFigure(t *testing.T) {
	for want, f := range map[string]struct {
		value float64
		unit  string
	}{
		"0":           {0, ""},
		"0.0004":      {.0004, ""},
		"0.25 µs":     {.25, "µs"},
		"12.7×":       {12.68, "×"},
		"412 B":       {412.4, "B"},
		"1,234 MB":    {1234.4, "MB"},
		"1,500,000/s": {1.5e6, "/s"},
		"100,000":     {1e5, ""},
		"4.21 ms":     {4.214, "ms"},
	} {
		if got := figure(f.value, f.unit); got != want {
			t.Errorf("figure(%v, %q) = %q, want %q", f.value, f.unit, got, want)
		}
	}
}

func sample() Report {
	return Report{
		Machine: Machine{CPU: "a CPU", CPUs: 2, Memory: "1 kB", System: "linux/amd64", Go: "go1", Peers: map[string]string{"go.uber.org/dig": "v1"}},
		Rounds:  1,
		Results: []contest.Result{{
			Contest: contest.Contest{
				Name: "work", Title: "Some work", Note: "How.",
				Measures: []contest.Measure{
					{Name: "time", Unit: "ms", Budget: contest.Budget{AtMost: 5}}, {Name: "speed", Unit: "/s", Budget: contest.Budget{AtLeast: 10}},
				},
				Contestants: []contest.Contestant{{Name: "peer"}, {Name: "ours", Judged: true}},
			},
			Runs: map[string][]contest.Figures{"peer": {{"time": 40}}, "ours": {{"time": 6, "speed": 4}}},
		}},
	}
}

func TestMarkdown(t *testing.T) {
	var out strings.Builder
	if err := Markdown(&out, sample()); err != nil {
		t.Fatal(err)
	}
	const want = `### Some work

How.

|  | peer | ours | budget | verdict |
|---|---|---|---|---|
| time | 40 ms | 6 ms | ≤ 5 ms | over |
| speed | – | 4/s | ≥ 10/s | RED |
`
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got\n%s\nwant it to end with\n%s", out.String(), want)
	}
}

func TestText(t *testing.T) {
	var out strings.Builder
	if err := Text(&out, sample()); err != nil {
		t.Fatal(err)
	}
	const want = `
       peer   ours  budget  verdict
time   40 ms  6 ms  ≤ 5 ms  over
speed  –      4/s   ≥ 10/s  RED
`
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got\n%s\nwant it to end with\n%s", out.String(), want)
	}
}

func TestJSON(t *testing.T) {
	var out strings.Builder
	if err := JSON(&out, sample()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Results []struct {
			Measures []struct {
				Name, Verdict string
				Runs          []struct {
					Contestant string
					Median     float64
					Rounds     []float64
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	time := got.Results[0].Measures[0]
	if time.Name != "time" || time.Verdict != "over" || len(time.Runs) != 2 || time.Runs[1].Contestant != "ours" || time.Runs[1].Rounds[0] != 6 {
		t.Errorf("got %+v", time)
	}
}
