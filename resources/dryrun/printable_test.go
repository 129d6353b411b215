// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// K6 of the contract's tenants.md: what a plan has of others, such as errors and names, prints, in each of its lists.
func TestTextsOfAPlanPrint(t *testing.T) {
	for _, text := range append(printabletest.Texts, "\x7f\u009b31m\U000e0041") {
		r := &Report{
			Writes: []ReportedWrite{{Rule: "m rule", Verb: "update", Resource: "things", Name: text, Namespace: text, Triggers: []string{text}, Changes: []Change{{Path: text}}, Request: json.RawMessage(`{}`)}},
			Busy:   []string{text}, Waiting: []string{text},
		}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		printabletest.Check(t, "a plan", b.String())
		if n := strings.Count(b.String(), "\n"); n != 7 {
			t.Errorf("a plan of one write, and two lists of one, has %d lines:\n%s", n, b.String())
		}
	}
}
