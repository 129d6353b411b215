// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// Report is all that a run has found.
type Report struct {
	Machine Machine
	Rounds  int
	// Method says how the figures came about, if not as those of contest.Runner.
	Method  string
	Results []contest.Result
}

// Formats are the ways to write a report.
var Formats = map[string]func(io.Writer, Report) error{"text": Text, "markdown": Markdown, "json": JSON}

// table is a result in cells: the first row is the head.
func table(r contest.Result) [][]string {
	head := []string{""}
	for _, who := range r.Contestants {
		head = append(head, who.Name)
	}
	rows := [][]string{append(head, "budget", "verdict")}
	for _, m := range r.Measures {
		row := []string{m.Name}
		for _, who := range r.Contestants {
			cell := "–"
			if f, ok := r.Figure(who.Name, m); ok {
				cell = figure(f, m.Unit)
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, budget(m.Budget, m.Unit), string(r.Verdict(m))))
	}
	return rows
}

func (r Report) head() []string {
	if r.Method != "" {
		return append(r.Machine.lines(), r.Method)
	}
	return append(r.Machine.lines(), fmt.Sprintf("Medians of %d interleaved rounds, each run in a process of its own.", r.Rounds))
}

// Text writes for a terminal.
func Text(w io.Writer, r Report) error {
	for _, line := range r.head() {
		fmt.Fprintln(w, line)
	}
	for _, result := range r.Results {
		fmt.Fprintf(w, "\n%s: %s\n%s\n\n", result.Name, result.Title, result.Note)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range table(result) {
			fmt.Fprintln(tw, strings.TrimRight(strings.Join(row, "\t"), "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Markdown writes for a page.
func Markdown(w io.Writer, r Report) error {
	for _, line := range r.head() {
		fmt.Fprintf(w, "%s  \n", line)
	}
	for _, result := range r.Results {
		fmt.Fprintf(w, "\n### %s\n\n%s\n\n", result.Title, result.Note)
		for i, row := range table(result) {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(row)))
			}
		}
	}
	return nil
}

// JSON writes the figures of all rounds.
func JSON(w io.Writer, r Report) error {
	type run struct {
		Contestant string    `json:"contestant"`
		Median     float64   `json:"median"`
		Rounds     []float64 `json:"rounds"`
	}
	type measure struct {
		Name    string          `json:"name"`
		Unit    string          `json:"unit,omitempty"`
		Budget  string          `json:"budget,omitempty"`
		Verdict contest.Verdict `json:"verdict,omitempty"`
		Runs    []run           `json:"runs"`
	}
	type result struct {
		Name     string    `json:"name"`
		Title    string    `json:"title"`
		Measures []measure `json:"measures"`
	}
	out := struct {
		Machine Machine  `json:"machine"`
		Rounds  int      `json:"rounds"`
		Results []result `json:"results"`
	}{r.Machine, r.Rounds, nil}
	for _, res := range r.Results {
		one := result{Name: res.Name, Title: res.Title}
		for _, m := range res.Measures {
			row := measure{Name: m.Name, Unit: m.Unit, Budget: budget(m.Budget, m.Unit), Verdict: res.Verdict(m)}
			for _, who := range res.Contestants {
				if median, ok := res.Median(who.Name, m.Name); ok {
					row.Runs = append(row.Runs, run{who.Name, median, res.All(who.Name, m.Name)})
				}
			}
			one.Measures = append(one.Measures, row)
		}
		out.Results = append(out.Results, one)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
