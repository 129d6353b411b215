// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/metrics"
)

// metricsCommand is about metrics; the cell that serves their values contributes how to
// list them.
func metricsCommand(h *hive.Hive) *cobra.Command {
	cmd := &cobra.Command{Use: "metrics", Short: "Look at metrics"}
	var pattern, output string
	describe := &cobra.Command{
		Use:   "describe",
		Short: "Describe the metrics of the cells that are on, without an operator",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			match, err := regexp.Compile(pattern)
			if err != nil {
				return fmt.Errorf("-p: %w", err)
			}
			if err := Prepare(cmd, h); err != nil {
				return err
			}
			return describeMetrics(cmd.OutOrStdout(), h, match, output)
		},
	}
	describe.Flags().StringVarP(&pattern, "match-pattern", "p", "", "Only names that match this regular expression")
	describe.Flags().StringVarP(&output, "output", "o", "text", "text, json or yaml")
	cmd.AddCommand(describe, dumpCommand(h))
	return cmd
}

// dumpCommand writes the features of an operator, as tools of the original read them.
func dumpCommand(h *hive.Hive) *cobra.Command {
	features := &cobra.Command{
		Use: "features DIRECTORY", Short: "Write the metrics of features that are on as feature-metrics.prom into a directory", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := Prepare(cmd, h); err != nil {
				return err
			}
			declared, err := h.DeclaredMetrics()
			if err != nil {
				return err
			}
			var text strings.Builder
			for _, m := range declared {
				if strings.Contains(m.Name, "_feature_") {
					fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, m.Type)
				}
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(args[0], "feature-metrics.prom"), []byte(text.String()), 0o644)
		},
	}
	dump := &cobra.Command{Use: "dump", Short: "Write metrics into files", Hidden: true}
	dump.AddCommand(features)
	return dump
}

func describeMetrics(w io.Writer, h *hive.Hive, match *regexp.Regexp, output string) error {
	declared, err := h.DeclaredMetrics()
	if err != nil {
		return err
	}
	declared = slices.DeleteFunc(declared, func(m metrics.Metric) bool { return !match.MatchString(m.Name) })
	switch output {
	case "json":
		return writeJSON(w, declared)
	case "yaml":
		return WriteYAML(w, declared)
	case "text":
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "METRIC\tTYPE\tLABELS\tCELL\tMEANING")
		for _, m := range declared {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", m.Name, m.Type, strings.Join(m.Labels, ","), m.Module, m.Help)
		}
		return t.Flush()
	}
	return unknownOutput(output, "text", "json", "yaml")
}
