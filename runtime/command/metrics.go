// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/metrics"
)

func metricsCommand(h *hive.Hive) *cobra.Command {
	cmd := &cobra.Command{Use: "metrics", Short: "Look at metrics"}
	var pattern, server, output string
	list := &cobra.Command{
		Use:   "list",
		Short: "List the metrics of the cells that are on, or the values of a running operator",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			match, err := regexp.Compile(pattern)
			if err != nil {
				return fmt.Errorf("-p: %w", err)
			}
			if server != "" {
				return listValues(cmd.Context(), cmd.OutOrStdout(), server, match, output)
			}
			if err := Prepare(cmd, h); err != nil {
				return err
			}
			return listDeclared(cmd.OutOrStdout(), h, match, output)
		},
	}
	list.Flags().StringVarP(&pattern, "match-pattern", "p", "", "Only names that match this regular expression")
	list.Flags().StringVarP(&server, "server", "s", "", "Address of a running operator's API, such as localhost:9234: list its values")
	list.Flags().StringVarP(&output, "output", "o", "text", "text, json or yaml")
	cmd.AddCommand(list)
	return cmd
}

func listDeclared(w io.Writer, h *hive.Hive, match *regexp.Regexp, output string) error {
	declared, err := h.DeclaredMetrics()
	if err != nil {
		return err
	}
	declared = slices.DeleteFunc(declared, func(m metrics.Metric) bool { return !match.MatchString(m.Name) })
	switch output {
	case "json":
		return writeJSON(w, declared)
	case "yaml":
		return writeYAML(w, declared)
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

// sample is a metric with its value, as the API of an operator tells it.
type sample struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Value  float64           `json:"value,omitempty"`
}

func listValues(ctx context.Context, w io.Writer, server string, match *regexp.Regexp, output string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+"/v1/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking the operator at %s: %w", server, err)
	}
	defer resp.Body.Close()
	var samples []sample
	if err := json.NewDecoder(resp.Body).Decode(&samples); err != nil {
		return fmt.Errorf("reading the answer of %s (%s): %w", server, resp.Status, err)
	}
	samples = slices.DeleteFunc(samples, func(s sample) bool { return !match.MatchString(s.Name) })
	switch output {
	case "json":
		return writeJSON(w, samples)
	case "yaml":
		return writeYAML(w, samples)
	case "text":
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "METRIC\tLABELS\tVALUE")
		for _, s := range samples {
			fmt.Fprintf(t, "%s\t%s\t%g\n", s.Name, labelText(s.Labels), s.Value)
		}
		return t.Flush()
	}
	return unknownOutput(output, "text", "json", "yaml")
}

func labelText(labels map[string]string) string {
	parts := make([]string, 0, len(labels))
	for k, v := range labels {
		parts = append(parts, fmt.Sprintf("%s=%q", k, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}
