// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package printable

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"plain, ä, 日本, 😀":          "plain, ä, 日本, 😀",
		"\x1b[2J\nDegraded leader": `\x1b[2J\nDegraded leader`,
		"a\tb\r\n":                 `a\tb\r\n`,
		"\x00\x7f\u009b31m":        `\x00\x7f\x9b31m`,
		"\u202egnirts\u2066":       `\u202egnirts\u2066`,
		"\u2028\u2029":             `\u2028\u2029`,
		"\U000e0041":               `\U000e0041`,
		"\xff\xc3":                 `\xff\xc3`,
		"\ufffd":                   `\ufffd`,
		`\x1b`:                     `\x1b`,
	} {
		if got := Line(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := Text("a\tb\n\x1bc"); got != "a\tb\n"+`\x1bc` {
		t.Errorf("a text: %q", got)
	}
}

// K6 of the contract's tenants.md: JSON that is printed stays JSON, and has the same values.
func TestJSONStaysJSON(t *testing.T) {
	const all = "a\x1b\r\n\t\x7f\u009b31m\u202e\u2028\ufffd\U000e0041😀\U0010fffd"
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var back string
	if shown := Text(string(text)); json.Unmarshal([]byte(shown), &back) != nil || back != all {
		t.Errorf("%s is %q", shown, back)
	}
}

// Whatever is written, and in whatever pieces, the same comes out, and nothing of it controls anything.
func FuzzWriter(f *testing.F) {
	f.Add("a\x1b[2J\n\u202eäx\xff", 3)
	f.Add("日本\xe6\x97", 1)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size < 1 {
			return
		}
		var b strings.Builder
		w := Writer(&b)
		for rest := []byte(text); len(rest) > 0; {
			n := min(size, len(rest))
			if got, err := w.Write(rest[:n]); err != nil || got != n {
				t.Fatalf("%d, %v", got, err)
			}
			rest = rest[n:]
		}
		if whole := Text(text); !strings.HasPrefix(whole, b.String()) || len(whole)-len(b.String()) > 4*utf8.UTFMax {
			t.Errorf("%q in pieces of %d: %q, want %q", text, size, b.String(), whole)
		}
		for _, r := range Line(text) {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("%q has %U", Line(text), r)
			}
		}
	})
}
