// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package release

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
)

// whyCommand has the command why know the release.
var whyCommand command.Subcommand = func(h *hive.Hive) *cobra.Command {
	parent := &cobra.Command{Use: "why"}
	parent.AddCommand(&cobra.Command{
		Use: "release", Short: "Say which release of Cilium counts, how that is known, and what depends on it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.Prepare(cmd, h); err != nil {
				return err
			}
			return writeWhy(cmd.OutOrStdout(), Find(h.Values()))
		},
	})
	return parent
}

// writeWhy writes the release that counts for the cluster, and its answers to all questions.
func writeWhy(w io.Writer, c Configured) error {
	fmt.Fprintf(w, "The cluster counts as one of %s, known by %s.\n", c.Release, c.KnownBy)
	fmt.Fprintln(w, "What depends on the agent of a node follows the release of that agent: the version of its image, or the label of its pod.")
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RULE\tANSWER\tQUESTION")
	for _, f := range Facts() {
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Source, f.Answers[c.Release.index()], f.Text)
	}
	return t.Flush()
}
