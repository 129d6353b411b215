// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"fmt"
	"strings"

	"github.com/skep-operator/skep/runtime/printable"
)

// Problem is one value that cannot be used.
type Problem struct {
	Option string `json:"option"`
	Value  string `json:"value"`
	Source Source `json:"source"`
	Text   string `json:"problem"` // what is allowed: "must be true or false"
}

// maxShown is how much of a value a person can do with.
const maxShown = 200

func (p Problem) String() string {
	if p.Option != "" && p.Source.Kind == FromDir {
		// The prefix is the original's.
		return "Incorrect config-map flag value: " + p.Message()
	}
	return p.Message()
}

// Message is the problem without the prefix, as of a value that is used all the same.
func (p Problem) Message() string {
	if p.Option == "" {
		return p.Text
	}
	value := p.Value
	if len(value) > maxShown {
		value = value[:maxShown] + "…"
	}
	return fmt.Sprintf("--%s=%q (%s): %s", p.Option, value, p.Source, p.Text)
}

// Report is all that is wrong with a configuration. It is an error where it has
// problems.
type Report struct {
	Problems []Problem
	// Unread says that a source could not be read: what else seems wrong with
	// the values may come of that.
	Unread bool
}

// Err is the report, or nil where there is no problem.
func (r *Report) Err() error {
	if r == nil || len(r.Problems) == 0 {
		return nil
	}
	return r
}

func (r *Report) Error() string {
	var b strings.Builder
	if len(r.Problems) > 1 {
		fmt.Fprintf(&b, "%d problems in the configuration:\n", len(r.Problems))
	}
	for i, p := range r.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		if len(r.Problems) > 1 {
			b.WriteString("  ")
		}
		b.WriteString(printable.Line(p.String()))
	}
	return b.String()
}
