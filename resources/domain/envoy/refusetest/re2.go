// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package refusetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/wasilibs/go-re2"
)

// known are the judgements of RE2; tests ask for the same expressions again and again.
var known sync.Map // by text: judgement

type judgement struct {
	groups int
	err    error
}

// compile is the number of the groups that RE2 finds in an expression, or its error.
func compile(text string) (groups int, err error) {
	if j, ok := known.Load(text); ok {
		return j.(judgement).groups, j.(judgement).err
	}
	var j judgement
	re, err := re2.Compile(text)
	if err == nil {
		j.groups = re.NumSubexp()
		err = checkSize(text)
	}
	if err != nil {
		j.err = fmt.Errorf("RE2 refuses %.300q: %w", text, err)
	}
	known.Store(text, j)
	return j.groups, j.err
}

// memory is by how much RE2 has more memory here than in Envoy, which has its default, 8 MiB: a program may be as much larger.
const memory = 16

// checkSize returns an error if an expression has a larger program than RE2 compiles with its default: as often as RE2 has its
// memory here, the expression is not compiled.
func checkSize(text string) error {
	small := !strings.Contains(text, "{") && !strings.Contains(strings.ToLower(text), `\p`)
	if small || strings.Contains(text, `\Q`) || strings.Contains(text, "(?P<") || strings.Contains(text, "(?<") { // what cannot be repeated as it is
		return nil
	}
	if _, err := re2.Compile(strings.Repeat("(?:"+text+")", memory)); err != nil {
		return fmt.Errorf("pattern too large: %w", err)
	}
	return nil
}

// Expression is RE2's error for an expression, nil if it takes it.
func Expression(text string) error {
	_, err := compile(text)
	return err
}

// checkSubstitution checks that RE2 can replace what it finds: a backslash is one of two, or before the number of a group.
func checkSubstitution(m *matcherv3.RegexMatchAndSubstitute) error {
	groups, err := compile(m.GetPattern().GetRegex())
	if err != nil {
		return err
	}
	text := m.Substitution
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		switch {
		case i == len(text):
			return errors.New("a substitution ends with a backslash")
		case text[i] == '\\':
		case text[i] < '0' || text[i] > '9':
			return fmt.Errorf("a substitution has the reference %q", text[i-1:i+1])
		case int(text[i]-'0') > groups:
			return fmt.Errorf("a substitution refers to group %c of %d", text[i], groups)
		}
	}
	return nil
}
