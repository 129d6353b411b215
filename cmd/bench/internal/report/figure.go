// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package report

import (
	"math"
	"strconv"
	"strings"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// figure writes a number with three digits that count, or all of them before
// the point, and its unit.
func figure(f float64, unit string) string {
	digits := 0
	switch size := math.Abs(f); {
	case f == math.Trunc(f), size >= 100:
	case size >= 10:
		digits = 1
	case size >= .1:
		digits = 2
	case size >= .01:
		digits = 3
	default:
		digits = 4
	}
	text := strconv.FormatFloat(f, 'f', digits, 64)
	whole, fraction, hasFraction := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if hasFraction {
		whole += "." + fraction
	}
	switch unit {
	case "", "×", "/s":
		return whole + unit
	}
	return whole + " " + unit
}

// budget writes a budget.
func budget(b contest.Budget, unit string) string {
	switch {
	case b.AtMost > 0:
		return "≤ " + figure(b.AtMost, unit)
	case b.AtLeast > 0:
		return "≥ " + figure(b.AtLeast, unit)
	case b.Nothing:
		return figure(0, unit)
	}
	return ""
}
