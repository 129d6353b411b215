// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/skep-operator/skep/runtime/graph"
)

// WriteOrder writes the canonical start order of the process and of each term.
// Steps that come after the same ones start at the same time; all stop in
// reverse. Order that data does not express is marked, with its reason below.
func WriteOrder(w io.Writer, g *graph.Graph) error {
	p := &page{Writer: bufio.NewWriter(w)}
	if len(g.Orders) == 0 {
		p.line(0, "no start order: the graph has mistakes, which the validate command names")
	}
	for i := range g.Orders {
		p.separate()
		p.order(&g.Orders[i])
	}
	return p.Flush()
}

func (p *page) order(o *graph.Order) {
	p.line(0, "%s: %s", graph.TermLabel(o.Term), plural(len(o.Steps), "step"))
	width := 0
	for _, s := range o.Steps {
		width = max(width, len(s.ID))
	}
	reasons := orderReasons(o)
	for i, s := range o.Steps {
		text := fmt.Sprintf("%4d  %-*s  %8s  %s", i+1, width, s.ID, took(s), afterText(s, reasons))
		p.line(0, "%s", strings.TrimRight(text, " "))
	}
	for i, r := range reasons {
		p.line(0, "      %s %s", mark(i), r)
	}
}

func took(s graph.Step) string {
	if s.StartNanos == 0 {
		return ""
	}
	return duration(s.StartNanos)
}

// orderReasons are those of order that data does not express, each once.
func orderReasons(o *graph.Order) []string {
	var list []string
	for _, s := range o.Steps {
		for _, a := range s.After {
			if a.Reason != "" {
				list = appendNew(list, a.Reason)
			}
		}
	}
	return list
}

// mark is the sign of a reason.
func mark(i int) string { return "[" + strconv.Itoa(i+1) + "]" }

// afterText names the steps that a step comes after by their numbers, first
// those that data asks for, then those of each reason.
func afterText(s graph.Step, reasons []string) string {
	var parts []string
	for i := -1; i < len(reasons); i++ {
		reason, sign := "", ""
		if i >= 0 {
			reason, sign = reasons[i], " "+mark(i)
		}
		var steps []int
		for _, a := range s.After {
			if a.Reason == reason {
				steps = append(steps, a.Step+1)
			}
		}
		if len(steps) > 0 {
			parts = append(parts, ranges(steps)+sign)
		}
	}
	return prefixed("after ", strings.Join(parts, ", "))
}

// ranges writes numbers in order, runs of them as 3-7.
func ranges(numbers []int) string {
	slices.Sort(numbers)
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
