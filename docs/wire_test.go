// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	ruleID = regexp.MustCompile(`\b([A-Z][A-Z0-9]*)-([A-Z]?)(\d{1,2})\b`)
	// A rule or example begins a list item with its id, or has it alone in a cell of a table.
	ruleItem = regexp.MustCompile(`^- \*\*([A-Z][A-Z0-9]*-[A-Z]?\d+)\*\* `)
	ruleCell = regexp.MustCompile(`^[A-Z][A-Z0-9]*-[A-Z]?\d+$`)
	// A citation from before ids were unique.
	bareRule = regexp.MustCompile(`\b([Rr]ules?|[Ee]xamples?) [A-Z]?\d`)
)

// TestRuleIDsAreUnique holds that an id of docs/wire means one rule of one page, and that
// all ids that are cited, there and in the code, exist.
func TestRuleIDsAreUnique(t *testing.T) {
	pages, err := filepath.Glob("wire/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	pageOf, prefixes := map[string]string{}, map[string]string{}
	for _, page := range pages {
		for _, id := range definedRules(t, page) {
			if other := pageOf[id]; other != "" {
				t.Errorf("%s: %s is defined in %s, too", page, id, other)
			}
			pageOf[id] = page
			prefix, _, _ := strings.Cut(id, "-")
			if other := prefixes[prefix]; other != "" && other != page {
				t.Errorf("%s: the prefix of %s belongs to %s", page, id, other)
			}
			prefixes[prefix] = page
		}
	}
	if len(pageOf) < 400 {
		t.Fatalf("%d rules and examples found in docs/wire", len(pageOf))
	}
	cite := func(path, text string) {
		for _, found := range ruleID.FindAllStringSubmatch(text, -1) {
			if prefixes[found[1]] != "" && pageOf[found[0]] == "" {
				t.Errorf("%s cites %s, which no page of docs/wire has", path, found[0])
			}
		}
		if found := bareRule.FindString(text); found != "" {
			t.Errorf("%s cites %q: write the id with its prefix, as docs/wire has it", path, found)
		}
	}
	for _, page := range pages {
		cite(page, readText(t, page))
	}
	for _, dir := range []string{"cells", "resources", "runtime", "cmd/operator"} {
		walk(t, filepath.Join(root, dir), func(path string, _ fs.DirEntry) error {
			if filepath.Ext(path) == ".go" {
				cite(path, comments(readText(t, path)))
			}
			return nil
		})
	}
}

// definedRules are the ids that a page defines, in order.
func definedRules(t *testing.T, page string) (ids []string) {
	t.Helper()
	inTables := map[string]bool{} // several rows may belong to one rule
	for line := range strings.Lines(readText(t, page)) {
		if found := ruleItem.FindStringSubmatch(line); found != nil {
			ids = append(ids, found[1])
		}
		for c := range strings.SplitSeq(line, "|") {
			if id := strings.TrimSpace(c); ruleCell.MatchString(id) {
				inTables[id] = true
			}
		}
	}
	for id := range inTables {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// comments are what line comments of a Go file say; tables in code name ids, too.
func comments(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if _, comment, ok := strings.Cut(line, "//"); ok {
			b.WriteString(comment)
		}
	}
	return b.String()
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestDesignPagesNameTests holds that the tests that design pages name exist.
func TestDesignPagesNameTests(t *testing.T) {
	pages, err := filepath.Glob("design/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	var tests strings.Builder
	for _, dir := range []string{"cells", "resources", "runtime", "cmd/operator"} {
		walk(t, filepath.Join(root, dir), func(path string, _ fs.DirEntry) error {
			if strings.HasSuffix(path, "_test.go") {
				tests.WriteString(readText(t, path))
			}
			return nil
		})
	}
	for _, page := range pages {
		named := testName.FindAllStringSubmatch(readText(t, page), -1)
		if len(named) == 0 {
			t.Errorf("%s does not say how it is tested", page)
		}
		for _, name := range named {
			if !strings.Contains(tests.String(), "func "+name[1]+"(") {
				t.Errorf("%s names %s, which is no test", page, name[1])
			}
		}
	}
}

var testName = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")

// TestSentinelsSayWhenNot holds that exported errors say when they are returned, and when not.
func TestSentinelsSayWhenNot(t *testing.T) {
	n := 0
	for _, dir := range []string{"cells", "resources", "runtime"} {
		walk(t, filepath.Join(root, dir), func(path string, _ fs.DirEntry) error {
			if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			for _, found := range sentinel.FindAllStringSubmatch(readText(t, path), -1) {
				if n++; !strings.Contains(strings.ReplaceAll(found[1], "\n//", ""), " not ") {
					t.Errorf("%s: the comment of %s does not say when it is not returned", path, found[2])
				}
			}
			return nil
		})
	}
	if n < 5 {
		t.Errorf("%d exported errors found", n)
	}
}

var sentinel = regexp.MustCompile(`(?m)((?:^//.*\n)*)^var (Err[A-Z]\w*) +=`)
