// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/cmd/devcluster/internal/cluster"
	"github.com/skep-operator/skep/cmd/devcluster/internal/load"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// Up runs a control plane.
func Up() *cobra.Command {
	var (
		flags   runFlags
		opts    = cluster.Options{ControlPlane: true}
		watched = true
		loaded  loadFlags
		detach  bool
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run etcd, kube-apiserver and kube-controller-manager until SIGINT or SIGTERM",
		Long: `Runs a real control plane on loopback: etcd, kube-apiserver with RBAC and an
audit log, kube-controller-manager with the controllers that need no kubelet,
and a fault proxy in front of the API server and of each etcd member.

control.json in the directory says where everything is.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(auditLevels, opts.AuditLevel) {
				return fmt.Errorf("--audit-level=%s: use one of %s", opts.AuditLevel, strings.Join(auditLevels, ", "))
			}
			if detach {
				return detached(cmd.OutOrStdout(), flags.dir)
			}
			if !watched {
				opts.FeatureGates = strings.Trim(opts.FeatureGates+",WatchList=false", ",")
			}
			if loaded.asked() {
				var err error
				if opts.Load, err = loaded.options(); err != nil {
					return err
				}
				opts.Progress = load.NewProgress(cmd.ErrOrStderr())
			}
			return flags.run(cmd.OutOrStdout(), opts)
		},
	}
	f := cmd.Flags()
	flags.add(f)
	f.IntVar(&opts.EtcdMembers, "etcd-members", 1, "how many etcd members; more than one are processes of their own")
	f.StringVar(&opts.AuditLevel, "audit-level", "Metadata", "how much of a request the audit log tells: "+strings.Join(auditLevels, ", "))
	f.StringVar(&opts.FeatureGates, "feature-gates", "", "feature gates of both components, as Name=true,Name=false")
	f.BoolVar(&watched, "watch-list", true, "whether the API server can stream initial state (feature gate WatchList)")
	f.BoolVar(&opts.EtcdThroughProxies, "etcd-through-proxies", false, "send the API server to etcd through the members' fault proxies")
	loaded.add(f, "load", "", "write a load straight into etcd before the API server starts, of size S, M or L")
	f.BoolVar(&detach, "detach", false, "leave it running in the background once it is ready; stop it with `devcluster down`")
	return cmd
}

var auditLevels = []string{"Metadata", "Request", "RequestResponse"}

// describe says in a line where a devcluster is.
func describe(info control.Info) string {
	if info.APIServer == "" {
		return "etcd at " + strings.Join(info.Etcd.Endpoints(), ",")
	}
	return fmt.Sprintf("API server at %s, kubeconfig %s, through the fault proxy %s",
		info.APIServer, info.Kubeconfig, info.ProxyKubeconfig)
}
