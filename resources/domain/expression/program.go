// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package expression

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
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
// letters beyond ASCII where case is ignored, count for more than they have. It compiles nothing, and costs little more than Check.
func Program(text string) (int64, error) {
	if isPlainText(text) {
		return plainProgram(text)
	}
	tree, m, err := parse(text)
	if err != nil {
		return 0, err
	}
	size := newProgram(m).size(tree)
	if strings.Contains(text, "|") { // what alternatives begin with may differ where the cheap text does not, and be there for each
		if c, err := cheapen(text); err == nil {
			if tree, err := syntax.Parse(apart(c.text), syntax.Perl); err == nil {
				size = max(size, newProgram(m).size(tree))
			}
		}
	}
	return min(size+ends, endless), nil
}

// plainProgram is Program for a text that is parsed as it is: where case is ignored, and what alternatives have in common, is then as in RE2.
func plainProgram(text string) (int64, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, err
	}
	if strings.Contains(text, "|") {
		if apart, err := syntax.Parse(apart(text), syntax.Perl); err == nil && mayDiffer(apart) {
			tree = apart
		}
	}
	tree, around := searched(tree)
	return min(newProgram(measure{}).size(tree)+around, endless), nil
}

// searched is the part of an expression for which there is a program, and the size of what each program has around it: its start and its end, and before what is found anywhere a
// loop. A text at the beginning is compared by RE2 itself, up to a letter that is another one's beyond ASCII: that is a class.
func searched(tree *syntax.Regexp) (rest *syntax.Regexp, around int64) {
	const loop = 2
	around = ends - 1
	if tree.Op != syntax.OpConcat {
		return tree, around
	}
	parts := tree.Sub
	for len(parts) > 0 && parts[0].Op == syntax.OpBeginText {
		parts = parts[1:]
	}
	if len(parts) == len(tree.Sub) {
		return tree, around
	}
	more := int64(len(tree.Sub) - len(parts) - 1) // beginnings, which are there before another part than a text
	if len(parts) > 0 && parts[len(parts)-1].Op == syntax.OpEndText {
		parts = parts[:len(parts)-1]
	}
	if len(parts) == 0 || parts[0].Op != syntax.OpLiteral {
		return &syntax.Regexp{Op: syntax.OpConcat, Sub: parts}, around - loop + more
	}
	first := *parts[0]
	isClass := func(r rune) bool {
		return first.Flags&syntax.FoldCase != 0 && (r >= utf8.RuneSelf || (r|' ') == 'k' || (r|' ') == 's')
	}
	if n := slices.IndexFunc(first.Rune, isClass); n >= 0 {
		first.Rune = first.Rune[n:]
	} else {
		first.Rune = nil
	}
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: append([]*syntax.Regexp{&first}, parts[1:]...)}, around
}

// program counts the instructions that are left once RE2 has flattened a program: branches are none, but where one leads to what several lead to.
type program struct {
	measure
	beginnings map[*syntax.Regexp]beginning // of the parts that were asked for
}

func newProgram(m measure) program {
	return program{m, map[*syntax.Regexp]beginning{}}
}

