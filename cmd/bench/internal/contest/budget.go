// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package contest

// Budget is a bound for a figure. The zero Budget is none.
type Budget struct {
	AtMost, AtLeast float64
	// Nothing says that the figure is to be 0, in every round: something that
	// must not happen at all.
	Nothing bool
}

// Verdict is what a budget says of a figure.
type Verdict string

// A run is red only beyond twice the budget: machines differ.
const (
	NoBudget Verdict = ""
	Met      Verdict = "met"
	Over     Verdict = "over" // by less than twice
	Red      Verdict = "RED"
)

// Judge holds a figure against the budget.
func (b Budget) Judge(figure float64) Verdict {
	excess := 0.0 // 1 is the budget itself
	switch {
	case b.Nothing && figure != 0:
		return Red
	case b.Nothing:
		return Met
	case b.AtMost > 0:
		excess = figure / b.AtMost
	case b.AtLeast > 0 && figure <= 0:
		return Red
	case b.AtLeast > 0:
		excess = b.AtLeast / figure
	default:
		return NoBudget
	}
	switch {
	case excess <= 1:
		return Met
	case excess <= 2:
		return Over
	}
	return Red
}
