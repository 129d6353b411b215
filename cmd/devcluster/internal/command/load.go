// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skep-operator/skep/cmd/devcluster/internal/controlplane"
	"github.com/skep-operator/skep/cmd/devcluster/internal/load"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// loadFlags say what is loaded.
type loadFlags struct {
	size                   string
	nodes, pods, labelSets int
	seed                   uint64
	converged, identities  bool
	without                []string
}

func (f *loadFlags) add(flags *pflag.FlagSet, sizeFlag, size, usage string) {
	flags.StringVar(&f.size, sizeFlag, size, usage)
	flags.IntVar(&f.nodes, "nodes", 0, "how many nodes to load, instead of the size's")
	flags.IntVar(&f.pods, "pods", 0, "how many pods to load, instead of the size's")
	flags.IntVar(&f.labelSets, "label-sets", 0, "how many different label sets the pods have, instead of 9 of 80")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of everything that looks random in a load")
	flags.BoolVar(&f.converged, "converged", false, "load what an operator would have made: pod CIDRs and CiliumIdentities")
	flags.BoolVar(&f.identities, "identities", false, "load CiliumIdentities, but no pod CIDRs")
	flags.StringSliceVar(&f.without, "without", nil, "kinds to leave out of the load, such as ciliumendpoints")
}

func (f *loadFlags) asked() bool { return f.size != "" || f.nodes != 0 || f.pods != 0 }

func (f *loadFlags) options() (*load.Options, error) {
	size, err := load.ParseSize(f.size, f.nodes, f.pods, f.labelSets)
	if err != nil {
		return nil, err
	}
	return &load.Options{Size: size, Seed: f.seed, Converged: f.converged, Identities: f.identities, Without: f.without}, nil
}

// Load fills a running devcluster.
func Load() *cobra.Command {
	var (
		dir        string
		flags      loadFlags
		throughAPI bool
	)
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Fill a running devcluster with nodes, workloads, pods and endpoints",
		Long: `Writes namespaces, nodes, CiliumNodes, Deployments with ReplicaSets, DaemonSets,
pods, services with EndpointSlices, and CiliumEndpoints. The same seed gives the
same objects. They go straight into etcd, encoded as the API server stores them.
Missing definitions of custom resources are installed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := controlplane.LogTo(io.Discard); err != nil {
				return err
			}
			opts, err := flags.options()
			if err != nil {
				return err
			}
			info, err := control.ReadInfo(dir)
			if err != nil {
				return err
			}
			ctx, cancel := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer cancel()
			progress := load.NewProgress(cmd.ErrOrStderr())
			start := time.Now()
			if err := loadInto(ctx, info, *opts, throughAPI, progress); err != nil {
				return errors.Join(err, context.Cause(ctx)) // a signal, perhaps
			}
			fmt.Fprintf(cmd.OutOrStdout(), "loaded %v in %.1f s\n", opts.Size, time.Since(start).Seconds())
			return nil
		},
	}
	f := cmd.Flags()
	addDir(f, &dir)
	flags.add(f, "size", "S", "S (1,000 nodes, 10,000 pods), M (2,000, 16,000) or L (5,000, 100,000)")
	f.BoolVar(&throughAPI, "through-api", false, "send requests to the API server instead of writing into etcd what it would store: slow, the same objects")
	return cmd
}

func loadInto(ctx context.Context, info control.Info, opts load.Options, throughAPI bool, progress *load.Progress) error {
	client := control.NewClient(info)
	defer client.Close()
	kubeconfig, err := client.Kubeconfig(ctx, control.Kubeconfig{User: controlplane.LoaderUser, Groups: []string{controlplane.MastersGroup}})
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("load the kubeconfig: %w", err)
	}
	if throughAPI {
		return load.ThroughAPI(ctx, config, opts, progress)
	}
	if err := load.InstallCRDs(ctx, config); err != nil {
		return err
	}
	store, err := clientv3.New(clientv3.Config{Endpoints: info.Etcd.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("make an etcd client: %w", err)
	}
	defer store.Close()
	return load.Direct(ctx, store, opts, progress)
}
