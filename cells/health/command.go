// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
)

// statusCommand asks the operator on this machine.
var statusCommand command.Contribution = func(h *hive.Hive) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the running operator on one screen: who leads, duties, what is degraded and why",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s screen
			if err := ask(cmd, h, "/status", &s); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(s)
			}
			return s.write(cmd.OutOrStdout(), time.Now())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "Print JSON")
	cmd.AddCommand(&cobra.Command{
		Use: "health", Short: "Show the health tree of the running operator", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var statuses []health.Status
			if err := ask(cmd, h, "/health", &statuses); err != nil {
				return err
			}
			return health.WriteText(cmd.OutOrStdout(), statuses, time.Now())
		},
	}, &cobra.Command{
		Use: "graph", Short: "Print the graph of the running operator as JSON, with timings and health (for graphdraw)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var g graph.Graph
			if err := ask(cmd, h, "/graph", &g); err != nil {
				return err
			}
			return g.WriteJSON(cmd.OutOrStdout())
		},
	})
	return cmd
}

// ask reads what the operator says whose socket the options name. Other options
// may be wrong: they are the running operator's affair.
func ask(cmd *cobra.Command, h *hive.Hive, path string, into any) error {
	if err := h.Configure(cmd.Flags()); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
	}
	config, _ := h.Values().Struct(reflect.TypeFor[Config]())
	return askSocket(cmd.Context(), config.Interface().(Config).OperatorSockPath, path, into)
}

// askLimit is how long an operator that lives may take to answer.
const askLimit = 10 * time.Second

func askSocket(ctx context.Context, socket, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://operator"+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no operator is running here: there is no socket %s (--operator-sock-path)", socket)
	case err != nil:
		return fmt.Errorf("asking the operator at %s: %w", socket, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the operator at %s answers %s to %s; is it of another version?", socket, resp.Status, path)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the answer of the operator at %s: %w", socket, err)
	}
	return nil
}