func (p program) size(part *syntax.Regexp) int64 {
	switch part.Op {
	case syntax.OpLiteral:
		return p.text(part)
	case syntax.OpCharClass:
		return p.class(part.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return anySize
	case syntax.OpRepeat:
		return p.repeated(part)
	case syntax.OpConcat, syntax.OpAlternate:
		return p.sum(part)
	case syntax.OpCapture:
		return p.size(part.Sub[0]) + 2
	case syntax.OpStar:
		size := p.size(part.Sub[0])
		n := min(size+p.branch(part.Sub[0])+p.again(part, size), endless)
		if p.beginning(part.Sub[0]).loops {
			n++
		}
		return n
	case syntax.OpQuest:
		return p.size(part.Sub[0]) + p.branch(part.Sub[0])
	case syntax.OpPlus:
		size := p.size(part.Sub[0])
		return min(size+p.branch(part.Sub[0])+1+p.again(part, size), endless)
	}
	return 1
}

// again is what a loop has twice. RE2 writes in one list what each part may go on with, in the order of preference, and shares what several lists have but where each of them leads to
// the other: what a loop of a part of that size begins with is there again for a loop at its beginning that prefers the other way, or after which nothing has to follow.
func (p program) again(loop *syntax.Regexp, size int64) int64 {
	if is := p.beginning(loop.Sub[0]); is.isLoop || is.prefers[1-preference(loop)] {
		return size + 2
	}
	return 0
}

// sum is the size of several parts together.
func (p program) sum(part *syntax.Regexp) (n int64) {
	for _, sub := range part.Sub {
		n += p.size(sub)
		if is := p.beginning(sub); part.Op == syntax.OpAlternate && (is.mayBeEmpty || is.loops) {
			n++
		}
		n = min(n, endless)
	}
	return n
}

// branch is what a part adds that may be left out, or comes again.
func (p program) branch(of *syntax.Regexp) (n int64) {
	n = 1
	is := p.beginning(of)
	if is.mayBeEmpty {
		n += 3
	}
	if is.loops {
		n++
	}
	return n
}

// repeated is the size of copies of a part.
func (p program) repeated(part *syntax.Regexp) int64 {
	size, branch := p.size(part.Sub[0]), p.branch(part.Sub[0])
	if part.Max < 0 {
		return min(size*int64(max(1, part.Min))+branch+1+p.again(part, size), endless)
	}
	return min(size*int64(part.Min)+(size+branch)*int64(part.Max-part.Min), endless)
}

// Beyond ASCII, k is also the sign of Kelvin, and s the long s.
const (
	kelvinSize = int64(3)
	longSSize  = int64(2)
)

// text is the size of a text.
func (p program) text(part *syntax.Regexp) (n int64) {
	folded := p.folded || part.Flags&syntax.FoldCase != 0
	for _, r := range part.Rune {
		switch {
		case r >= utf8.RuneSelf && part.Flags&syntax.FoldCase != 0:
			n += p.class(cases(r))
		case r >= utf8.RuneSelf:
			n += p.literal(r)
		case folded && (r|' ') == 'k':
			n += 1 + kelvinSize
		case folded && (r|' ') == 's':
			n += 1 + longSSize
		default:
			n++
		}
	}
	return n
}

// cases are the ranges of a character in all its cases: RE2 has a class for one beyond ASCII.
func cases(r rune) (ranges []rune) {
	all := []rune{r}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		all = append(all, other)
	}
	slices.Sort(all)
	for _, one := range all {
		ranges = append(ranges, one, one)
	}
	return ranges
}

const (
	// wideSize is the size of all characters beyond ASCII: RE2 has three bytes that begin one, and three that go on. anySize is that of any character but a line break.
	wideSize, anySize = 6, wideSize + 2
	// complementSize is what the complement of a class of Unicode has more than the table, which ends and begins between its ranges.
	complementSize = 8
	// holesSize is what the complement of a class has more where case is ignored: beyond ASCII it lacks the sign of Kelvin and the long s.
	holesSize = 24
)

// class is the size of a class of ranges.
func (p program) class(ranges []rune) int64 {
	var is ascii
	var high []rune
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1] && r < utf8.RuneSelf; r++ {
			is[r] = true
		}
		if ranges[i+1] >= utf8.RuneSelf {
			high = append(high, max(ranges[i], utf8.RuneSelf), ranges[i+1])
		}
	}
	isWide := len(high) == 2 && high[0] == utf8.RuneSelf && high[1] == utf8.MaxRune
	var n int64
	switch {
	case isWide && p.tables == 0:
		n = wideSize
	case len(high) > 0:
		n = p.measure.class(high)
		if isWide { // a class and a complement may be one in the cheap text
			n += p.tables
		}
		if p.tables > 0 {
			n += complementSize
		}
	}
	if p.folded { // before a complement was made, or after
		union, both := is.folded()
		n += max(union.ranges(), both.ranges()) + kelvinSize + longSSize
		if len(high) > 0 {
			n += holesSize
		}
		return n
	}
	return max(1, n+is.ranges())
}

// ascii is a set of characters.
type ascii [utf8.RuneSelf]bool

// folded are the characters of which one case is there, and those of which both are.
func (is ascii) folded() (union, both ascii) {
	union, both = is, is
	for lower := 'a'; lower <= 'z'; lower++ {
		upper := lower - 'a' + 'A'
		union[lower] = is[lower] || is[upper]
		both[lower] = is[lower] && is[upper]
		union[upper], both[upper] = union[lower], both[lower]
	}
	return union, both
}

// ranges is the number of ranges. Where each letter is there in both cases, one range is that of both.
func (is ascii) ranges() (n int64) {
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
