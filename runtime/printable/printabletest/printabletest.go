// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package printabletest has a text as an attacker writes it, and the check of what people read where it went in.
package printabletest

import (
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Forged is what a line of ours would look like.
const Forged = "level=error msg=forged"

// Hostile draws on a terminal, writes from right to left, and begins a line.
const Hostile = "a\x1b[31m\u202eb\r\n" + Forged

// forgedStatus is what a line of the health tree would look like.
const forgedStatus = "Degraded leader: lease stolen"

// Texts are texts as an attacker writes them, each for one way to be more than a text: some fields have one of them, and not another.
var Texts = []string{
	Hostile,
	"a\x1b]0;title\a\x1b[2Jb",
	"a\u009b31mb",
	"a\n" + Forged,
	"a\n" + forgedStatus + ", run: kubectl delete lease b",
	"a\r" + Forged,
	"a\u2028" + Forged,
	"a\u2029" + forgedStatus,
	"a\u0085" + Forged,
	"a\u202eb\u2066c",
	"a\x00b\x7f",
	"a\u200b\ufeff\U000e0041b",
}

// escaped is a part of Hostile as it is shown. The rest may be cut, and is no part of what XML can have.
const escaped = `\u202eb`

// Check fails the test if a text controls what it is shown with, or has a line of another author.
func Check(t testing.TB, what, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		t.Helper() // the body is a function of its own
		line = strings.TrimSuffix(line, "\n")
		if strings.ContainsFunc(line, func(r rune) bool { return r != '\t' && (unicode.Is(unicode.C, r) || r == '\u2028' || r == '\u2029') }) {
			t.Errorf("%s shows what is not printable: %.300q", what, line)
			return
		}
		if line = strings.TrimSpace(line); strings.HasPrefix(line, Forged) || strings.HasPrefix(line, forgedStatus) {
			t.Errorf("%s has a line of another author: %.300q", what, line)
			return
		}
	}
}

// CheckLine is Check of a text that has to be one line.
func CheckLine(t testing.TB, what, text string) {
	t.Helper()
	if Check(t, what, text); strings.ContainsAny(text, "\r\n") {
		t.Errorf("%s has more than one line: %.300q", what, text)
	}
}

// CheckContains is Check of a text that has to have what is left of Hostile when it is escaped: else the test shows nothing.
func CheckContains(t testing.TB, what, text string) {
	t.Helper()
	if Check(t, what, text); !strings.Contains(text, escaped) {
		t.Errorf("%s has nothing of the hostile text: %.2000s", what, text)
	}
}

// escapes are what is left of the characters of Texts that do not print, as Go and as JSON write them.
var escapes = []string{`\x1b`, `\u001b`, `\u202e`, `\u2028`, `\u2029`, `\x9b`, `\u009b`, `\x85`, `\u0085`, `\x00`, `\u0000`, `\u200b`}

// CheckEscaped is Check of a text that has to have something that is escaped: else the test shows nothing.
func CheckEscaped(t testing.TB, what, text string) {
	t.Helper()
	if Check(t, what, text); !HasEscaped(text) {
		t.Errorf("%s has nothing of hostile texts: %.2000s", what, text)
	}
}

// HasEscaped reports whether a text has something of Texts that is escaped.
func HasEscaped(text string) bool {
	return slices.ContainsFunc(escapes, func(e string) bool { return strings.Contains(text, e) })
}
