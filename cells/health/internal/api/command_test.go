// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/printable"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// API-18; K6 of the contract's tenants.md: a text to which a path leads is one line, and JSON to which it leads has the same values.
func TestPathsToTextsPrintThem(t *testing.T) {
	for _, text := range printabletest.Texts {
		samples := []Sample{{Name: "a", Labels: map[string]string{"text": text}, Value: 1.5}}
		for path, want := range map[string]string{
			"{[*].labels.text}":                  printable.Line(text) + "\n",
			`{range [*]}{.name}={.value};{end}`:  "a=1.5;\n",
			`{[?(@.name=="a")].labels.text}`:     printable.Line(text) + "\n",
			`{range [*]}{.name}{"\n"}{"x"}{end}`: "a\nx\n",
		} {
			var b strings.Builder
			if err := writeValue(&b, samples, "jsonpath='"+path+"'", nil); err != nil || b.String() != want {
				t.Errorf("%s: %q, want %q: %v", path, b.String(), want, err)
			}
		}
		for _, form := range []string{"jsonpath={[*].labels}", "json"} {
			var b strings.Builder
			if err := writeValue(printable.Writer(&b), samples, form, nil); err != nil {
				t.Fatal(err)
			}
			printabletest.Check(t, form, b.String())
			if shown := b.String(); !json.Valid([]byte(shown)) || strings.Contains(shown, `\\`) {
				t.Errorf("%s: %s", form, shown)
			}
		}
	}
}
