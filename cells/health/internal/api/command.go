// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"

	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/printable"
)

// listTimeout is the timeout of the request.
const listTimeout = 10 * time.Second

// MetricsInShell lists the metrics by the name that the original's tools ask for.
var MetricsInShell = command.ShellCommand{Name: "metrics", Short: "The metrics with their values", Args: []string{"metrics", "list"}}

// MetricsCommand lists the metrics of a running operator, with the flags and the output of the original's command.
var MetricsCommand command.Subcommand = func(h *hive.Hive) *cobra.Command {
	var pattern, server, output string
	list := &cobra.Command{
		Use:   "list",
		Short: "List the metrics of a running operator with their values",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			match, err := regexp.Compile(pattern)
			if err != nil {
				return fmt.Errorf("-p: %w", err)
			}
			var samples []Sample
			if err := getSamples(cmd, h, server, &samples); err != nil {
				return err
			}
			if len(samples) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "The operator has no metrics: it runs without --enable-metrics.")
			}
			samples = slices.DeleteFunc(samples, func(s Sample) bool { return !match.MatchString(s.Name) })
			return writeValue(cmd.OutOrStdout(), samples, output, func(w io.Writer) error { return writeTable(w, samples) })
		},
	}
	list.Flags().StringVarP(&pattern, "match-pattern", "p", "", "Only names that match this regular expression")
	list.Flags().StringVarP(&server, "server-address", "s", "", "Address of the operator's API; empty for its local socket, and where there is none, for --operator-api-serve-addr")
	list.Flags().StringVarP(&output, "output", "o", "", "json, yaml or jsonpath='{}'; empty for a table")
	cmd := &cobra.Command{Use: "metrics"}
	cmd.AddCommand(list)
	return cmd
}

// getSamples asks at the local socket, as other commands do, and where no operator has one, at its API. The socket needs the user of the operator.
func getSamples(cmd *cobra.Command, h *hive.Hive, server string, into *[]Sample) error {
	if server != "" {
		return getJSON(cmd.Context(), server, metricsPath, into)
	}
	local := command.GetJSON(cmd, h, metricsPath, into)
	if local == nil {
		return nil
	}
	if err := getJSON(cmd.Context(), apiAddress(cmd, h), metricsPath, into); err != nil {
		return errors.Join(local, err)
	}
	return nil
}

// apiAddress is the address of the API of an operator with the options of the command, of which others may be invalid.
func apiAddress(cmd *cobra.Command, h *hive.Hive) string {
	if err := h.Configure(cmd.Flags()); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
	}
	entry, _ := h.Values().Lookup("operator-api-serve-addr")
	host, port, err := net.SplitHostPort(entry.Value)
	if err != nil {
		return DefaultAddress
	}
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// ClusterCommand shows the remote clusters of a running operator, with the flags of the original's command.
var ClusterCommand command.Subcommand = func(h *hive.Hive) *cobra.Command {
	var server, output string
	var verbose bool
	clusters := &cobra.Command{
		Use:   "clustermesh",
		Short: "Show the remote clusters that the leader reads",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if server == "" {
				server = apiAddress(cmd, h)
			}
			var all []clustermesh.RemoteCluster
			if err := getJSON(cmd.Context(), server, "/v1/cluster", &all); err != nil {
				return err
			}
			return writeValue(cmd.OutOrStdout(), all, output, func(w io.Writer) error { return clustermesh.WriteText(w, all, verbose) })
		},
	}
	clusters.Flags().StringVarP(&server, "server-address", "s", "", "Address of the operator's API; empty for that of --operator-api-serve-addr")
	clusters.Flags().StringVarP(&output, "output", "o", "", "json, yaml or jsonpath='{}'; empty for text")
	clusters.Flags().BoolVar(&verbose, "verbose", false, "Show clusters that are ready, too")
	cmd := &cobra.Command{Use: "status"}
	cmd.AddCommand(clusters)
	return cmd
}

// getJSON reads a response of a running operator's API.
func getJSON(ctx context.Context, server, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+path, nil)
	if err != nil {
		return fmt.Errorf("-s: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("reading from the operator at %s: %w", server, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return fmt.Errorf("the operator at %s answers %s: %s", server, resp.Status, text)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", server, err)
	}
	return nil
}

// writeValue writes a value in the format of -o; without one, as text.
func writeValue(w io.Writer, value any, output string, text func(io.Writer) error) error {
	path, isPath := strings.CutPrefix(output, "jsonpath=")
	switch {
	case output == "":
		return text(w)
	case output == "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(value)
	case output == "yaml":
		return command.WriteYAML(w, value)
	case isPath:
		return writeJSONPath(w, value, strings.Trim(path, "'"))
	}
	return fmt.Errorf("-o: %q is no output; json, yaml and jsonpath='{}' are", output)
}

func writeTable(w io.Writer, samples []Sample) error {
	t := tabwriter.NewWriter(w, 5, 0, 3, ' ', 0)
	fmt.Fprintln(t, "Metric\tLabels\tValue")
	for _, s := range samples {
		labels := make([]string, 0, len(s.Labels))
		for k, v := range s.Labels {
			labels = append(labels, fmt.Sprintf("%s=%q", k, v))
		}
		slices.Sort(labels)
		fmt.Fprintf(t, "%s\t%s\t%f\n", s.Name, strings.Join(labels, " "), s.Value)
	}
	return t.Flush()
}

// writeJSONPath writes the match of a path in a value as JSON.
func writeJSONPath(w io.Writer, value any, path string) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var data any
	if err := json.Unmarshal(text, &data); err != nil {
		return err
	}
	data = shownValues(data)
	p := jsonpath.New("output")
	if err := p.Parse(path); err != nil {
		return fmt.Errorf("-o jsonpath: %w", err)
	}
	if err := p.Execute(w, data); err != nil {
		return fmt.Errorf("-o jsonpath: %w", err)
	}
	_, err = fmt.Fprintln(w)
	return err
}

// shown is a text that is printed as one line, and is the same in JSON: a path may name a text itself, or what has it.
type shown string

// String implements fmt.Stringer.
func (s shown) String() string { return printable.Line(string(s)) }

// shownValues is a value of JSON whose texts are shown.
func shownValues(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, part := range value {
			value[key] = shownValues(part)
		}
	case []any:
		for i, part := range value {
			value[i] = shownValues(part)
		}
	case string:
		return shown(value)
	}
	return value
}
