// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Command devcluster runs a real local Kubernetes control plane in one process,
// with a fault proxy in front of it, for development and tests.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/cmd/devcluster/internal/command"
)

func main() {
	root := &cobra.Command{
		Use:           "devcluster",
		Short:         "A real local Kubernetes control plane for development and tests",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		command.Up(),
		command.Load(),
		command.Down(),
		command.Kubeconfig(),
		command.Etcd(),
		command.EtcdMember(),
	)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
}
