// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Newduty lays out the folder of a new duty: a copy of an example of its kind, under its name.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// template is the example that a kind of duty is a copy of.
type template struct {
	folder string
	// words are replaced by the name, as is the name of the example's package.
	words []string
}

var templates = map[string]template{
	"reconcile": {"docs/examples/cells/zones", []string{"zone-label", "ZoneLabel", "zones.example.com"}},
	"sweep":     {"docs/examples/cells/orphans", []string{"orphans-interval", "OrphansInterval"}},
	"mirror":    {"docs/examples/cells/nodeips", nil},
}

func main() {
	kind := flag.String("kind", "", "shape of the duty: reconcile, sweep or mirror")
	name := flag.String("name", "", "name of the duty: lower-case letters")
	flag.Parse()
	if err := write(".", *kind, *name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write lays the folder cells/name out below root.
func write(root, kind, name string) error {
	target := filepath.Join(root, "cells", name)
	if _, err := os.Stat(target); name != "" && err == nil {
		return fmt.Errorf("lay out %s: it exists; choose another name", target)
	}
	files, err := render(root, kind, name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("lay out a duty: %w", err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(target, file), []byte(text), 0o644); err != nil {
			return fmt.Errorf("lay out a duty: %w", err)
		}
	}
	fmt.Printf("%s is laid out; add %s.Cell to cells/catalogue.go\n", target, name)
	return nil
}

var validName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// render is the text of the files of a duty.
func render(root, kind, name string) (map[string]string, error) {
	from, ok := templates[kind]
	if !ok {
		return nil, fmt.Errorf("lay out a duty: KIND=%s is not known: use reconcile, sweep or mirror", kind)
	}
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("lay out a duty: NAME=%s is not the name of a package: use lower-case letters and digits", name)
	}
	paths, err := filepath.Glob(filepath.Join(root, from.folder, "*.go"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("lay out a duty: no template in %s; run it in the repository's directory (%v)", from.folder, err)
	}
	files := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("lay out a duty: %w", err)
		}
		files[filepath.Base(path)] = from.rename(string(text), name)
	}
	return files, nil
}

// region markers are for documents.
var region = regexp.MustCompile(`(?m)^// (region .*|endregion)\n\n?`)

func (t template) rename(text, name string) string {
	example := filepath.Base(t.folder)
	title := strings.ToUpper(name[:1]) + name[1:]
	text = strings.ReplaceAll(text, "docs/examples/cells/"+example, "cells/"+name)
	for _, word := range t.words {
		_, rest, _ := strings.Cut(word, "-")
		switch {
		case strings.Contains(word, "-"):
			text = strings.ReplaceAll(text, word, name+"-"+rest)
		case strings.Contains(word, "."):
			text = strings.ReplaceAll(text, word, name+".example.com")
		default:
			end := strings.LastIndexFunc(word, func(r rune) bool { return r >= 'A' && r <= 'Z' })
			text = strings.ReplaceAll(text, word, title+word[end:])
		}
	}
	text = regexp.MustCompile(`\b`+example+`(_test)?\b`).ReplaceAllString(text, name+"$1")
	return strings.TrimRight(region.ReplaceAllString(text, ""), "\n") + "\n"
}
