// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package release

import (
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/command"
)

// CONF-16: the command why says which release counts, how that is known, and what follows from it.
func TestWhyRelease(t *testing.T) {
	for _, test := range []struct{ arg, first, answer string }{
		{"--cilium-release=1.18", "The cluster counts as one of 1.18, known by the option cilium-release.", "no"},
		{"--cilium-release=", "The cluster counts as one of 1.20, known by nothing: it is the newest that is served.", "yes"},
	} {
		root := command.New("operator", Cell)
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs([]string{"why", "release", test.arg})
		if err := root.Execute(); err != nil {
			t.Fatal(test.arg, err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if lines[0] != test.first || len(lines) != len(Facts())+4 {
			t.Errorf("%s: %d lines for %d questions: %s", test.arg, len(lines), len(Facts()), lines[0])
		}
		is := AuthenticationChecked
		if !slices.ContainsFunc(lines, func(line string) bool {
			return slices.Equal(strings.Fields(line), append([]string{is.source, test.answer}, strings.Fields(is.text)...))
		}) {
			t.Errorf("%s: no line with the answer %s: %s", test.arg, test.answer, out.String())
		}
	}
}
