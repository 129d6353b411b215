// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package status

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
)

// What the original's tools ask for by other names.
var (
	DumpInShell   = command.ShellCommand{Name: "db/dump", Short: "All that the operator tells of its state, as JSON", Args: []string{"status", "--json"}}
	HealthInShell = command.ShellCommand{Name: "health", Short: "The health tree", Args: []string{"status", "health"}}
)

// Command prints the state of the operator on this machine.
var Command command.Subcommand = func(h *hive.Hive) *cobra.Command {
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the running operator on one screen: who leads, duties, what is degraded and why",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s Screen
			if err := command.GetJSON(cmd, h, "/status", &s); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(s)
			}
			return s.write(cmd.OutOrStdout(), time.Now(), verbose)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "Print JSON")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "Show duties that are off, too, and why")
	cmd.AddCommand(&cobra.Command{
		Use: "health", Short: "Show the health tree of the running operator", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var statuses []health.Status
			if err := command.GetJSON(cmd, h, "/health", &statuses); err != nil {
				return err
			}
			return health.WriteText(cmd.OutOrStdout(), statuses, time.Now())
		},
	}, &cobra.Command{
		Use: "graph", Short: "Print the graph of the running operator as JSON, with timings and health (for graphdraw)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var g graph.Graph
			if err := command.GetJSON(cmd, h, "/graph", &g); err != nil {
				return err
			}
			return g.WriteJSON(cmd.OutOrStdout())
		},
	})
	return cmd
}
