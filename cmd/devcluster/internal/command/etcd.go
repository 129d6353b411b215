// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/cmd/devcluster/internal/cluster"
	"github.com/skep-operator/skep/cmd/devcluster/internal/etcd"
)

// Etcd runs an etcd without a control plane.
func Etcd() *cobra.Command {
	var (
		flags runFlags
		opts  = cluster.Options{EtcdProcesses: true}
	)
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Run a real etcd cluster until SIGINT or SIGTERM",
		Long: `Runs etcd members as processes of their own, which the control API can pause,
kill and start again, each behind a fault proxy.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd.OutOrStdout(), opts)
		},
	}
	f := cmd.Flags()
	flags.add(f)
	f.IntVar(&opts.EtcdMembers, "members", 1, "how many members")
	f.BoolVar(&opts.EtcdTLS, "tls", false, "serve TLS and ask clients for certificates")
	f.BoolVar(&opts.EtcdAuth, "auth", false, "ask clients for the user root and a password")
	return cmd
}

// EtcdMember is the process of one etcd member.
func EtcdMember() *cobra.Command {
	return &cobra.Command{
		Use:    etcd.MemberCommand + " FILE",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer cancel()
			return etcd.RunMember(ctx, args[0])
		},
	}
}
