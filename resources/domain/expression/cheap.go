// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package expression

import (
	"errors"
	"regexp/syntax"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// cheap is an expression of the syntax of another one that costs little to parse. Two things cost much for few bytes: a class of
// Unicode, of which Go copies a table, and merges it with others; and a range that ignores case, at each character of which
// Go looks. So every class of Unicode, and every complement of one, becomes that of separators: those of both kinds together would be all characters. No flag ignores case.
type cheap struct {
	text   string
	from   []int           // for each byte the place in the original, and that of its end
	tables map[string]bool // classes of Unicode in the original
	folded bool            // the original ignores case somewhere
}

const separators = `pZ`

// cheapen rewrites a text. The error names a class that Go knows and RE2 does not.
func cheapen(text string) (c cheap, err error) {
	c.from, c.tables = make([]int, 0, len(text)+1), map[string]bool{}
	var b strings.Builder
	write := func(from, to int, as string) {
		b.WriteString(as)
		for i := range len(as) {
			c.from = append(c.from, from+min(i, to-from-1))
		}
	}
	for at := 0; at < len(text); {
		end, as := at+1, text[at:at+1]
		switch rest := text[at:]; {
		case strings.HasPrefix(rest, `\Q`):
			end = at + literal(rest)
			as = text[at:end]
		case strings.HasPrefix(rest, `\p`), strings.HasPrefix(rest, `\P`):
			name, length := table(rest)
			end, as = at+length, rest[:length]
			if known()[name] > 0 {
				c.tables[name], as = true, `\`+separators
			} else if _, err := syntax.Parse(rest[:length], syntax.Perl); err == nil {
				return c, &syntax.Error{Code: syntax.ErrInvalidCharRange, Expr: rest[:length]}
			}
		case rest[0] == '\\':
			end = min(at+2, len(text))
			as = text[at:end]
		case strings.HasPrefix(rest, "(?"):
			end = at + flags(rest)
			as = strings.ReplaceAll(text[at:end], "i", "s") // another flag
			c.folded = c.folded || as != text[at:end]
		}
		write(at, end, as)
		at = end
	}
	c.text, c.from = b.String(), append(c.from, len(text))
	return c, nil
}

// literal is the length of a text that begins with \Q.
func literal(text string) int {
	if end := strings.Index(text, `\E`); end >= 0 {
		return end + len(`\E`)
	}
	return len(text)
}

// table is the name of the class of Unicode with which a text begins, and how long that is.
func table(text string) (name string, length int) {
	rest := text[len(`\p`):]
	if strings.HasPrefix(rest, "{") {
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return "", len(`\p`)
		}
		return strings.TrimPrefix(rest[1:end], "^"), len(`\p`) + end + 1
	}
	_, n := utf8.DecodeRuneInString(rest)
	return rest[:n], len(`\p`) + n
}

// flags is the length of the flags of a group with which a text begins; where none follow that of "(?".
func flags(text string) int {
	rest := strings.TrimLeft(text[len("(?"):], "imsU-")
	if strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, ")") {
		return len(text) - len(rest)
	}
	return len("(?")
}

// original is an error of a parse with the words of the original text.
func (c cheap) original(text string, err error) error {
	var e *syntax.Error
	if !errors.As(err, &e) {
		return err
	}
	quoted := e.Expr
	if at := strings.Index(c.text, quoted); at >= 0 {
		quoted = text[c.from[at]:c.from[at+len(quoted)]]
	}
	return &syntax.Error{Code: e.Code, Expr: quoted}
}

// known are the sizes of the classes of Unicode that Go and RE2 know, by name, whether case is ignored or not.
var known = sync.OnceValue(func() map[string]int64 {
	sizes := map[string]int64{}
	add := func(name string) {
		for _, head := range []string{"", "(?i)"} {
			for _, class := range []string{`\p{`, `\P{`} { // of scattered characters the complement has more
				if tree, err := syntax.Parse(head+class+name+`}`, syntax.Perl); err == nil {
					sizes[name] = max(sizes[name], measure{}.size(tree))
				}
			}
		}
	}
	add("Any")
	for name := range unicode.Categories {
		if len(name) <= 2 && name != "LC" && name != "Cn" { // RE2 has no others
			add(name)
		}
	}
	for name := range unicode.Scripts {
		add(name)
	}
	return sizes
})
