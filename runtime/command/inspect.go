// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph/query"
	"github.com/skep-operator/skep/runtime/graph/render"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/printable"
)

func cellsCommand(h *hive.Hive) *cobra.Command {
	var verbose, asJSON bool
	cmd := &cobra.Command{
		Use: "cells", Short: "List the cells: what each does, whether it is on, and why", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := Prepare(cmd, h); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), h.Graph().Modules)
			}
			return render.WriteCells(cmd.OutOrStdout(), h.Graph(), verbose)
		},
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "Show flags and conditions, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "Print JSON")
	return cmd
}

// hiveCommand keeps the spellings of the original.
func hiveCommand(h *hive.Hive) *cobra.Command {
	cmd := &cobra.Command{
		Use: "hive", Short: "List the cells with their options and the start order (see cells, graph)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := Prepare(cmd, h); err != nil {
				return err
			}
			g := h.Graph()
			if err := render.WriteCells(cmd.OutOrStdout(), g, true); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout())
			return render.WriteOrder(cmd.OutOrStdout(), g)
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use: "dot-graph", Short: "Print the graph for Graphviz (see graph -o dot)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeGraph(cmd, h, "dot", render.Options{})
		},
	})
	return cmd
}

func whyCommand(h *hive.Hive) *cobra.Command {
	return &cobra.Command{
		Use:   "why TYPE|CELL|FLAG",
		Short: "Say why a cell is on or off, who provides and needs a type, what a flag switches",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := Prepare(cmd, h); err != nil {
				return err
			}
			answer, err := query.Why(h.Graph(), args[0])
			if err != nil {
				return err
			}
			return render.WriteAnswer(cmd.OutOrStdout(), answer)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			_ = h.Select()
			return append(h.Graph().ModuleIDs(), h.OptionNames()...), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

func validateCommand(h *hive.Hive) *cobra.Command {
	var verbose, build bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check configuration and graph without a cluster; the exit code tells",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd, h); err != nil || h.Check() != nil {
				return h.Check()
			}
			if build {
				if err := h.Build(); err != nil {
					return err
				}
				if err := h.TryTerms(); err != nil {
					return err
				}
			}
			return printValid(cmd.OutOrStdout(), h, verbose)
		},
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "List providers that nothing needs, too")
	cmd.Flags().BoolVar(&build, "build", false, "Run constructors, too, those of terms included; they may want files that flags name")
	return cmd
}

func printValid(w io.Writer, h *hive.Hive, verbose bool) error {
	for _, warning := range h.Warnings() {
		fmt.Fprintln(w, "warning:", printable.Line(warning))
	}
	g := h.Graph()
	if verbose {
		for _, id := range g.Unused {
			n := g.Nodes[id]
			fmt.Fprintf(w, "unused: nothing needs %s, provided by %s, %s (module %s)\n", strings.Join(n.Provides, ", "), n.Name, n.Declared, n.Module)
		}
	}
	on := 0
	for _, m := range g.Modules {
		if m.ID != "" && m.Enabled {
			on++
		}
	}
	_, err := fmt.Fprintf(w, "valid: %d cells, %d of them on\n", len(g.ModuleIDs()), on)
	return err
}

func configCommand(h *hive.Hive) *cobra.Command {
	var diff, unknown bool
	var output string
	cmd := &cobra.Command{
		Use: "config", Short: "Print the effective options, and where each value comes from", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := Prepare(cmd, h); err != nil {
				return err
			}
			entries := h.Values().Entries()
			switch {
			case unknown:
				entries = h.Values().Unknown()
			case diff:
				entries = slices.DeleteFunc(entries, func(e config.Entry) bool { return e.Source.Kind == config.FromDefault || e.AtDefault() })
			}
			return writeEntries(cmd.OutOrStdout(), entries, output)
		},
	}
	cmd.Flags().BoolVar(&diff, "diff", false, "Only what differs from the default")
	cmd.Flags().BoolVar(&unknown, "unknown", false, "Only keys of the config file or directory that no cell declares")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, json or yaml")
	return cmd
}

func writeEntries(w io.Writer, entries []config.Entry, output string) error {
	switch output {
	case "json":
		return writeJSON(w, entries)
	case "yaml":
		return WriteYAML(w, entries)
	case "text":
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "OPTION\tVALUE\tSOURCE\tCELL")
		for _, e := range entries {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", printable.Line(e.Name), printable.Line(e.Value), printable.Line(e.Source.String()), e.Module)
		}
		return t.Flush()
	}
	return unknownOutput(output, "text", "json", "yaml")
}

func unknownOutput(given string, known ...string) error {
	return fmt.Errorf("-o %s is unknown; use %s", given, strings.Join(known, ", "))
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
