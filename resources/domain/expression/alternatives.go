// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package expression

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// isPlainText reports whether a text costs little to parse as it is: it names no class of Unicode, and where it may ignore case no class has a range beyond ASCII.
func isPlainText(text string) bool {
	if len(text) > MaxLength {
		return false
	}
	folded := strings.Contains(text, "(?")
	for s := (scanner{text: text}); s.next(); {
		switch {
		case strings.HasPrefix(s.token, `\p`), strings.HasPrefix(s.token, `\P`), s.inClass && strings.HasPrefix(s.token, `\Q`):
			return false
		case s.inClass && folded && !isASCII(s.token):
			return false
		}
	}
	return true
}

// isASCII reports whether a token is of ASCII, and stands for what is.
func isASCII(token string) bool {
	if digits, ok := strings.CutPrefix(token, `\x`); ok {
		n, err := strconv.ParseUint(strings.Trim(digits, "{}"), 16, 32)
		return err == nil && n < utf8.RuneSelf
	}
	return !strings.ContainsFunc(token, func(r rune) bool { return r >= utf8.RuneSelf }) && !strings.HasPrefix(token, `\1`) // \123 is S, \177 the last
}

// scanner are the tokens of an expression: a character, with what escapes it; a text that is quoted; a class of ASCII in another.
type scanner struct {
	text, token string
	inClass     bool // the token is in a class, or ends one
	at          int
	class       int // where its characters begin, and 0 if there is none
}

func (s *scanner) next() bool {
	if s.at >= len(s.text) {
		return false
	}
	rest := s.text[s.at:]
	s.token, s.inClass = rest[:1], s.class > 0
	switch {
	case strings.HasPrefix(rest, `\Q`):
		s.token = rest[:literal(rest)]
	case strings.HasPrefix(rest, `\x{`):
		s.token = rest[:max(strings.IndexByte(rest, '}')+1, len(`\x`))]
	case strings.HasPrefix(rest, `\x`):
		s.token = rest[:min(len(`\x00`), len(rest))]
	case rest[0] == '\\':
		_, n := utf8.DecodeRuneInString(rest[1:])
		s.token = rest[:1+n]
	case s.inClass && strings.HasPrefix(rest, "[:"):
		if end := strings.Index(rest, ":]"); end > 0 {
			s.token = rest[:end+len(":]")]
		}
	case s.inClass && rest[0] == ']' && s.at > s.class:
		s.class = 0
	case !s.inClass && rest[0] == '[':
		s.class = s.at + 1
		if strings.HasPrefix(rest, "[^") {
			s.token = rest[:2]
			s.class++
		}
	default:
		_, n := utf8.DecodeRuneInString(rest)
		s.token = rest[:n]
	}
	s.at += len(s.token)
	return true
}

// apart is a text of which no two alternatives begin with the same: each begins with nothing.
func apart(text string) string {
	var b strings.Builder
	for s := (scanner{text: text}); s.next(); {
		b.WriteString(s.token)
		if s.token == "|" && !s.inClass {
			b.WriteString("(?:)")
		}
	}
	return b.String()
}

// mayDiffer reports whether alternatives are joined by Go that are not by RE2, as the tree of them apart shows.
func mayDiffer(tree *syntax.Regexp) bool {
	seen := trees{}
	return seen.visit(tree).differ
}

// trees are the numbers of trees, which equal ones have in common, by what they consist of: the root and the numbers of its parts.
type trees map[string]uint32

// visited is what is known of a tree.
type visited struct {
	number uint32
	hasAny bool // somewhere it has any character
	differ bool // somewhere alternatives differ, and all else is open
}

// visit visits each part once: equal ones have equal numbers.
func (t trees) visit(part *syntax.Regexp) (is visited) {
	parts := make([]uint32, len(part.Sub))
	is.hasAny = isAny(part)
	for i, sub := range part.Sub {
		v := t.visit(sub)
		if v.differ {
			return v
		}
		parts[i], is.hasAny = v.number, is.hasAny || v.hasAny
	}
	if part.Op == syntax.OpAlternate && differ(part, parts, is.hasAny) {
		is.differ = true
		return is
	}
	if part.Op == syntax.OpConcat && len(parts) > 1 && part.Sub[0].Op == syntax.OpEmptyMatch { // with which an alternative begins
		if parts = parts[1:]; len(parts) == 1 {
			is.number = parts[0]
			return is
		}
	}
	is.number = t.of(part, parts)
	return is
}

// of is the number of a part of parts.
func (t trees) of(part *syntax.Regexp, parts []uint32) uint32 {
	op, ranges := part.Op, part.Rune
	switch { // RE2 knows no other any character
	case op == syntax.OpAnyCharNotNL:
		op, ranges = syntax.OpCharClass, notNewline
	case op == syntax.OpCharClass && isAny(part):
		op, ranges = syntax.OpAnyChar, nil
	}
	key := []byte{byte(op), byte(part.Flags & (syntax.FoldCase | syntax.NonGreedy))}
	if op == syntax.OpCharClass || op == syntax.OpAnyChar {
		key[1] = 0 // of the text
	}
	key = binary.LittleEndian.AppendUint32(key, uint32(part.Min))
	key = binary.LittleEndian.AppendUint32(key, uint32(part.Max))
	for _, r := range ranges {
		key = binary.LittleEndian.AppendUint32(key, uint32(r))
	}
	for _, n := range parts {
		key = binary.LittleEndian.AppendUint32(key, n)
	}
	n, ok := t[string(key)]
	if !ok {
		n = uint32(len(t))
		t[string(key)] = n
	}
	return n
}

// notNewline is what . stands for.
var notNewline = []rune{0, '\n' - 1, '\n' + 1, utf8.MaxRune}

// isAny reports whether a part is any character.
func isAny(part *syntax.Regexp) bool {
	return part.Op == syntax.OpAnyChar || part.Op == syntax.OpCharClass && slices.Equal(part.Rune, []rune{0, utf8.MaxRune})
}

// differ reports whether RE2 does not join alternatives as Go does: where two are equal, for RE2 has what they begin with once and nothing after it; where there is a character with
// what is none; and where one has any character, with which RE2 joins only what is beside it, and Go each other character.
func differ(part *syntax.Regexp, numbers []uint32, hasAny bool) bool {
	seen := make(map[uint32]bool, len(numbers))
	characters := 0
	for i, sub := range part.Sub {
		if seen[numbers[i]] {
			return true
		}
		seen[numbers[i]] = true
		if sub.Op == syntax.OpConcat && len(sub.Sub) == 2 && sub.Sub[0].Op == syntax.OpEmptyMatch {
			sub = sub.Sub[1]
		}
		if sub.Op == syntax.OpLiteral && len(sub.Rune) == 1 || sub.Op == syntax.OpCharClass || sub.Op == syntax.OpAnyChar || sub.Op == syntax.OpAnyCharNotNL {
			characters++
		}
	}
	return characters > 0 && characters < len(part.Sub) || hasAny && (characters == 0 || len(part.Sub) > 2)
}
