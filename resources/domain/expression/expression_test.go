// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package expression_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"regexp/syntax"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/domain/expression"
	"github.com/skep-operator/skep/runtime/seedtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// filled is a text of the most bytes that are parsed.
func filled(head, unit, tail string) string {
	return head + strings.Repeat(unit, (expression.MaxLength-len(head)-len(tail))/len(unit)) + tail
}

// expensive are texts that cost most to compile, to parse, or to hold.
var expensive = map[string]string{
	"20 kB of repetitions":                    strings.Repeat(".{1000}", 2800),
	"repetitions":                             filled("", ".{1000}", ""),
	"optional repetitions":                    filled("", "(.{0,1000}){0,1}", ""),
	"nested repetitions":                      "((a{100}){100}){100}",
	"repetitions of nothing":                  filled("", "(?:){1000}", ""),
	"small: alternatives of classes":          filled(`a`, `|\pL`, ""),
	"small: alternatives of tables and texts": filled(`a`, `|\pLx`, ""),
	"tables":                       filled("", `\pC`, ""),
	"tables that are repeated":     `[\pL\pN]{1000}`,
	"small: tables in one class":   filled("[", `\pL`, "]"),
	"small: tables, ignoring case": filled("(?i)[", `\PL`, "]"),
	"wide ranges, ignoring case":   filled("(?i)[", "B-\U0001e942", `]\pL{100}`),
	"wide classes, ignoring case":  filled("(?is-mU:", "[B-\U0001e942]", "){9}"),
	"not wide, ignoring case":      filled("(?i)", "[^B-\U0001e942]", `\pC{100}`),
	"groups":                       filled("(?:", "()", "){1000}"),
	"nested groups":                strings.Repeat("(", 3000) + "a" + strings.Repeat(")*", 2500),
	"any characters":               filled("(?:", ".", "){1000}"),
	"small: alternatives in each other, and characters": filled(strings.Repeat("(?:ab|", 300), `\W`, strings.Repeat(")", 300)),
	"small: alternatives in each other":                 strings.Repeat("(?:ab|", 480) + "b" + strings.Repeat(")", 480),
	"small: alternatives of characters in each other":   strings.Repeat(`(?:\W\W\W\W\W\W|`, 330) + "b" + strings.Repeat(")", 330),
	"small: alternatives and loops in each other":       strings.Repeat("(?:ab|(?:x*", 240) + "b" + strings.Repeat(")?)", 240),
	"small: loops of either preference in each other":   strings.Repeat("(?:(?:", 200) + `\W` + strings.Repeat(")+?)*", 200),
	"small: alternatives that are equal, ignoring case": filled("(?i)", "é|", "x"),
	"small: alternatives that are quoted":               filled("(?i)", `\Qs|k\E|`, "x"),
	"small: classes of characters beyond ASCII":         filled("", "[à-ü]|", "x"),
	"characters beyond ASCII, ignoring case":            filled("(?i)x|", `[^ſ]`, ""),
	"the longest":                                       strings.Repeat("a", 1_500_000),
	"long and not an expression":                        strings.Repeat("(", 1_500_000),
}

