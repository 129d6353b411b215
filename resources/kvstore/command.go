// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/printable"
)

// keysCommand lists keys of the kvstore from this machine.
var keysCommand command.Subcommand = func(*hive.Hive) *cobra.Command {
	var file, output string
	var timeout time.Duration
	list := &cobra.Command{
		Use: "list [PREFIX]", Short: "List the keys of the kvstore with a prefix, and their values", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := "cilium/"
			if len(args) > 0 {
				prefix = args[0]
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return listKeys(ctx, cmd.OutOrStdout(), file, prefix, output)
		},
	}
	list.Flags().StringVar(&file, "etcd-config", defaultConfigFile, "etcd client configuration")
	list.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "Limit of the whole command")
	list.Flags().StringVarP(&output, "output", "o", "plain", "plain or json")
	parent := &cobra.Command{Use: "kvstore", Short: "Look at the kvstore"}
	parent.AddCommand(list)
	return parent
}

// keysOfShell is the command by its name in the shell of the original.
var keysOfShell = command.ShellCommand{Name: "kvstore/list", Short: "The keys with a prefix, and their values", Args: []string{"kvstore", "list"}}

func listKeys(ctx context.Context, w io.Writer, file, prefix, output string) error {
	if output != "plain" && output != "json" {
		return fmt.Errorf("-o: %q is no output; plain and json are", output)
	}
	r, err := newReader("list", file)
	if err != nil {
		return err
	}
	c := r.client.conn
	defer func() { _ = c.Stop(ctx) }()
	if err := c.open(ctx); err != nil {
		return fmt.Errorf("connecting to etcd as %s says: %w", file, err)
	}
	found, err := r.client.List(ctx, prefix)
	if err != nil {
		return err
	}
	if output == "json" {
		values := map[string]string{}
		for _, e := range found.Entries {
			values[e.Key] = string(e.Value)
		}
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(values)
	}
	for _, e := range found.Entries {
		if _, err := fmt.Fprintf(w, "# %s\n%s\n\n", printable.Line(e.Key), printable.Line(string(e.Value))); err != nil {
			return err
		}
	}
	return nil
}
