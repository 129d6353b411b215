// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
)

// rbacCommand prints the least role for the selected cells.
var rbacCommand command.Subcommand = func(h *hive.Hive) *cobra.Command {
	var name string
	var optional bool
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the least ClusterRole for the cells that are on, as YAML",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.Prepare(cmd, h); err != nil {
				return err
			}
			text, err := yaml.Marshal(LeastRole(name, h.Graph(), optional))
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "role-name", "cilium-operator", "Name of the ClusterRole")
	cmd.Flags().BoolVar(&optional, "optional", true, "Include permissions that are used where they are given, and not needed")
	return cmd
}
