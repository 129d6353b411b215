// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// Kubeconfig prints the kubeconfig of a user.
func Kubeconfig() *cobra.Command {
	var (
		dir     string
		ask     control.Kubeconfig
		proxied bool
	)
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig of the administrator, a user or a service account",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if proxied {
				ask.Proxy = control.BackendAPIServer
			}
			info, err := control.ReadInfo(dir)
			if err != nil {
				return err
			}
			client := control.NewClient(info)
			defer client.Close()
			path, err := client.Kubeconfig(cmd.Context(), ask)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("read the kubeconfig: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	f := cmd.Flags()
	addDir(f, &dir)
	f.StringVar(&ask.User, "user", "", "user name of a new client certificate")
	f.StringSliceVar(&ask.Groups, "groups", nil, "groups of the user")
	f.StringVar(&ask.ServiceAccount, "service-account", "", "namespace/name of a service account; its token is valid for a year")
	f.BoolVar(&proxied, "proxy", false, "lead through the fault proxy")
	return cmd
}
