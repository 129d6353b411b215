// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package expression

import (
	"regexp/syntax"
	"unicode/utf8"
)

const (
	// ends are the instructions of every program: its start, its end, and those around them.
	ends = 5
	// endless is what sizes end at; times the 1000 that a repetition may have it is an int64.
	endless = 1 << 40
	// folds is the most that a character adds where case is ignored: k is also K and the sign of Kelvin. So do the first and
	// the last of a range, and a wide range has such characters of about maxFolds scripts.
	folds, maxFolds = 8, 24
)

// measure counts instructions.
type measure struct {
	folded bool  // somewhere case is ignored
	tables int64 // the size of all classes of Unicode that are named somewhere
}

func (m measure) program(tree *syntax.Regexp) int64 { return m.size(tree) + ends }

// size is that of a part, at least 1. The parser bounds how deep parts are nested.
func (m measure) size(part *syntax.Regexp) int64 {
	var n int64
	for _, sub := range part.Sub {
		n = min(n+m.size(sub)+1, endless) // with the branch of an alternative
	}
	switch part.Op {
	case syntax.OpLiteral:
		for _, r := range part.Rune {
			n += m.literal(r)
		}
	case syntax.OpCharClass:
		n = m.class(part.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n = m.class([]rune{0, '\n' - 1, '\n' + 1, utf8.MaxRune})
	case syntax.OpCapture, syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
		n += 2
	case syntax.OpRepeat: // copies of its part, which has a branch each already
		n = n*int64(max(part.Min, part.Max, 1)) + 2
	}
	return min(max(n, 1), endless)
}

func (m measure) literal(r rune) int64 {
	n := int64(utf8.RuneLen(r))
	if n < 0 { // RE2 takes a surrogate for the replacement character
		n = 3
	}
	if m.folded && isFolded(r, r) {
		n += folds
	}
	return n
}

// class is the size of a class of ranges: RE2 compiles the tree of their bytes in UTF-8.
func (m measure) class(ranges []rune) (n int64) {
	before := rune(-1)
	for i := 0; i+1 < len(ranges); i += 2 {
		lo, hi := ranges[i], ranges[i+1]
		for _, part := range lengths {
			if from, to := max(lo, part.lo), min(hi, part.hi); from <= to {
				if before < part.lo {
					before = -1
				}
				n += nodes(from, to, before, part.bytes)
				before = to
			}
		}
		if m.folded && isFolded(lo, hi) {
			n += folds
			if hi > utf8.RuneSelf && hi < utf8.MaxRune {
				n += folds * min(int64(hi-lo)>>6, maxFolds)
			}
		}
	}
	if !isPlain(ranges) {
		n += m.tables
	}
	return n
}

// isPlain reports whether a class names no table of Unicode, or one that adds nothing: it is of ASCII alone, or has all else.
func isPlain(ranges []rune) bool {
	last := len(ranges) - 2
	return last < 0 || ranges[last+1] < utf8.RuneSelf || ranges[last] <= utf8.RuneSelf && ranges[last+1] == utf8.MaxRune
}

// lengths are the characters by the length of their UTF-8.
var lengths = []struct {
	lo, hi rune
	bytes  int
}{{0, 0x7f, 1}, {0x80, 0x7ff, 2}, {0x800, 0xffff, 3}, {0x10000, utf8.MaxRune, 4}}

// nodes are the ranges of bytes that a range of characters adds to the tree of a class, after one that ends with before.
func nodes(lo, hi, before rune, bytes int) (n int64) {
	n = 1
	for level := 1; level < bytes; level++ {
		bits := 6 * level // below the byte of this level
		mask := rune(1)<<bits - 1
		first, last := lo>>bits, hi>>bits
		switch {
		case first == last:
			n++
		case lo&mask == 0 && hi&mask == mask:
			n++ // all that begin with one of the bytes
		default:
			n += min(int64(last-first+1), 3) + 1 // the first and the last may be there in part, and those between have any continuation
		}
		if before >= 0 && before>>bits == first {
			n-- // the byte is there
		}
	}
	return n
}

// isFolded reports whether a range may have letters: below À those of ASCII and the micro sign.
func isFolded(lo, hi rune) bool { return hi >= 'A' && lo <= 'z' || hi >= 0xb5 }
