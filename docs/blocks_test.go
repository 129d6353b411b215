// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Documents hold code and output in fenced blocks. A line before the block says
// where its text comes from:
//
//	<!-- region writing_test.go#cell -->   lines of a file between
//	                                       "// region cell" and "// endregion",
//	                                       or all of it without a name
//	<!-- run operator graph -->            what a command prints
//	<!-- says flag -->                     what is said of a list (mistakes_test.go)
//	<!-- live -->                          what the commands of the block print
//	                                       while an operator runs
//
// A block of the language "console" needs no such line: the command lines in it,
// which begin with "$ operator", are run. A block of Go has to be a region.
type block struct {
	directive string // without the comment around it, "" for none
	language  string
	text      string
}

var (
	directiveLine = regexp.MustCompile(`^<!-- (region|run|says|live)( .*)? -->$`)
	fenceLine     = regexp.MustCompile("^```([a-z]*)$")
)

// rewrite returns a document with the text of every block as make says.
func rewrite(document string, make func(block) (string, error)) (string, error) {
	var out strings.Builder
	var open *block
	directive := ""
	for line := range strings.Lines(document) {
		bare := strings.TrimSuffix(line, "\n")
		fence := fenceLine.FindStringSubmatch(bare)
		switch {
		case open == nil && fence != nil:
			open = &block{directive: directive, language: fence[1]}
			out.WriteString(line)
		case open != nil && bare == "```":
			text, err := make(*open)
			if err != nil {
				return "", err
			}
			out.WriteString(text + line)
			open, directive = nil, ""
		case open != nil:
			open.text += line
		default:
			if directive != "" {
				return "", fmt.Errorf("no block follows <!-- %s -->", directive)
			}
			if directiveLine.MatchString(bare) {
				directive = strings.TrimSuffix(strings.TrimPrefix(bare, "<!-- "), " -->")
			}
			out.WriteString(line)
		}
	}
	if open != nil || directive != "" {
		return "", fmt.Errorf("the last block has no end")
	}
	return out.String(), nil
}

// generate is the text that a block should have.
func (s *shell) generate(b block) (string, error) {
	verb, rest, _ := strings.Cut(b.directive, " ")
	switch {
	case verb == "region":
		return region(rest)
	case verb == "run":
		return s.run(rest), nil
	case verb == "says" && sayings[rest] == nil:
		return "", fmt.Errorf("there is no saying %q", rest)
	case verb == "says":
		return sayings[rest](s.t), nil
	case verb == "live":
		return b.text, nil // TestLive looks after it
	case b.language == "go":
		return "", fmt.Errorf("a block of Go is no region of a tested file:\n%s", b.text)
	case b.language == "console":
		return s.session(b.text)
	}
	return b.text, nil
}

// ofOperator is a command line that can be run: it needs nothing but the operator.
var ofOperator = regexp.MustCompile(`^\$ ([A-Z_0-9]+=\S* )*operator( |$)`)

// session runs the command lines of a block, and returns them with what they
// print. A block with other programs stays as it is.
func (s *shell) session(text string) (string, error) {
	var out strings.Builder
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(line, "$ ")
		switch {
		case ok && ofOperator.MatchString(strings.TrimSpace(line)):
			out.WriteString(line + s.run(command))
		case ok && out.Len() > 0:
			return "", fmt.Errorf("a session runs the operator and other programs:\n%s", text)
		case ok:
			return text, nil
		}
	}
	return out.String(), nil
}

// region is the part of a file between two comments, or all of it below the
// licence. place is a path, and # with a name where it is a part.
func region(place string) (string, error) {
	path, name, part := strings.Cut(place, "#")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	lines := strings.SplitAfter(string(data), "\n")
	inside, found := !part, !part
	var kept []string
	for i, line := range lines {
		bare := strings.TrimSpace(line)
		switch {
		case !part && i < 2 && strings.HasPrefix(bare, "// "): // the licence
		case part && bare == "// region "+name:
			inside, found = true, true
		case part && bare == "// endregion":
			inside = false
		case inside:
			kept = append(kept, line)
		}
	}
	if !found {
		return "", fmt.Errorf("%s has no region %q", path, name)
	}
	return dedent(strings.Trim(strings.Join(kept, ""), "\n")) + "\n", nil
}

// dedent takes the tabs away that all lines begin with.
func dedent(text string) string {
	for text != "" && !unindented.MatchString(text) {
		text = firstTab.ReplaceAllString(text, "")
	}
	return text
}

var (
	unindented = regexp.MustCompile(`(?m)^[^\t\n]`)
	firstTab   = regexp.MustCompile(`(?m)^\t`)
)

// TestDocuments keeps code and output in the documents true: run it with -update
// to write them.
func TestDocuments(t *testing.T) {
	s := newShell(t)
	for _, path := range documents(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := &shell{t, s.env}
			rewriteFile(t, path, s.generate)
		})
	}
}

func documents(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// rewriteFile compares a document with what it should be, or writes it.
func rewriteFile(t *testing.T, path string, make func(block) (string, error)) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := rewrite(string(data), make)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	settle(t, path, string(data), want)
}

// settle compares what a file says with what it should say, or writes it.
func settle(t *testing.T, path, got, want string) {
	t.Helper()
	switch {
	case got == want:
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is out of date: write it with go test ./docs -update; %s", path, firstDifference(got, want))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		switch {
		case i >= len(g):
			return fmt.Sprintf("it ends before\n\t%s", w[i])
		case i >= len(w):
			return fmt.Sprintf("it goes on with\n\t%s", g[i])
		case g[i] != w[i]:
			return fmt.Sprintf("line %d is\n\t%s\nand should be\n\t%s", i+1, g[i], w[i])
		}
	}
	return "they differ in the last line break"
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// TestLinks follows the links of the documents to other files.
func TestLinks(t *testing.T) {
	for _, path := range documents(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		prose, err := rewrite(string(data), func(block) (string, error) { return "", nil })
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(prose, -1) {
			if _, err := os.Stat(found[1]); err != nil {
				t.Errorf("%s links to %s, which is not there", path, found[1])
			}
		}
	}
}
