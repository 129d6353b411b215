// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestText checks what stands in files.
func TestText(t *testing.T) {
	t.Run("licence", func(t *testing.T) {
		const header = "// SPDX-License-Identifier: Apache-2.0\n// Copyright Authors of Skep\n"
		for _, s := range allSources(t) {
			if s.isGo() && !strings.HasPrefix(s.text, header) && !strings.Contains(s.text, "\n\n"+header) && !s.isGenerated() {
				t.Errorf("%s does not begin with\n%s", s.path, header)
			}
		}
	})
	t.Run("length", func(t *testing.T) {
		broken := map[string]string{}
		for _, s := range allSources(t) {
			most := 500
			if s.isTest() {
				most = 1000
			}
			if n := strings.Count(s.text, "\n"); s.isGo() && !s.isGenerated() && n > most {
				broken[s.path] = fmt.Sprintf("has %d lines, more than %d", n, most)
			}
		}
		long.check(t, "one file per concept: find the two that are in it", broken)
	})
	for name, rule := range map[string]struct {
		literals []string // one of them is in each match; the pattern alone takes long for the whole tree
		pattern  *regexp.Regexp
		remedy   string
	}{
		"nothing is left to do": {
			[]string{"TO" + "DO", "FIX" + "ME", "XX" + "X"},
			regexp.MustCompile(`\b(` + "TO" + `DO|FIX` + `ME|XX` + `X)\b`), "do it, or leave it out cleanly and say so in docs",
		},
		"no paths of a machine": {
			[]string{"/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/"},
			regexp.MustCompile(`(^|[\s"'` + "`" + `=(])/(` + "wo" + `rk|ro` + `ot|ho` + `me)/[a-z.]`), "say where things are from the root of the repository",
		},
		"no hosts of registries": {
			[]string{".io/", "registry.k8s." + "io", "index.docker." + "io"},
			regexp.MustCompile(`\b(quay|ghcr|gcr|docker)\.io/|registry\.k8s\.` + `io|index\.docker\.` + `io`), "images are named by who deploys",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range allSources(t) {
				if s.path == "docs/house/text_test.go" || s.isGenerated() || path.Base(s.path) == "go.sum" {
					continue
				}
				has := func(text string) bool { return strings.Contains(s.text, text) }
				if !slices.ContainsFunc(rule.literals, has) {
					continue
				}
				if at := rule.pattern.FindStringIndex(s.text); at != nil {
					t.Errorf("%s:%d: %q\n\t%s", s.path, s.lineOf(at[0]+1), s.text[at[0]:at[1]], rule.remedy)
				}
			}
		})
	}
}
