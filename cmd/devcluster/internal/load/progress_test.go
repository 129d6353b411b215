// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"regexp"
	"strings"
	"testing"
)

func TestProgressIsALineWithoutATerminal(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out)
	p.begin("pods", 3)
	p.add(1)
	p.add(2)
	p.end()
	if !regexp.MustCompile(`^pods: 3 in \d+\.\d s\n$`).MatchString(out.String()) {
		t.Errorf("shown was %q", out.String())
	}
}

func TestProgressIsABarOnATerminal(t *testing.T) {
	var out strings.Builder
	p := &Progress{out: &out, terminal: true}
	p.begin("pods", 4)
	p.add(2)
	p.add(2)
	p.end()
	want := "\rpods             [====================                    ] 2/4 " +
		"\rpods             [========================================] 4/4 \n"
	if out.String() != want {
		t.Errorf("shown was %q", out.String())
	}
}

func TestNoProgress(t *testing.T) {
	var p *Progress
	p.begin("pods", 1)
	p.add(1)
	p.end()
}
