// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// K8S-14; numbers 5.2 and 6.2 of the contract's tenants.md.
func TestMessagesOfEvents(t *testing.T) {
	for message, want := range map[string]string{
		"plain":                       "plain",
		"a\n\x1b[31mb\u202e":          `a\n\x1b[31mb\u202e`,
		strings.Repeat("ä", 1000):     strings.Repeat("ä", 1000),
		strings.Repeat("ä", 240_000):  strings.Repeat("ä", 999) + "…",
		strings.Repeat("\n", 100_000): strings.Repeat(`\n`, 499) + `\…`,
	} {
		if got := shown(message); got != want || utf8.RuneCountInString(got) > maxMessage {
			t.Errorf("%.40q: %.60q", message, got)
		}
	}
}
