// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/printable"
)

// defaultDirectory is where the original's chart mounts the configurations.
const defaultDirectory = "/var/lib/cilium/clustermesh/"

// troubleshootCommand checks the connections to remote clusters from this machine.
var troubleshootCommand command.Subcommand = func(h *hive.Hive) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "clustermesh [cluster…]", Short: "Check the connections to remote clusters step by step: files, names, TLS, etcd, configuration",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := command.Prepare(cmd, h); err != nil {
				return err
			}
			own, directory := ownConfig(h)
			return troubleshoot(cmd.Context(), cmd.OutOrStdout(), own, cmp.Or(directory, defaultDirectory), names, timeout)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "Limit of the check of one cluster")
	cmd.Flags().Bool("without-service-resolution", true, "Accepted for the original's command line: names are resolved by DNS in any case")
	_ = cmd.Flags().MarkHidden("without-service-resolution")
	parent := &cobra.Command{Use: "troubleshoot", Short: "Check connections from this machine step by step"}
	parent.AddCommand(cmd)
	return parent
}

// ownConfig returns the options that decide which clusters are accepted, and the directory.
func ownConfig(h *hive.Hive) (own cluster.Config, directory string) {
	value := func(option string) string {
		e, _ := h.Values().Lookup(option)
		return e.Value
	}
	number := func(option string) uint32 {
		n, _ := strconv.ParseUint(value(option), 10, 32) // Prepare has reported what is no number
		return uint32(n)
	}
	own.ClusterName, own.ClusterID, own.MaxConnectedClusters = value("cluster-name"), number("cluster-id"), number("max-connected-clusters")
	return own, value("clustermesh-config")
}

// troubleshoot checks the named clusters, or all. The error names those that failed.
func troubleshoot(ctx context.Context, w io.Writer, own cluster.Config, path string, names []string, timeout time.Duration) error {
	d, err := readDirectory(path, own.ClusterName, func(string) bool { return false })
	if err = errors.Join(append(d.unusable, err)...); err != nil {
		fmt.Fprintln(w, err)
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(d.files))
		fmt.Fprintf(w, "%s has %d remote clusters\n", path, len(names))
	}
	for _, name := range names {
		fmt.Fprintf(w, "\n%s:\n", printable.Line(name))
		file, exists := d.files[name]
		checkErr := fmt.Errorf("%s has no configuration of it", path)
		if exists {
			limited, cancel := context.WithTimeout(ctx, timeout)
			checkErr = kvstore.Troubleshoot(limited, w, file.path, func(ctx context.Context, w io.Writer, c kvstore.Client) error {
				return checkHandshake(ctx, w, c, own, name)
			})
			cancel()
		} else {
			fmt.Fprintf(w, "  FAILED  %s\n", printable.Line(checkErr.Error()))
		}
		if checkErr != nil {
			err = errors.Join(err, fmt.Errorf("remote cluster %s: %w", printable.Line(name), checkErr))
		}
	}
	return err
}

// checkHandshake reads the configuration of a cluster.
func checkHandshake(ctx context.Context, w io.Writer, c kvstore.Client, own cluster.Config, name string) error {
	key := kvstore.Key(kvstore.ClusterConfigPrefix, name)
	entry, err := c.Get(ctx, key)
	if err == nil && entry == nil {
		err = fmt.Errorf("the key %s does not exist: the cluster has not published its configuration", key)
	}
	if err == nil {
		_, err = parseClusterConfig(entry.Value, own)
	}
	if err != nil {
		text := printable.Line(err.Error())
		fmt.Fprintf(w, "  FAILED  configuration of the cluster: %s\n", text)
		return errors.New(text)
	}
	fmt.Fprintf(w, "  ok      configuration of the cluster: %s\n", printable.Line(string(entry.Value)))
	return nil
}
