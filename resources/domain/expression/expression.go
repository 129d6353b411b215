// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package expression

import (
	"fmt"
	"regexp/syntax"
	"strings"
)

const (
	// MaxLength is the most bytes of an expression. The Gateway API allows 4096 for one value, and two are joined for gRPC. Go
	// allocates at most about 250 bytes for each to parse it, 2 MiB for all.
	MaxLength = 8 << 10

	// MaxProgram is the most instructions of the program. RE2 gives a program two thirds of its 8 MiB, 16 bytes for each
	// instruction: 349,525. This is below a third of that, since Size is an estimate, and far above what people write: a
	// path with two segments of up to 200 characters has 2,013, and 1,000 times any character 8,000.
	//
	// Envoy has a limit of its own, re2.max_program_size.error_level in its runtime, which is CheckProgram's.
	MaxProgram = 100_000
)

// Check returns why a text is no expression that RE2 can be given: the syntax error in the words of regexp.Compile, or the
// bound that it exceeds. It takes milliseconds and a few MiB at most, whatever the text is.
func Check(text string) error {
	size, err := Size(text)
	if err != nil {
		return err
	}
	if size > MaxProgram {
		return fmt.Errorf("regular expression %s is too large: its program has about %d instructions, and may have %d; repeat less",
			Quote(text), size, MaxProgram)
	}
	return nil
}

// Size is about the number of instructions of RE2's program for an expression, with repetitions multiplied. It is not below
// that of Go's program, and for texts that people write not below that of RE2's.
func Size(text string) (int64, error) {
	tree, m, err := parse(text)
	if err != nil {
		return 0, err
	}
	return m.program(tree), nil
}

// parse parses a text that may be long and expensive, as one that is cheap, and returns what that one lacks.
func parse(text string) (tree *syntax.Regexp, m measure, err error) {
	if len(text) > MaxLength {
		return nil, m, fmt.Errorf("regular expression %s is too long: it has %d bytes, and may have %d; split it", Quote(text), len(text), MaxLength)
	}
	c, err := cheapen(text)
	if err != nil {
		return nil, m, err
	}
	if tree, err = syntax.Parse(c.text, syntax.Perl); err != nil {
		return nil, m, c.original(text, err)
	}
	m.folded = c.folded
	for name := range c.tables {
		m.tables += known()[name]
	}
	return tree, m, nil
}

// maxQuoted is the most bytes of an expression in a message about its size.
const maxQuoted = 64

// Quote is a text in quotes, of which messages have the first 64 bytes.
func Quote(text string) string {
	if len(text) <= maxQuoted {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q…", strings.ToValidUTF8(text[:maxQuoted], ""))
}
