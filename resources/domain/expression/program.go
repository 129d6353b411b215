// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package expression

import (
	"fmt"
	"regexp/syntax"
	"unicode/utf8"
)

// CheckProgram is Check where the program may have so many instructions at most, as Envoy counts them, and Check if that is 0: re2.max_program_size.error_level in the runtime of
// Envoy is such a bound, far below that of RE2.
func CheckProgram(text string, most int64) error {
	err := Check(text)
	if err != nil || most == 0 {
		return err
	}
	size, err := Program(text)
	if err == nil && size > most {
		err = fmt.Errorf("regular expression %s is too large: its program has about %d instructions, and Envoy takes %d; repeat less, or raise re2.max_program_size.error_level in the runtime of Envoy, and --envoy-max-regex-program-size with it",
			Quote(text), size, most)
	}
	return err
}

// Program is about the number of instructions of the program that RE2 searches with, RE2::ProgramSize: not less, and for what people write that or a few more. Classes of Unicode, and
// letters beyond ASCII where case is ignored, count for more than they have.
func Program(text string) (int64, error) {
	tree, m, err := parse(text)
	if err != nil {
		return 0, err
	}
	return min(program{m}.size(withoutPrefix(tree))+programEnds, endless), nil
}

// programEnds are the instructions of each program: its start, its end, and a loop before what is found anywhere.
const programEnds = 4

// withoutPrefix is what is left of an expression for a program where it begins with a text that RE2 compares itself.
func withoutPrefix(tree *syntax.Regexp) *syntax.Regexp {
	if tree.Op != syntax.OpConcat {
		return tree
	}
	rest := tree.Sub
	for len(rest) > 0 && rest[0].Op == syntax.OpBeginText {
		rest = rest[1:]
	}
	if len(rest) == len(tree.Sub) || len(rest) == 0 || rest[0].Op != syntax.OpLiteral {
		return tree
	}
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: rest[1:]}
}

// program counts the instructions that are left once RE2 has flattened a program: branches are none, but where one leads to what several lead to.
type program struct{ measure }

func (p program) size(part *syntax.Regexp) int64 {
	switch part.Op {
	case syntax.OpLiteral:
		return p.text(part.Rune)
	case syntax.OpCharClass:
		return p.class(part.Rune)
	case syntax.OpAnyChar:
		return p.class([]rune{0, utf8.MaxRune})
	case syntax.OpAnyCharNotNL:
		return p.class([]rune{0, '\n' - 1, '\n' + 1, utf8.MaxRune})
	case syntax.OpRepeat:
		return p.repeated(part)
	case syntax.OpConcat, syntax.OpAlternate:
		return p.sum(part)
	case syntax.OpCapture:
		return p.size(part.Sub[0]) + 2
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
		return p.size(part.Sub[0]) + p.branch(part.Sub[0])
	}
	return 1
}

// sum is the size of several parts together.
func (p program) sum(part *syntax.Regexp) (n int64) {
	for _, sub := range part.Sub {
		n += p.size(sub)
		if part.Op == syntax.OpAlternate && mayBeEmpty(sub) {
			n++
		}
		n = min(n, endless)
	}
	return n
}

// branch is what a part adds that may be left out, or comes again.
func (p program) branch(of *syntax.Regexp) int64 {
	if mayBeEmpty(of) {
		return 3
	}
	return 1
}

// repeated is the size of copies of a part.
func (p program) repeated(part *syntax.Regexp) int64 {
	size, branch := p.size(part.Sub[0]), p.branch(part.Sub[0])
	if part.Max < 0 {
		return min(size*int64(max(1, part.Min))+branch, endless)
	}
	return min(size*int64(part.Min)+(size+branch)*int64(part.Max-part.Min), endless)
}

// mayBeEmpty reports whether a part matches the empty text.
func mayBeEmpty(part *syntax.Regexp) bool {
	switch part.Op {
	case syntax.OpLiteral, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpNoMatch:
		return false
	case syntax.OpCapture, syntax.OpPlus:
		return mayBeEmpty(part.Sub[0])
	case syntax.OpRepeat:
		return part.Min == 0 || mayBeEmpty(part.Sub[0])
	case syntax.OpAlternate:
		for _, sub := range part.Sub {
			if mayBeEmpty(sub) {
				return true
			}
		}
		return false
	case syntax.OpConcat:
		for _, sub := range part.Sub {
			if !mayBeEmpty(sub) {
				return false
			}
		}
	}
	return true
}

// Beyond ASCII, k is also the sign of Kelvin, and s the long s.
const (
	kelvin, kelvinSize = '\u212a', int64(3)
	longS, longSSize   = '\u017f', int64(2)
)

// text is the size of a text.
func (p program) text(all []rune) (n int64) {
	for _, r := range all {
		switch {
		case r >= utf8.RuneSelf:
			n += p.literal(r)
		case p.folded && (r|' ') == 'k':
			n += 1 + kelvinSize
		case p.folded && (r|' ') == 's':
			n += 1 + longSSize
		default:
			n++
		}
	}
	return n
}

// class is the size of a class of ranges.
func (p program) class(ranges []rune) int64 {
	var is [utf8.RuneSelf]bool
	var high []rune
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1] && r < utf8.RuneSelf; r++ {
			is[r] = true
		}
		if ranges[i+1] >= utf8.RuneSelf {
			high = append(high, max(ranges[i], utf8.RuneSelf), ranges[i+1])
		}
	}
	var n int64
	switch {
	case len(high) == 2 && high[0] == utf8.RuneSelf && high[1] == utf8.MaxRune:
		n = 6 // RE2 has all at once: three bytes that begin, and three that go on
	case len(high) > 0:
		n = p.measure.class(high)
	}
	if p.folded {
		n += fold(&is, high)
	}
	return max(1, n+rangesOf(is))
}

// fold adds the other case of what there is, and returns the size of what that has beyond ASCII.
func fold(is *[utf8.RuneSelf]bool, high []rune) (n int64) {
	has := func(r rune) bool {
		for i := 0; i < len(high); i += 2 {
			if high[i] <= r && r <= high[i+1] {
				return true
			}
		}
		return false
	}
	is['k'], is['s'] = is['k'] || has(kelvin), is['s'] || has(longS)
	for lower := 'a'; lower <= 'z'; lower++ {
		upper := lower - 'a' + 'A'
		is[lower], is[upper] = is[lower] || is[upper], is[lower] || is[upper]
	}
	if is['k'] && !has(kelvin) {
		n += kelvinSize
	}
	if is['s'] && !has(longS) {
		n += longSSize
	}
	return n
}

// rangesOf is the number of ranges of ASCII. Where each letter is there in both cases, one range is that of both.
func rangesOf(is [utf8.RuneSelf]bool) (n int64) {
	folds := true
	for lower := 'a'; lower <= 'z'; lower++ {
		folds = folds && is[lower] == is[lower-'a'+'A']
	}
	for from := 0; from < len(is); from++ {
		if !is[from] {
			continue
		}
		to := from
		for to+1 < len(is) && is[to+1] {
			to++
		}
		if !folds || from < 'A' || to > 'Z' {
			n++
		}
		from = to
	}
	return n
}