// VALID-E6, ENV-E18: what would take all memory is refused for a few megabytes and milliseconds.
func TestExpensive(t *testing.T) {
	for name, text := range expensive {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		meter := waittest.StartMeter()
		err := expression.Check(text)
		program := expression.CheckProgram(text, 100)
		took := meter.Elapsed()
		meter.Stop()
		runtime.ReadMemStats(&after)
		small := strings.HasPrefix(name, "small: ")
		if (err == nil) != small || err != nil && len(err.Error()) > expression.MaxLength+100 {
			t.Errorf("%s: %.200v", name, err)
		}
		if program == nil {
			t.Errorf("%s: its program is not too large", name)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 10<<20 { // for both
			t.Errorf("%s: %d bytes were allocated", name, allocated)
		}
		if took > 200*time.Millisecond { // a range that ignores case took 8 ms, and there are a thousand
			t.Errorf("%s: it took %v", name, took)
		}
	}
}

// Messages name what was found, the bound and a remedy, and not the whole text.
func TestMessages(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat(".{1000}", 2800): `regular expression ".{1000}.{1000}.{1000}.{1000}.{1000}.{1000}.{1000}.{1000}.{1000}."… is too long: it has 19600 bytes, and may have 8192; split it`,
		strings.Repeat("é", 5000):       `regular expression "` + strings.Repeat("é", 32) + `"… is too long: it has 10000 bytes, and may have 8192; split it`,
		strings.Repeat(`.{1000}`, 9):    `regular expression ".{1000}.{1000}.{1000}.{1000}.{1000}.{1000}.{1000}.{1000}.{1000}" is too large: its program has about 1*`,
		"((a{100}){100}){100}":          "error parsing regexp: invalid repeat count: `{100}`",
	} {
		err := expression.Check(text)
		head, open := strings.CutSuffix(want, "*")
		if err == nil || err.Error() != want && !(open && strings.HasPrefix(err.Error(), head)) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// What people write is taken, also by those who hold against all habit that a path has a length.
func TestReasonable(t *testing.T) {
	for _, text := range []string{
		"", "/", "/public.*", "GET|POST", "^/api/v[0-9]+/(users|orders)/[^/]+$", `/img/.*[.]png`, `/static/[a-zA-Z0-9._-]{0,200}/[a-zA-Z0-9._-]{0,200}`,
		`(?i)/search\?q=[a-z0-9 ]{1,255}`, `(?i)[а-я]{1,100}`, `[\pL\pN_-]{1,16}/\p{Greek}+`, `.{1000}`, `[^/]{1,1000}`, `^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.|$)){4}`,
		`[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}`, strings.Repeat("/abc|", 1600) + "x", `[a-zA-Z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[a-zA-Z0-9.-]{1,253}`,
	} {
		if err := expression.Check(text); err != nil {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

// VALID-6: what is no expression has the words of regexp.Compile, with the text as it was written.
func TestSyntaxErrors(t *testing.T) {
	for _, text := range []string{
		"/a(b", "*", "a**", "[z-a]", "/bad[", `\8`, "a{1001}", "(?P<n", "(?i)(a", "(?i)x(?z)", "(?i:a", `(?i)\pX`, `(\p{Greek}(?i)`, `\p{Greek}(?i)(`, `\pL**`, `[\pL`, `[z\p{^Lu}-a`, `\p`, `\p{`, `\p{Greek`, `\p{Gr}**`, `**\p{Gr}`, `[a-\pL]`, `(?i-s:x)(?U-:y`, "(?i)[k-a]", "\xff", "(?iq)", "(?i", "a)(?i)", `\Q(?i)\E)`,
		strings.Repeat("(", 1001) + strings.Repeat(")", 1001), "((a{100}){100}){100}", "(?i)(a{999}){999}",
	} {
		_, want := regexp.Compile(text)
		if got := expression.Check(text); want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// random is a small expression.
func random(r *rand.Rand, depth int) string {
	if depth == 0 {
		return []string{"a", ".", "ab", "k", "é", `\d`, `[^/]`, `[a-z_]`, "[Ā-ʯ]", `\pL`, `\PL`, "^", "$", `\b`, "", "(?i)k", "(?i:ab)", "[[:word:]]"}[r.IntN(18)]
	}
	one := random(r, depth-1)
	switch r.IntN(8) {
	case 0:
		return one + random(r, depth-1)
	case 1:
		return "(?:" + one + "|" + random(r, depth-1) + ")"
	case 2:
		return "(" + one + ")"
	case 3:
		return "(?:" + one + ")" + []string{"*", "+", "?", "*?", "{2,}", "{0,}", "{0}"}[r.IntN(7)]
	case 4:
		return fmt.Sprintf("(?:%s){%d}", one, r.IntN(9))
	default:
		from := r.IntN(4)
		return fmt.Sprintf("(?:%s){%d,%d}", one, from, from+r.IntN(4))
	}
}

// checkSize compares the judgement of an expression with Go's program.
func checkSize(t *testing.T, text string) {
	t.Helper()
	size, err := expression.Size(text)
	if err != nil {
		return
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		t.Fatalf("%q: Size has no error, and Go has %v", text, err)
	}
	if size > 1<<16 {
		return // Go's program would be large
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if size < int64(len(program.Inst)) {
		t.Errorf("%q: the size is %d, and Go's program has %d", text, size, len(program.Inst))
	}
}

// The size is at least that of Go's program.
func TestSizeIsNotBelowThatOfGo(t *testing.T) {
	r := rand.New(rand.NewPCG(seedtest.Seed(t), 1))
	for range 3000 {
		checkSize(t, random(r, r.IntN(5)))
	}
}

func FuzzSize(f *testing.F) {
	for _, text := range []string{"(?i)[a-z]{2,3}|b*", `(\pL+){3}`, "x{0,5}?", "(?:a|){9}", `\Q(?i)\E`, "[(?i)]", "[(?i-k)]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 200 {
			return
		}
		_, err := expression.Size(text)
		if _, parse := syntax.Parse(text, syntax.Perl); (parse != nil) != (err != nil) && !strings.Contains(strings.ToLower(text), `\p`) { // Go knows more names of classes than RE2
			t.Errorf("%q: %v, and Go says %v", text, err, parse)
		}
		checkSize(t, text)
	})
}

// The size is that of RE2's program, as RE2 itself has counted it, or more, up to the difference between their tables of Unicode.
func TestSizeOfRE2(t *testing.T) {
	file, err := os.Open("testdata/re2.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := 0
	for s := bufio.NewScanner(file); s.Scan(); {
		count, text, ok := strings.Cut(s.Text(), " ")
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		want, err := strconv.ParseInt(count, 10, 64)
		if err != nil || !ok {
			t.Fatal(s.Text())
		}
		lines++
		size, err := expression.Size(text)
		if err != nil || size*10 < want*8 {
			t.Errorf("%s: %d (%v), and RE2's program has %d", text, size, err, want)
		}
		if want < 0 && expression.Check(text) == nil {
			t.Errorf("%s: RE2 refuses it", text)
		}
	}
	if lines < 40 {
		t.Errorf("%d expressions were compared", lines)
	}
}

// ENV-23: the size of a program is what RE2 itself has counted, or more, and for what people write little more: a path that Envoy takes is not left out.
func TestProgramsOfRE2(t *testing.T) {
	text, err := os.ReadFile("testdata/programs.txt")
	if err != nil {
		t.Fatal(err)
	}
	isWritten, lines := true, map[bool]int{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			isWritten = isWritten && !strings.HasPrefix(line, "# random")
			continue
		}
		count, text, ok := strings.Cut(line, " ")
		want, err := strconv.ParseInt(count, 10, 64)
		if err != nil || !ok {
			t.Fatal(line)
		}
		lines[isWritten]++
		size, err := expression.Program(text)
		if err != nil || size < want {
			t.Errorf("%s: %d (%v), and RE2's program has %d", text, size, err, want)
		}
		if isWritten && size > want+3+want/10 {
			t.Errorf("%s: %d, and RE2's program has only %d", text, size, want)
		}
	}
	if lines[true] < 80 || lines[false] < 300 {
		t.Errorf("%v expressions were compared", lines)
	}
}
