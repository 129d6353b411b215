// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package expression_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/domain/envoy/refusetest"
	"github.com/skep-operator/skep/resources/domain/expression"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// pieces are what Go and RE2 may not agree about.
var pieces = []string{
	"a", "/", ".", "|", "(", ")", "(?:", "[", "]", "[^", "-", "*", "+", "?", "{2}", "{1000}", "{0,1000}", "{1001}", "{,3}", "{3,1}", "{", "}", "^", "$",
	`\`, `\\`, `\1`, `\0`, `\8`, `\01`, `\123`, `\x41`, `\x{41}`, `\x{D800}`, `\x{10FFFF}`, `\x{110000}`, `\x`, `\a`, `\f`, `\v`, `\e`, `\cA`, `\C`, `\X`, `\R`, `\K`, `\G`,
	`\d`, `\D`, `\w`, `\s`, `\S`, `\h`, `\b`, `\B`, `\A`, `\z`, `\Z`, `\Q`, `\E`, `\_`, `\-`, `\é`, `\pL`, `\PL`, `\p{L}`, `\p{^L}`, `\p{Greek}`, `\p{Any}`, `\p{Cn}`, `\p{LC}`, `\p{L&}`,
	`\p{Letter}`, `\p{Script=Greek}`, `\p{Kawi}`, `\p{Garay}`, `\p{ASCII}`, `\p{Assigned}`, `\pX`, `\p{`, "[:alpha:]", "[[:alpha:]]", "[[:^word:]]", "[[:foo:]]", "[[=a=]]", "(?i)", "(?s)", "(?m)", "(?U)", "(?x)",
	"(?-i)", "(?i:", "(?P<n>", "(?P<é>", "(?P<n", "(?P=n)", "(?<n>", "(?<1>", "(?'n'", "(?=", "(?!", "(?<=", "(?>", "(?#c)", "(?|", "\x00", "\n", "é", "\xff", "\u2028", "\U0001F600", "k", "\u212a", "ſ",
	"[z-a]", "[a-\\d]", "[\\d-z]", "[]a]", "[^]a]", "[a-]", "[[a]", "[\\b]", "**", "*+", "+?", "??", "*?", "{2}{3}", "{2}*", "()", "(|)", "(a|b|)", "x{500}", "(x{30}){30}", "(x{40}){30}",
}

// ENV-23: whatever is accepted is accepted by RE2, too.
func TestRE2AcceptsThemToo(t *testing.T) {
	n := 1_200
	switch {
	case seedtest.Soak():
		n = 30_000
	case testing.Short() || seedtest.RaceEnabled:
		n = 200
	}
	r := rand.New(rand.NewPCG(seedtest.Seed(t), 2))
	check := func(text string) (accepted bool) {
		if expression.Check(text) != nil {
			return false
		}
		if err := refusetest.Expression(text); err != nil {
			t.Error(err)
		}
		return true
	}
	for _, p := range pieces {
		check(p)
		check("a" + p + "b")
		check("(" + p + ")")
	}
	for text := range strings.Lines("(?P<a>x)(?<b>y)\n(?i)[\\pL\\d]+\n") {
		if !check(strings.TrimSpace(text)) {
			t.Errorf("%q is not accepted", text)
		}
	}
	accepted := 0
	for range n {
		var b strings.Builder
		for range 1 + r.IntN(6) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		if r.IntN(3) == 0 {
			b.WriteString(random(r, r.IntN(4)))
		}
		if check(b.String()) {
			accepted++
		}
	}
	if accepted < n/20 {
		t.Errorf("%d of %d expressions are accepted", accepted, n)
	}
}
