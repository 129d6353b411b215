// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// Down stops a devcluster that runs elsewhere.
func Down() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the devcluster of a directory and wait until it is gone",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			return down(ctx, dir)
		},
	}
	addDir(cmd.Flags(), &dir)
	return cmd
}

func down(ctx context.Context, dir string) error {
	info, err := control.ReadInfo(dir)
	if err != nil {
		return err
	}
	client := control.NewClient(info)
	defer client.Close()
	if err := client.Shutdown(ctx); err != nil {
		return fmt.Errorf("%w: if it was killed, remove %s in %s", err, control.InfoFile, dir)
	}
	for {
		// A devcluster takes the file back as its last act.
		if _, err := control.ReadInfo(dir); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("devcluster %d does not stop: %w", info.PID, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
