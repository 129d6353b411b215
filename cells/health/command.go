// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
)

// statusCommand asks the operator on this machine.
var statusCommand command.Contribution = func(h *hive.Hive) *cobra.Command {
	var asJSON bool
	ask := func(cmd *cobra.Command, path string, into any) error {
		if err := h.Configure(cmd.Flags()); err != nil {
			return err
		}
		config, _ := h.Values().Struct(reflect.TypeFor[Config]())
		return askSocket(cmd.Context(), config.Interface().(Config).OperatorSockPath, path, into)
	}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the running operator on one screen: who leads, duties, what is degraded and why",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s Status
			if err := ask(cmd, "/status", &s); err != nil {
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
			if err := ask(cmd, "/health", &statuses); err != nil {
				return err
			}
			return health.WriteText(cmd.OutOrStdout(), statuses, time.Now())
		},
	}, &cobra.Command{
		Use: "graph", Short: "Print the graph of the running operator as JSON, with timings and health (for graphdraw)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var g graph.Graph
			if err := ask(cmd, "/graph", &g); err != nil {
				return err
			}
			return g.WriteJSON(cmd.OutOrStdout())
		},
	})
	return cmd
}

// askSocket reads what the operator behind a socket says.
func askSocket(ctx context.Context, socket, path string, into any) error {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://operator"+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		if os.IsNotExist(err) {
			return fmt.Errorf("no operator is running here: there is no socket %s (--operator-sock-path)", socket)
		}
		return fmt.Errorf("asking the operator at %s: %w", socket, err)
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

// write draws the screen.
func (s Status) write(w io.Writer, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "Operator\t%s %s, up %s, %d MB heap\n", s.Name, s.Version, age(s.Started, now), s.HeapBytes>>20)
	if s.APIServer != "" {
		fmt.Fprintf(t, "API server\t%s\n", s.APIServer)
	}
	if e := s.Election; e != nil {
		fmt.Fprintf(t, "Leader\t%s\n", describeLeader(e, now))
	}
	fmt.Fprintln(t)
	fmt.Fprintln(t, "DUTY\tSTATE\t")
	for _, d := range s.Duties {
		fmt.Fprintf(t, "%s\t%s\t%s\n", d.ID, d.State, orTitle(d))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(s.Degraded) == 0 {
		_, err := fmt.Fprintln(w, "\nNothing is degraded.")
		return err
	}
	fmt.Fprintln(w, "\nDegraded:")
	return health.WriteText(w, s.Degraded, now)
}

func describeLeader(e *k8s.ElectionStatus, now time.Time) string {
	switch {
	case e.Leading:
		return fmt.Sprintf("this replica (%s) for %s, by lease %s", e.Identity, age(e.Since, now), e.Lease)
	case e.Holder == "":
		return "nobody is known to lead; lease " + e.Lease
	}
	return fmt.Sprintf("%s for %s; this replica (%s) stands by, lease %s", e.Holder, age(e.Since, now), e.Identity, e.Lease)
}

func orTitle(d Duty) string {
	if d.Reason != "" {
		return d.Reason
	}
	return d.Title
}

func age(since, now time.Time) string { return now.Sub(since).Round(time.Second).String() }
