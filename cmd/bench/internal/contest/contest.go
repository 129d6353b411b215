// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package contest

import (
	"context"
	"fmt"
)

// Contest is contestants that do the same work.
type Contest struct {
	Name        string // one word, for -run
	Title       string
	Note        string // what the reader has to know of how it was done
	Pods        int    // that a server in a process of its own serves to each run; 0: no server
	Measures    []Measure
	Contestants []Contestant
}

// Contestant does the work in one way.
type Contestant struct {
	Name string
	// Judged is whether its figures are held against the budgets. One contestant
	// of a contest is.
	Judged bool
	// Run does the work once, in a process where nothing else happens. url is the
	// server's, if the contest has one.
	Run func(ctx context.Context, url string) (Figures, error)
}

// Figures are what one run has measured, by the name of the measure. A
// contestant may leave measures out.
type Figures map[string]float64

// Measure is one thing that is measured.
type Measure struct {
	Name   string
	Unit   string // of the figures: "s", "ms", "µs", "MB", "B", "/s" or ""
	Budget Budget // zero: there is none
}

// find returns the contest and contestant that a child process is to run.
func find(all []Contest, contest, contestant string) (*Contestant, error) {
	for _, c := range all {
		for i := range c.Contestants {
			if c.Name == contest && c.Contestants[i].Name == contestant {
				return &c.Contestants[i], nil
			}
		}
	}
	return nil, fmt.Errorf("there is no contestant %q in a contest %q", contestant, contest)
}
