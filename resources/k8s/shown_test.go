// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"strings"
	"testing"
)

// K8S-14; numbers 5.2 and 6.2 of the contract's tenants.md.
func TestMessagesOfEvents(t *testing.T) {
	for message, want := range map[string]string{
		"plain":                       "plain",
		"a\n\x1b[31mb\u202e":          `a\n\x1b[31mb\u202e`,
		strings.Repeat("a", 1000):     strings.Repeat("a", 1000),
		strings.Repeat("a", 1001):     strings.Repeat("a", 997) + "…",
		strings.Repeat("ä", 500):      strings.Repeat("ä", 500),
		strings.Repeat("ä", 240_000):  strings.Repeat("ä", 498) + "…",
		strings.Repeat("😀", 240_000):  strings.Repeat("😀", 249) + "…",
		strings.Repeat("\n", 100_000): strings.Repeat(`\n`, 498) + `\…`,
	} {
		if got := shown(message); got != want || len(got) > maxMessage {
			t.Errorf("%.40q: %.60q", message, got)
		}
	}
}
