// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package printable makes text of others safe to show: names, labels, messages and values come from objects, remote clusters, clouds
// and files, and could draw on a terminal, or look like a line that another author has written. It is used where text is shown, not
// where it is made.
package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns a text as one line: what controls a terminal, breaks a line, or turns the direction of writing is escaped as in a
// string of Go.
func Line(text string) string { return escape(text, "") }

// Text returns a text of several lines, in which line breaks and tabs stay. All else is escaped as by [Line], but that what JSON may have in a
// string has the form that JSON has for it: JSON stays JSON.
func Text(text string) string { return escape(text, "\n\t") }

// Cut returns at most so many bytes of a text; one that has more ends in an ellipsis. What it returns does not keep the rest in memory.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// escape escapes what does not print, but for these.
func escape(text, keep string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return isUnsafe(r) && !strings.ContainsRune(keep, r) }) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case !isUnsafe(r) || strings.ContainsRune(keep, r):
			b.WriteString(text[:size])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case keep != "" && r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		case r < ' ' || r < 0x100 && keep == "":
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		text = text[size:]
	}
	return b.String()
}

// isUnsafe reports whether a character does more than to be seen. utf8.RuneError stands for bytes that are none.
func isUnsafe(r rune) bool {
	return r == utf8.RuneError || unicode.Is(unicode.C, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}

// Writer returns a writer that escapes as [Text] does, for what programs print: also where a text was not made for a line, nothing of
// it reaches the terminal as it is. It is for one goroutine.
func Writer(to io.Writer) io.Writer { return &writer{to: to} }

type writer struct {
	to   io.Writer
	rest []byte // the beginning of a character
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	all := append(w.rest, p...)
	end := len(all)
	for i := 1; i < utf8.UTFMax && i <= len(all); i++ {
		if tail := all[len(all)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				end -= i
			}
			break
		}
	}
	w.rest = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(w.to, Text(string(all[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}
