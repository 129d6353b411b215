// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/hive"
)

var update = flag.Bool("update", false, "write the generated parts instead of comparing them")

// TestReadmeListsTheCells keeps the table of cells in the README what the binary
// says.
func TestReadmeListsTheCells(t *testing.T) {
	h := hive.New("operator", everything)
	if err := h.Configure(h.FlagSet()); err != nil {
		t.Fatal(err)
	}
	if err := h.Select(); err != nil {
		t.Fatal(err)
	}
	generated(t, filepath.Join(root, "README.md"), "cells", table(h.Graph()))
}

// table is the cells of a graph, as Markdown.
func table(g *graph.Graph) string {
	var b strings.Builder
	b.WriteString("| Cell | What it does | Lives | On when |\n|---|---|---|---|\n")
	for _, m := range g.Modules {
		if m.ID != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.ID, m.Title, lives(m), conditions(m))
		}
	}
	b.WriteString("\nNot built yet, and named by the operator where the options ask for it:\n\n| Duty | What it would do | Asked for by |\n|---|---|---|\n")
	for _, n := range g.NotBuilt {
		fmt.Fprintf(&b, "| `%s` | %s | `--%s` |\n", n.ID, n.Title, strings.Join(n.Asked.Flags, "`, `--"))
	}
	if pending := g.Module("pending"); pending != nil {
		fmt.Fprintf(&b, "\n`pending` accepts %d options of duties that are not built; `operator cells -v` names them.\n", len(pending.Options))
	}
	return b.String()
}

func lives(m graph.Module) string {
	if m.Term == "" {
		return "always"
	}
	return "while leading"
}

func conditions(m graph.Module) string {
	var all []string
	for _, c := range m.Conditions {
		text := c.Name
		if len(c.Flags) > 0 {
			text += " (`--" + strings.Join(c.Flags, "`, `--") + "`)"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", and ")
}

// generated compares the part of a file between two comments with what it should
// be, or writes it.
func generated(t *testing.T, file, name, want string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin := "<!-- " + name + ": written by make generate -->\n"
	end := "<!-- end of " + name + " -->"
	before, rest, found := strings.Cut(string(data), begin)
	got, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no part between %q and %q", file, begin, end)
	}
	switch {
	case got == want:
	case *update:
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the part %q of %s is out of date: run make generate; it should be\n%s", name, file, want)
	}
}
